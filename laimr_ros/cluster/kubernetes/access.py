"""Requests to an API server: JSON in, JSON out, and streams of watch events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
import json
import logging
import os
import socket
import time
from typing import Any

import aiohttp
from laimr_ros.cluster.kubernetes.credentials import Credentials, load, Source
from laimr_ros.cluster.kubernetes.errors import ApiError, CredentialsError, from_reply

_logger = logging.getLogger(__name__)

MERGE_PATCH = 'application/merge-patch+json'
# An answer that takes longer is none.
_REPLY_S = 5.0
_CONNECT_S = 3.0
# No single object of an API server is larger (etcd refuses them at 1.5 MB).
_LONGEST_LINE = 16_000_000
# Without a word from the other side for 10 s ask the kernel's question, and give up after 25 s: a
# watch says nothing for minutes where nothing happens, and so does one whose server lost power.
_KEEP_ALIVE = (10, 5, 3)


class Access:
    """
    Talk to one API server. To be used in one event loop.

    Credentials are read again when the server no longer takes them, and tokens whenever their
    file or program gives new ones.

    :param source: where credentials come from.
    :param credentials: what was read from there first.
    """

    def __init__(self, source: Source, credentials: Credentials) -> None:
        self.server = credentials.server
        self._source = source
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        #: Since when the server has not answered (monotonic seconds); None while it does.
        self.away_since: float | None = None
        #: Why it does not answer.
        self.away_reason = ''

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None,
        body: object = None, content_type: str = 'application/json', timeout_s: float = _REPLY_S,
    ) -> dict[str, Any]:
        """
        Return the answer to one request.

        :param path: beginning with ``/``.
        :param timeout_s: for the whole of it, in seconds.
        :raises ApiError: if there is none, or it is not success.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {'Accept': 'application/json'}
        if data is not None:
            headers['Content-Type'] = content_type
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=_CONNECT_S)
        for last in (False, True):
            async with await self._send(method, path, query, data, headers, timeout) as response:
                try:
                    content = await response.read()
                except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
                    raise self._no_answer(error, timeout_s) from None
                if response.status == 401 and not last and await self._renew():
                    continue
                if not 200 <= response.status < 300:
                    failure = from_reply(response.status, response.headers, content)
                    self._note(failure)
                    raise failure
            try:
                found = json.loads(content)
            except ValueError:
                raise ApiError(0, f'{self.server} does not answer in JSON') from None
            self._note(None)
            return found if isinstance(found, dict) else {}
        raise AssertionError  # the second round returns or raises

    async def stream(
        self, path: str, query: Mapping[str, str], silence_s: float,
        opened: Callable[[], None],
    ) -> AsyncIterator[dict[str, Any]]:
        """
        Yield the JSON objects of a reply that goes on, one a line, until the server ends it.

        :param silence_s: longest time without a byte, in seconds.
        :param opened: called when the reply has begun.
        :raises ApiError: if it cannot be had, or ends in the middle of a line.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, connect=_CONNECT_S, sock_read=silence_s)
        headers = {'Accept': 'application/json'}
        for last in (False, True):
            async with await self._send('GET', path, query, None, headers, timeout) as response:
                if response.status == 401 and not last and await self._renew():
                    continue
                if response.status != 200:
                    error = from_reply(
                        response.status, response.headers, await response.content.read(10_000))
                    self._note(error)
                    raise error
                self._note(None)
                opened()
                buffer = b''
                try:
                    async for chunk in response.content.iter_any():
                        *lines, buffer = (buffer + chunk).split(b'\n')
                        for line in lines:
                            if line.strip():
                                yield _parse(line)
                        if len(buffer) > _LONGEST_LINE:
                            raise ApiError(0, f'{path}: a line of more than 16 MB')
                except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
                    raise self._no_answer(error, silence_s) from None
                if buffer.strip():
                    # Half an object, or a whole one without its line end: read again from before.
                    raise ApiError(0, f'{path}: the stream was cut off')
                return

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send(
        self, method: str, path: str, query: Mapping[str, str] | None, data: bytes | None,
        headers: Mapping[str, str], timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        credentials = self._credentials
        try:
            # In a thread: it may have to run a program.
            mine = await asyncio.to_thread(credentials.headers)
            return await self._connected().request(
                method, credentials.server + path, params=query, data=data,
                headers={**headers, **mine}, timeout=timeout, proxy=credentials.proxy,
                server_hostname=credentials.server_hostname,
                allow_redirects=False)
        except CredentialsError as error:
            raise ApiError(401, str(error), 'Unauthorized') from None
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise self._no_answer(error, timeout.total or _CONNECT_S) from None

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                ssl=self._credentials.tls if self._credentials.tls is not None else True,
                socket_factory=_make_socket, limit=0)
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=True, raise_for_status=False)
        return self._session

    async def _renew(self) -> bool:
        """Read the credentials again; return whether they can be used."""
        try:
            self._credentials = await asyncio.to_thread(load, self._source)
        except CredentialsError as error:
            _logger.warning('%s', error)
            return False
        self.server = self._credentials.server
        old, self._session = self._session, None
        if old is not None:
            # Not at once: streams of other tasks still hang on it.
            asyncio.get_running_loop().call_later(
                10.0, lambda: asyncio.ensure_future(old.close()))
        return True

    def _no_answer(self, error: BaseException, timeout_s: float) -> ApiError:
        if isinstance(error, asyncio.TimeoutError):
            text = f'no reply within {timeout_s:g} s'
        elif isinstance(error, aiohttp.ClientConnectorCertificateError):
            text = f'its certificate cannot be trusted: {error.certificate_error}'
        elif isinstance(error, aiohttp.ClientConnectorError):
            cause = error.os_error
            # asyncio's own words for a refused connection are longer and say less.
            text = os.strerror(cause.errno) if cause.errno and cause.errno > 0 else str(cause)
        else:
            text = ' '.join(str(error).split()) or type(error).__name__
        found = ApiError(0, f'{self.server}: {text}')
        self._note(found)
        return found

    def _note(self, error: ApiError | None) -> None:
        """Keep account of whether the server is there."""
        if error is not None and error.unreachable:
            if self.away_since is None:
                self.away_since = time.monotonic()
            self.away_reason = str(error)
        else:
            self.away_since = None
            self.away_reason = ''


def _parse(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ApiError(0, f'not JSON in a stream: {line[:60]!r}')
    return found


def _make_socket(info: Any) -> socket.socket:
    family, kind, proto, _, _ = info
    made = socket.socket(family, kind, proto)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle, interval, count = _KEEP_ALIVE
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)
    # Keep-alive does not watch over data that is on its way.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (idle + interval * count))
    return made
