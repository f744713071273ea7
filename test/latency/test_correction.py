"""Test the online correction of the service-time model."""

from __future__ import annotations

import json
import math
import random

from hypothesis import given
import hypothesis.strategies as st
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


DRAWS = {
    'nearly constant': lambda rng: draw(rng, 1.0, 0.03),
    'lognormal': lambda rng: draw(rng, 1.0, 0.15),
    'wide lognormal': lambda rng: draw(rng, 1.0, 0.6),
    'bimodal': lambda rng: draw(rng, 0.8 if rng.random() < 0.8 else 1.8, 0.1),
    'rare slow mode': lambda rng: draw(rng, 0.9 if rng.random() < 0.97 else 4.0, 0.15),
    'heavy tail': lambda rng: 0.6 * rng.paretovariate(2.5),
    'exponential': lambda rng: rng.expovariate(1.0),
}


def covered(correction: Correction, modelled: float, actuals: list[float]) -> float:
    """Return the share under the predicted quantile, each predicted before it is learned."""
    under = 0
    for actual in actuals:
        under += actual <= modelled * correction.mean_ratio * correction.tail_ratio
        correction.update(modelled, actual)
    return under / len(actuals)


@pytest.mark.parametrize('name', DRAWS)
def test_p99_coverage_holds_in_the_long_run_on_every_seed(name: str) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        correction = Correction(0.99, 1.4)
        covered(correction, 0.1, [0.1 * DRAWS[name](rng) for _ in range(500)])
        share = covered(correction, 0.1, [0.1 * DRAWS[name](rng) for _ in range(3000)])
        assert 0.985 <= share <= 0.995, f'seed {seed}'


@pytest.mark.parametrize('cv', [0.05, 0.15, 0.3])
def test_after_a_shift_of_half_p99_coverage_is_back_within_a_minute(cv: float) -> None:
    # 6 frames/s; the paper's fixed model is calibrated before the shift and stays.
    for seed in range(20):
        rng = random.Random(seed)
        correction = Correction(0.99, lognormal_quantile(1.0, cv, 0.99))
        fixed = 0.1 * lognormal_quantile(1.0, cv, 0.99)
        before = covered(correction, 0.1, [draw(rng, 0.1, cv) for _ in range(1200)])
        assert before > 0.97
        first_minute = [draw(rng, 0.15, cv) for _ in range(360)]
        covered(correction, 0.1, first_minute)
        later = [draw(rng, 0.15, cv) for _ in range(720)]
        share = covered(correction, 0.1, later)
        assert 0.98 <= share <= 1.0, f'seed {seed}'
        assert sum(a <= fixed for a in first_minute + later) / 1080 < 0.9
        # And not by predicting far too much.
        true = 1.5 * lognormal_quantile(1.0, cv, 0.99)
        assert correction.mean_ratio * correction.tail_ratio < 1.35 * true


def test_a_shift_costs_only_a_few_frames() -> None:
    rng = random.Random(1)
    correction = Correction(0.99, 1.4)
    covered(correction, 0.1, [draw(rng, 0.1, 0.15) for _ in range(1000)])
    for _ in range(8):
        correction.update(0.1, draw(rng, 0.15, 0.15))
    assert correction.changes == 1
    assert correction.mean_ratio == pytest.approx(1.5, rel=0.15)


@pytest.mark.parametrize('factor', [0.5, 2.0])
def test_a_worker_that_becomes_erratic_or_steady_is_followed(factor: float) -> None:
    rng = random.Random(2)
    correction = Correction(0.99, 1.4)
    covered(correction, 0.1, [draw(rng, 0.1, 0.2) for _ in range(1000)])
    covered(correction, 0.1, [draw(rng, 0.1, 0.2 * factor) for _ in range(600)])
    assert covered(
        correction, 0.1, [draw(rng, 0.1, 0.2 * factor) for _ in range(1000)]) >= 0.98
    assert correction.tail_ratio == pytest.approx(
        lognormal_quantile(1.0, 0.2 * factor, 0.99), rel=0.25)


def test_it_starts_at_a_share_of_misses_of_a_twentieth_and_ends_at_a_hundredth() -> None:
    rng = random.Random(3)
    correction = Correction(0.99, 1.4)
    seen = {0: correction.alpha}
    for k in range(1, 601):
        correction.update(0.1, draw(rng, 0.1, 0.2))
        seen[k] = correction.alpha
    assert [seen[k] for k in (0, 50, 100)] == [0.05] * 3
    assert seen[200] == pytest.approx(0.025)
    assert [seen[k] for k in (500, 600)] == [pytest.approx(0.01)] * 2
    assert sorted(seen.values(), reverse=True) == list(seen.values())


def test_before_enough_frames_the_models_tail_is_kept() -> None:
    correction = Correction(0.99, 1.4)
    for _ in range(15):
        correction.update(0.1, 0.1)
    assert correction.tail_ratio == pytest.approx(1.4)
    for _ in range(15):
        correction.update(0.1, 0.1)
    assert correction.tail_ratio < 1.05


@pytest.mark.parametrize(('share', 'steady'), [(0.001, 1.0), (0.002, 0.97), (0.005, 0.7)])
def test_scattered_outliers_do_not_blow_it_up(share: float, steady: float) -> None:
    # Where one in a hundred of the last frames was an outlier they *are* the tail; by chance that
    # happens the more often the nearer their share comes to 0.01.
    rng = random.Random(4)
    clean, dirty = Correction(0.99, 1.4), Correction(0.99, 1.4)
    near = []
    for k in range(6000):
        actual = draw(rng, 0.1, 0.15)
        clean.update(0.1, actual)
        dirty.update(0.1, 1000.0 if rng.random() < share else actual)
        assert dirty.mean_ratio < 1.5
        if k > 1000:
            near.append(dirty.mean_ratio * dirty.tail_ratio
                        < 1.5 * clean.mean_ratio * clean.tail_ratio)
    assert sum(near) / len(near) >= steady


def test_three_bad_frames_in_a_row_are_not_a_new_level() -> None:
    rng = random.Random(5)
    correction = Correction(0.99, 1.4)
    for _ in range(300):
        correction.update(0.1, draw(rng, 0.1, 0.15))
    for _ in range(3):
        correction.update(0.1, 5.0)
    assert correction.changes == 0
    for _ in range(100):
        correction.update(0.1, draw(rng, 0.1, 0.15))
    assert correction.mean_ratio == pytest.approx(1.0, abs=0.15)


def test_coverage_is_counted() -> None:
    rng = random.Random(6)
    correction = Correction(0.95, 1.3)
    assert (correction.coverage, correction.recent_coverage) == (1.0, 1.0)
    under = []
    for _ in range(2000):
        actual = draw(rng, 0.1, 0.3)
        under.append(actual <= 0.1 * correction.mean_ratio * correction.tail_ratio)
        correction.update(0.1, actual)
    assert correction.coverage == pytest.approx(sum(under) / 2000, abs=1e-3)
    assert correction.recent_coverage == pytest.approx(sum(under[-500:]) / 500, abs=3e-3)


def test_timeouts_are_misses() -> None:
    # One frame in thirty is given up at 1.15 times its mean: that is all that is seen of it.
    rng = random.Random(7)
    correction = Correction(0.95, 1.3)
    for k in range(3000):
        if k % 30 == 0:
            correction.miss(0.1, 0.115)
        else:
            correction.update(0.1, draw(rng, 0.1, 0.05))
    assert correction.coverage == pytest.approx(0.95, abs=0.01)
    assert correction.tail_ratio > 1.04
    ignored = Correction(0.99, 1.3)
    counted = Correction(0.99, 1.3)
    for k in range(3000):
        if k % 30 == 0:
            counted.miss(0.1, 0.115)
        else:
            actual = draw(rng, 0.1, 0.05)
            ignored.update(0.1, actual)
            counted.update(0.1, actual)
    assert counted.tail_ratio > 1.3 * ignored.tail_ratio


def test_a_frame_given_up_early_does_not_make_the_mean_smaller() -> None:
    correction = Correction(0.95, 1.3)
    for _ in range(50):
        correction.update(0.1, 0.1)
    correction.miss(0.1, 0.01)
    assert correction.mean_ratio == pytest.approx(1.0)


def test_only_timeouts_are_followed_up_to_what_was_waited() -> None:
    correction = Correction(0.95, 1.3)
    for _ in range(300):
        correction.miss(0.1, 0.5)
    assert correction.mean_ratio == pytest.approx(5.0, rel=0.1)
    assert correction.tail_ratio <= 8.0 + 1e-9


@given(st.lists(
    st.tuples(st.booleans(), st.floats(1e-300, 1e300), st.floats(1e-300, 1e300)), max_size=200))
def test_whatever_is_missed_it_stays_a_number(frames: list[tuple[bool, float, float]]) -> None:
    correction = Correction(0.99, 1.3)
    for missed, modelled, seconds in frames:
        (correction.miss if missed else correction.update)(modelled, seconds)
        assert 0.0 < correction.mean_ratio < math.inf
        assert 1.0 <= correction.tail_ratio <= 8.0 + 1e-9
        assert 0.0 <= correction.recent_coverage <= 1.0
        assert 0.0 <= correction.cv < math.inf


def test_other_quantiles_and_the_spread_come_along() -> None:
    rng = random.Random(8)
    correction = Correction(0.99, 1.4)
    assert correction.quantile_ratio(0.5) >= 1.0
    for _ in range(3000):
        correction.update(0.1, draw(rng, 0.1, 0.3))
    assert correction.cv == pytest.approx(0.3, rel=0.2)
    for p in (0.9, 0.95, 0.99):
        assert correction.quantile_ratio(p) == pytest.approx(
            lognormal_quantile(1.0, 0.3, p), rel=0.15)
    # Deeper than its frames reach.
    assert correction.quantile_ratio(0.9999) > correction.tail_ratio
    assert correction.quantile_ratio(0.5) == 1.0


def test_another_model_beneath_changes_no_prediction() -> None:
    correction = Correction(0.99, 1.4)
    for _ in range(100):
        correction.update(0.1, 0.15)
    correction.rebase(0.1, 0.148)
    assert correction.mean_ratio * 0.148 == pytest.approx(0.15)
    for _ in range(100):
        correction.update(0.148, 0.15)
    assert correction.mean_ratio * 0.148 == pytest.approx(0.15)
    assert correction.changes == 0
    correction.rebase(0.1, math.inf)
    correction.rebase(0.0, 0.1)
    assert correction.mean_ratio * 0.148 == pytest.approx(0.15)


def test_a_young_state_is_gone_on_from() -> None:
    rng = random.Random(9)
    before = Correction(0.99, 1.4)
    for _ in range(800):
        before.update(0.1, draw(rng, 0.17, 0.25))
    state = json.loads(json.dumps(before.to_state()))
    after = Correction.from_state(state, 30.0, 0.99, 1.4)
    assert after.resumed
    assert after.samples == before.samples
    assert after.mean_ratio == before.mean_ratio
    assert after.tail_ratio == pytest.approx(before.tail_ratio, rel=1e-5)
    assert after.coverage == before.coverage
    assert after.cv == pytest.approx(before.cv)
    assert covered(after, 0.1, [draw(rng, 0.17, 0.25) for _ in range(1000)]) > 0.98


@pytest.mark.parametrize('age', [3601.0, -1.0, math.nan])
def test_an_old_state_is_not_used(age: float) -> None:
    before = Correction(0.99, 1.4)
    for _ in range(100):
        before.update(0.1, 0.3)
    after = Correction.from_state(before.to_state(), age, 0.99, 1.4)
    assert not after.resumed
    assert (after.samples, after.mean_ratio) == (0, 1.0)
    assert after.tail_ratio == pytest.approx(1.4)


@pytest.mark.parametrize('damage', [
    {}, {'version': 2}, {'mean': None}, {'mean': {}}, {'tail': {}}, {'samples': 'many'},
    {'mean': {'mean': math.nan, 'weighed': 5, 'centre': 0.0, 'deviation': 0.1}},
    {'mean': {'mean': -1.0, 'weighed': 5, 'centre': 0.0, 'deviation': 0.1}},
    {'mean': {'mean': 1e308, 'weighed': 5, 'centre': 0.0, 'deviation': 0.1}},
    {'mean': {'mean': 65.0, 'weighed': 5, 'centre': 0.0, 'deviation': 0.1}},
    {'mean': {'mean': 1.0, 'weighed': 10 ** 400, 'centre': 0.0, 'deviation': 0.1}},
    {'mean': {'mean': 1.0, 'weighed': 5, 'centre': 1e308, 'deviation': 0.1}},
    {'mean': {'mean': 1.0, 'weighed': 5, 'centre': 0.0, 'deviation': 1e308}},
    {'samples': 10 ** 400}, {'samples': -1},
    {'tail': {'residuals': [1e308], 'offset': 0.0, 'samples': 2, 'misses': 0}},
    {'tail': {'residuals': [0.1, 10 ** 400], 'offset': 0.0, 'samples': 2, 'misses': 0}},
    {'tail': {'residuals': [0.1], 'offset': 10 ** 400, 'samples': 2, 'misses': 0}},
    {'tail': {'residuals': [0.1, 'x'], 'offset': 0.0, 'samples': 2, 'misses': 0}},
    {'tail': {'residuals': 7, 'offset': 0.0, 'samples': 2, 'misses': 0}},
    {'tail': {'residuals': [], 'offset': 0.0, 'samples': 2, 'misses': 3}}])
def test_a_damaged_state_is_not_used(damage: dict[str, object]) -> None:
    before = Correction(0.99, 1.4)
    for _ in range(100):
        before.update(0.1, 0.3)
    state = {**before.to_state(), **damage} if damage else {}
    after = Correction.from_state(state, 1.0, 0.99, 1.4)
    assert not after.resumed
    assert bool(after.damage) == (bool(damage) and 'version' not in damage)
    assert (after.samples, after.mean_ratio) == (0, 1.0)


@pytest.mark.parametrize('tail', [0.0, 1.0, math.nan, -0.5])
def test_a_wrong_quantile_is_refused(tail: float) -> None:
    with pytest.raises(ValueError, match='quantile to be covered is'):
        Correction(tail, 1.3)


def test_memory_is_bounded() -> None:
    correction = Correction(0.99, 1.4)
    rng = random.Random(10)
    for _ in range(5000):
        correction.update(0.1, draw(rng, 0.1, 0.2))
    assert len(json.dumps(correction.to_state())) < 10_000
    assert len(correction._tail._sorted) == len(correction._tail._residuals) == 500
