"""Test the online refit of the power law and its guards."""

from __future__ import annotations

from collections.abc import Callable
import json
import math
import random

from hypothesis import given, settings
import hypothesis.strategies as st
from laimr_ros.latency.correction import Correction
from laimr_ros.latency.model import lognormal_quantile, PowerLaw
from laimr_ros.latency.refit import PowerLawRefit
import pytest

CALIBRATION = PowerLaw(0.73, 1.29, 1.49, 0.15)
Serve = Callable[[random.Random, float], float]


def served(law: PowerLaw) -> Serve:
    """Return a worker that follows a law, lognormal about its mean."""
    sigma = math.sqrt(math.log1p(law.cv ** 2))

    def serve(rng: random.Random, load: float) -> float:
        return law.mean(load, 1) * rng.lognormvariate(-sigma * sigma / 2.0, sigma)

    return serve


def run(refit: PowerLawRefit, serve: Serve, frames: int, seed: int = 1) -> None:
    """Serve frames at loads from 0.2 to 1.5 frames/s per replica."""
    rng = random.Random(seed)
    for _ in range(frames):
        load = rng.uniform(0.2, 1.5)
        refit.update(3.0 * load, 3, serve(rng, load))


def test_it_starts_from_the_calibration() -> None:
    refit = PowerLawRefit(CALIBRATION)
    assert refit.model is CALIBRATION
    assert not refit.active


@pytest.mark.parametrize(('alpha', 'beta'), [(0.73, 2.2), (1.1, 1.29), (1.1, 1.9), (0.5, 0.7)])
def test_it_finds_another_law(alpha: float, beta: float) -> None:
    refit = PowerLawRefit(CALIBRATION)
    run(refit, served(PowerLaw(alpha, beta, 1.49, 0.15)), 3000)
    assert refit.active
    assert refit.model.alpha == pytest.approx(alpha, rel=0.08)
    assert refit.model.beta == pytest.approx(beta, rel=0.08)
    assert refit.model.gamma == CALIBRATION.gamma
    fitted, calibrated = refit.errors
    assert fitted < calibrated


@pytest.mark.parametrize('seed', range(5))
def test_a_right_calibration_is_kept_or_hardly_changed(seed: int) -> None:
    refit = PowerLawRefit(CALIBRATION)
    run(refit, served(CALIBRATION), 3000, seed)
    for load in (0.2, 0.8, 1.5):
        assert refit.model.mean(load, 1) == pytest.approx(CALIBRATION.mean(load, 1), rel=0.04)


def test_outliers_do_not_carry_it_away() -> None:
    law = PowerLaw(1.0, 1.29, 1.49, 0.15)
    honest = served(law)

    def serve(rng: random.Random, load: float) -> float:
        return 100.0 if rng.random() < 0.03 else honest(rng, load)

    refit = PowerLawRefit(CALIBRATION)
    run(refit, serve, 3000)
    for load in (0.2, 0.8, 1.5):
        assert refit.model.mean(load, 1) == pytest.approx(law.mean(load, 1), rel=0.12)


@pytest.mark.parametrize('factor', [0.01, 100.0])
def test_it_stays_near_the_calibration(factor: float) -> None:
    refit = PowerLawRefit(CALIBRATION, distance=3.0)
    run(refit, served(PowerLaw(0.73 * factor, 1.29 * factor, 1.49)), 2000)
    assert 0.73 / 3.0 - 1e-9 <= refit.model.alpha <= 0.73 * 3.0 + 1e-9
    assert 1.29 / 3.0 - 1e-9 <= refit.model.beta <= 1.29 * 3.0 + 1e-9


def test_it_goes_back_to_the_calibration_when_that_predicts_better() -> None:
    refit = PowerLawRefit(CALIBRATION)
    run(refit, served(PowerLaw(1.4, 2.4, 1.49)), 2000)
    assert refit.active
    run(refit, served(CALIBRATION), 600, seed=2)
    for load in (0.2, 0.8, 1.5):
        assert refit.model.mean(load, 1) == pytest.approx(CALIBRATION.mean(load, 1), rel=0.08)


def test_one_load_alone_does_not_tear_the_parameters_apart() -> None:
    # At a single load only alpha + beta load**gamma can be known.
    law = PowerLaw(1.0, 1.29, 1.49, 0.15)
    serve, rng = served(law), random.Random(3)
    refit = PowerLawRefit(CALIBRATION)
    for _ in range(2000):
        refit.update(3.0, 3, serve(rng, 1.0))
    assert refit.model.mean(1.0, 1) == pytest.approx(law.mean(1.0, 1), rel=0.03)
    assert 0.7 < refit.model.alpha < 1.1
    assert 1.2 < refit.model.beta < 1.6


def test_a_calibration_without_slope_can_learn_one() -> None:
    refit = PowerLawRefit(PowerLaw(0.2, 0.0, 1.0, 0.1))
    run(refit, served(PowerLaw(0.2, 0.05, 1.0, 0.1)), 2000)
    assert refit.active
    assert refit.model.beta == pytest.approx(0.05, rel=0.25)


def test_it_says_when_the_model_is_another() -> None:
    refit = PowerLawRefit(CALIBRATION)
    rng, serve = random.Random(4), served(PowerLaw(1.2, 1.29, 1.49))
    changes = 0
    for _ in range(1000):
        load = rng.uniform(0.2, 1.5)
        before = refit.model
        changed = refit.update(load, 1, serve(rng, load))
        assert changed or refit.model == before
        changes += changed
    assert 1 <= changes <= 60


def test_together_with_the_correction_coverage_holds_and_the_model_takes_over() -> None:
    # A slope that is twice as steep: a factor alone is right at one load only.
    rng = random.Random(6)
    refit = PowerLawRefit(CALIBRATION)
    correction = Correction(0.99, lognormal_quantile(1.0, 0.15, 0.99))
    under: list[bool] = []
    ratios, tails = [], []
    for k in range(6000):
        serve = served(CALIBRATION if k < 1000 else PowerLaw(0.73, 2.58, 1.49, 0.15))
        load = rng.uniform(0.2, 1.5)
        base = refit.model.mean(load, 1)
        actual = serve(rng, load)
        under.append(actual <= base * correction.mean_ratio * correction.tail_ratio)
        correction.update(base, actual)
        if refit.update(load, 1, actual):
            correction.rebase(base, refit.model.mean(load, 1))
        if k >= 4000:
            ratios.append(correction.mean_ratio)
            tails.append(correction.tail_ratio)
    for begin in range(1360, 6000, 720):
        assert sum(under[begin:begin + 720]) / len(under[begin:begin + 720]) >= 0.98
    assert refit.active
    assert sum(ratios) / len(ratios) == pytest.approx(1.0, abs=0.05)
    # The residuals are those of the worker again, not of a wrong slope.
    assert sum(tails) / len(tails) == pytest.approx(
        lognormal_quantile(1.0, 0.15, 0.99), rel=0.06)


@pytest.mark.parametrize(('rate', 'replicas', 'actual'), [
    (1.0, 0, 0.5), (-1.0, 1, 0.5), (math.nan, 1, 0.5), (math.inf, 1, 0.5), (1.0, 1, 0.0),
    (1.0, 1, math.nan), (1.0, 1, math.inf)])
def test_nonsense_teaches_nothing(rate: float, replicas: int, actual: float) -> None:
    refit = PowerLawRefit(CALIBRATION)
    assert not refit.update(rate, replicas, actual)
    assert refit.frames == 0


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0.0, 1e3), st.integers(1, 100), st.floats(1e-9, 1e9)),
                min_size=50, max_size=200))
def test_whatever_comes_the_model_is_sound(frames: list[tuple[float, int, float]]) -> None:
    refit = PowerLawRefit(CALIBRATION)
    for rate, replicas, actual in frames:
        refit.update(rate, replicas, actual)
        assert 0.73 / 3.0 - 1e-9 <= refit.model.alpha <= 0.73 * 3.0 + 1e-9
        assert 1.29 / 3.0 - 1e-9 <= refit.model.beta <= 1.29 * 3.0 + 1e-9


def test_a_young_state_is_gone_on_from() -> None:
    before = PowerLawRefit(CALIBRATION)
    run(before, served(PowerLaw(1.1, 1.9, 1.49)), 1000)
    after = PowerLawRefit.from_state(
        json.loads(json.dumps(before.to_state())), 60.0, CALIBRATION)
    assert after.active
    assert after.model == before.model
    run(before, served(PowerLaw(0.9, 1.9, 1.49)), 300, seed=5)
    run(after, served(PowerLaw(0.9, 1.9, 1.49)), 300, seed=5)
    assert after.model == before.model


@pytest.mark.parametrize(('age', 'calibration', 'damage'), [
    (3601.0, CALIBRATION, {}), (-1.0, CALIBRATION, {}), (math.nan, CALIBRATION, {}),
    (1.0, PowerLaw(0.7, 1.29, 1.49), {}), (1.0, PowerLaw(0.73, 1.29, 0.9), {}),
    (1.0, CALIBRATION, {'fit': [1.0]}), (1.0, CALIBRATION, {'fit': [1.0, 'x']}),
    (1.0, CALIBRATION, {'fit': [9.0, 1.0]}), (1.0, CALIBRATION, {'fit': [-1.0, 1.0]}),
    (1.0, CALIBRATION, {'sums': [1.0, 2.0, 3.0, 4.0, math.nan]}),
    (1.0, CALIBRATION, {'judged': None}), (1.0, CALIBRATION, {'version': 0}),
    (1.0, CALIBRATION, {'errors': 3}), (1.0, CALIBRATION, {'errors': [1e308, 0.1]}),
    (1.0, CALIBRATION, {'fit': [1.0, 10 ** 400]}), (1.0, CALIBRATION, {'fit': [1.0, 0.0]}),
    (1.0, CALIBRATION, {'deviation': 1e308}), (1.0, CALIBRATION, {'deviation': 10 ** 400}),
    (1.0, CALIBRATION, {'frames': 10 ** 400}), (1.0, CALIBRATION, {'judged': 1e308}),
    (1.0, CALIBRATION, {'sums': [1e308] * 5}), (1.0, CALIBRATION, {'sums': [-1.0] * 5}),
    (1.0, CALIBRATION, {'sums': [1.0, 9.0, 1.0, 1.0, 1.0]})])
def test_an_old_foreign_or_damaged_state_is_not_used(
    age: float, calibration: PowerLaw, damage: dict[str, object]
) -> None:
    before = PowerLawRefit(CALIBRATION)
    run(before, served(PowerLaw(1.1, 1.9, 1.49)), 1000)
    after = PowerLawRefit.from_state({**before.to_state(), **damage}, age, calibration)
    assert not after.active
    assert after.model is calibration
    assert after.frames == 0
