"""Test the controller through events and actions, in scenarios worked out by hand."""

from __future__ import annotations

import dataclasses
import itertools
import json

from controller_harness import configure, Harness, make_lane, make_pool, only
from laimr_ros.control.actions import Cancel, Ended, Scale, Send
from laimr_ros.control.events import (
    CameraLeft,
    Cause,
    ConfigurationChanged,
    FrameArrived,
    FrameDone,
    FrameFailed,
    PoolObserved,
    ReplicaDraining,
    ReplicaLost,
    ReplicaReady,
    Tick,
)
from laimr_ros.control.nouns import Frame, Outcome, PowerLaw
import pytest


def edge_only(slo: float = 1.0, *, limits: dict[str, float] | None = None,
              pool: dict[str, float] | None = None, **lane: object) -> Harness:
    """Return a harness of one lane on one pool of 0.1 s a frame and no network."""
    return Harness(configure(
        [make_lane('lane', slo, **lane)], [make_pool('edge', 0.1, **(pool or {}))],
        **(limits or {})))


def change(harness: Harness, **fields: object) -> None:
    """Change the configuration in the given fields."""
    harness.handle(ConfigurationChanged(
        dataclasses.replace(harness.configuration, **fields)))


# ----- the plain course

def test_a_frame_goes_to_an_idle_replica_and_its_answer_is_published() -> None:
    h = edge_only()
    h.ready('r0')
    h.now = 10.0
    frame = h.arrive('cam', age=0.05)
    send, = h.sends[frame]
    assert (send.pool, send.replica, send.model, send.offloaded) == ('edge', 'r0', 'm', False)
    assert send.timeout == pytest.approx(0.95)
    assert send.prediction.wait == 0.0
    assert send.prediction.completion == pytest.approx(0.1, abs=0.001)
    h.now = 10.12
    ended, = only(h.done(frame, service=0.11), Ended)
    assert ended.outcome is Outcome.ANSWERED and ended.on_time and not ended.reason
    assert ended.latency == pytest.approx(0.17)
    assert ended.queued == 0.0
    assert ended.service == 0.11
    assert ended.network == pytest.approx(0.01)
    assert ended.prediction is send.prediction


def test_a_frame_waits_for_a_busy_replica_and_goes_when_it_is_free() -> None:
    h = edge_only()
    h.ready('r0')
    first, second = h.arrive('a'), h.arrive('b')
    assert h.where(second) == 'queued'
    h.now = 0.1
    h.done(first, 0.1)
    assert h.where(second) == 'r0'
    h.now = 0.2
    ended, = only(h.done(second, 0.1), Ended)
    assert ended.queued == pytest.approx(0.1)


def test_frames_wait_for_the_first_replica() -> None:
    h = edge_only()
    frame = h.arrive()
    assert h.where(frame) == 'queued'
    h.now = 0.3
    h.ready('r0')
    assert h.where(frame) == 'r0'


def test_earliest_deadline_goes_first_over_all_lanes() -> None:
    h = Harness(configure(
        [make_lane('slow', 2.0), make_lane('quick', 0.5)], [make_pool('edge', 0.1)]))
    h.ready('r0')
    running = h.arrive('z', 'quick')
    slow = h.arrive('a', 'slow')
    h.now = 0.05
    quick = h.arrive('b', 'quick')
    h.now = 0.1
    h.done(running, 0.1)
    assert h.where(quick) == 'r0'
    assert h.where(slow) == 'queued'


def test_max_in_flight_frames_are_out_on_one_replica() -> None:
    h = edge_only(pool={'max_in_flight': 2})
    h.ready('r0')
    frames = [h.arrive(f'c{i}') for i in range(3)]
    assert [h.where(f) for f in frames] == ['r0', 'r0', 'queued']
    # The second waits for the first: 0.1 s.
    assert h.sends[frames[1]][0].prediction.wait == pytest.approx(0.1)


def test_idle_replicas_share_the_work() -> None:
    h = edge_only(pool={'max_in_flight': 2})
    h.ready('r0', 'r1', 'r2')
    assert {h.where(h.arrive(f'c{i}')) for i in range(3)} == {'r0', 'r1', 'r2'}


# ----- what frames end of

def test_a_newer_frame_supersedes_the_waiting_one_of_its_camera() -> None:
    h = edge_only()
    h.ready('r0')
    running = h.arrive('other')
    older = h.arrive('cam')
    h.now = 0.05
    newer = h.arrive('cam')
    assert h.where(older) == 'superseded'
    h.now = 0.1
    h.done(running, 0.1)
    assert h.where(newer) == 'r0'


def test_without_supersede_both_are_answered() -> None:
    h = edge_only(supersede=False)
    h.ready('r0')
    older = h.arrive('cam')
    h.now = 0.05
    newer = h.arrive('cam')
    h.now = 0.1
    h.done(older, 0.1)
    h.now = 0.2
    h.done(newer, 0.1)
    assert (h.where(older), h.where(newer)) == ('answered', 'answered')


def test_of_answers_out_of_order_the_older_is_not_published() -> None:
    h = edge_only()
    h.ready('r0', 'r1')
    older = h.arrive('cam')
    h.now = 0.02
    newer = h.arrive('cam')
    assert {h.where(older), h.where(newer)} == {'r0', 'r1'}
    h.now = 0.12
    h.done(newer, 0.1)
    h.now = 0.13
    h.done(older, 0.13)
    assert h.where(newer) == 'answered'
    assert h.where(older) == 'superseded'
    assert 'newer frame was answered' in h.ended[older].reason


def test_a_frame_that_comes_after_a_newer_one_was_answered_is_not_sent() -> None:
    h = edge_only()
    h.ready('r0')
    newer = h.arrive('cam')
    h.now = 0.1
    h.done(newer, 0.1)
    older = h.arrive('cam', age=0.2)
    assert h.where(older) == 'superseded'
    assert not h.sends[older]


def test_a_frame_too_old_on_arrival_expires() -> None:
    h = edge_only()
    h.ready('r0')
    h.now = 10.0
    frame = h.arrive(age=1.0)
    assert h.where(frame) == 'expired'
    assert 'on arrival' in h.ended[frame].reason


def test_a_defective_frame_is_rejected_with_its_defect() -> None:
    h = edge_only()
    h.ready('r0')
    frame = h.arrive(defect='the image is empty')
    assert h.where(frame) == 'rejected'
    assert h.ended[frame].reason == 'the image is empty'
    # It neither moves its camera on nor counts as load.
    assert h.controller.lanes['lane'].arrivals.fast(h.now) == 0.0


def test_a_full_queue_rejects_but_lets_a_camera_renew_its_frame() -> None:
    h = edge_only(max_queue=2)
    a, b, c = (h.arrive(name) for name in 'abc')
    assert [h.where(f) for f in (a, b, c)] == ['queued', 'queued', 'rejected']
    newer = h.arrive('a')
    assert (h.where(a), h.where(newer)) == ('superseded', 'queued')


def test_a_late_answer_says_so() -> None:
    h = edge_only(late_answers=True)
    h.ready('r0')
    frame = h.arrive()
    # Its limit is one SLO past its deadline.
    assert h.sends[frame][0].timeout == pytest.approx(2.0)
    h.now = 1.5
    h.done(frame, 1.5)
    ended = h.ended[frame]
    assert (ended.outcome, ended.on_time, ended.reason) == (Outcome.ANSWERED, False, 'late')
    assert h.controller.counters.as_dict()['on_time'] == 0


def test_without_late_answers_a_frame_is_cancelled_at_its_deadline() -> None:
    h = edge_only()
    h.ready('r0')
    frame = h.arrive()
    assert h.sends[frame][0].timeout == pytest.approx(1.0)
    h.now = 1.0
    h.fail(frame, Cause.DEADLINE)
    assert h.where(frame) == 'expired'


@pytest.mark.parametrize(('late', 'expected'), [(False, 1.0), (True, 2.0)])
def test_without_replicas_frames_expire_at_their_limit(late: bool, expected: float) -> None:
    h = edge_only(late_answers=late)
    frame = h.arrive()
    h.run_until(expected - 0.001)
    assert h.where(frame) == 'queued'
    h.run_until(expected)
    assert h.where(frame) == 'expired'


@pytest.mark.parametrize('service', [0.001, 0.02, 0.1, 0.9])
def test_ticks_at_the_wakes_asked_for_are_enough(service: float) -> None:
    h = Harness(configure(
        [make_lane('lane', 1.0, 'edge', 'cloud')],
        [make_pool('edge', service), make_pool('cloud', service, network=0.05)]))
    h.ready('r0')
    h.ready('c0', pool='cloud')
    frames = [h.arrive(f'c{i}') for i in range(20)]
    # Nothing is ever answered, nobody reports anything.
    h.run_until(1.0)
    out = {f for sent in h.sent.values() for f in sent}
    assert len(out) == 2
    assert all(h.where(f) == 'expired' for f in frames if f not in out)


def test_a_frame_that_nobody_reports_on_is_given_up() -> None:
    h = edge_only(1.0)
    h.ready('r0')
    lost = h.arrive('a')
    h.run_until(1.9)
    assert h.where(lost) == 'r0'
    actions = h.run_until(3.0)
    assert h.where(lost) == 'expired'
    assert [a.frame.id for a in only(actions, Cancel)] == [lost]
    # Its replica is of use again.
    assert h.where(h.arrive('b')) == 'r0'
    assert not only(h.handle(FrameDone(lost, 'r0')), Ended)


def test_wakes_come_even_if_the_driver_is_late() -> None:
    h = edge_only()
    frame = h.arrive()
    h.now = 5.0
    h.arrive('other')
    assert h.wake == 5.0
    h.run_until(5.0)
    assert h.where(frame) == 'expired'


def test_many_changes_of_the_world_leave_one_timer_a_frame() -> None:
    h = Harness(configure([make_lane('lane', 60.0, supersede=False)], [make_pool()]))
    for i in range(50):
        h.arrive(f'c{i}')
    for _ in range(100):
        h.ready('r0')
        h.handle(ReplicaDraining('r0'))
        h.handle(ReplicaLost('r0'))
        h.now += 0.001
    # The harness holds timers against its bound after every event.
    assert len(h.controller._timers) <= 4 * 50 + 257


def test_a_frame_that_will_be_late_lets_one_that_can_be_on_time_go_first() -> None:
    h = edge_only(1.0, pool={'cv': 0.3})
    h.ready('r0')
    running = h.arrive('x')
    doomed = h.arrive('a', age=0.81)
    good = h.arrive('b')
    h.now = 0.1
    # 0.09 s are left of the first, a service takes 0.1 s: it might just be lucky.
    assert h.where(doomed) == 'queued'
    h.done(running, 0.1)
    assert (h.where(good), h.where(doomed)) == ('r0', 'queued')
    h.run_until(0.2)
    assert h.where(doomed) == 'expired'


def test_a_frame_that_will_be_late_goes_where_nobody_else_needs_the_room() -> None:
    h = edge_only(1.0, supersede=False, late_answers=True)
    h.ready('r0')
    running, late = h.arrive('x'), h.arrive('a', age=0.95)
    h.now = 0.1
    h.done(running, 0.1)
    assert h.where(late) == 'r0'


def test_a_camera_whose_frame_waited_in_vain_is_next() -> None:
    h = edge_only(1.0)
    in_vain = h.arrive('slow')
    h.run_until(1.0)
    assert h.where(in_vain) == 'expired'
    fast = h.arrive('fast')
    h.now = 1.5
    owed = h.arrive('slow')
    h.ready('r0')
    # By their deadlines the fast camera's would be first.
    assert (h.where(owed), h.where(fast)) == ('r0', 'queued')
    # Paid once, not for ever.
    assert h.controller.cameras['slow'].owed == float('inf')


# ----- replicas come to harm

def test_a_worker_that_dies_loses_no_frame() -> None:
    h = edge_only()
    h.ready('r0', 'r1')
    frame = h.arrive()
    dead = h.where(frame)
    h.now = 0.05
    actions = h.handle(ReplicaLost(dead, 'killed'))
    assert [a.replica for a in only(actions, Cancel)] == [dead]
    other = h.where(frame)
    assert {dead, other} == {'r0', 'r1'}
    h.now = 0.15
    h.done(frame, 0.1)
    assert h.where(frame) == 'answered'
    assert h.ended[frame].attempts == 2


def test_frames_of_the_last_worker_wait_for_the_next() -> None:
    h = edge_only()
    h.ready('r0')
    frame = h.arrive()
    h.handle(ReplicaLost('r0'))
    assert h.where(frame) == 'queued'
    h.now = 0.5
    h.ready('r1')
    assert h.where(frame) == 'r1'


def test_a_retry_that_can_only_be_late_expires() -> None:
    h = edge_only()
    h.ready('r0')
    frame = h.arrive()
    h.now = 0.95
    h.handle(ReplicaLost('r0'))
    h.ready('r1')
    h.run_until(1.0)
    # 0.05 s are left, a service takes 0.1 s; yet once in a while it is tried all the same.
    if h.where(frame) == 'r1':
        h.fail(frame, Cause.DEADLINE)
    assert h.where(frame) == 'expired'


def test_a_retry_is_superseded_by_a_newer_waiting_frame() -> None:
    h = edge_only()
    h.ready('r0')
    older = h.arrive('cam')
    h.now = 0.02
    newer = h.arrive('cam')
    assert h.where(newer) == 'queued'
    h.fail(older, Cause.UNAVAILABLE)
    assert (h.where(older), h.where(newer)) == ('superseded', 'queued')


def test_a_retry_is_superseded_by_a_newer_answer() -> None:
    h = edge_only()
    h.ready('r0', 'r1')
    older = h.arrive('cam')
    h.now = 0.02
    newer = h.arrive('cam')
    h.now = 0.1
    h.done(newer, 0.1)
    h.fail(older, Cause.UNAVAILABLE)
    assert h.where(older) == 'superseded'
    assert len(h.sends[older]) == 1


@pytest.mark.parametrize('cause', [Cause.UNAVAILABLE, Cause.INTERNAL])
def test_a_frame_is_sent_at_most_max_attempts_times(cause: Cause) -> None:
    h = edge_only(limits={'max_attempts': 3})
    h.ready(*(f'r{i}' for i in range(5)))
    frame = h.arrive()
    for _ in range(3):
        h.now += 0.01
        h.fail(frame, cause)
    assert h.where(frame) == 'failed'
    assert '3 attempts' in h.ended[frame].reason
    assert len(h.sends[frame]) == 3


def test_a_busy_replica_does_not_use_up_the_attempts_of_a_frame() -> None:
    h = edge_only(60.0, limits={'max_attempts': 3})
    h.ready('busy')
    frame = h.arrive()
    for _ in range(6):
        h.fail(frame, Cause.BUSY)
        assert h.where(frame) == 'queued'
        sent = len(h.sends[frame])
        while len(h.sends[frame]) == sent:
            h.run_until(h.now + 0.1)
        assert h.now < 6.0
    # A healthy one is there at last.
    h.fail(frame, Cause.BUSY)
    h.ready('healthy')
    assert h.where(frame) == 'healthy'


def test_a_replica_that_refuses_again_and_again_is_tried_less_and_less() -> None:
    h = edge_only(600.0, limits={'max_attempts': 3})
    h.ready('busy')
    gaps = []
    frame = h.arrive()
    for _ in range(7):
        h.fail(frame, Cause.BUSY)
        begun, sent = h.now, len(h.sends[frame])
        while len(h.sends[frame]) == sent:
            h.run_until(h.now + 0.01)
        gaps.append(h.now - begun)
    assert all(b >= a - 0.001 for a, b in itertools.pairwise(gaps))
    assert gaps[0] < 0.3 and gaps[-1] == pytest.approx(1.0, abs=0.05)


def test_a_replica_that_fails_and_reports_ready_in_turn_is_left_alone_longer_each_time() -> None:
    h = edge_only(600.0, supersede=False, limits={'max_attempts': 1})
    h.ready('r0')
    sent = 0
    while h.now < 60.0:
        frame = h.arrive()
        if h.sends[frame]:
            sent += 1
            h.fail(frame, Cause.UNAVAILABLE)
        # It comes back at once each time, as a worker does whose health service flaps.
        h.handle(ReplicaLost('r0'))
        h.now += 0.1
        h.ready('r0')
    assert sent < 60


@pytest.mark.parametrize('cause', [Cause.BAD_FRAME, Cause.CANCELLED])
def test_what_no_replica_can_mend_is_not_retried(cause: Cause) -> None:
    h = edge_only()
    h.ready('r0', 'r1')
    frame = h.arrive()
    h.handle(FrameFailed(frame, h.where(frame), cause, 'not a JPEG'))
    assert h.where(frame) == 'failed'
    assert h.ended[frame].reason == 'not a JPEG'
    # It is not the replica's fault.
    assert h.controller.pools['edge'].ready == 2


def test_a_busy_replica_is_left_alone_for_a_service_time() -> None:
    h = edge_only()
    h.ready('r0')
    frame = h.arrive()
    h.fail(frame, Cause.BUSY)
    assert h.where(frame) == 'queued'
    h.run_until(0.09)
    assert h.where(frame) == 'queued'
    h.run_until(0.11)
    assert h.where(frame) == 'r0'


def test_an_unavailable_replica_is_suspended_longer_each_time_and_comes_back() -> None:
    h = edge_only(60.0, supersede=False, limits={'max_attempts': 10})
    h.ready('r0')
    frame = h.arrive()
    for pause in (1.0, 2.0, 4.0):
        begun = h.now
        h.fail(frame, Cause.UNAVAILABLE)
        h.run_until(begun + pause - 0.01)
        assert h.where(frame) == 'queued'
        h.run_until(begun + pause)
        assert h.where(frame) == 'r0'
    # One answer, and the past is forgotten.
    h.now += 0.1
    h.done(frame, 0.1)
    frame = h.arrive()
    begun = h.now
    h.fail(frame, Cause.UNAVAILABLE)
    h.run_until(begun + 1.0)
    assert h.where(frame) == 'r0'


def test_a_suspended_replica_that_reports_ready_is_used_at_once() -> None:
    h = edge_only()
    h.ready('r0')
    frame = h.arrive()
    h.fail(frame, Cause.UNAVAILABLE)
    assert h.where(frame) == 'queued'
    h.ready('r0')
    assert h.where(frame) == 'r0'


def test_busy_does_not_shorten_the_pause_of_an_unavailable_replica() -> None:
    h = edge_only(60.0, supersede=False, pool={'max_in_flight': 2})
    h.ready('r0')
    first, second = h.arrive(), h.arrive()
    h.fail(first, Cause.UNAVAILABLE)
    h.fail(second, Cause.BUSY)
    h.run_until(0.99)
    assert h.where(first) == h.where(second) == 'queued'
    h.run_until(1.0)
    assert h.where(first) == h.where(second) == 'r0'


def test_unavailable_lengthens_the_pause_of_a_busy_replica() -> None:
    h = edge_only(60.0, supersede=False, pool={'max_in_flight': 2})
    h.ready('r0')
    first, second = h.arrive(), h.arrive()
    h.fail(second, Cause.BUSY)
    h.fail(first, Cause.UNAVAILABLE)
    h.run_until(0.99)
    assert h.where(first) == h.where(second) == 'queued'


def test_failures_in_a_row_suspend_a_replica_and_an_answer_breaks_the_row() -> None:
    h = edge_only(60.0, limits={'suspend_after': 3, 'max_attempts': 1})
    h.ready('r0')

    def error() -> None:
        h.now += 0.01
        h.fail(h.arrive(), Cause.INTERNAL)

    error()
    error()
    h.done(h.arrive(), 0.1)
    error()
    error()
    assert h.controller.pools['edge'].ready == 1
    error()
    assert h.controller.pools['edge'].ready == 0
    assert h.where(h.arrive()) == 'queued'


def test_a_draining_replica_finishes_but_gets_nothing_new() -> None:
    h = edge_only()
    h.ready('r0')
    first, second = h.arrive('a'), h.arrive('b')
    h.handle(ReplicaDraining('r0'))
    h.now = 0.1
    h.done(first, 0.1)
    assert h.where(first) == 'answered'
    assert h.where(second) == 'queued'
    h.ready('r1')
    assert h.where(second) == 'r1'


def test_when_the_edge_drains_waiting_frames_turn_to_the_cloud() -> None:
    h = Harness(configure(
        [make_lane('lane', 1.0, 'edge', 'cloud')],
        [make_pool('edge', 0.1), make_pool('cloud', 0.1, network=0.05)]))
    h.ready('e0')
    h.ready('c0', pool='cloud')
    h.arrive('a')
    waits = h.arrive('b')
    assert h.where(waits) == 'queued'
    h.handle(ReplicaDraining('e0'))
    assert h.where(waits) == 'c0'
    assert h.sends[waits][0].offloaded


# ----- events that come twice, late or from nowhere

def test_the_second_of_two_answers_is_ignored() -> None:
    h = edge_only()
    h.ready('r0')
    frame = h.arrive()
    h.done(frame, 0.1)
    assert not only(h.handle(FrameDone(frame, 'r0')), Ended)
    assert not only(h.handle(FrameFailed(frame, 'r0', Cause.INTERNAL)), Ended)


def test_an_answer_from_where_the_frame_no_longer_is_does_not_end_it() -> None:
    h = edge_only()
    h.ready('r0', 'r1')
    frame = h.arrive()
    first = h.where(frame)
    h.fail(frame, Cause.UNAVAILABLE)
    second = h.where(frame)
    assert second != first
    assert not only(h.handle(FrameDone(frame, first, service=0.1)), Ended)
    assert h.where(frame) == second


def test_a_failure_of_an_earlier_attempt_does_not_touch_the_present_one() -> None:
    h = edge_only()
    h.ready('r0', 'r1')
    frame = h.arrive()
    first = h.where(frame)
    h.fail(frame, Cause.UNAVAILABLE)
    second = h.where(frame)
    h.handle(FrameFailed(frame, first, Cause.UNAVAILABLE))
    assert h.where(frame) == second


def test_unknown_frames_and_replicas_are_ignored() -> None:
    h = edge_only()
    h.handle(FrameDone(99, 'nobody'))
    h.handle(FrameFailed(99, 'nobody', Cause.UNAVAILABLE))
    h.handle(ReplicaLost('nobody'))
    h.handle(ReplicaDraining('nobody'))
    h.handle(CameraLeft('nobody'))
    assert h.controller.counters.received == 0


def test_unknown_lanes_and_pools_are_refused_without_a_trace() -> None:
    h = edge_only()
    with pytest.raises(KeyError, match='nowhere'):
        h.controller.handle(0.0, FrameArrived(Frame(1, 'cam', 'nowhere', 0.0, 0.0)))
    with pytest.raises(KeyError, match='nowhere'):
        h.controller.handle(0.0, ReplicaReady('nowhere', 'r0'))
    with pytest.raises(KeyError, match='nowhere'):
        h.controller.handle(0.0, PoolObserved('nowhere', 1, 0))
    assert h.controller.counters.received == 0
    assert not h.controller.cameras


@pytest.mark.parametrize('service', [0.0, -1.0, float('nan'), float('inf')])
def test_a_server_that_does_not_say_how_long_it_took_is_timed(service: float) -> None:
    h = edge_only()
    h.ready('r0')
    frame = h.arrive()
    h.now = 0.3
    h.done(frame, service)
    assert h.ended[frame].service == pytest.approx(0.3, abs=0.01)
    costs = h.controller.pools['edge'].costs['m']
    assert costs.service == pytest.approx(0.3, abs=0.03)


def test_a_replica_can_move_to_another_pool() -> None:
    h = Harness(configure(
        [make_lane('lane', 1.0, 'edge', 'cloud')], [make_pool('edge'), make_pool('cloud')]))
    h.ready('r0')
    frame = h.arrive()
    h.ready('r0', pool='cloud')
    assert h.where(frame) == 'r0'
    assert [s.pool for s in h.sends[frame]] == ['edge', 'cloud']
    assert h.controller.pools['edge'].ready == 0


# ----- cameras come and go

def test_a_camera_that_leaves_is_forgotten_with_its_last_frame() -> None:
    h = edge_only()
    h.ready('r0')
    first, second = h.arrive('cam'), h.arrive('cam')
    h.handle(CameraLeft('cam'))
    assert 'cam' in h.controller.cameras
    h.now = 0.1
    h.done(first, 0.1)
    assert 'cam' in h.controller.cameras
    h.now = 0.2
    h.done(second, 0.1)
    assert not h.controller.cameras


def test_a_camera_that_comes_back_in_time_is_kept() -> None:
    h = edge_only()
    h.ready('r0')
    first = h.arrive('cam')
    h.handle(CameraLeft('cam'))
    second = h.arrive('cam')
    h.now = 0.1
    h.done(first, 0.1)
    h.now = 0.2
    h.done(second, 0.1)
    assert h.controller.cameras['cam'].counters.received == 2


def test_reasons_are_bounded_though_servers_word_errors_as_they_like() -> None:
    h = edge_only()
    h.ready('r0')
    for k in range(200):
        h.now += 0.01
        h.handle(FrameFailed(h.arrive('cam'), 'r0', Cause.BAD_FRAME, f'error {k} ' + 'x' * 500))
    reasons = h.controller.cameras['cam'].counters.reasons
    assert len(reasons) <= 50
    assert max(map(len, reasons)) < 150


# ----- the configuration changes while frames are about

def two_lanes() -> Harness:
    """Return a harness of two lanes on two pools."""
    return Harness(configure(
        [make_lane('one', 1.0, 'edge', 'cloud'), make_lane('two', 2.0, 'edge')],
        [make_pool('edge'), make_pool('cloud', network=0.05, max_replicas=3)]))


def test_frames_of_a_removed_lane_are_rejected_and_taken_back() -> None:
    h = two_lanes()
    h.ready('e0')
    sent, waiting = h.arrive('a', 'two'), h.arrive('b', 'two')
    kept = h.arrive('c', 'one')
    actions = h.handle(ConfigurationChanged(dataclasses.replace(
        h.configuration, lanes={'one': h.configuration.lanes['one']})))
    assert [a.frame.id for a in only(actions, Cancel)] == [sent]
    assert h.where(sent) == h.where(waiting) == 'rejected'
    assert 'lane was removed' in h.ended[sent].reason
    # The replica is free for the frame of the lane that stays.
    assert h.where(kept) == 'e0'


def test_an_answer_for_a_removed_lane_is_ignored() -> None:
    h = two_lanes()
    h.ready('e0')
    frame = h.arrive('a', 'two')
    change(h, lanes={'one': h.configuration.lanes['one']})
    assert not only(h.handle(FrameDone(frame, 'e0', service=0.1)), Ended)


def test_frames_of_a_removed_pool_go_elsewhere_at_once() -> None:
    h = Harness(configure(
        [make_lane('one', 1.0, 'cloud', 'edge'), make_lane('two', 2.0, 'edge')],
        [make_pool('edge'), make_pool('cloud', network=0.05)]))
    h.ready('c0', 'c1', 'c2', 'c3', 'c4', 'c5', pool='cloud')
    frames = [h.arrive(f'cam{i}', 'one') for i in range(2)]
    assert all(h.where(f).startswith('c') for f in frames)
    h.ready('e0', 'e1')
    h.handle(ConfigurationChanged(configure(
        [make_lane('one', 1.0, 'edge'), make_lane('two', 2.0, 'edge')], [make_pool('edge')])))
    assert {h.where(f) for f in frames} == {'e0', 'e1'}
    # Once each: none was handed through the other replicas of the pool that goes.
    assert all(len(h.sends[f]) == 2 for f in frames)
    assert 'cloud' not in h.controller.pools


def test_a_pool_that_comes_back_starts_anew() -> None:
    h = two_lanes()
    old = h.configuration
    h.handle(PoolObserved('cloud', 2, 0))
    h.ready('c0', pool='cloud')
    h.handle(ConfigurationChanged(configure(
        [make_lane('one', 1.0, 'edge'), make_lane('two', 2.0, 'edge')], [make_pool('edge')])))
    h.handle(ConfigurationChanged(old))
    assert h.controller.pools['cloud'].ready == 0
    # Nothing is asked of it until it is seen again.
    assert not only(h.run_until(10.0), Scale)
    assert only(h.handle(PoolObserved('cloud', 2, 0)), Scale)[0].replicas == 2


def test_a_new_slo_counts_from_the_next_frame() -> None:
    h = edge_only(1.0)
    old = h.arrive('a')
    change(h, lanes={'lane': make_lane('lane', 3.0)})
    new = h.arrive('b')
    h.run_until(1.0)
    assert (h.where(old), h.where(new)) == ('expired', 'queued')
    h.run_until(3.0)
    assert h.where(new) == 'expired'


def test_a_new_model_is_asked_for_from_then_on() -> None:
    models = {'m': PowerLaw(0.1, cv=0.0), 'n': PowerLaw(0.2, cv=0.0)}
    h = Harness(configure([make_lane('lane', 1.0)], [make_pool('edge', models=models)]))
    h.ready('r0')
    out = h.arrive('a')
    waiting = h.arrive('b')
    h.handle(ConfigurationChanged(configure(
        [make_lane('lane', 1.0, model='n')],
        [make_pool('edge', models={'n': PowerLaw(0.2, cv=0.0)})])))
    h.now = 0.1
    h.done(out, 0.1)
    assert h.where(out) == 'answered'
    # The harness checks the model that each frame is sent for.
    assert h.sends[waiting][0].model == 'n'
    # What the old model took says nothing of the new one.
    assert h.controller.pools['edge'].costs['n'].service == pytest.approx(0.2)


def test_a_retry_after_a_change_asks_for_the_new_model() -> None:
    models = {'m': PowerLaw(0.1, cv=0.0), 'n': PowerLaw(0.2, cv=0.0)}
    h = Harness(configure([make_lane('lane', 1.0)], [make_pool('edge', models=models)]))
    h.ready('r0', 'r1')
    frame = h.arrive()
    h.handle(ConfigurationChanged(configure(
        [make_lane('lane', 1.0, model='n')], [make_pool('edge', models=models)])))
    h.fail(frame, Cause.UNAVAILABLE)
    assert [s.model for s in h.sends[frame]] == ['m', 'n']


def test_more_in_flight_is_used_at_once_and_less_is_respected() -> None:
    h = edge_only()
    h.ready('r0')
    frames = [h.arrive(f'c{i}') for i in range(4)]
    change(h, pools={'edge': make_pool('edge', max_in_flight=3)})
    assert [h.where(f) for f in frames] == ['r0', 'r0', 'r0', 'queued']
    change(h, pools={'edge': make_pool('edge', max_in_flight=1)})
    h.now = 0.1
    h.done(frames[0], 0.1)
    h.done(frames[1], 0.1)
    assert h.where(frames[3]) == 'queued'
    h.done(frames[2], 0.1)
    assert h.where(frames[3]) == 'r0'


def test_a_pool_added_live_serves_frames_that_wait() -> None:
    h = edge_only()
    frame = h.arrive()
    h.handle(ConfigurationChanged(configure(
        [make_lane('lane', 1.0, 'edge', 'cloud')], [make_pool('edge'), make_pool('cloud')])))
    h.ready('c0', pool='cloud')
    assert h.where(frame) == 'c0'


def test_what_was_learned_survives_a_change_of_something_else() -> None:
    models = {'m': PowerLaw(0.1, cv=0.0)}
    h = Harness(configure([make_lane('lane', 1.0)], [make_pool('edge', models=models)]))
    h.ready('r0')
    for _ in range(100):
        frame = h.arrive()
        h.now += 0.2
        h.done(frame, 0.2)
    wider = {**models, 'n': PowerLaw(0.3, cv=0.0)}
    change(h, pools={'edge': make_pool('edge', models=wider, max_replicas=4)})
    costs = h.controller.pools['edge'].costs
    assert costs['m'].service == pytest.approx(0.2, rel=0.02)
    assert costs['n'].service == pytest.approx(0.3)
    change(h, pools={'edge': make_pool('edge', models={**wider, 'm': PowerLaw(0.5, cv=0.0)})})
    assert h.controller.pools['edge'].costs['m'].service == pytest.approx(0.5)


def test_costs_after_a_change_are_those_of_the_present_load() -> None:
    models = {'m': PowerLaw(0.1, 0.01, 1.0, cv=0.0)}
    h = Harness(configure(
        [make_lane('lane', 60.0, supersede=False)], [make_pool('edge', models=models)]))
    h.ready('r0')
    h.now = 1000.0
    change(h, limits=dataclasses.replace(h.configuration.limits, routing_quantile=0.9))
    assert h.controller.pools['edge'].costs['m'].service == pytest.approx(0.1)
    for _ in range(400):
        h.done(h.arrive(), 0.2)
        h.now += 0.1
    h.tick()
    before = h.controller.pools['edge'].costs['m'].base
    assert before == pytest.approx(0.2, rel=0.1)
    change(h, limits=dataclasses.replace(h.configuration.limits, routing_quantile=0.8))
    assert h.controller.pools['edge'].costs['m'].base == pytest.approx(before, rel=0.02)


def test_new_windows_are_used() -> None:
    h = edge_only(60.0, supersede=False, limits={'fast_window': 2.0, 'slow_window': 30.0})
    change(h, limits=dataclasses.replace(
        h.configuration.limits, fast_window=1.0, slow_window=5.0))
    for _ in range(50):
        h.arrive()
        h.now += 0.1
    arrivals = h.controller.lanes['lane'].arrivals
    h.now += 1.1
    assert arrivals.fast(h.now) == 0.0
    h.now += 5.0
    assert arrivals.slow(h.now) == 0.0


# ----- scaling as seen from outside

def test_nothing_is_asked_of_a_pool_that_was_never_seen() -> None:
    h = edge_only()
    h.ready('r0')
    for _ in range(100):
        h.arrive()
        h.run_until(h.now + 0.1)
    assert not h.desired


def test_a_restart_keeps_what_is_observed() -> None:
    h = edge_only()
    scale, = only(h.handle(PoolObserved('edge', 4, 2)), Scale)
    assert scale.replicas == 6
    # Nor does the first decision, without any arrival yet, take it down.
    assert not only(h.run_until(29.0), Scale)


def test_a_level_is_said_once() -> None:
    h = edge_only()
    h.handle(PoolObserved('edge', 2, 0))
    assert not only(h.handle(PoolObserved('edge', 5, 0)), Scale)
    assert not only(h.run_until(5.0), Scale)


def test_bounds_that_change_are_followed() -> None:
    h = edge_only()
    h.handle(PoolObserved('edge', 8, 0))
    change(h, pools={'edge': make_pool('edge', max_replicas=3)})
    h.run_until(h.now + 1.0)
    assert h.desired['edge'] == 3
    change(h, pools={'edge': make_pool('edge', min_replicas=5)})
    h.run_until(h.now + 1.0)
    assert h.desired['edge'] == 5


def test_the_first_frame_asks_for_a_replica_of_an_empty_pool() -> None:
    h = edge_only(60.0, pool={'min_replicas': 0})
    h.handle(PoolObserved('edge', 0, 0))
    assert h.desired['edge'] == 0
    h.run_until(1.0)
    h.arrive()
    h.run_until(1.5)
    assert h.desired['edge'] >= 1


def test_a_tick_when_nothing_is_due_does_nothing() -> None:
    h = edge_only()
    h.tick(0.0)
    h.now = 0.1
    assert h.handle(Tick()) == []


def test_the_snapshot_is_plain_json() -> None:
    h = edge_only()
    json.dumps(h.controller.snapshot(0.0), allow_nan=False)
    h.ready('r0')
    assert only(h.handle(FrameArrived(Frame(7, 'c', 'lane', 0.0, 0.0))), Send)
    json.dumps(h.controller.snapshot(0.0), allow_nan=False)


def test_a_failure_heard_when_a_suspension_is_just_over_suspends_anew() -> None:
    harness = Harness(configure([make_lane('lane', 10.0)], [make_pool()]))
    harness.ready('r0')
    frame = harness.arrive()
    harness.fail(frame, Cause.UNAVAILABLE)
    # The tick that would end the suspension of one second has not come yet.
    harness.now += 1.5
    harness.handle(FrameFailed(frame, 'r0', Cause.UNAVAILABLE))
    harness.run_until(harness.now + 1.9)
    assert harness.where(frame) == 'queued'
    harness.run_until(harness.now + 0.2)
    assert harness.where(frame) == 'r0'
