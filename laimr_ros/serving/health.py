"""The health service of gRPC, pushed to watchers the moment it changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_STATUS = health_pb2.HealthCheckResponse

# A watcher costs a little memory as long as it likes; so many are more than any fleet has.
MAX_WATCHERS = 1000


class HealthService(health_pb2_grpc.HealthServicer):
    """
    What is serving: the whole worker under the empty name, each model under its own.

    Not grpcio-health-checking's own servicer: in that, a watcher that leaves takes the other
    watchers of the same name off the list (seen in 1.81), and its streams never end, so that a
    server with a watcher cannot stop before its grace is over.
    """

    def __init__(self) -> None:
        self._serving: dict[str, bool] = {'': False}
        self._changed: asyncio.Future[None] | None = None
        self._closed = False
        self._watchers = 0

    def set(self, serving: dict[str, bool]) -> None:
        """Replace all statuses, and tell the watchers. To be called in the loop."""
        if serving != self._serving:
            self._serving = dict(serving)
            self._notify()

    def close(self) -> None:
        """Say that nothing is serving, and end every watch."""
        self._closed = True
        self._serving = dict.fromkeys(self._serving, False)
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    def _status(self, name: str) -> int | None:
        serving = self._serving.get(name)
        if serving is None:
            return None
        return int(_STATUS.SERVING if serving else _STATUS.NOT_SERVING)

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Any,
    ) -> health_pb2.HealthCheckResponse:
        """Return a status at this moment."""
        status = self._status(request.service)
        if status is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f'no model {request.service!r} here; there are {sorted(self._serving)[1:]}')
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Any,
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Send a status now and whenever it changes, until the server stops."""
        if self._watchers >= MAX_WATCHERS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f'{MAX_WATCHERS} clients are watching already; use Check')
        self._watchers += 1
        try:
            last = None
            while True:
                status = self._status(request.service)
                if status is None:
                    status = int(_STATUS.SERVICE_UNKNOWN)
                if status != last:
                    last = status
                    yield health_pb2.HealthCheckResponse(status=status)
                    continue  # It may have changed while this was being sent.
                if self._closed:
                    return
                if self._changed is None:
                    self._changed = asyncio.get_running_loop().create_future()
                # Shielded: a watcher that leaves must not cancel the future of the others.
                await asyncio.shield(self._changed)
        finally:
            self._watchers -= 1
