"""The external metrics API: an autoscaler asks it how many replicas there should be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timezone
import logging
import socket
import ssl
import time
from typing import TYPE_CHECKING

from aiohttp import web
from laimr_ros.cluster.kubernetes.access import Access
from laimr_ros.cluster.kubernetes.board import Board
from laimr_ros.cluster.kubernetes.callers import Callers
from laimr_ros.cluster.kubernetes.certificates import ServingCertificate
from laimr_ros.cluster.kubernetes.errors import ApiError
from laimr_ros.cluster.kubernetes.listen import parse_listen
from laimr_ros.cluster.kubernetes.selector import matches

if TYPE_CHECKING:
    from laimr_ros.cluster.kubernetes.replicas import ClusterConfig

_logger = logging.getLogger(__name__)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

GROUP = 'external.metrics.k8s.io'
VERSION = 'v1beta1'
#: The metric's name; its label ``pool`` says which number.
METRIC = 'laimr_desired_replicas'
_ROOT = f'/apis/{GROUP}/{VERSION}'
# How often to look at the certificate's files and at how the API server shows itself.
_LOOK_S = 2.0
_PROXY_S = 60.0


class ExternalMetricsServer:
    """
    Serve the numbers of replicas wanted, to whom the API server says that may know.

    A number that is too old is not served at all: an autoscaler then holds.

    :param access: the API server that decides about callers.
    :param board: the numbers.
    :param pools: the pools offered, with their namespaces.
    :param config: where to listen, and with which certificate.
    :raises ValueError: if the certificate cannot be used.
    """

    def __init__(
        self, access: Access, board: Board, pools: Mapping[str, str], config: ClusterConfig,
    ) -> None:
        self._callers = Callers(access)
        self._board = board
        self._pools = dict(pools)
        self._address = parse_listen(config.metrics_listen, 'metrics_listen')
        self._certificate = ServingCertificate(
            config.tls_cert_file, config.tls_key_file, ('laimr-bridge', 'localhost'))
        self._context = self._make_context()
        self._complaint = ''
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Return the port that is listened on."""
        return self._address[1]

    async def start(self) -> None:
        """Listen. :raises ValueError: if that is not possible."""
        application = web.Application(middlewares=[self._check])
        application.router.add_get('/healthz', self._healthz)
        application.router.add_get('/apis', self._groups)
        application.router.add_get(f'/apis/{GROUP}', self._group)
        application.router.add_get(_ROOT, self._resources)
        application.router.add_get(f'{_ROOT}/namespaces/{{namespace}}/{{metric}}', self._values)
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        await self._read_front_proxy()
        await self._listen()
        self._keeper = asyncio.ensure_future(self._keep())
        _logger.info('external metrics are served on %s:%d', *self._address)

    async def close(self) -> None:
        """Stop."""
        if self._keeper is not None:
            self._keeper.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _listen(self) -> None:
        assert self._runner is not None
        if self._site is not None:
            await self._site.stop()
        host, port = self._address
        try:
            listening = socket.create_server(
                (host, port), family=socket.AF_INET6 if ':' in host else socket.AF_INET)
        except OSError as error:
            raise ValueError(
                f'metrics_listen: {host}:{port} cannot be listened on: {error.strerror}; choose '
                'another port') from None
        self._address = (host, listening.getsockname()[1])
        self._site = web.SockSite(self._runner, listening, ssl_context=self._context)
        await self._site.start()

    def _make_context(self) -> ssl.SSLContext:
        context = self._certificate.context()
        if self._callers.front_proxy is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=self._callers.front_proxy.authority)
        return context

    async def _keep(self) -> None:
        """Follow changes of the certificate, and of how the API server shows itself."""
        look_again_at = time.monotonic() + _PROXY_S
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._certificate.changed():
                self._certificate.load_into(self._context)
            if time.monotonic() >= look_again_at or self._complaint:
                look_again_at = time.monotonic() + _PROXY_S
                if await self._read_front_proxy():
                    try:
                        # An authority once trusted cannot be taken out of a context.
                        await self._listen()
                    except ValueError as error:
                        _logger.error('%s', error)

    async def _read_front_proxy(self) -> bool:
        try:
            changed = await self._callers.read_front_proxy()
            self._complaint = ''
        except ApiError as error:
            changed = False
            if str(error) != self._complaint:
                _logger.warning(
                    'cannot learn how the API server shows itself, so autoscalers are refused: '
                    '%s', error)
                self._complaint = str(error)
        if changed:
            self._context = self._make_context()
        return changed

    @web.middleware
    async def _check(
        self, request: web.Request, handler: _Handler,
    ) -> web.StreamResponse:
        if request.path == '/healthz':
            return await handler(request)
        transport = request.transport
        tls = transport.get_extra_info('ssl_object') if transport is not None else None
        try:
            caller = await self._callers.identify(
                tls.getpeercert() if tls is not None else None, request.headers)
            if caller is None:
                return _status(401, 'Unauthorized', 'Unauthorized')
            resource = None
            if 'metric' in request.match_info:
                resource = {
                    'group': GROUP, 'version': VERSION, 'resource': request.match_info['metric'],
                    'namespace': request.match_info['namespace']}
            verb = 'get' if resource is None else 'list'
            if not await self._callers.may(caller, verb, request.path, resource):
                return _status(403, 'Forbidden', f'{caller.user!r} may not {verb} {request.path}')
        except ApiError as error:
            return _status(503, 'ServiceUnavailable', f'cannot ask who may: {error}')
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return _status(404, 'NotFound', f'there is no {request.path}')

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text='ok')

    async def _groups(self, request: web.Request) -> web.Response:
        return web.json_response(
            {'kind': 'APIGroupList', 'apiVersion': 'v1', 'groups': [_GROUP_OBJECT]})

    async def _group(self, request: web.Request) -> web.Response:
        return web.json_response({'kind': 'APIGroup', 'apiVersion': 'v1', **_GROUP_OBJECT})

    async def _resources(self, request: web.Request) -> web.Response:
        return web.json_response({
            'kind': 'APIResourceList', 'apiVersion': 'v1', 'groupVersion': f'{GROUP}/{VERSION}',
            'resources': [{
                'name': METRIC, 'singularName': '', 'namespaced': True,
                'kind': 'ExternalMetricValueList', 'verbs': ['get', 'list']}]})

    async def _values(self, request: web.Request) -> web.Response:
        namespace, metric = request.match_info['namespace'], request.match_info['metric']
        if metric != METRIC:
            return _status(404, 'NotFound', f'there is no metric {metric}, only {METRIC}')
        selector = request.query.get('labelSelector', '')
        items = []
        try:
            for pool, home in self._pools.items():
                number = self._board.get(pool)
                labels = {'pool': pool}
                if home == namespace and number is not None and matches(selector, labels):
                    items.append({
                        'metricName': METRIC, 'metricLabels': labels, 'value': str(number),
                        'timestamp': datetime.now(timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')})
        except ValueError as error:
            return _status(400, 'BadRequest', str(error))
        return web.json_response({
            'kind': 'ExternalMetricValueList', 'apiVersion': f'{GROUP}/{VERSION}',
            'metadata': {}, 'items': items})


_GROUP_OBJECT = {
    'name': GROUP,
    'versions': [{'groupVersion': f'{GROUP}/{VERSION}', 'version': VERSION}],
    'preferredVersion': {'groupVersion': f'{GROUP}/{VERSION}', 'version': VERSION},
}


def _status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response({
        'kind': 'Status', 'apiVersion': 'v1', 'metadata': {}, 'status': 'Failure',
        'reason': reason, 'message': message, 'code': code}, status=code)
