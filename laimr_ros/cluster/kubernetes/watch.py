"""A copy of the objects of one list, kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
import logging
import random
import time
from typing import Any, Protocol

from laimr_ros.cluster.backoff import Backoff
from laimr_ros.cluster.kubernetes.access import Access
from laimr_ros.cluster.kubernetes.errors import ApiError

_logger = logging.getLogger(__name__)

Object = dict[str, Any]

# The server ends a watch after so long, which spreads the watchers over its replicas again.
_WATCH_S = 290
# It sends a bookmark every minute or so; a stream silent for longer than this is dead.
_SILENCE_S = 310.0
# A watch that ended after less is counted as a failure, lest a broken proxy has us run in circles.
_SHORT_S = 1.0
# After so many failures in a row everything is listed again.
_GIVE_UP = 4


class Listener(Protocol):
    """What happens to the copy; called in the event loop."""

    def seen(self, item: Object, *, listed: bool) -> None:
        """
        Take an object that is new or has changed.

        :param listed: whether it comes from a list, so that when it changed is not known.
        """

    def gone(self, item: Object) -> None:
        """Take an object's last state."""

    def settled(self) -> None:
        """Act on what was told: a list or an event is complete."""


class ObjectWatch:
    """
    List, then watch, from where the list ended; again and again, for ever.

    A watch that ends is taken up where it ended. Only when the server has forgotten that place
    (410) is everything listed again. Failures back off and keep what is known.

    :param access: the API server.
    :param path: of the list.
    :param query: selectors.
    :param listener: is told what happens.
    :param max_backoff_s: longest pause between attempts, in seconds.
    """

    def __init__(
        self, access: Access, path: str, query: Mapping[str, str], listener: Listener,
        max_backoff_s: float = 2.0,
    ) -> None:
        self._access = access
        self._path = path
        self._query = dict(query)
        self._listener = listener
        self._backoff = Backoff(0.1, max_backoff_s)
        self._version = ''
        self._objects: dict[str, Object] = {}
        #: Whether it has ever listed.
        self.listed = False
        #: What keeps it from being up to date; None if nothing does.
        self.trouble: ApiError | None = None
        #: How often everything was listed.
        self.lists = 0

    async def run(self) -> None:
        """Keep the copy until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                began = time.monotonic()
                await self._follow()
                if time.monotonic() - began < _SHORT_S:
                    raise ApiError(0, f'{self._path}: the watch ended at once')
                self._backoff.reset()
            except ApiError as error:
                await self._pause(error)

    async def _pause(self, error: ApiError) -> None:
        delay = self._backoff.failed()
        if error.status == 410 or self._backoff.failures >= _GIVE_UP:
            # If something on the way from that place cannot be read, a list goes around it.
            self._version = ''
        if error.status in (403, 404):
            # Somebody has to do something about it first.
            delay = max(delay, 1.0)
        # Many watchers of a server that came back must not all call in the same instant.
        delay = max(error.retry_after_s, delay * random.uniform(0.7, 1.0))
        # A stream that ends once, or a place forgotten meanwhile, is what watches are like.
        usual = self._backoff.failures <= {0: 1, 410: 2}.get(error.status, 0)
        if not usual:
            if self.trouble is None:
                _logger.warning('cannot watch %s: %s', self._path, error)
            self.trouble = error
            self._listener.settled()
        await asyncio.sleep(delay)

    def _well(self) -> None:
        if self.trouble is not None:
            _logger.info('watching %s again', self._path)
            self.trouble = None

    async def _list(self) -> None:
        found = await self._access.request('GET', self._path, query=self._query)
        self.lists += 1
        items = {item['metadata']['uid']: item for item in found.get('items') or []}
        for uid in [uid for uid in self._objects if uid not in items]:
            self._listener.gone(self._objects.pop(uid))
        for uid, item in items.items():
            known = self._objects.get(uid)
            if known is None or _version(known) != _version(item):
                self._objects[uid] = item
                self._listener.seen(item, listed=True)
        self._version = (found.get('metadata') or {}).get('resourceVersion') or ''
        self.listed = True
        self._well()
        self._listener.settled()

    async def _follow(self) -> None:
        query = {
            **self._query, 'watch': '1', 'allowWatchBookmarks': 'true',
            'timeoutSeconds': str(_WATCH_S), 'resourceVersion': self._version,
        }
        async for event in self._access.stream(self._path, query, _SILENCE_S, self._well):
            kind, item = event.get('type'), event.get('object') or {}
            if kind == 'ERROR':
                raise ApiError(
                    int(item.get('code') or 500),
                    str(item.get('message') or 'the watch failed'), str(item.get('reason') or ''))
            self._version = _version(item) or self._version
            self._backoff.reset()
            if kind == 'BOOKMARK':
                continue
            uid = item['metadata']['uid']
            if kind == 'DELETED':
                self._objects.pop(uid, None)
                self._listener.gone(item)
            else:
                self._objects[uid] = item
                self._listener.seen(item, listed=False)
            self._listener.settled()


def _version(item: Object) -> str:
    return str((item.get('metadata') or {}).get('resourceVersion') or '')
