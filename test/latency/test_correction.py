"""Test the online correction of the service-time model."""

from __future__ import annotations

import math
import random

from hypothesis import given, strategies as st
from laimr_ros.latency.correction import Correction
from laimr_ros.latency.model import lognormal_quantile
import pytest


def draw(rng: random.Random, mean: float, cv: float) -> float:
    """Return a lognormal sample."""
    variance = math.log(1.0 + cv * cv)
    return mean * rng.lognormvariate(-variance / 2.0, math.sqrt(variance))


def test_without_evidence_the_model_is_believed() -> None:
    correction = Correction(0.95, 1.3)
    assert correction.samples == 0
    assert correction.mean_ratio == 1.0
    assert correction.tail_ratio == pytest.approx(1.3)


@pytest.mark.parametrize('ratio', [0.1, 0.5, 1.0, 1.5, 5.0])
def test_a_constant_ratio_is_found_at_once(ratio: float) -> None:
    correction = Correction(0.95, 1.3)
    correction.update(0.2, 0.2 * ratio)
    correction.update(0.2, 0.2 * ratio)
    assert correction.mean_ratio == pytest.approx(max(1.0 / 8.0, ratio), rel=0.15)


@pytest.mark.parametrize('ratio', [0.01, 100.0])
def test_a_ratio_beyond_one_step_is_found_too(ratio: float) -> None:
    correction = Correction(0.95, 1.3)
    for _ in range(1000):
        correction.update(0.2, 0.2 * ratio)
    assert correction.mean_ratio == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize('cv', [0.05, 0.3, 1.0])
@pytest.mark.parametrize('ratio', [0.4, 1.0, 3.0])
def test_the_mean_is_the_arithmetic_mean(cv: float, ratio: float) -> None:
    # Scaling multiplies rates with it: a geometric mean would ask for too few replicas.
    rng = random.Random(2)
    correction = Correction(0.95, 1.3)
    ratios = []
    for k in range(4000):
        correction.update(0.1, draw(rng, 0.1 * ratio, cv))
        if k >= 500:
            ratios.append(correction.mean_ratio)
    assert sum(ratios) / len(ratios) == pytest.approx(ratio, rel=0.05)


@pytest.mark.parametrize('tail', [0.9, 0.95])
@pytest.mark.parametrize('cv', [0.1, 0.5])
@pytest.mark.parametrize('first_guess', [1.0, 4.0])
def test_the_tail_is_covered_as_asked(tail: float, cv: float, first_guess: float) -> None:
    rng = random.Random(3)
    correction = Correction(tail, first_guess)
    covered = []
    for k in range(6000):
        bound = 0.1 * correction.mean_ratio * correction.tail_ratio
        actual = draw(rng, 0.17, cv)
        if k >= 1000:
            covered.append(actual <= bound)
        correction.update(0.1, actual)
    assert sum(covered) / len(covered) == pytest.approx(tail, abs=0.02)


def test_the_tail_is_near_the_true_quantile() -> None:
    rng = random.Random(4)
    correction = Correction(0.95, 1.0)
    tails = []
    for k in range(6000):
        correction.update(0.1, draw(rng, 0.1, 0.3))
        if k >= 1000:
            tails.append(correction.tail_ratio)
    assert sum(tails) / len(tails) == pytest.approx(
        lognormal_quantile(1.0, 0.3, 0.95), rel=0.1)


def test_a_shift_is_followed() -> None:
    rng = random.Random(5)
    correction = Correction(0.95, 1.3, memory=50)
    for _ in range(500):
        correction.update(0.1, draw(rng, 0.1, 0.15))
    for _ in range(150):
        correction.update(0.1, draw(rng, 0.15, 0.15))
    assert correction.mean_ratio == pytest.approx(1.5, rel=0.08)


def test_one_outlier_moves_little() -> None:
    correction = Correction(0.95, 1.3, memory=50)
    for _ in range(200):
        correction.update(0.1, 0.1)
    tail = correction.tail_ratio
    correction.update(0.1, 1e6)
    assert 1.0 < correction.mean_ratio <= 1.0 + 7.0 / 50.0 + 1e-9
    assert correction.tail_ratio <= tail * math.exp(0.05)
    correction.update(0.1, math.inf)
    assert correction.mean_ratio < 1.35


@pytest.mark.parametrize(('modelled', 'actual'), [
    (0.0, 0.1), (-1.0, 0.1), (math.inf, 0.1), (math.nan, 0.1), (0.1, 0.0), (0.1, -1.0),
    (0.1, math.nan)])
def test_nonsense_teaches_nothing(modelled: float, actual: float) -> None:
    correction = Correction(0.95, 1.3)
    correction.update(modelled, actual)
    assert (correction.samples, correction.mean_ratio) == (0, 1.0)


@given(st.lists(st.floats(1e-9, 1e300) | st.just(math.inf), max_size=300))
def test_whatever_comes_it_stays_a_number(actuals: list[float]) -> None:
    correction = Correction(0.95, 1.3)
    for actual in actuals:
        correction.update(0.1, actual)
        assert 0.0 < correction.mean_ratio < math.inf
        assert 1.0 <= correction.tail_ratio <= 8.0 + 1e-9
