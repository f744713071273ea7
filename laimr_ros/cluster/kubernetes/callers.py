"""Who calls, and whether they may: delegated to the API server, as its own extensions do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import hashlib
import json
import logging
import time
from typing import Any

from laimr_ros.cluster.kubernetes.access import Access

_logger = logging.getLogger(__name__)

_CONFIGURATION = '/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication'
_TOKEN_REVIEWS = '/apis/authentication.k8s.io/v1/tokenreviews'
_ACCESS_REVIEWS = '/apis/authorization.k8s.io/v1/subjectaccessreviews'
# How long a decision is remembered, and how many.
_REMEMBER_S = 10.0
_REMEMBERED = 1000


@dataclass(frozen=True)
class Caller:
    """
    Who calls.

    :param user: name.
    :param groups: of the user.
    """

    user: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class FrontProxy:
    """
    How the API server shows itself when it passes a request on.

    :param authority: certificates that vouch for it, PEM.
    :param names: that its certificate may have; empty for any.
    :param user_headers: that say who calls.
    :param group_headers: that say in which groups.
    """

    authority: str
    names: tuple[str, ...]
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]


class Callers:
    """
    Find out who calls, and whether they may.

    :param access: the API server that is asked.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._decisions: dict[Any, tuple[float, Any]] = {}
        #: How the API server shows itself; None while that is not known.
        self.front_proxy: FrontProxy | None = None

    async def read_front_proxy(self) -> bool:
        """
        Read how the API server shows itself; return whether that has changed.

        :raises ApiError: if it cannot be read.
        """
        data = (await self._access.request('GET', _CONFIGURATION)).get('data') or {}
        authority = data.get('requestheader-client-ca-file') or ''
        found = None
        if authority:
            found = FrontProxy(
                authority, _strings(data, 'requestheader-allowed-names'),
                _strings(data, 'requestheader-username-headers'),
                _strings(data, 'requestheader-group-headers'))
        changed = found != self.front_proxy
        self.front_proxy = found
        return changed

    async def identify(
        self, certificate: Mapping[str, Any] | None, headers: Any,
    ) -> Caller | None:
        """
        Return who calls; None if they do not prove it.

        :param certificate: of the client, verified against the front proxy's authority, as
            ``getpeercert`` gives it; None or empty if there is none.
        :param headers: of the request; must have ``get`` and ``getall``.
        :raises ApiError: if the API server cannot be asked.
        """
        proxy = self.front_proxy
        if certificate and proxy is not None and self._is_proxy(certificate, proxy):
            for name in proxy.user_headers:
                if headers.get(name):
                    groups = tuple(
                        group for header in proxy.group_headers
                        for group in headers.getall(header, []))
                    return Caller(headers.get(name), groups)
        kind, _, token = headers.get('Authorization', '').partition(' ')
        if kind.lower() == 'bearer' and token.strip():
            return await self._review_token(token.strip())
        return None

    async def may(
        self, caller: Caller, verb: str, path: str, resource: Mapping[str, str] | None,
    ) -> bool:
        """
        Return whether a caller may do something.

        :param verb: of the API, such as ``list``.
        :param path: of the request, for what is no resource.
        :param resource: ``group``, ``version``, ``resource`` and ``namespace``, or None.
        :raises ApiError: if the API server cannot be asked.
        """
        key = (caller, verb, path if resource is None else tuple(sorted(resource.items())))
        known = self._recall(key)
        if known is not None:
            return bool(known)
        what = (
            {'nonResourceAttributes': {'path': path, 'verb': verb}} if resource is None
            else {'resourceAttributes': {**resource, 'verb': verb}})
        review = await self._access.request('POST', _ACCESS_REVIEWS, body={
            'apiVersion': 'authorization.k8s.io/v1', 'kind': 'SubjectAccessReview',
            'spec': {'user': caller.user, 'groups': list(caller.groups), **what}})
        status = review.get('status') or {}
        allowed = bool(status.get('allowed')) and not status.get('denied')
        self._remember(key, allowed)
        return allowed

    @staticmethod
    def _is_proxy(certificate: Mapping[str, Any], proxy: FrontProxy) -> bool:
        names = [
            value for part in certificate.get('subject', ()) for key, value in part
            if key == 'commonName']
        return not proxy.names or any(name in proxy.names for name in names)

    async def _review_token(self, token: str) -> Caller | None:
        # The token itself is nothing to keep in memory.
        key = hashlib.sha256(token.encode()).digest()
        known = self._recall(key)
        if known is not None:
            return known or None
        review = await self._access.request('POST', _TOKEN_REVIEWS, body={
            'apiVersion': 'authentication.k8s.io/v1', 'kind': 'TokenReview',
            'spec': {'token': token}})
        status = review.get('status') or {}
        user = status.get('user') or {}
        caller = None
        if status.get('authenticated') and user.get('username'):
            caller = Caller(user['username'], tuple(user.get('groups') or ()))
        self._remember(key, caller or False)
        return caller

    def _recall(self, key: object) -> Any:
        found = self._decisions.get(key)
        return found[1] if found is not None and time.monotonic() < found[0] else None

    def _remember(self, key: object, decision: object) -> None:
        if len(self._decisions) >= _REMEMBERED:
            self._decisions.clear()
        self._decisions[key] = (time.monotonic() + _REMEMBER_S, decision)


def _strings(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        return tuple(str(value) for value in json.loads(data.get(key) or '[]'))
    except (ValueError, TypeError):
        _logger.warning('%s is no list: %r', key, data.get(key))
        return ()


