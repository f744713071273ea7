"""Test the tail tracker by itself."""

from __future__ import annotations

import math
import random

from laimr_ros.latency.tail import LOG_LIMIT, TailTracker
import pytest


def test_the_prior_is_used_until_residuals_can_tell() -> None:
    tracker = TailTracker(0.01, 0.4)
    assert tracker.log_quantile == 0.4
    tracker.update(0.6)
    assert tracker.log_quantile == 0.6
    for _ in range(17):
        tracker.update(0.1)
    assert tracker.log_quantile == 0.6


@pytest.mark.parametrize('alpha', [0.1, 0.05, 0.01])
def test_quantile_is_right_on_average(alpha: float) -> None:
    rng = random.Random(1)
    tracker = TailTracker(alpha, 0.1)
    quantiles = []
    for k in range(20_000):
        tracker.update(rng.expovariate(5.0))
        if k > 1000:
            quantiles.append(tracker.log_quantile)
    assert sum(quantiles) / len(quantiles) == pytest.approx(-math.log(alpha) / 5.0, rel=0.06)
    assert tracker.coverage == pytest.approx(1.0 - alpha, abs=0.003 + 0.02 * alpha)


def test_long_run_coverage_holds_under_drift() -> None:
    # Residuals that widen and narrow all the time: the window's quantile alone would be late.
    rng = random.Random(2)
    tracker = TailTracker(0.01, 0.2)
    for k in range(30_000):
        width = 0.2 * (1.0 + 0.8 * math.sin(2.0 * math.pi * k / 1500.0))
        tracker.update(rng.gauss(0.0, width))
    assert tracker.coverage == pytest.approx(0.99, abs=0.0035)


def test_a_censored_frame_is_a_miss_beyond_the_quantile() -> None:
    tracker = TailTracker(0.05, 0.2)
    for _ in range(100):
        tracker.update(0.0)
    for _ in range(10):
        tracker.update(0.0, censored=True)
    assert tracker.misses == 10
    assert tracker.log_quantile > 0.01


def test_revised_residuals_take_the_place_of_the_newest() -> None:
    rng = random.Random(3)
    revised, expected = TailTracker(0.05, 0.2), TailTracker(0.05, 0.2)
    for _ in range(250):
        value = rng.gauss(0.0, 0.2)
        revised.update(value)
        expected.update(value)
    for value in (1.0, 1.1, 1.2):
        revised.update(value)
    for value in (0.1, 0.15, -0.2):
        expected.update(value)
    revised.revise([0.1, 0.15, -0.2])
    assert revised._sorted == expected._sorted
    assert list(revised._residuals) == list(expected._residuals)
    assert sorted(revised._residuals) == revised._sorted


def test_more_revisions_than_residuals_are_no_trouble() -> None:
    tracker = TailTracker(0.05, 0.2)
    tracker.update(0.3)
    tracker.revise([0.0] * 10)
    assert list(tracker._residuals) == [0.0]


def test_quantile_stays_within_its_bounds() -> None:
    tracker = TailTracker(0.01, 100.0)
    assert tracker.log_quantile == LOG_LIMIT
    for value in [math.inf, -math.inf, 1e300, -5.0] * 300:
        tracker.update(value)
        assert 0.0 <= tracker.log_quantile <= LOG_LIMIT
    assert TailTracker(0.01, -1.0).log_quantile == 0.0
