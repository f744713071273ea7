"""Test the quantiles of recent latencies."""

from __future__ import annotations

import math
import random

from laimr_ros.control.statistics import RecentLatencies
import numpy as np
import pytest


def test_without_samples_nothing_is_known() -> None:
    assert all(math.isnan(q) for q in RecentLatencies().quantiles(0.0, 0.5, 0.99))


@pytest.mark.parametrize('count', [1, 2, 99, 100, 1000])
def test_quantiles_are_those_of_nearest_rank(count: int) -> None:
    rng = random.Random(count)
    values = [rng.expovariate(1.0) for _ in range(count)]
    latencies = RecentLatencies()
    for value in values:
        latencies.add(0.0, value)
    ps = (0.5, 0.95, 0.99, 1.0)
    expected = np.quantile(values, ps, method='inverted_cdf')
    assert latencies.quantiles(0.0, *ps) == pytest.approx(tuple(expected))


def test_old_samples_do_not_count() -> None:
    latencies = RecentLatencies(window=60.0)
    latencies.add(0.0, 9.0)
    latencies.add(50.0, 1.0)
    assert latencies.quantiles(60.0, 1.0) == (9.0,)
    assert latencies.quantiles(60.1, 1.0) == (1.0,)
    assert math.isnan(latencies.quantiles(111.0, 1.0)[0])


def test_memory_is_bounded_by_the_newest() -> None:
    latencies = RecentLatencies(size=10)
    for k in range(1000):
        latencies.add(0.0, float(k))
    assert latencies.quantiles(0.0, 0.01, 1.0) == (990.0, 999.0)
