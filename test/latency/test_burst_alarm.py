"""Test the burst alarm: its false alarms and its delay, by simulation."""

from __future__ import annotations

import math
import random

from laimr_ros.latency.burst_alarm import BurstAlarm, mean_arrivals_to_alarm, threshold_for
import numpy as np
import pytest


def alarms_of(alarm: BurstAlarm, rate: float, seconds: float, seed: int, batch: int = 1) -> int:
    """Return how often Poisson arrivals (or batches) raise an alarm that is put down each time."""
    rng = random.Random(seed)
    now, alarms = 0.0, 0
    told = rate * batch, float(batch) if batch > 1 else 1.0
    alarm.expect(*told)
    while now < seconds:
        now += rng.expovariate(rate)
        for _ in range(batch):
            alarm.add(now)
        if alarm.up(now):
            alarms += 1
            alarm.reset()
            alarm.expect(*told)
    return alarms


@pytest.mark.parametrize('ratio', [1.5, 2.0, 3.0])
@pytest.mark.parametrize('arrivals', [50.0, 300.0, 1500.0])
def test_run_length_formula_agrees_with_simulation(ratio: float, arrivals: float) -> None:
    threshold = threshold_for(arrivals, ratio)
    k = (ratio - 1.0) / math.log(ratio)
    rng = random.Random(7)
    lengths = []
    for _ in range(200):
        value, length = 0.0, 0
        while value < threshold:
            value = max(0.0, value - k * rng.expovariate(1.0)) + 1.0
            length += 1
        lengths.append(length)
    error = float(np.std(lengths)) / math.sqrt(len(lengths))
    assert float(np.mean(lengths)) == pytest.approx(arrivals, abs=3.0 * error)
    assert mean_arrivals_to_alarm(threshold, ratio) == pytest.approx(arrivals, rel=0.02)


@pytest.mark.parametrize('ratio', [1.5, 2.0, 4.0])
def test_thresholds_are_monotone_and_continuous(ratio: float) -> None:
    arrivals = [10.0 * 1.2 ** k for k in range(70)]
    thresholds = [threshold_for(a, ratio) for a in arrivals]
    steps = np.diff(thresholds)
    assert (steps > 0.0).all()
    assert steps.max() < 0.75


@pytest.mark.parametrize(('rate', 'seconds'), [(0.5, 60_000.0), (2.0, 12_000.0), (20.0, 6_000.0)])
def test_false_alarms_are_as_often_as_stated(rate: float, seconds: float) -> None:
    interval = 120.0
    alarms = alarms_of(BurstAlarm(2.0, interval), rate, seconds, 1)
    expected = seconds / interval
    assert alarms == pytest.approx(expected, abs=3.0 * math.sqrt(expected))


@pytest.mark.parametrize(('rate', 'soon'), [(2.0, 4.0), (6.0, 1.5), (50.0, 0.25)])
def test_a_tripled_rate_is_told_soon(rate: float, soon: float) -> None:
    delays = []
    for seed in range(60):
        rng = random.Random(seed)
        alarm = BurstAlarm(2.0, 3600.0)
        alarm.expect(rate)
        now = 0.0
        while now < 100.0 / rate:
            now += rng.expovariate(rate)
            alarm.add(now)
        begun = now
        while not alarm.up(now):
            now += rng.expovariate(3.0 * rate)
            alarm.add(now)
        delays.append(now - begun)
    assert float(np.mean(delays)) < soon


def test_the_alarm_ends_soon_after_the_burst() -> None:
    alarm = BurstAlarm(2.0, 3600.0)
    alarm.expect(6.0)
    for k in range(6000):
        alarm.add(0.01 * k)
    assert alarm.up(60.0)
    now = 60.0
    while alarm.up(now):
        now += 1.0 / 6.0
        alarm.add(now)
    assert now < 65.0


def test_the_alarm_ends_without_arrivals_too() -> None:
    alarm = BurstAlarm(2.0, 3600.0)
    alarm.expect(6.0)
    for k in range(600):
        alarm.add(0.01 * k)
    assert alarm.up(6.0)
    assert not alarm.up(8.0)
    alarm.add(9.0)
    assert not alarm.up(9.0)


def test_overdispersed_traffic_does_not_alarm_more_often() -> None:
    # Batches of four: index of dispersion 4.
    interval, seconds = 300.0, 20_000.0
    expected = seconds / interval
    assert alarms_of(BurstAlarm(2.0, interval), 2.0, seconds, 3, batch=4) <= (
        expected + 3.0 * math.sqrt(expected))


def test_quiet_until_it_is_told_what_is_normal() -> None:
    alarm = BurstAlarm()
    for k in range(1000):
        alarm.add(0.001 * k)
        assert not alarm.up(0.001 * k)
    alarm.expect(1000.0)
    alarm.add(1.0)
    assert not alarm.up(1.0)


@pytest.mark.parametrize(('ratio', 'interval', 'message'), [
    (1.0, 60.0, 'burst ratio is 1.0'), (math.nan, 60.0, 'burst ratio'),
    (math.inf, 60.0, 'burst ratio'), (2.0, 0.0, 'false alarm interval is 0.0')])
def test_wrong_numbers_are_refused(ratio: float, interval: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BurstAlarm(ratio, interval)
