"""A small API server of our own, which can be told to misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
import json
from pathlib import Path
import threading
import time
from typing import Any

from aiohttp import web
import yaml

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
WORKLOAD = 'edge'
LABELS = {'app': 'edge'}


def status(code: int, reason: str = '', message: str = 'as told', **headers: str) -> Fault:
    """Return a fault that answers with a Status object."""
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(
            {'kind': 'Status', 'code': code, 'reason': reason, 'message': message},
            status=code, headers={k.replace('_', '-'): v for k, v in headers.items()})
    return answer


def slow(seconds: float) -> Fault:
    """Return a fault that delays the right answer."""
    async def answer(request: web.Request) -> None:
        await asyncio.sleep(seconds)
    return answer


class FakeApi:
    """
    One Deployment and its pods, behind the API that the bridge uses.

    What is asked stands in ``requests`` as (monotonic seconds, method, path, query). A fault set
    with ``misbehave`` answers in place of the server, so many times.
    """

    def __init__(self) -> None:
        """Start to serve on a free port of this host."""
        self.requests: list[tuple[float, str, str, dict[str, str]]] = []
        self.version = 10
        self.replicas = 1
        self.pods: dict[str, dict[str, Any]] = {}
        self.tokens = {'good'}
        self.lease: dict[str, Any] | None = None
        #: Versions before this one are forgotten: a watch from there gets 410.
        self.oldest = 0
        self._events: list[tuple[int, str, str, dict[str, Any]]] = []
        self._faults: list[list[Any]] = []
        self._streams: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = self.call(self._start())

    def call(self, work: Any) -> Any:
        """Run something in the server's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)

    def close(self) -> None:
        """Stop."""
        self.cut_streams()
        self.call(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()

    def kubeconfig(self, directory: Path, token: str = 'good', token_file: str = '') -> str:
        """Write a kubeconfig; return its path."""
        path = directory / f'kubeconfig-{token}'
        user = {'tokenFile': token_file} if token_file else {'token': token}
        path.write_text(yaml.safe_dump({
            'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'fake',
            'clusters': [{'name': 'fake', 'cluster': {
                'server': f'http://127.0.0.1:{self.port}'}}],
            'users': [{'name': 'me', 'user': user}],
            'contexts': [{'name': 'fake', 'context': {'cluster': 'fake', 'user': 'me'}}]}))
        return str(path)

    def misbehave(self, method: str, part: str, fault: Fault, times: int = 1) -> None:
        """Have requests of a method, with something in path and query, meet a fault."""
        self._faults.append([method, part, fault, times])

    def behave(self) -> None:
        """Forget all faults."""
        self._faults.clear()

    def count(self, method: str, part: str) -> int:
        """Return how often something was asked."""
        return len(self.times(method, part))

    def times(self, method: str, part: str) -> list[float]:
        """Return when something was asked."""
        return [
            at for at, m, path, query in self.requests
            if m == method and part in path + '?' + '&'.join(f'{k}={v}' for k, v in query.items())]

    def set_replicas(self, count: int) -> None:
        """Change the Deployment by hand."""
        self.call(self._set_replicas(count))

    def set_pod(self, name: str, *, ready: bool) -> None:
        """Make a pod, or change it."""
        async def change() -> None:
            known = name in self.pods
            self.version += 1
            self.pods[name] = pod(name, ready=ready, version=self.version)
            self._tell('pods', 'MODIFIED' if known else 'ADDED', self.pods[name])
        self.call(change())

    def forget_pod_silently(self, name: str) -> None:
        """Delete a pod without telling those who watch."""
        async def change() -> None:
            self.version += 1
            del self.pods[name]
        self.call(change())

    def bookmark(self) -> None:
        """Tell watchers of pods how far they have come."""
        async def change() -> None:
            self.version += 1
            self._tell('pods', 'BOOKMARK', {
                'kind': 'Pod', 'metadata': {'resourceVersion': str(self.version)}})
        self.call(change())

    def send_raw(self, text: bytes, *, again: bool) -> None:
        """Send bytes to the watchers of pods, to those who come back again or not."""
        async def change() -> None:
            self.version += 1
            self._tell('pods', 'RAW', {'raw': text, 'again': again})
        self.call(change())

    def cut_streams(self) -> None:
        """Abort every watch, without a word."""
        async def cut() -> None:
            for task in self._streams:
                task.cancel()
        self.call(cut())

    # ----- in the server's thread

    async def _start(self) -> int:
        application = web.Application(middlewares=[self._meet])
        apps = '/apis/apps/v1/namespaces/default/deployments'
        application.router.add_get(apps, self._list_deployments)
        application.router.add_get(f'{apps}/{WORKLOAD}/scale', self._get_scale)
        application.router.add_patch(f'{apps}/{WORKLOAD}/scale', self._patch_scale)
        application.router.add_get('/api/v1/namespaces/default/pods', self._list_pods)
        application.router.add_get(
            '/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers', self._none)
        leases = '/apis/coordination.k8s.io/v1/namespaces/default/leases'
        application.router.add_post(leases, self._write_lease)
        application.router.add_get(f'{leases}/{{name}}', self._get_lease)
        application.router.add_put(f'{leases}/{{name}}', self._write_lease)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, '127.0.0.1', 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    @web.middleware
    async def _meet(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(
            (time.monotonic(), request.method, request.path, dict(request.query)))
        if request.headers.get('Authorization', '').removeprefix('Bearer ') not in self.tokens:
            return await status(401, 'Unauthorized', 'Unauthorized')(request)
        for entry in self._faults:
            method, part, fault, times = entry
            if method == request.method and part in request.path_qs and times:
                entry[3] -= 1
                answer = await fault(request)
                if answer is not None:
                    return answer
                break
        return await handler(request)

    def _deployment(self) -> dict[str, Any]:
        return {
            'metadata': {
                'name': WORKLOAD, 'uid': 'd', 'resourceVersion': str(self.version)},
            'spec': {
                'replicas': self.replicas, 'selector': {'matchLabels': LABELS},
                'template': {'metadata': {'labels': LABELS}}},
            'status': {}}

    async def _set_replicas(self, count: int) -> None:
        self.version += 1
        self.replicas = count
        self._tell('deployments', 'MODIFIED', self._deployment())

    async def _list_deployments(self, request: web.Request) -> web.StreamResponse:
        return await self._list(request, 'deployments', [self._deployment()])

    async def _list_pods(self, request: web.Request) -> web.StreamResponse:
        return await self._list(request, 'pods', list(self.pods.values()))

    async def _list(
        self, request: web.Request, kind: str, items: list[dict[str, Any]],
    ) -> web.StreamResponse:
        if 'watch' not in request.query:
            return web.json_response(
                {'metadata': {'resourceVersion': str(self.version)}, 'items': items})
        since = int(request.query['resourceVersion'])
        response = web.StreamResponse()
        await response.prepare(request)
        if since < self.oldest:
            await response.write(json.dumps({'type': 'ERROR', 'object': {
                'kind': 'Status', 'code': 410, 'reason': 'Expired',
                'message': 'too old resource version'}}).encode() + b'\n')
            return response
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        sent = since
        try:
            while True:
                news = self._news
                for version, of, what, item in list(self._events):
                    if version > sent and of == kind:
                        sent = version
                        if what == 'RAW' and not item['again']:
                            self._events.remove((version, of, what, item))
                        await response.write(
                            item['raw'] if what == 'RAW' else
                            json.dumps({'type': what, 'object': item}).encode() + b'\n')
                await news.wait()
        except asyncio.CancelledError:
            if request.transport is not None:
                request.transport.abort()
            return response
        finally:
            self._streams.discard(task)

    async def _get_scale(self, request: web.Request) -> web.Response:
        return web.json_response({
            'metadata': {'name': WORKLOAD, 'resourceVersion': str(self.version)},
            'spec': {'replicas': self.replicas}})

    async def _patch_scale(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body['metadata']['resourceVersion'] != str(self.version):
            return web.json_response(
                {'kind': 'Status', 'code': 409, 'reason': 'Conflict',
                 'message': 'the object has been modified'}, status=409)
        await self._set_replicas(body['spec']['replicas'])
        return await self._get_scale(request)

    async def _get_lease(self, request: web.Request) -> web.StreamResponse:
        if self.lease is None:
            return await status(404, 'NotFound')(request)  # type: ignore[return-value]
        return web.json_response(self.lease)

    async def _write_lease(self, request: web.Request) -> web.StreamResponse:
        lease = await request.json()
        known = self.lease['metadata']['resourceVersion'] if self.lease else None
        if lease['metadata'].get('resourceVersion') != known:
            return await status(409, 'Conflict')(request)  # type: ignore[return-value]
        self.version += 1
        lease['metadata']['resourceVersion'] = str(self.version)
        self.lease = lease
        return web.json_response(lease)

    async def _none(self, request: web.Request) -> web.Response:
        return web.json_response({'metadata': {}, 'items': []})

    def _tell(self, kind: str, what: str, item: dict[str, Any]) -> None:
        self._events.append((self.version, kind, what, json.loads(json.dumps(item))
                             if what != 'RAW' else item))
        self._news.set()
        self._news = asyncio.Event()


def pod(name: str, *, ready: bool = True, version: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a pod of the Deployment."""
    yes = 'True' if ready else 'False'
    made = {
        'metadata': {
            'name': name, 'uid': f'uid-{name}', 'resourceVersion': str(version),
            'creationTimestamp': '2026-01-01T00:00:00Z',
            'labels': {**LABELS, 'pod-template-hash': 'abc'},
            'ownerReferences': [
                {'controller': True, 'kind': 'ReplicaSet', 'name': f'{WORKLOAD}-abc'}]},
        'spec': {'containers': [{'name': 'w', 'ports': [{'containerPort': 8500}]}]},
        'status': {
            'phase': 'Running', 'podIP': '10.0.0.1',
            'conditions': [
                {'type': 'PodScheduled', 'status': 'True'}, {'type': 'Ready', 'status': yes}],
            'containerStatuses': [{'name': 'w', 'restartCount': 0, 'state': {'running': {}}}]}}
    for key, value in changes.items():
        made['status'][key] = value
    return made
