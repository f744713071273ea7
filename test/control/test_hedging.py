"""Test second copies of frames: when one is sent, and how either ends the frame."""

from __future__ import annotations

import random

from controller_harness import configure, Harness, make_lane, make_pool, only
from laimr_ros.control.actions import Cancel, Ended, Send
from laimr_ros.control.events import Cause, ConfigurationChanged, ReplicaLost
from laimr_ros.control.hedging import Hedging
from laimr_ros.control.nouns import Configuration, Outcome
import pytest


def hedged(share: float = 0.05, policy: str = 'laimr', **limits: float) -> Configuration:
    """Return an edge of 0.1 s and a cloud 60 ms away, with second copies."""
    return configure(
        [make_lane('lane', 1.0, 'edge', 'cloud')],
        [make_pool('edge', 0.1), make_pool('cloud', 0.1, network=0.06)],
        policy, exploration=0.0, hedge_share=share, **limits)


def practised(configuration: Configuration | None = None, frames: int = 100) -> Harness:
    """Return a controller that saw frames of 0.1 s, ten a second; 2 edge replicas, 1 in cloud."""
    harness = Harness(configuration or hedged())
    harness.ready('e0', 'e1')
    harness.ready('c0', pool='cloud')
    for k in range(frames):
        frame = harness.arrive(f'cam{k}')
        harness.run_until(harness.now + 0.1)
        harness.done(frame, 0.1)
    return harness


def test_a_copy_is_due_after_the_quantile_of_completions() -> None:
    hedging = Hedging(0.05, 0.95)
    order = list(range(1, 101))
    random.Random(1).shuffle(order)
    for k in order[:99]:
        hedging.completed(k / 100.0)
    assert hedging.delay() == float('inf')
    hedging.completed(order[99] / 100.0)
    assert hedging.delay() == pytest.approx(0.96)
    # Only the last 500 count.
    for _ in range(500):
        hedging.completed(2.0)
    assert hedging.delay() == 2.0


def test_a_frame_out_for_long_is_sent_to_another_pool_as_well() -> None:
    harness = practised()
    frame = harness.arrive('slow')
    assert harness.where(frame) == 'e0'
    harness.run_until(harness.now + 0.099)
    assert len(harness.sends[frame]) == 1
    copy, = only(harness.run_until(harness.now + 0.01), Send)
    assert (copy.frame.id, copy.pool, copy.replica, copy.offloaded) == (frame, 'cloud', 'c0', True)
    assert copy.timeout == pytest.approx(0.9, abs=0.01)
    # One more is all there is.
    assert not only(harness.run_until(harness.now + 0.5), Send)


@pytest.mark.parametrize(('winner', 'loser'), [('e0', 'c0'), ('c0', 'e0')])
def test_the_first_answer_wins_and_the_other_copy_is_cancelled(winner: str, loser: str) -> None:
    harness = practised()
    frame = harness.arrive('slow')
    harness.run_until(harness.now + 0.2)
    actions = harness.done(frame, 0.1, winner)
    cancel, = only(actions, Cancel)
    ended, = only(actions, Ended)
    assert (cancel.frame.id, cancel.replica) == (frame, loser)
    assert (ended.outcome, ended.replica, ended.attempts) == (Outcome.ANSWERED, winner, 2)
    assert ended.offloaded == (winner == 'c0')
    assert ended.queued == pytest.approx(0.1 if winner == 'c0' else 0.0, abs=0.01)
    # An answer of the loser that was on its way changes nothing.
    assert not only(harness.done(frame, 0.1, loser), Ended)


@pytest.mark.parametrize(('fails', 'stays'), [('e0', 'c0'), ('c0', 'e0')])
@pytest.mark.parametrize('cause', list(Cause))
def test_a_copy_that_fails_leaves_the_other(fails: str, stays: str, cause: Cause) -> None:
    harness = practised()
    frame = harness.arrive('slow')
    harness.run_until(harness.now + 0.2)
    assert not only(harness.fail(frame, cause, fails), Ended)
    assert harness.where(frame) == stays
    harness.done(frame, 0.1, stays)
    assert harness.ended[frame].on_time


def test_a_lost_replica_leaves_the_copy_elsewhere() -> None:
    for lost, stays in (('e0', 'c0'), ('c0', 'e0')):
        harness = practised()
        frame = harness.arrive('slow')
        harness.run_until(harness.now + 0.2)
        cancel, = only(harness.handle(ReplicaLost(lost)), Cancel)
        assert cancel.replica == lost
        assert harness.where(frame) == stays
        harness.done(frame, 0.1, stays)
        assert harness.ended[frame].on_time


def test_when_both_copies_fail_the_frame_is_tried_again_as_often_as_allowed() -> None:
    harness = practised()
    frame = harness.arrive('slow')
    harness.run_until(harness.now + 0.2)
    harness.fail(frame, Cause.INTERNAL, 'e0')
    harness.fail(frame, Cause.INTERNAL, 'c0')
    assert len(harness.sends[frame]) == 3
    harness.fail(frame, Cause.INTERNAL)
    assert harness.ended[frame].outcome is Outcome.FAILED


def test_both_copies_time_out() -> None:
    harness = practised()
    frame = harness.arrive('slow')
    harness.run_until(harness.now + 1.0)
    harness.fail(frame, Cause.DEADLINE, 'e0')
    assert frame in harness.open
    harness.fail(frame, Cause.DEADLINE, 'c0')
    assert harness.ended[frame].outcome is Outcome.EXPIRED


def test_copies_nobody_reports_on_are_taken_back_both() -> None:
    harness = practised()
    frame = harness.arrive('slow')
    cancels = only(harness.run_until(harness.now + 4.0), Cancel)
    assert {c.replica for c in cancels} == {'e0', 'c0'}
    assert harness.ended[frame].outcome is Outcome.EXPIRED


def test_a_removed_lane_takes_both_copies_back() -> None:
    harness = practised()
    harness.arrive('slow')
    harness.run_until(harness.now + 0.2)
    new = configure([make_lane('other', 1.0, 'edge')], [make_pool('edge'), make_pool('cloud')])
    cancels = only(harness.handle(ConfigurationChanged(new)), Cancel)
    assert {c.replica for c in cancels} == {'e0', 'c0'}


def test_no_copy_without_budget_or_experience_or_under_another_policy() -> None:
    for harness in (
            practised(hedged(0.0)), practised(frames=99), practised(hedged(policy='laimr_paper')),
            practised(hedged(0.005)), practised(hedged(max_attempts=1))):
        frame = harness.arrive('slow')
        assert not only(harness.run_until(harness.now + 0.5), Send)
        assert len(harness.sends[frame]) == 1


def test_no_copy_where_it_would_be_late_or_all_are_busy_or_frames_wait() -> None:
    harness = practised()
    # It would need 0.16 s in the cloud, 0.1 s on the other edge replica.
    frame = harness.arrive('old', age=0.85)
    harness.run_until(harness.now + 0.12)
    assert len(harness.sends[frame]) == 1
    harness = practised()
    frames = [harness.arrive(f'new{k}') for k in range(4)]
    harness.run_until(harness.now + 0.3)
    assert all(len(harness.sends[f]) <= 1 for f in frames)


def test_no_copy_at_high_utilisation() -> None:
    harness = practised()
    frame = harness.arrive('slow')
    # Past the scaling step that renews it.
    harness.run_until(harness.now + 0.05)
    for pool in harness.controller._planner.rho:
        harness.controller._planner.rho[pool] = 0.71
    assert not only(harness.run_until(harness.now + 0.2), Send)
    assert harness.where(frame) == 'e0'


def test_copies_stay_within_their_share() -> None:
    harness = practised(hedged(0.05))
    copies = 0
    for k in range(400):
        frame = harness.arrive(f'more{k}')
        # One in four is slow.
        copies += len(only(harness.run_until(harness.now + (0.3 if k % 4 == 0 else 0.09)), Send))
        harness.done(frame, 0.1, harness.sends[frame][0].replica)
    assert 15 <= copies <= 25
    assert copies == harness.hedged
    lane = harness.controller.lanes['lane']
    assert lane.hedging is not None and lane.hedging.budget.hedged == copies


def test_turned_off_while_copies_are_out_they_still_end_well() -> None:
    harness = practised()
    frame = harness.arrive('slow')
    harness.run_until(harness.now + 0.2)
    harness.handle(ConfigurationChanged(hedged(0.0)))
    harness.done(frame, 0.1, 'c0')
    assert harness.ended[frame].on_time
    assert harness.controller.lanes['lane'].hedging is None
