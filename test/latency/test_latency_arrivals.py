"""Test the arrival rate estimators."""

from __future__ import annotations

import itertools
import math
import random

from arrival_streams import beats, stream
from hypothesis import given
import hypothesis.strategies as st
from laimr_ros.latency.arrivals import Arrivals, WindowRate
import pytest


def test_rate_is_zero_before_the_first_arrival() -> None:
    window = WindowRate(2.0)
    assert window.rate(0.0) == 0.0
    assert window.rate(1e9) == 0.0


def test_first_arrivals_do_not_read_as_a_burst() -> None:
    window = WindowRate(30.0, min_span=1.0)
    window.add(100.0)
    assert window.rate(100.0) == 1.0
    window.add(100.01)
    assert window.rate(100.01) == 2.0


@pytest.mark.parametrize('window', [2.0, 5.0, 30.0])
def test_rate_is_right_before_a_whole_window_has_passed(window: float) -> None:
    rate = WindowRate(window)
    for k in range(11):
        rate.add(50.0 + 0.1 * k)
    # 11 arrivals in the one second since the first.
    assert rate.rate(51.0) == pytest.approx(11.0, rel=0.01)


@pytest.mark.parametrize(('window', 'true'), [(2.0, 10.0), (2.0, 333.0), (30.0, 0.5), (30.0, 7.0)])
def test_steady_arrivals_give_their_rate(window: float, true: float) -> None:
    rate = WindowRate(window)
    count = int(5 * window * true)
    for k in range(count):
        rate.add(k / true)
    assert rate.rate(count / true) == pytest.approx(true, abs=1.5 / window)


@pytest.mark.parametrize('asked_meanwhile', [False, True])
def test_silence_gives_exactly_zero(asked_meanwhile: bool) -> None:
    rate = WindowRate(2.0)
    for k in range(100):
        rate.add(0.05 * k)
    last = 0.05 * 99
    if asked_meanwhile:
        for k in range(1, 20):
            assert rate.rate(last + 0.1 * k) > 0.0
    assert rate.rate(last + 2.0 + 2.0 / WindowRate.BUCKETS) == 0.0
    assert rate.rate(last + 1000.0) == 0.0


@pytest.mark.parametrize('asked_meanwhile', [False, True])
def test_arrivals_after_silence_start_afresh(asked_meanwhile: bool) -> None:
    rate = WindowRate(2.0, min_span=1.0)
    for k in range(100):
        rate.add(0.05 * k)
    if asked_meanwhile:
        assert rate.rate(50.0) == 0.0
    rate.add(100.0)
    assert rate.rate(100.0) == 1.0
    rate.add(100.5)
    assert rate.rate(100.5) == 2.0


def test_memory_is_bounded() -> None:
    rate = WindowRate(30.0)
    most = 0
    for k in range(100_000):
        rate.add(k * 1e-3)
        most = max(most, len(rate._buckets))
    assert most <= WindowRate.BUCKETS + 2


def test_several_arrivals_count_at_once() -> None:
    one, many = WindowRate(2.0), WindowRate(2.0)
    for k in range(40):
        for _ in range(3):
            one.add(0.1 * k)
        many.add(0.1 * k, 3)
    assert many.rate(4.0) == one.rate(4.0)


@given(
    gaps=st.lists(st.one_of(st.floats(0.0, 0.2), st.floats(0.0, 5.0)), min_size=1, max_size=200),
    later=st.floats(0.0, 5.0), asked=st.booleans())
def test_rate_lies_between_exact_counts_a_bucket_apart(
    gaps: list[float], later: float, asked: bool
) -> None:
    window, width = 2.0, 2.0 / WindowRate.BUCKETS
    rate = WindowRate(window, min_span=1.0)
    times = []
    now = 0.0
    for gap in gaps:
        now += gap
        times.append(now)
        rate.add(now)
        if asked:
            rate.rate(now)
    now += later
    fewest = sum(t > now - window + width + 1e-9 for t in times)
    most = sum(t > now - window - width - 1e-9 for t in times)
    value = rate.rate(now)
    # The time divided by lies between the shortest span and the whole window.
    assert fewest / window - 1e-9 <= value <= most / 1.0 + 1e-9
    if now > window and min(times, default=now) < now - window - width and asked is False:
        gap = max((b - a for a, b in itertools.pairwise(times)), default=0.0)
        if gap < window:
            assert value <= most / window + 1e-9


def test_poisson_arrivals_are_unbiased() -> None:
    rng = random.Random(1)
    rate = WindowRate(2.0)
    readings = []
    now, ask = 0.0, 5.0
    while now < 2000.0:
        now += rng.expovariate(6.0)
        while ask < now:
            readings.append(rate.rate(ask))
            ask += 1.0
        rate.add(now)
    mean = sum(readings) / len(readings)
    # Standard error: sqrt(6 / 2000) = 0.055.
    assert mean == pytest.approx(6.0, abs=0.2)


def test_fast_reading_sees_a_step_first() -> None:
    arrivals = Arrivals(2.0, 30.0)
    now = 0.0
    for _ in range(60):
        now += 1.0
        arrivals.add(now)
    for _ in range(20):
        now += 0.1
        arrivals.add(now)
    assert arrivals.fast(now) == pytest.approx(10.0, rel=0.15)
    assert arrivals.slow(now) == pytest.approx((28 + 20) / 30, rel=0.1)


def test_forecast_of_steady_arrivals_is_their_rate() -> None:
    arrivals = Arrivals(2.0, 30.0)
    for k in range(1000):
        arrivals.add(0.1 * k)
    assert arrivals.forecast(100.0, 5.0) == pytest.approx(10.0, rel=0.15)


def test_forecast_carries_a_rise_on_and_at_most_doubles_it() -> None:
    arrivals = Arrivals(2.0, 30.0)
    now, rate = 0.0, 2.0
    while now < 60.0:
        rate = 2.0 + 0.1 * now
        now += 1.0 / rate
        arrivals.add(now)
    # Rising by 0.1 frames/s each second: in 10 s it is one frame/s more than now.
    fast = arrivals.fast(now)
    assert fast == pytest.approx(rate, rel=0.15)
    assert arrivals.forecast(now, 10.0) - fast == pytest.approx(1.0, rel=0.5)
    assert arrivals.forecast(now, 1e6) == pytest.approx(2.0 * fast)
    assert arrivals.forecast(now, 0.0) == fast


def test_forecast_of_falling_arrivals_is_the_slow_reading() -> None:
    arrivals = Arrivals(2.0, 30.0)
    for k in range(300):
        arrivals.add(0.1 * k)
    assert arrivals.fast(34.0) == 0.0
    assert arrivals.forecast(34.0, 10.0) == arrivals.slow(34.0) > 5.0


def test_slow_window_is_never_the_shorter_one() -> None:
    arrivals = Arrivals(10.0, 2.0)
    for k in range(300):
        arrivals.add(0.1 * k)
    assert arrivals.slow(30.0) == arrivals.fast(30.0)
    assert arrivals.forecast(30.0, 5.0) == arrivals.fast(30.0)


def test_a_burst_raises_the_alarm_and_its_end_puts_it_down() -> None:
    rng = random.Random(1)
    arrivals = Arrivals()
    now, raised, ended = 0.0, math.nan, math.nan
    while now < 120.0:
        now += rng.expovariate(30.0 if 60.0 <= now < 66.0 else 6.0)
        arrivals.add(now)
        if now < 60.0:
            assert not arrivals.bursting(now)
        elif arrivals.bursting(now):
            raised = now if math.isnan(raised) else raised
            ended = now
    assert 60.0 < raised < 61.0
    assert 65.0 < ended < 72.0


def test_a_burst_that_lasts_becomes_normal() -> None:
    rng = random.Random(2)
    arrivals = Arrivals()
    now, last = 0.0, 0.0
    while now < 400.0:
        now += rng.expovariate(20.0 if now > 60.0 else 5.0)
        arrivals.add(now)
        if arrivals.bursting(now):
            last = now
    assert 60.0 < last < 120.0


@pytest.mark.parametrize('seed', range(5))
def test_start_up_and_steady_traffic_raise_no_alarm(seed: int) -> None:
    rng = random.Random(seed)
    arrivals = Arrivals(false_alarm_interval=36_000.0)
    now = 1000.0
    while now < 1600.0:
        now += rng.expovariate(6.0)
        arrivals.add(now)
        # The first half minute's baseline rests on few frames.
        if not 1005.0 < now < 1030.0:
            assert not arrivals.bursting(now)


def test_false_alarms_with_a_measured_baseline_are_no_more_often_than_stated() -> None:
    raised, hours = 0, 4.0
    rng = random.Random(3)
    arrivals = Arrivals(false_alarm_interval=600.0)
    now, was = 0.0, False
    while now < 3600.0 * hours:
        now += rng.expovariate(6.0)
        arrivals.add(now)
        up = arrivals.bursting(now)
        raised += up and not was
        was = up
    expected = 6.0 * hours
    assert raised <= expected + 2.0 * math.sqrt(expected)


@pytest.mark.parametrize('asked_meanwhile', [False, True])
def test_after_silence_all_readings_start_afresh(asked_meanwhile: bool) -> None:
    arrivals = Arrivals()
    for k in range(1000):
        arrivals.add(0.1 * k)
    if asked_meanwhile:
        for k in range(100):
            now = 100.0 + k
            assert arrivals.upper(now, 3.0) >= 0.0
            assert arrivals.ca2(now) <= 1.0
    now = 1e5
    readings = (arrivals.fast, arrivals.slow, arrivals.smoothed)
    assert [reading(now) for reading in readings] == [0.0, 0.0, 0.0]
    assert arrivals.upper(now, 5.0) == arrivals.forecast(now, 5.0) == 0.0
    assert not arrivals.bursting(now)
    arrivals.add(now)
    assert arrivals.fast(now) == arrivals.slow(now) == 1.0
    for k in range(1, 40):
        arrivals.add(now + 0.1 * k)
    assert arrivals.slow(now + 4.0) == pytest.approx(10.0, rel=0.05)
    assert not arrivals.bursting(now + 4.0)


def test_before_the_first_arrival_everything_is_defined() -> None:
    arrivals = Arrivals()
    assert arrivals.upper(5.0, 1.0) == arrivals.smoothed(5.0) == 0.0
    assert arrivals.ca2(5.0) == arrivals.dispersion(5.0, 1.0) == 1.0
    assert arrivals.ca2(5.0, prior=0.4) == 0.4
    assert not arrivals.bursting(5.0)
    assert arrivals.coverage == 1.0


def test_periodic_robots_are_told_from_poisson() -> None:
    _, times = stream('poisson', 1, 400.0)
    poisson, periodic = Arrivals(), Arrivals()
    for now in times:
        poisson.add(now)
    for now in beats(random.Random(1), 6, 400.0):
        periodic.add(now)
    assert poisson.ca2(400.0, 3.2) == pytest.approx(1.0, abs=0.4)
    assert periodic.ca2(400.0, 3.2) < 0.3
    assert periodic.upper(400.0, 3.0) < 6.6 < poisson.upper(400.0, 3.0) + 0.6


def test_readings_do_not_depend_on_who_asks() -> None:
    rng = random.Random(6)
    asked, left = Arrivals(), Arrivals()
    now = 0.0
    for k in range(2000):
        now += rng.expovariate(0.05 if k % 500 == 499 else 8.0)
        asked.slow(now)
        asked.ca2(now)
        asked.bursting(now)
        asked.add(now)
        left.add(now)
        if k % 10 == 0:
            assert asked.slow(now) == pytest.approx(left.slow(now))
            assert asked.fast(now) == pytest.approx(left.fast(now))
            assert asked.smoothed(now) == left.smoothed(now)
            assert asked.ca2(now) == left.ca2(now)
            assert asked.bursting(now) == left.bursting(now)
