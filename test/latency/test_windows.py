"""Test the paper's smoothed rate and the spans of windows."""

from __future__ import annotations

import random

from laimr_ros.latency.windows import EwmaRate, WindowRate
import pytest


def test_span_is_what_the_rate_divides_by() -> None:
    window = WindowRate(2.0, min_span=0.5)
    assert window.span(0.0) == 0.0
    window.add(10.0)
    assert window.span(10.1) == 0.5
    assert window.span(11.0) == 1.0
    window.add(11.5)
    window.add(12.5)
    assert window.span(12.5) == 2.0
    assert window.span(20.0) == 0.0


def test_smoothing_follows_the_papers_recurrence() -> None:
    # Independent: the recurrence written out over exact window counts.
    rng = random.Random(1)
    weight, window = 0.3, 2.0
    rate = EwmaRate(weight, window)
    reference = WindowRate(window)
    now, value = 0.0, None
    for _ in range(500):
        now += min(1.9, rng.expovariate(5.0))
        reference.add(now)
        rate.add(now)
        reading = reference.rate(now)
        value = reading if value is None else weight * reading + (1.0 - weight) * value
        assert rate.rate(now) == pytest.approx(value)


def test_start_is_the_first_reading_not_zero() -> None:
    rate = EwmaRate(0.1)
    assert rate.rate(0.0) == 0.0
    rate.add(50.0)
    assert rate.rate(50.0) == 1.0


def test_silence_counts_as_readings_of_zero() -> None:
    rate = EwmaRate(0.5, 2.0)
    for k in range(100):
        rate.add(0.1 * k)
    last = 9.9
    value = rate.rate(last)
    assert value == pytest.approx(10.0, rel=0.1)
    assert rate.rate(last + 1.9) == value
    assert rate.rate(last + 2.1) == pytest.approx(0.5 * value)
    assert rate.rate(last + 6.1) == pytest.approx(0.125 * value)


@pytest.mark.parametrize('asked_meanwhile', [False, True])
def test_after_long_silence_it_starts_afresh(asked_meanwhile: bool) -> None:
    rate = EwmaRate(0.1, 2.0)
    for k in range(100):
        rate.add(0.1 * k)
    if asked_meanwhile:
        assert rate.rate(20.0) > 0.0
    assert rate.rate(9.9 + 20.1) == 0.0
    rate.add(100.0)
    assert rate.rate(100.0) == 1.0


def test_asking_changes_nothing() -> None:
    asked, left = EwmaRate(0.3, 1.0), EwmaRate(0.3, 1.0)
    rng = random.Random(2)
    now = 0.0
    for _ in range(200):
        now += rng.expovariate(0.8)
        for k in range(3):
            asked.rate(now - 0.01 * (3 - k))
        asked.add(now)
        left.add(now)
        assert asked.rate(now) == left.rate(now)


@pytest.mark.parametrize('weight', [0.0, -0.1, 1.1, float('nan')])
def test_a_wrong_weight_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match='EWMA weight is'):
        EwmaRate(weight)
