"""One pool in the cluster: its workload and pods watched, its number of replicas set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
import time
from typing import Any

from laimr_ros.cluster.base import PoolStatus
from laimr_ros.cluster.kubernetes.access import Access
from laimr_ros.cluster.kubernetes.errors import ApiError
from laimr_ros.cluster.kubernetes.pods import PodLedger
from laimr_ros.cluster.kubernetes.pool import Drive, KubernetesPool, parse_workload
from laimr_ros.cluster.kubernetes.rivals import Rivals
from laimr_ros.cluster.kubernetes.scale import ScaleDriver
from laimr_ros.cluster.kubernetes.selector import from_object, matches
from laimr_ros.cluster.kubernetes.watch import ObjectWatch

# How often to look whether something scales the workload, where that is not us.
_LOOK_S = 10.0


class PoolWatch:
    """
    Know one pool, and drive it where it is driven by us.

    :param access: the API server.
    :param config: how the pool lives there.
    :param namespace: for a pool that names none.
    :param may_write: whether this bridge is the one to act.
    :param on_change: called after anything that can be asked of this object has changed.
    """

    def __init__(
        self, access: Access, config: KubernetesPool, namespace: str,
        may_write: Callable[[], bool], on_change: Callable[[], None],
    ) -> None:
        self._access = access
        self._config = config
        self.workload = parse_workload(config.workload, config.namespace or namespace)
        self._on_change = on_change
        self._ledger = PodLedger(str(self.workload), config.port)
        self._object: dict[str, Any] | None = None
        self._workloads = ObjectWatch(
            access, self.workload.path, {'fieldSelector': f'metadata.name={self.workload.name}'},
            _WorkloadListener(self))
        self._pods: ObjectWatch | None = None
        self._pods_task: asyncio.Task[None] | None = None
        self._selector = ''
        self._status = PoolStatus()
        self._unscaled = ''
        self.driver: ScaleDriver | None = None
        if config.drive is Drive.SCALE:
            self.driver = ScaleDriver(
                access, self.workload, config.min_interval_s, may_write, on_change)

    async def run(self) -> None:
        """Watch and drive until cancelled."""
        tasks = [asyncio.ensure_future(self._workloads.run())]
        tasks.append(asyncio.ensure_future(
            self.driver.run() if self.driver is not None else self._look_for_scaler()))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            self._stop_pods()

    def status(self) -> PoolStatus:
        """Return the pool's status."""
        return self._status

    @property
    def known(self) -> bool:
        """Return whether the pool has been looked at once, so that its status means something."""
        if not self._workloads.listed:
            return False
        return self._object is None or (self._pods is not None and self._pods.listed)

    @property
    def replicas(self) -> int | None:
        """Return the number in the workload's specification; None if there is no workload."""
        if self._object is None:
            return None
        count = (self._object.get('spec') or {}).get('replicas')
        return 1 if count is None else int(count)

    def complaints(self) -> tuple[str, ...]:
        """Return what is not as it should be, for people, the most important first."""
        found = []
        for watch in (self._workloads, self._pods):
            if watch is not None and watch.trouble is not None and not watch.trouble.unreachable:
                found.append(_permission(watch.trouble))
        if self._workloads.listed and self._object is None:
            found.append(
                f'{self.workload} does not exist in namespace {self.workload.namespace} yet')
        elif self.driver is not None and self.driver.trouble:
            found.append(self.driver.trouble)
        found.append(self._misfit())
        found.append(self._refusal())
        found.append(self._ledger.unschedulable())
        found.append(self._unscaled)
        return tuple(dict.fromkeys(text for text in found if text))

    def _misfit(self) -> str:
        """Return what is wrong with the selector; empty if nothing is."""
        if self._object is not None and self._config.selector:
            template = ((self._object.get('spec') or {}).get('template') or {})
            labels = (template.get('metadata') or {}).get('labels') or {}
            if not matches(self._config.selector, labels):
                have = ','.join(f'{key}={value}' for key, value in sorted(labels.items()))
                return (
                    f'selector {self._config.selector!r} does not select the pods of '
                    f'{self.workload}, whose labels are {have!r}; leave it empty to use the '
                    "workload's own")
        strangers = self._ledger.strangers()
        if strangers:
            return (
                f'selector {self._selector!r} selects pods of {", ".join(strangers)} too, which '
                f'are not used; a pool is one workload, here {self.workload}: make the selector '
                'narrower')
        return ''

    def _refusal(self) -> str:
        """Return why the cluster makes no pods; empty if it does."""
        status = (self._object or {}).get('status') or {}
        for condition in status.get('conditions') or ():
            if condition.get('type') == 'ReplicaFailure' and condition.get('status') == 'True':
                why = ' '.join(str(condition.get('message') or 'no reason given').split())
                return f'the cluster refuses pods: {why}'
        return ''

    # ----- what the watches tell

    def workload_seen(self, item: dict[str, Any] | None) -> None:
        """Take the workload's present state; None if it is no more."""
        self._object = item
        if self.driver is not None:
            self.driver.observed(self.replicas)
        if item is None:
            return
        selector = self._config.selector or from_object(item['spec'].get('selector') or {})
        if selector != self._selector or self._pods is None:
            self._selector = selector
            self._stop_pods()
            self._ledger = PodLedger(str(self.workload), self._config.port)
            self._pods = ObjectWatch(
                self._access, f'/api/v1/namespaces/{self.workload.namespace}/pods',
                {'labelSelector': selector}, _PodListener(self))
            self._pods_task = asyncio.ensure_future(self._pods.run())

    def pod_seen(self, item: dict[str, Any], *, listed: bool) -> None:
        """Take a pod's present state."""
        self._ledger.seen(item, time.monotonic(), listed=listed)

    def pod_gone(self, item: dict[str, Any]) -> None:
        """Take note that a pod is no more."""
        self._ledger.gone(item)

    def settled(self) -> None:
        """Make what was told visible."""
        self._status = self._ledger.status()
        self._on_change()

    def _stop_pods(self) -> None:
        if self._pods_task is not None:
            self._pods_task.cancel()
            self._pods_task = None

    async def _look_for_scaler(self) -> None:
        """Say so if the number is offered to an autoscaler that is not there."""
        rivals = Rivals(self._access, self.workload)
        while True:
            try:
                text = ''
                if self._object is not None and not await rivals.find():
                    what = 'ScaledObject' if self._config.drive is Drive.KEDA else (
                        'HorizontalPodAutoscaler')
                    text = f'no {what} targets {self.workload}: nothing scales it'
                if text != self._unscaled:
                    self._unscaled = text
                    self._on_change()
            except ApiError:
                pass  # the watches tell of it
            await asyncio.sleep(_LOOK_S if self._object is not None else 1.0)


class _WorkloadListener:
    def __init__(self, pool: PoolWatch) -> None:
        self._pool = pool

    def seen(self, item: dict[str, Any], *, listed: bool) -> None:
        self._pool.workload_seen(item)

    def gone(self, item: dict[str, Any]) -> None:
        self._pool.workload_seen(None)

    def settled(self) -> None:
        self._pool.settled()


class _PodListener:
    def __init__(self, pool: PoolWatch) -> None:
        self._pool = pool

    def seen(self, item: dict[str, Any], *, listed: bool) -> None:
        self._pool.pod_seen(item, listed=listed)

    def gone(self, item: dict[str, Any]) -> None:
        self._pool.pod_gone(item)

    def settled(self) -> None:
        self._pool.settled()


def _permission(error: ApiError) -> str:
    if error.status == 403:
        return f'no permission: {error}; apply the RBAC of deploy/ to this bridge'
    return str(error)
