"""What the pods of a pool say about its replicas."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import re
from typing import Any

from laimr_ros.cluster.base import PoolStatus, ReplicaState, ReplicaStatus

Object = dict[str, Any]

# Start-up times kept a pool.
_RECENT = 50
# A container that waits for one of these will not start by itself within the time that counts.
_STUCK = frozenset({
    'CrashLoopBackOff', 'CreateContainerConfigError', 'CreateContainerError',
    'ErrImageNeverPull', 'ErrImagePull', 'ImageInspectError', 'ImagePullBackOff',
    'InvalidImageName', 'RunContainerError',
})


@dataclass
class _Pod:
    """One pod, and what is remembered of it."""

    item: Object
    status: ReplicaStatus
    unschedulable: str = ''
    # When it was first seen without anything that keeps it from starting (monotonic seconds);
    # None if that is not known, or it was ready already.
    starts_at: float | None = None
    # The restarts of its containers when it was last ready; -1 before that.
    ready_restarts: int = -1


class PodLedger:
    """
    The replicas of one pool, from the states of its pods. No I/O.

    Pods of other workloads, which a wide selector may let in, are no replicas.

    :param workload: whose pods count, as ``deployment/name``.
    :param port: where replicas serve; 0 for the first port that the pod's containers declare.
    """

    def __init__(self, workload: str, port: int = 0) -> None:
        self._workload = workload
        self._port = port
        self._strangers: dict[str, str] = {}
        self._pods: dict[str, _Pod] = {}
        self._start_up_s: deque[float] = deque(maxlen=_RECENT)

    def seen(self, item: Object, now: float, *, listed: bool) -> None:
        """
        Take a pod that is new or has changed.

        :param now: monotonic seconds.
        :param listed: whether it may have changed long ago.
        """
        uid = item['metadata']['uid']
        owner = _owner(item)
        if owner != self._workload:
            self._strangers[uid] = owner
            return
        before = self._pods.get(uid)
        restarts = _restarts(item)
        was_ready = before is not None and before.ready_restarts == restarts
        unschedulable = _unschedulable(item)
        status = _status(item, self._port, unschedulable, was_ready)
        pod = _Pod(
            item, status, unschedulable,
            before.starts_at if before is not None else None,
            before.ready_restarts if before is not None else -1)
        if status.state is ReplicaState.READY:
            if pod.starts_at is not None and not listed:
                self._start_up_s.append(now - pod.starts_at)
            pod.starts_at = None
            pod.ready_restarts = restarts
        elif unschedulable or listed:
            # Waiting for room is no start-up: that begins when there is room. And of what was
            # listed nobody knows when it began.
            pod.starts_at = None
        elif before is None or before.unschedulable:
            pod.starts_at = now
        self._pods[uid] = pod

    def gone(self, item: Object) -> None:
        """Take a pod that is no more."""
        self._pods.pop(item['metadata']['uid'], None)
        self._strangers.pop(item['metadata']['uid'], None)

    def status(self) -> PoolStatus:
        """Return the pool's status, replicas in the order their pods were made."""
        pods = sorted(
            self._pods.values(),
            key=lambda pod: (
                pod.item['metadata'].get('creationTimestamp') or '', pod.status.name))
        return PoolStatus(tuple(pod.status for pod in pods), tuple(self._start_up_s))

    def unschedulable(self) -> str:
        """Return how many replicas find no room and why, for people; empty if none."""
        live = [p for p in self._pods.values() if p.status.state is not ReplicaState.DRAINING]
        waiting = [pod.unschedulable for pod in live if pod.unschedulable]
        if not waiting:
            return ''
        why = max(sorted(set(waiting)), key=waiting.count)
        return f'{len(waiting)} of {len(live)} replicas cannot be scheduled: {why}'

    def strangers(self) -> tuple[str, ...]:
        """Return the other workloads whose pods are among those selected."""
        return tuple(sorted(set(self._strangers.values())))


def _status(item: Object, port: int, unschedulable: str, was_ready: bool) -> ReplicaStatus:
    metadata, status = item['metadata'], item.get('status') or {}
    name = metadata['name']
    phase = status.get('phase', 'Pending')
    address = str(status.get('podIP') or '')
    endpoint = _endpoint(address, port or _declared_port(item)) if address else ''

    def be(state: ReplicaState, reason: str = '') -> ReplicaStatus:
        return ReplicaStatus(name, endpoint, state, reason)

    if metadata.get('deletionTimestamp'):
        return be(ReplicaState.DRAINING, 'terminating')
    if phase in ('Failed', 'Succeeded'):
        why = status.get('message') or status.get('reason') or f'its pod is {phase}'
        return be(ReplicaState.FAILED, f'pod {name}: {_line(why)}')
    if unschedulable:
        return be(ReplicaState.FAILED, f'cannot be scheduled: {unschedulable}')
    ready = _condition(status, 'Ready')
    if ready.get('status') == 'True' and address:
        if not port and not _declared_port(item):
            return be(
                ReplicaState.FAILED,
                f'pod {name} declares no containerPort; declare it, or set the port of the pool')
        return be(ReplicaState.READY)
    for container in _containers(status):
        waiting = (container.get('state') or {}).get('waiting') or {}
        if waiting.get('reason') in _STUCK:
            return be(
                ReplicaState.FAILED,
                f'pod {name}: {waiting["reason"]}: {_line(waiting.get("message") or "")}'
                .rstrip(': '))
    if was_ready and phase == 'Running':
        return be(
            ReplicaState.FAILED,
            f'pod {name} is not ready any more'
            + (f': {_line(ready["message"])}' if ready.get('message') else ''))
    return be(ReplicaState.STARTING, 'starting' if phase == 'Running' else 'waiting to be started')


def _unschedulable(item: Object) -> str:
    """Return why the scheduler finds no room for a pod; empty if it did not say so."""
    scheduled = _condition(item.get('status') or {}, 'PodScheduled')
    if scheduled.get('status') != 'False' or scheduled.get('reason') != 'Unschedulable':
        return ''
    message = _line(scheduled.get('message') or '')
    # "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: }.
    # preemption: ...": without the counts, which differ from try to try.
    _, found, rest = message.partition(' nodes are available: ')
    if not found:
        return message or 'no reason given'
    rest = re.split(r'\. (?:preemption|no new claims)', rest)[0].rstrip('. ')
    if not rest:
        return message
    return ', '.join(
        re.sub(r'^\d+ ', '', part) for part in re.split(r', (?=\d+ )', rest))


def _condition(status: Object, kind: str) -> Object:
    for condition in status.get('conditions') or ():
        if condition.get('type') == kind:
            return dict(condition)
    return {}


def _containers(status: Object) -> list[Object]:
    return [
        *(status.get('initContainerStatuses') or ()), *(status.get('containerStatuses') or ())]


def _restarts(item: Object) -> int:
    return sum(
        int(c.get('restartCount') or 0) for c in _containers(item.get('status') or {}))


def _declared_port(item: Object) -> int:
    for container in (item.get('spec') or {}).get('containers') or ():
        for port in container.get('ports') or ():
            return int(port.get('containerPort') or 0)
    return 0


def _endpoint(address: str, port: int) -> str:
    return f'[{address}]:{port}' if ':' in address else f'{address}:{port}'


def _owner(item: Object) -> str:
    for owner in item['metadata'].get('ownerReferences') or ():
        if owner.get('controller'):
            kind, name = str(owner.get('kind', '')).lower(), str(owner.get('name', ''))
            template = (item['metadata'].get('labels') or {}).get('pod-template-hash', '')
            if kind == 'replicaset' and template and name.endswith(f'-{template}'):
                return f'deployment/{name[:-len(template) - 1]}'
            return f'{kind}/{name}'
    return f'pod/{item["metadata"]["name"]}'


def _line(text: str) -> str:
    return ' '.join(str(text).split())
