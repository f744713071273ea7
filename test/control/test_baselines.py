"""Other people's rules against steps worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

from laimr_ros.control.baselines import (
    Autoscaler,
    CapacityRule,
    Clairvoyant,
    CpuUtilisation,
    Fixed,
    Foreseen,
    QueueLength,
    ReactiveLatency,
    Reading,
    Recent,
    Rule,
    SquareRootStaffing,
    TwoWindow,
)
import pytest


def reading(
    now: float = 0.0, *, desired: int = 2, ready: int | None = None, ongoing: float = 0.0,
    busy: float = 0.0, rate: float = 0.0, service: float = 0.5, slo: float = 1.0,
    latencies: Sequence[float] = ()
) -> Reading:
    """Return what is measured of a pool."""
    return Reading(now, desired, desired if ready is None else ready, ongoing, busy, rate,
                   service, slo, lambda span: list(latencies))


def test_recent_samples_leave_after_their_span() -> None:
    recent = Recent(2.0)
    assert recent.mean() == 0.0
    for now, value in ((0.0, 6.0), (1.0, 3.0), (2.0, 0.0), (2.5, 3.0)):
        recent.add(now, value)
    assert recent.mean() == pytest.approx(2.0)
    assert recent.most() == 3.0


# ----- the Horizontal Pod Autoscaler

def test_autoscaler_multiplies_the_ready_by_the_ratio() -> None:
    assert Autoscaler(5.0).decide(0.0, 4, 4, 1.5) == 6
    # 3 x 1.34 = 4.02
    assert Autoscaler(5.0).decide(0.0, 3, 3, 1.34) == 5
    # Those that start do not count: 2 x 2.5 = 5 of the 4 asked for already.
    assert Autoscaler(5.0).decide(0.0, 4, 2, 2.5) == 5


@pytest.mark.parametrize('ratio', [0.9, 1.0, 1.1])
def test_autoscaler_tolerates_a_tenth(ratio: float) -> None:
    assert Autoscaler(5.0).decide(0.0, 10, 10, ratio) == 10


def test_autoscaler_adds_at_most_four_or_doubles_within_15_seconds() -> None:
    scaler = Autoscaler(5.0)
    # From 1: at most 1 + 4.
    assert scaler.decide(0.0, 1, 1, 100.0) == 5
    # 4 of the 5 were added within 15 s: from the one before, still at most 5.
    assert scaler.decide(10.0, 5, 5, 100.0) == 5
    # At 15 s they are old: 5 doubled.
    assert scaler.decide(15.0, 5, 5, 100.0) == 10


def test_autoscaler_goes_down_to_the_most_recommended_within_its_window() -> None:
    scaler = Autoscaler(5.0, stabilisation=20.0)
    assert scaler.decide(0.0, 8, 8, 1.0) == 8
    assert scaler.decide(5.0, 8, 8, 0.5) == 8
    assert scaler.decide(10.0, 8, 8, 0.25) == 8
    # The 8 of time 0 has left; the most since is 8 x 0.5.
    assert scaler.decide(21.0, 8, 8, 0.25) == 4


def test_autoscaler_decides_once_a_period() -> None:
    scaler = Autoscaler(5.0)
    assert [scaler.due(now) for now in (0.0, 0.5, 4.5, 5.0, 9.9, 10.0)] == [
        True, False, False, True, False, True]


def test_latency_rule_compares_the_p95_with_its_target() -> None:
    values = [0.2] * 18 + [1.6, 2.0]
    # Nearest rank: the 19th of 20 is 1.6, twice 0.8 x 1 s.
    assert ReactiveLatency(0.8).wish(reading(latencies=values)) == 4
    assert ReactiveLatency(0.8).wish(reading(latencies=[0.8] * 5)) == 2
    # Nothing answered yet, but something is on its way.
    assert ReactiveLatency(0.8).wish(reading(ongoing=3.0)) == 2
    # Nothing at all: the pool is idle.
    assert ReactiveLatency(0.8).wish(reading()) == 0


def test_latency_rule_looks_every_five_seconds() -> None:
    rule = ReactiveLatency(0.8)
    slow = [1.6] * 10
    assert rule.wish(reading(0.0, latencies=[0.8])) == 2
    assert rule.wish(reading(4.5, latencies=slow)) == 2
    assert rule.wish(reading(5.0, latencies=slow)) == 4


def test_cpu_rule_averages_over_its_period() -> None:
    rule = CpuUtilisation(0.8)
    assert rule.wish(reading(0.0, desired=4, busy=0.8)) == 4
    for now in range(1, 15):
        assert rule.wish(reading(float(now), desired=4, busy=1.0)) == 4
    # One sample of 0.8 and fifteen of 1.0: 0.9875 / 0.8 = 1.234; 4 x 1.234 = 4.9.
    assert rule.wish(reading(15.0, desired=4, busy=1.0)) == 5


# ----- Ray Serve

def test_queue_rule_waits_before_it_goes_up_and_longer_before_it_goes_down() -> None:
    rule = QueueLength(2.0, window=1.0, up_delay=3.0, down_delay=5.0)
    wishes = [rule.wish(reading(float(now), ongoing=9.0)) for now in range(5)]
    # 9 frames, two a replica: 5, once that has been so for 3 s.
    assert wishes == [2, 2, 2, 5, 5]
    wishes = [rule.wish(reading(float(now), desired=5, ongoing=1.0)) for now in range(10, 17)]
    assert wishes == [5, 5, 5, 5, 5, 1, 1]


def test_queue_rule_starts_anew_when_it_changes_its_mind() -> None:
    rule = QueueLength(1.0, window=0.5, up_delay=2.0, down_delay=2.0)
    ongoing = [4.0, 2.0, 4.0, 4.0, 4.0]
    assert [rule.wish(reading(float(now), ongoing=count))
            for now, count in enumerate(ongoing)] == [2, 2, 2, 2, 4]


# ----- Knative

def stable_rule() -> TwoWindow:
    """Return the rule with windows of 20 s and 2 s."""
    return TwoWindow(1.0, stable=20.0, panic_share=0.1, period=2.0)


def run(rule: Rule, begin: int, end: int, ongoing: float, desired: int) -> list[int]:
    """Return the wishes of each second of a span."""
    return [rule.wish(reading(float(now), desired=desired, ongoing=ongoing))
            for now in range(begin, end)]


def test_two_window_rule_follows_the_stable_mean() -> None:
    assert run(stable_rule(), 0, 10, 3.0, 3) == [3] * 10


def test_two_window_rule_panics_at_twice_what_is_ready_and_never_goes_down_then() -> None:
    rule = stable_rule()
    assert run(rule, 0, 20, 2.0, 2) == [2] * 20
    # At 20 s: the last three samples are 2, 2, 10: 4.67, up to 5, over twice 2.
    assert run(rule, 20, 22, 10.0, 2) == [5, 5]
    # At 22 s all three are 10.
    assert run(rule, 22, 24, 10.0, 5) == [10, 10]
    # Quiet again, but for the 20 s since the last cause (at 22 s) the most stays.
    assert run(rule, 24, 42, 1.0, 10) == [10] * 18
    # Then the stable mean of the 20 s before 42 s: two of 10 and nineteen of 1, 1.86, but never
    # less than half of what is ready.
    assert run(rule, 42, 43, 1.0, 10) == [5]


# ----- rules of load

def test_capacity_rule_divides_the_load_by_the_utilisation() -> None:
    # 6 / s x 0.5 s = 3 busy; at 70 %: 4.3.
    assert CapacityRule(0.7).wish(reading(rate=6.0)) == 5
    # Exactly 4, whatever the last digit says.
    assert CapacityRule(0.75).wish(reading(rate=6.0)) == 4
    assert CapacityRule(0.7).wish(reading()) == 0


def test_capacity_rule_keeps_the_most_of_its_window() -> None:
    rule = CapacityRule(0.5, stabilisation=10.0)
    assert rule.wish(reading(0.0, rate=6.0)) == 6
    assert rule.wish(reading(5.0, rate=2.0)) == 6
    assert rule.wish(reading(10.5, rate=1.0)) == 2
    assert rule.wish(reading(16.0, rate=1.0)) == 1


def test_square_root_staffing_is_halfin_and_whitts() -> None:
    # P(wait) = 0.1 is beta = 1.42: 4 + 1.42 x 2 = 6.84.
    assert SquareRootStaffing(0.1).wish(reading(rate=8.0)) == 7
    # 100 + 1.42 x 10 = 114.2
    assert SquareRootStaffing(0.1).wish(reading(rate=200.0)) == 115


def test_fixed_changes_nothing() -> None:
    assert Fixed().wish(reading(desired=3, ongoing=100.0)) == 3


# ----- who knows the future

def test_clairvoyant_is_ready_before_frames_come() -> None:
    # In service: 1 from 10 s, 2 from 10.4, 3 from 10.8, 2 from 11, 1 from 11.4, 0 from 11.8 s.
    rule = Clairvoyant([Foreseen([10.0, 10.4, 10.8], 1.0)], 2.0, hold=1.0)
    wishes = {now: rule.wish(reading(now)) for now in (0.0, 6.9, 7.2, 7.5, 7.9, 10.9, 11.5, 12.0)}
    assert wishes == {
        0.0: 0, 6.9: 0, 7.2: 1, 7.5: 2, 7.9: 3, 10.9: 3, 11.5: 1, 12.0: 0}


def test_clairvoyant_passes_on_what_the_first_pool_has_no_room_for() -> None:
    times = [0.0, 0.1, 0.2, 0.3, 0.4]
    # 5 at a time, 2 of them at home; the other pool is twice as fast.
    rule = Clairvoyant([Foreseen(times, 1.0, 2, 0.5)], 1.0, hold=0.0)
    assert rule.wish(reading(0.0)) == 2
    assert Clairvoyant([Foreseen(times, 1.0, 2, 0.5)], 1.0, hold=0.0, slack=2.0).wish(
        reading(0.0)) == 3
