"""What the states of pods say about replicas."""

from __future__ import annotations

from typing import Any

from kubernetes_fake_api import pod
from laimr_ros.cluster.base import ReplicaState, ReplicaStatus
from laimr_ros.cluster.kubernetes.pods import PodLedger
import pytest

FULL = (
    '0/3 nodes are available: 1 node(s) had untolerated taint {gpu: yes}, 2 Insufficient cpu. '
    'preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.')


@pytest.fixture
def ledger() -> PodLedger:
    """Return an empty one."""
    return PodLedger('deployment/edge')


def waiting(name: str, message: str = FULL) -> dict[str, Any]:
    """Return a pod without room."""
    return pod(name, ready=False, phase='Pending', podIP='', conditions=[
        {'type': 'PodScheduled', 'status': 'False', 'reason': 'Unschedulable',
         'message': message}])


def only(ledger: PodLedger) -> ReplicaStatus:
    """Return the one replica."""
    (replica,) = ledger.status().replicas
    return replica


def test_a_pod_becomes_ready_and_leaves(ledger: PodLedger) -> None:
    """Starting, ready, draining, gone; the time from first sight to ready is kept."""
    ledger.seen(pod('a', ready=False, phase='Pending', podIP=''), 10.0, listed=False)
    assert only(ledger) == ReplicaStatus(
        'a', '', ReplicaState.STARTING, 'waiting to be started')
    ledger.seen(pod('a', ready=False), 11.0, listed=False)
    assert only(ledger) == ReplicaStatus('a', '10.0.0.1:8500', ReplicaState.STARTING, 'starting')
    ledger.seen(pod('a', ready=True), 12.5, listed=False)
    assert only(ledger) == ReplicaStatus('a', '10.0.0.1:8500', ReplicaState.READY)
    assert ledger.status().start_up_s == (2.5,)
    leaving = pod('a', ready=True)
    leaving['metadata']['deletionTimestamp'] = '2026-01-01T00:00:00Z'
    ledger.seen(leaving, 20.0, listed=False)
    assert only(ledger).state is ReplicaState.DRAINING
    assert ledger.status().endpoints() == ()
    ledger.gone(leaving)
    assert ledger.status().replicas == ()
    assert ledger.status().start_up_s == (2.5,)


def test_waiting_for_room_is_no_start_up(ledger: PodLedger) -> None:
    """Not counted on while it waits; the clock starts when there is room."""
    ledger.seen(waiting('a'), 0.0, listed=False)
    ledger.seen(pod('b'), 0.0, listed=False)
    assert ledger.unschedulable() == (
        '1 of 2 replicas cannot be scheduled: node(s) had untolerated taint {gpu: yes}, '
        'Insufficient cpu')
    assert ledger.status().count(ReplicaState.STARTING) == 0
    assert ledger.status().count(ReplicaState.FAILED) == 1
    ledger.seen(pod('a', ready=False), 100.0, listed=False)
    ledger.seen(pod('a', ready=True), 103.0, listed=False)
    assert ledger.status().start_up_s[-1] == 3.0
    assert ledger.unschedulable() == ''


@pytest.mark.parametrize(
    ('message', 'why'),
    [
        ('0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes', 'Insufficient cpu'),
        ('0/9 nodes are available: 3 Insufficient cpu, 6 Insufficient memory.',
         'Insufficient cpu, Insufficient memory'),
        ('0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: x',
         'Insufficient cpu'),
        ('no nodes available to schedule pods', 'no nodes available to schedule pods'),
        ('', 'no reason given'),
    ],
)
def test_the_reason_of_the_scheduler_without_its_counts(
    ledger: PodLedger, message: str, why: str,
) -> None:
    """Short, and the same from try to try."""
    ledger.seen(waiting('a', message), 0.0, listed=False)
    assert ledger.unschedulable() == f'1 of 1 replicas cannot be scheduled: {why}'


def test_what_was_listed_has_no_start_up_time(ledger: PodLedger) -> None:
    """When it began is not known."""
    ledger.seen(pod('a', ready=True), 5.0, listed=True)
    ledger.seen(pod('b', ready=False, phase='Pending'), 5.0, listed=True)
    ledger.seen(pod('b', ready=False), 5.5, listed=False)
    ledger.seen(pod('b', ready=True), 6.0, listed=False)
    ledger.seen(pod('c', ready=False), 7.0, listed=False)
    ledger.seen(pod('c', ready=True), 90.0, listed=True)
    assert ledger.status().start_up_s == ()


def test_a_replica_that_stops_being_ready_is_not_starting(ledger: PodLedger) -> None:
    """Its readiness fails: failed. Its container starts again: starting, without a new time."""
    ledger.seen(pod('a', ready=True), 0.0, listed=True)
    ledger.seen(pod('a', ready=False), 1.0, listed=False)
    assert only(ledger).state is ReplicaState.FAILED
    assert 'is not ready any more' in only(ledger).reason
    ledger.seen(pod('a', ready=True), 2.0, listed=False)
    assert only(ledger).state is ReplicaState.READY
    again = [{'name': 'w', 'restartCount': 1, 'state': {'running': {}}}]
    ledger.seen(pod('a', ready=False, containerStatuses=again), 3.0, listed=False)
    assert only(ledger).state is ReplicaState.STARTING
    ledger.seen(pod('a', ready=True, containerStatuses=again), 9.0, listed=False)
    assert ledger.status().start_up_s == ()


@pytest.mark.parametrize('reason', ['CrashLoopBackOff', 'ImagePullBackOff', 'ErrImagePull'])
def test_a_container_that_cannot_start(ledger: PodLedger, reason: str) -> None:
    """Failed, with the reason of the kubelet."""
    ledger.seen(pod('a', ready=False, containerStatuses=[{
        'name': 'w', 'restartCount': 0,
        'state': {'waiting': {'reason': reason, 'message': 'so\nit is'}}}]), 0.0, listed=False)
    assert only(ledger).state is ReplicaState.FAILED
    assert only(ledger).reason == f'pod a: {reason}: so it is'


def test_an_evicted_pod(ledger: PodLedger) -> None:
    """It stays in the list for people to see, and counts as failed."""
    ledger.seen(pod('a', phase='Failed', reason='Evicted', message='disk'), 0.0, listed=False)
    assert only(ledger) == ReplicaStatus(
        'a', '10.0.0.1:8500', ReplicaState.FAILED, 'pod a: disk')


def test_pods_of_others_are_no_replicas(ledger: PodLedger) -> None:
    """They are told of, once a workload."""
    for name, owner in (('a', 'edge-abc'), ('b', 'other-abc'), ('c', 'other-abc')):
        item = pod(name)
        item['metadata']['ownerReferences'][0]['name'] = owner
        ledger.seen(item, 0.0, listed=True)
    assert [r.name for r in ledger.status().replicas] == ['a']
    assert ledger.strangers() == ('deployment/other',)
    item['metadata']['uid'] = 'uid-b'
    ledger.gone(item)
    item['metadata']['uid'] = 'uid-c'
    ledger.gone(item)
    assert ledger.strangers() == ()


def test_addresses(ledger: PodLedger) -> None:
    """IPv6 in brackets; the port that is set wins; none at all is a failure."""
    ledger.seen(pod('a', podIP='fd00::1'), 0.0, listed=True)
    assert ledger.status().endpoints() == ('[fd00::1]:8500',)
    fixed = PodLedger('deployment/edge', 9000)
    fixed.seen(pod('a'), 0.0, listed=True)
    assert fixed.status().endpoints() == ('10.0.0.1:9000',)
    bare = pod('b')
    bare['spec']['containers'][0]['ports'] = []
    ledger.gone(pod('a'))
    ledger.seen(bare, 0.0, listed=True)
    assert 'declares no containerPort' in only(ledger).reason


def test_pods_of_a_stateful_set() -> None:
    """They are owned directly."""
    ledger = PodLedger('statefulset/edge')
    item = pod('edge-0')
    item['metadata']['ownerReferences'] = [
        {'controller': True, 'kind': 'StatefulSet', 'name': 'edge'}]
    ledger.seen(item, 0.0, listed=True)
    assert only(ledger).state is ReplicaState.READY
