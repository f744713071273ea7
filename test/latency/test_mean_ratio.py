"""Test the mean with change detection by itself."""

from __future__ import annotations

import math
import random

from laimr_ros.latency.mean_ratio import MeanRatio
import pytest


def feed(mean: MeanRatio, ratio: float) -> int:
    """Learn one ratio."""
    return mean.update(ratio, math.log(ratio) - mean.log_mean)


def make(deviation: float = 0.2) -> MeanRatio:
    return MeanRatio(50, deviation, 8.0, 1e6)


@pytest.mark.parametrize(('sigma', 'factor', 'frames'), [
    (0.1, 1.5, 5.0), (0.2, 1.5, 10.0), (0.2, 0.6, 7.0), (0.2, 3.0, 5.0)])
def test_a_shift_is_found_soon_and_starts_the_mean_anew(
    sigma: float, factor: float, frames: float
) -> None:
    delays, errors, early = [], [], []
    for seed in range(30):
        rng = random.Random(seed)
        mean = make(sigma)
        for _ in range(500):
            feed(mean, rng.lognormvariate(0.0, sigma))
        before, delay, moved = mean.changes, 0, 0
        while not moved and delay < 100:
            moved = feed(mean, factor * rng.lognormvariate(0.0, sigma))
            delay += 1
        assert mean.changes == before + 1
        early.append(max(0, moved - delay))
        delays.append(delay)
        errors.append(math.log(mean.mean / factor) - sigma * sigma / 2.0)
    assert sum(delays) / 30 <= frames
    # A few frames before the shift may look as if they belonged to it.
    assert sum(early) / 30 <= 5.0
    assert sum(errors) / 30 == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize('kind', ['gaussian', 'bimodal', 'heavy'])
def test_steady_frames_hardly_ever_look_like_a_change(kind: str) -> None:
    # Of 20,000 frames; each change costs a few frames of a rougher mean, no more.
    rng = random.Random(2)
    mean = make()
    for _ in range(20_000):
        if kind == 'gaussian':
            ratio = rng.lognormvariate(0.0, 0.2)
        elif kind == 'bimodal':
            ratio = rng.lognormvariate(0.0 if rng.random() < 0.7 else 0.8, 0.1)
        else:
            ratio = rng.paretovariate(2.5)
        feed(mean, ratio)
    assert mean.changes <= (10 if kind == 'heavy' else 3)


def test_a_wrong_first_guess_of_the_spread_is_corrected() -> None:
    for guess in (0.02, 2.0):
        rng = random.Random(3)
        mean = make(guess)
        for _ in range(1000):
            feed(mean, rng.lognormvariate(0.0, 0.3))
        assert mean.deviation == pytest.approx(0.3, rel=0.25)


def test_rescaling_multiplies_and_limits_hold() -> None:
    mean = make()
    for _ in range(50):
        feed(mean, 2.0)
    mean.rescale(0.5)
    assert mean.mean == pytest.approx(1.0)
    mean.rescale(1e300)
    assert mean.mean == 1e6
    mean.rescale(1e-300)
    assert mean.mean == 1e-6
    assert mean.log_mean == pytest.approx(math.log(1e-6))
