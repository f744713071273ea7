"""Test the paper's own policy in cases worked out by hand from its published numbers."""

from __future__ import annotations

import math

from controller_harness import configure, Harness, make_lane, make_pool, only
from laimr_ros.control.actions import Scale
from laimr_ros.control.events import ConfigurationChanged, PoolObserved
from laimr_ros.control.nouns import Configuration, ConfigurationError, Outcome
from laimr_ros.control.paper import mean_wait_and_service, PaperDecision
from laimr_ros.latency.model import PowerLaw
import pytest

# arXiv 2505.07417: YOLOv5m on 3 CPUs, and its SLO.
YOLO = PowerLaw(0.73, 1.29, 1.49)
TAU = 1.8


def paper(
    edge: int = 10, cloud: int = 10, *, in_flight: int = 100, minimum: int = 1, **limits: float
) -> Configuration:
    """
    Return the paper's set-up: the same law on the edge and, 60 ms away, in the cloud.

    The window is long: one read at each arrival counts one frame too many.
    """
    limits.setdefault('fast_window', 30.0)
    return configure(
        [make_lane('lane', TAU, 'edge', 'cloud')],
        [make_pool('edge', models={'m': YOLO}, max_in_flight=in_flight, max_replicas=edge,
                   min_replicas=minimum),
         make_pool('cloud', models={'m': YOLO}, network=0.06, max_in_flight=in_flight,
                   max_replicas=cloud)],
        'laimr_paper', **limits)


def steady(harness: Harness, rate: float, until: float) -> list[int]:
    """Let frames arrive evenly, each answered at once; return their numbers."""
    frames = []
    while harness.now < until:
        harness.run_until(min(until, harness.now + 1.0 / rate))
        frame = harness.arrive(f'cam{len(frames)}')
        if harness.sends[frame]:
            harness.done(frame, 0.001)
        frames.append(frame)
    return frames


def test_the_mean_model_is_power_law_plus_erlang_c() -> None:
    # One frame/s on two replicas: S = 0.73 + 1.29 * 0.5^1.49 = 1.1892; a = 1.1892;
    # B = (a^2 / 2) / (1 + a + a^2 / 2) = 0.24415; C = B / (1 - a/2 (1 - B)) = 0.44352;
    # W = C / (2 / 1.1892 - 1) = 0.6506.
    wait, service = mean_wait_and_service(YOLO, 1.0, 2)
    assert service == pytest.approx(1.1892, abs=1e-4)
    assert wait == pytest.approx(0.6506, abs=2e-4)
    # Alone it would be busy for 2.02 s each second.
    assert mean_wait_and_service(YOLO, 1.0, 1) == (math.inf, pytest.approx(2.02))
    assert mean_wait_and_service(YOLO, 1.0, 0) == (math.inf, math.inf)
    assert mean_wait_and_service(YOLO, 0.0, 1) == (0.0, 0.73)
    # M/M/1 at half load waits as long as it serves.
    assert mean_wait_and_service(PowerLaw(0.1), 5.0, 1)[0] == pytest.approx(0.1)


def test_the_local_tier_is_used_while_it_is_predicted_to_meet_tau() -> None:
    # g(1) with 3 replicas is 0.98 + 0.04 = 1.02 s; with 2 it is 1.84 > 1.8 s.
    for edges, pool in ((3, 'edge'), (2, 'cloud')):
        harness = Harness(paper())
        harness.ready(*(f'e{k}' for k in range(edges)))
        harness.ready('c0', 'c1', 'c2', pool='cloud')
        frames = steady(harness, 1.0, 20.0)
        assert {harness.sends[f][0].pool for f in frames[5:]} == {pool}
        assert harness.sends[frames[-1]][0].offloaded == (pool == 'cloud')


def test_it_offloads_though_replicas_are_idle_and_though_the_cloud_misses_too() -> None:
    harness = Harness(paper())
    harness.ready('e0', 'e1')
    harness.ready('c0', pool='cloud')
    # Nothing is in flight, yet the mean model says late, in the cloud even for ever.
    send = harness.sends[steady(harness, 1.0, 20.0)[-1]][0]
    assert send.pool == 'cloud'
    assert send.prediction.completion > 3600.0


def test_the_prediction_is_the_mean() -> None:
    harness = Harness(paper())
    harness.ready('e0', 'e1', 'e2')
    prediction = harness.sends[steady(harness, 1.0, 60.0)[-1]][0].prediction
    wait, service = mean_wait_and_service(YOLO, 1.0, 3)
    assert prediction.service == pytest.approx(service, rel=0.03)
    assert prediction.wait == pytest.approx(wait, rel=0.2)
    assert prediction.completion == pytest.approx(1.0231, rel=0.03)


def test_lambda_is_smoothed_with_half_the_newest_reading() -> None:
    harness = Harness(paper())
    harness.ready('e0')
    router = harness.controller._router
    traffic = router.traffic  # type: ignore[attr-defined]
    harness.arrive('a')
    # The first reading counts alone: one frame over no less than a second.
    assert traffic.rate(0.0, 'lane') == 1.0
    harness.arrive('b')
    harness.arrive('c')
    # Then 1 + (2 - 1) / 2 = 1.5, and 1.5 + (3 - 1.5) / 2 = 2.25.
    assert traffic.rate(0.0, 'lane') == 2.25
    # A window of silence, 30 s, is one more reading: of 0.
    assert traffic.rate(31.0, 'lane') == 1.125


def test_replicas_take_turns_whatever_they_have_in_flight() -> None:
    harness = Harness(paper())
    harness.ready('e0', 'e1', 'e2', 'e3')
    frames = []
    for k in range(6):
        harness.now += 1.0
        frames.append(harness.arrive(f'cam{k}'))
        if k == 4:
            # That leaves e2 and e3 idle, but the next is e1's turn.
            harness.done(frames[2], 0.5)
            harness.done(frames[3], 0.5)
    assert [harness.sends[f][0].replica for f in frames] == ['e0', 'e1', 'e2', 'e3', 'e0', 'e1']


def test_a_full_replica_is_passed_over_and_all_full_hold_the_frame() -> None:
    harness = Harness(paper(in_flight=1))
    harness.ready('e0', 'e1', 'e2', 'e3')
    frames = [harness.arrive(f'cam{k}') for k in range(4)]
    assert [harness.where(f) for f in frames] == ['e0', 'e1', 'e2', 'e3']
    held = harness.arrive('late')
    assert harness.where(held) == 'queued'
    harness.done(frames[2])
    assert harness.where(held) == 'e2'


def test_a_frame_is_never_given_up_before_its_limit() -> None:
    harness = Harness(paper(in_flight=1))
    harness.ready('e0')
    harness.arrive('a')
    waiting = harness.arrive('b')
    harness.run_until(1.79)
    assert harness.where(waiting) == 'queued'
    harness.run_until(1.81)
    assert harness.ended[waiting].outcome is Outcome.EXPIRED


def test_it_scales_out_to_the_fewest_that_meet_tau() -> None:
    # g(N) at 1 frame/s: 1.84 s for 2, 1.02 s for 3; at 4/s: 6.31 s for 6, 1.55 s for 7.
    for rate, wanted in ((1.0, 3), (4.0, 7)):
        harness = Harness(paper())
        harness.ready('e0')
        steady(harness, rate, 60.0)
        harness.handle(PoolObserved('edge', 1, 0))
        steady(harness, rate, 70.0)
        assert harness.desired['edge'] == wanted
        assert sum(mean_wait_and_service(YOLO, rate, wanted)) <= TAU
        assert sum(mean_wait_and_service(YOLO, rate, wanted - 1)) > TAU


def test_it_scales_out_to_the_most_if_none_is_enough() -> None:
    harness = Harness(paper(5))
    harness.ready('e0')
    harness.handle(PoolObserved('edge', 1, 0))
    steady(harness, 4.0, 30.0)
    assert harness.desired['edge'] == 5


def test_it_scales_in_one_by_one_while_utilisation_is_under_its_floor() -> None:
    # At 1 frame/s: rho is 0.97 / 4 = 0.22 with 4 replicas and under 0.3; 0.33 with 3.
    harness = Harness(paper(stabilisation=5.0, rho_low=0.3))
    harness.ready(*(f'e{k}' for k in range(6)))
    harness.handle(PoolObserved('edge', 6, 0))
    assert YOLO.mean(1.0, 4) / 4 < 0.3 < YOLO.mean(1.0, 3) / 3
    steady(harness, 1.0, 4.0)
    assert harness.desired['edge'] == 6
    steady(harness, 1.0, 60.0)
    assert harness.desired['edge'] == 3


def test_what_is_offloaded_makes_the_cloud_grow() -> None:
    harness = Harness(paper(1))
    harness.ready('e0')
    harness.ready('c0', pool='cloud')
    harness.handle(PoolObserved('edge', 1, 0))
    harness.handle(PoolObserved('cloud', 1, 0))
    steady(harness, 1.0, 30.0)
    assert harness.desired['cloud'] == 3
    assert harness.controller.pools['edge'].predicted == math.inf


def test_the_policy_can_change_while_frames_are_out_and_wishes_stay() -> None:
    harness = Harness(paper())
    harness.ready('e0', 'e1', 'e2', 'e3')
    harness.handle(PoolObserved('edge', 4, 0))
    out = harness.arrive('a')
    own = paper()
    own = Configuration(own.lanes, own.pools, limits=own.limits)
    assert not only(harness.handle(ConfigurationChanged(own)), Scale)
    assert harness.controller.snapshot(0.0)['pools']['edge']['desired'] == 4
    harness.done(out, 0.73)
    held = harness.arrive('b')
    assert not isinstance(harness.sends[held][0].prediction, PaperDecision)
    assert harness.sends[held][0].prediction.completion == pytest.approx(0.9, rel=0.2)
    harness.handle(ConfigurationChanged(paper()))
    assert harness.controller.snapshot(0.0)['pools']['edge']['desired'] == 4
    harness.done(held, 0.73)
    assert harness.ended[held].on_time


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"policy is 'best'.*laimr_paper"):
        configure([make_lane()], [make_pool()], 'best')
