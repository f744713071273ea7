"""Replicas as pods, behind the same interface as local processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
import logging
import os
import socket
import threading
import time
from types import TracebackType
from typing import Any, TypeVar
import uuid

from laimr_ros.cluster.base import PoolStatus
from laimr_ros.cluster.kubernetes.access import Access
from laimr_ros.cluster.kubernetes.board import Board
from laimr_ros.cluster.kubernetes.credentials import load, Source
from laimr_ros.cluster.kubernetes.lease import Lease
from laimr_ros.cluster.kubernetes.pool import Drive, KubernetesPool, parse_workload
from laimr_ros.cluster.kubernetes.pool_watch import PoolWatch

_logger = logging.getLogger(__name__)
_T = TypeVar('_T')


def make_identity() -> str:
    """Return a name that no other bridge has, by which people can find this one."""
    return f'{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}'


@dataclass(frozen=True)
class ClusterConfig:
    """
    How to reach the cluster, and what all pools share.

    :param source: where credentials come from.
    :param namespace: of workloads and Lease; empty for the one of the credentials.
    :param lease_name: of the Lease that elects the bridge that acts; empty to act always.
    :param lease_duration_s: after so long without renewal another bridge takes over, in seconds.
    :param identity: of this bridge among others.
    :param max_age_s: numbers that nobody has stood by for so long are withheld from autoscalers,
        in seconds.
    :param metrics_listen: ``host:port`` where external metrics are served.
    :param keda_listen: ``host:port`` where KEDA is served.
    :param tls_cert_file: certificate of both servers, PEM; empty for one made at the start.
    :param tls_key_file: its key, PEM.
    """

    source: Source = field(default_factory=Source)
    namespace: str = ''
    lease_name: str = ''
    lease_duration_s: int = 10
    identity: str = field(default_factory=make_identity)
    max_age_s: float = 30.0
    metrics_listen: str = '0.0.0.0:6443'
    keda_listen: str = '0.0.0.0:9090'
    tls_cert_file: str = ''
    tls_key_file: str = ''


class KubernetesReplicas:
    """
    Watch the pods of every pool and have the cluster hold the number asked for.

    A ``ReplicaHolder``. One thread of its own does the work. Nothing is changed before a number
    was asked for, nor while another bridge holds the Lease; what is known is kept while the API
    server is away.

    :param pools: configuration by pool name.
    :param config: of the cluster.
    :param on_change: called with a pool's name after something about it has changed, in this
        object's thread; must return quickly.
    :raises CredentialsError: if the credentials cannot be used.
    :raises ValueError: if pools do not fit together, or an address cannot be listened on.
    """

    def __init__(
        self, pools: Mapping[str, KubernetesPool], config: ClusterConfig | None = None, *,
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        self._config = config or ClusterConfig()
        self._pools = dict(pools)
        credentials = load(self._config.source)
        self.namespace = self._config.namespace or credentials.namespace
        self._check_workloads()
        self._limits = {
            name: (pool.min_replicas, pool.max_replicas) for name, pool in self._pools.items()}
        self._wanted: dict[str, int] = {}
        self._on_change = on_change
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._access = Access(self._config.source, credentials)
        self._watches: dict[str, PoolWatch] = {}
        self._lease: Lease | None = None
        self._services: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = threading.Thread(
            target=self._loop.run_forever, name='kubernetes-replicas', daemon=True)
        self._thread.start()
        try:
            self._call(self._start(), 10.0)
        except BaseException:
            self.close()
            raise

    # ----- from any thread

    def observe(self, pool: str) -> PoolStatus:
        """Return the pool's present status. :raises KeyError: for an unknown pool."""
        return self._watches[pool].status()

    def known(self, pool: str) -> bool:
        """Return whether the pool was looked at once. :raises KeyError: for an unknown pool."""
        return self._watches[pool].known

    def desired(self, pool: str) -> int:
        """
        Return the number last asked for, clamped, or else the cluster's own.

        :raises KeyError: for an unknown pool.
        """
        wanted = self._wanted.get(pool)
        return (self._watches[pool].replicas or 0) if wanted is None else wanted

    def set_replicas(self, pool: str, count: int) -> None:
        """
        Ask for a number of replicas; it is clamped to the pool's limits. The last call counts.

        Repeating it says that it still holds.

        :raises KeyError: for an unknown pool.
        """
        low, high = self._limits[pool]
        count = max(low, min(high, count))
        self._wanted[pool] = count
        self._post(self._want, pool, count)

    def set_limits(self, pool: str, min_replicas: int, max_replicas: int) -> None:
        """
        Change a pool's limits; a number asked for is clamped to them.

        :raises KeyError: for an unknown pool.
        :raises ValueError: unless 0 <= min_replicas <= max_replicas.
        """
        # Made for its check only.
        replace(self._pools[pool], min_replicas=min_replicas, max_replicas=max_replicas)
        self._limits[pool] = (min_replicas, max_replicas)
        if pool in self._wanted:
            self.set_replicas(pool, self._wanted[pool])

    @property
    def identity(self) -> str:
        """Return the name of this bridge among others."""
        return self._config.identity

    @property
    def acting(self) -> bool:
        """Return whether this bridge is the one that acts."""
        return self._lease is None or self._lease.held

    @property
    def leader(self) -> str:
        """Return who acts, as last heard; empty if nobody is known to."""
        return self.identity if self._lease is None else self._lease.holder

    @property
    def server(self) -> str:
        """Return the address of the API server."""
        return self._access.server

    def away(self) -> tuple[float, str] | None:
        """Return for how long the API server has been away, in seconds, and why; None if not."""
        since = self._access.away_since
        return None if since is None else (time.monotonic() - since, self._access.away_reason)

    def complaints(self, pool: str) -> tuple[str, ...]:
        """
        Return what is not as it should be with a pool, the most important first.

        :raises KeyError: for an unknown pool.
        """
        return self._watches[pool].complaints()

    def lease_trouble(self) -> str:
        """Return why it is not known who acts; empty if it is."""
        return '' if self._lease is None else self._lease.trouble

    def workload(self, pool: str) -> str:
        """Return what the replicas of a pool belong to."""
        return str(self._watches[pool].workload)

    @property
    def ports(self) -> tuple[int, ...]:
        """Return the ports of what is served: external metrics, then KEDA, if they are."""
        return tuple(service.port for service in self._services)

    def writes(self, pool: str) -> int:
        """Return how often the number of a pool was written."""
        driver = self._watches[pool].driver
        return 0 if driver is None else driver.writes

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop; the replicas stay. Safe to call twice."""
        if not self._thread.is_alive():
            return
        self._closing = True
        try:
            self._call(self._stop(), timeout_s)
        except (TimeoutError, asyncio.TimeoutError):
            _logger.debug('not everything ended in time')
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._loop.close()

    def __enter__(self) -> KubernetesReplicas:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _check_workloads(self) -> None:
        owner: dict[tuple[str, str], str] = {}
        for name, pool in self._pools.items():
            workload = parse_workload(pool.workload, pool.namespace or self.namespace)
            key = (workload.namespace, str(workload))
            if key in owner:
                raise ValueError(
                    f'pools {owner[key]} and {name} name the same workload, {workload} in '
                    f'namespace {key[0]}; a workload can follow one number only, so give each '
                    'pool its own')
            owner[key] = name

    def _call(self, work: Coroutine[Any, Any, _T], timeout_s: float) -> _T:
        import concurrent.futures
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError from None

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # closed: nothing is wanted any more

    # ----- what follows runs in the thread of the loop

    async def _start(self) -> None:
        config = self._config
        self._board = Board(config.max_age_s)
        for name, pool in self._pools.items():
            self._watches[name] = PoolWatch(
                self._access, pool, self.namespace, lambda: self.acting,
                lambda name=name: self._changed(name))  # type: ignore[misc]
        if config.lease_name:
            self._lease = Lease(
                self._access, self.namespace, config.lease_name, config.identity,
                config.lease_duration_s, self._leader_changed)
            self._tasks.append(asyncio.ensure_future(self._guard('lease', self._lease.run)))
        await self._start_services()
        for name, watch in self._watches.items():
            self._tasks.append(asyncio.ensure_future(self._guard(f'pool {name}', watch.run)))

    async def _start_services(self) -> None:
        drives = {pool.drive for pool in self._pools.values()}
        offered = {
            drive: {
                name: self._watches[name].workload.namespace
                for name, pool in self._pools.items() if pool.drive is drive}
            for drive in drives}
        if Drive.EXTERNAL_METRIC in drives:
            from laimr_ros.cluster.kubernetes.external_metrics import ExternalMetricsServer
            metrics = ExternalMetricsServer(
                self._access, self._board, offered[Drive.EXTERNAL_METRIC], self._config)
            await metrics.start()
            self._services.append(metrics)
        if Drive.KEDA in drives:
            from laimr_ros.cluster.kubernetes.keda import KedaScaler
            keda = KedaScaler(self._board, offered[Drive.KEDA], self._config)
            await keda.start()
            self._services.append(keda)

    async def _guard(
        self, what: str, run: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Run something for ever: what nobody foresaw is logged, and it is begun again."""
        while True:
            try:
                await run()
            except Exception:  # one part's trouble must not stop the others
                _logger.exception('%s', what)
            await asyncio.sleep(1.0)

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for service in self._services:
            await service.close()
        if self._lease is not None:
            await self._lease.release()
        await self._access.close()

    def _want(self, pool: str, count: int) -> None:
        if self._closing:
            return
        driver = self._watches[pool].driver
        if driver is not None:
            driver.want(count)
        else:
            self._board.put(pool, count)

    def _leader_changed(self) -> None:
        for name, watch in self._watches.items():
            if watch.driver is not None:
                watch.driver.nudge()
            self._changed(name)

    def _changed(self, pool: str) -> None:
        if self._on_change is None or self._closing:
            return
        try:
            self._on_change(pool)
        except Exception:  # the listener's trouble is not the replicas'
            _logger.exception('listener of pool %s', pool)
