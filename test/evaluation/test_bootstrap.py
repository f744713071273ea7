"""Intervals cover what they are to cover, as often as they are to."""

from __future__ import annotations

import math

from laimr_ros.evaluation.bootstrap import interval, median_interval
import numpy as np


def test_the_median_is_covered_as_often_as_said():
    # Twenty normal values each; a percentile interval is a little too short at such a size.
    random = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        low, high = median_interval(random.normal(5.0, 2.0, 20).tolist())
        covered += low <= 5.0 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_pairs_stay_together():
    # The two columns differ by exactly 1 in every seed, so their difference is certain.
    values = [(x, x + 1.0) for x in (1.0, 5.0, 9.0, 30.0)]
    assert interval(lambda s: (s[:, :, 1] - s[:, :, 0]).mean(axis=1), values) == (1.0, 1.0)


def test_one_seed_tells_nothing():
    assert all(math.isnan(end) for end in median_interval([1.0]))


def test_missing_frames_reach_into_the_interval():
    low, high = median_interval([1.0, 1.1, 1.2, math.inf, math.inf])
    assert low == 1.0
    assert high == math.inf


def test_resamples_without_a_number_are_left_out():
    # Two seeds: half the resamples are one of them twice and have no scatter to compare.
    def ratio(samples):
        return samples.std(axis=1)[:, 0] / samples.std(axis=1)[:, 1]

    assert interval(ratio, [(1.0, 2.0), (2.0, 4.0)]) == (0.5, 0.5)
    assert all(math.isnan(end) for end in interval(ratio, [(1.0, 1.0), (1.0, 1.0)]))
