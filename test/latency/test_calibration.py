"""Test the fit of service times: what is recovered, what is refused, what is held out."""

from __future__ import annotations

import math

from laimr_ros.latency.calibration import (
    above_rate,
    calibrate,
    calibrate_utilisation,
    highest_rates,
    latest,
    speed_up,
    spread,
)
from laimr_ros.latency.curves import Constant, Power, Utilisation
from laimr_ros.latency.fitting import fit, Observations
from laimr_ros.latency.model import lognormal_quantile, PowerLaw
import numpy as np
import pytest

TRUE = {'alpha': 0.73, 'beta': 1.29, 'gamma': 1.49}


def measured(
    seed: int, rates=(1, 2, 3, 4, 5, 6), frames: int = 20, noise: float = 0.1,
    law: PowerLaw | None = None, blocks: int = 0, block_noise: float = 0.0,
) -> Observations:
    """Return frames of a known law with relative noise."""
    random = np.random.default_rng(seed)
    rate = np.repeat(np.asarray(rates, np.float64), frames)
    law = law or PowerLaw(**TRUE)
    mean = np.array([law.mean(x, 1) for x in rate])
    block = None
    if blocks:
        block = np.arange(len(rate)) // (frames // blocks)
        mean = mean * (1.0 + block_noise * random.standard_normal(block.max() + 1))[block]
    return Observations(rate, mean * (1.0 + noise * random.standard_normal(len(rate))), block)


def test_parameters_are_within_their_intervals_in_90_of_100_seeds() -> None:
    inside = dict.fromkeys(TRUE, 0)
    for seed in range(100):
        found = fit(measured(seed), Power(), replicates=100, seed=seed)
        for name, value in TRUE.items():
            estimate = found.parameters[name]
            assert estimate.low <= estimate.value <= estimate.high
            inside[name] += estimate.low <= value <= estimate.high
    assert min(inside.values()) >= 90, inside


def test_disturbances_of_whole_visits_widen_the_intervals() -> None:
    inside, calm, rough = 0, [], []
    for seed in range(30):
        found = fit(measured(seed, frames=60, blocks=3, block_noise=0.05), Power(),
                    replicates=100, seed=seed)
        gamma = found.parameters['gamma']
        inside += gamma.low <= TRUE['gamma'] <= gamma.high
        rough.append(gamma.high - gamma.low)
        assert found.block_scatter < 0.15
        gamma = fit(measured(seed, frames=60, blocks=3), Power(),
                    replicates=100, seed=seed).parameters['gamma']
        calm.append(gamma.high - gamma.low)
    assert inside >= 26
    assert np.median(rough) > 1.5 * np.median(calm)


def test_no_noise_gives_the_parameters() -> None:
    found = fit(measured(0, noise=0.0), Power())
    for name, value in TRUE.items():
        assert found.parameters[name].value == pytest.approx(value, rel=1e-3)


def test_outliers_do_not_move_the_fit() -> None:
    clean = measured(3, frames=100)
    service = clean.service.copy()
    service[::50] *= 20.0
    dirty = fit(Observations(clean.rate, service), Power())
    for rate in (1.0, 3.0, 6.0):
        assert dirty.mean(rate)[0] == pytest.approx(PowerLaw(**TRUE).mean(rate, 1), rel=0.05)


@pytest.mark.parametrize('cv', [0.3, 0.8])
def test_the_mean_of_skewed_times_is_found(cv: float) -> None:
    # A fit of logarithms, or one that divides by its own mean, would be off by cv**2 or half.
    random = np.random.default_rng(9)
    variance = math.log1p(cv * cv)
    rate = np.repeat(np.arange(1.0, 7.0), 1000)
    service = PowerLaw(0.5, 0.0).alpha * random.lognormal(
        -variance / 2, math.sqrt(variance), len(rate))
    assert fit(Observations(rate, service), Constant()).values[0] == pytest.approx(
        0.5, rel=0.02 + 0.05 * cv)


def test_rates_up_to_1_refuse_gamma() -> None:
    found = calibrate(measured(1, rates=(0.2, 0.4, 0.6, 0.8, 1.0), frames=100))
    refused = {refusal.parameter: refusal.reason for refusal in found.refused}
    assert 'measure above 1/s' in refused['gamma']
    assert found.power_law().gamma == 1.0


def test_two_rates_refuse_gamma() -> None:
    found = calibrate(measured(1, rates=(1.0, 6.0), frames=100))
    assert found.refused[0].parameter == 'gamma'
    assert '2 rates do not show a curve' in found.refused[0].reason


def test_one_rate_gives_a_constant() -> None:
    found = calibrate(measured(1, rates=(2.0,), frames=60))
    assert {refusal.parameter for refusal in found.refused} == {'beta', 'gamma'}
    law = found.power_law()
    assert law.beta == 0.0
    assert law.alpha == pytest.approx(PowerLaw(**TRUE).mean(2.0, 1), rel=0.05)


def test_no_growth_refuses_beta_and_gamma() -> None:
    both = 0
    for seed in range(5):
        found = calibrate(measured(seed, frames=60, law=PowerLaw(0.2)), replicates=100)
        refused = {refusal.parameter for refusal in found.refused}
        # One interval of 95 % in forty lies above 0 by chance; the slope is next to none then.
        assert {'gamma'} <= refused <= {'beta', 'gamma'}
        both += 'beta' in refused
        for rate in (0.0, 3.0, 6.0):
            assert found.power_law().mean(rate, 1) == pytest.approx(0.2, rel=0.06)
    assert both >= 3


def test_high_rates_alone_refuse_alpha_and_keep_the_curve() -> None:
    found = calibrate(measured(2, rates=(4, 5, 6, 7), frames=60), gamma=1.49)
    refused = {refusal.parameter for refusal in found.refused}
    assert refused <= {'alpha'}
    assert found.held_out.median_error < 0.1


def test_held_out_rates_are_predicted() -> None:
    data = measured(5, frames=60)
    found = calibrate(data, above_rate(data, 4.0), 'rates above 4/s')
    assert found.held_out.rule == 'rates above 4/s'
    assert [rate for rate, _ in found.held_out.mean_errors] == [5.0, 6.0]
    assert found.held_out.frames == 120
    assert found.held_out.median_error < 0.05
    # 10 % of noise: the median of its absolute value is 6.7 %.
    assert 0.05 < found.held_out.frame_error < 0.10
    # The error is that of a fit which has not seen them.
    alone = fit(data.where(data.rate <= 4.0), Power())
    assert found.training.parameters['gamma'].value == alone.parameters['gamma'].value
    assert found.fit.parameters['gamma'].value != found.training.parameters['gamma'].value


def test_held_out_error_tells_of_a_wrong_form() -> None:
    data = measured(5, frames=60, noise=0.02)
    honest = calibrate(data, above_rate(data, 4.0), 'rates above 4/s', gamma=0.9)
    assert honest.held_out.median_error > 0.05


def test_what_is_held_out_by_default() -> None:
    data = measured(0)
    assert highest_rates(data) == 4.0
    assert highest_rates(measured(0, rates=(1, 2, 3))) == 3.0
    held = latest(data)
    assert held.sum() == 6 * 7
    for rate in range(1, 7):
        own = held[data.rate == rate]
        assert own[-7:].all() and not own[:-7].any()
    assert calibrate(data).held_out.rule == 'rates above 4/s'
    few = calibrate(measured(0, rates=(1, 2, 4), frames=40))
    assert few.held_out.rule.startswith('the last third')


def test_spread_sees_heavy_tails() -> None:
    random = np.random.default_rng(2)
    sigma = math.sqrt(math.log1p(0.09))
    plain = spread(random.lognormal(-sigma ** 2 / 2, sigma, 5000))
    assert plain.cv == pytest.approx(0.3, rel=0.05)
    assert plain.tail_cv == pytest.approx(0.3, rel=0.1)
    heavy = spread(np.where(random.random(5000) < 0.03, 4.0, 1.0))
    q99 = 4.0 / (0.97 + 0.03 * 4.0)
    assert lognormal_quantile(1.0, heavy.tail_cv, 0.99) == pytest.approx(q99, rel=0.03)
    assert heavy.careful == heavy.tail_cv > heavy.cv
    assert spread([1.0]).careful == 0.0
    assert spread(np.ones(300)).careful == pytest.approx(0.0, abs=1e-9)


def test_the_exact_form_is_recovered_with_background_and_speed_up() -> None:
    random = np.random.default_rng(7)
    rate = np.repeat(np.linspace(0.2, 6.0, 12), 60)
    used = 0.12 * rate + 0.2
    service = 0.3 * (1.0 + used ** 2.2) * (1.0 + 0.05 * random.standard_normal(len(rate)))
    found = calibrate_utilisation(Observations(rate, service), Utilisation(0.12, 1.0))
    assert not found.refused
    for name, value in (('service', 0.3), ('gamma', 2.2), ('background', 0.2)):
        estimate = found.fit.parameters[name]
        assert estimate.low <= value <= estimate.high
        assert estimate.value == pytest.approx(value, rel=0.15)
    assert found.held_out.median_error < 0.1
    factor = speed_up(found, 0.6)
    assert factor.low <= 2.0 <= factor.high
    with pytest.raises(ValueError, match='^reference is 0'):
        speed_up(found, 0.0)
    with pytest.raises(ValueError, match='utilisation form'):
        found.power_law()


def test_background_and_gamma_that_cannot_be_told_apart_are_refused() -> None:
    random = np.random.default_rng(7)
    rate = np.repeat([2.0, 2.5, 3.0, 3.5], 60)
    service = 0.3 * (1.0 + 0.12 * rate + 0.2) * (1.0 + 0.1 * random.standard_normal(len(rate)))
    found = calibrate_utilisation(Observations(rate, service), Utilisation(0.12, 1.0))
    assert found.refused
    known = calibrate_utilisation(Observations(rate, service), Utilisation(0.12, 1.0, 0.2))
    assert 'background' not in known.fit.parameters


@pytest.mark.parametrize(('rates', 'times', 'said'), [
    ([1.0, 2.0], [0.1], '2 rates, 1 service times'),
    ([1.0, math.nan], [0.1, 0.1], 'a rate is nan'),
    ([1.0, 1.0], [0.1, 0.0], 'a service time is 0.0'),
    ([1.0, 1.0], [0.1, math.inf], 'a service time is inf'),
])
def test_bad_observations_are_named(rates, times, said) -> None:
    with pytest.raises(ValueError, match=said.replace('service time ', 'service ')):
        Observations(rates, times)


def test_too_few_frames_are_refused() -> None:
    with pytest.raises(ValueError, match='too few'):
        calibrate(measured(0, rates=(1, 2), frames=3))
    with pytest.raises(ValueError, match='2 independent blocks'):
        fit(Observations([1.0, 2.0], [0.1, 0.2]), Power())


def test_the_same_seed_gives_the_same_intervals() -> None:
    assert fit(measured(1), Power(), seed=5) == fit(measured(1), Power(), seed=5)


@pytest.mark.parametrize('seed', range(5))
def test_a_service_time_that_falls_is_taken_as_it_is_when_busy(seed: int) -> None:
    """A processor that sleeps between frames is slower: what counts is where queues form."""
    random = np.random.default_rng(seed)
    rates = (2.3, 5.8, 10.0, 15.0, 19.0, 23.0)
    rate = np.repeat(rates, 180)
    law = 0.037 + 0.012 * np.exp(-rate / 6.0)
    found = calibrate(Observations(
        rate, law * (1.0 + 0.12 * random.standard_normal(len(rate))),
        np.arange(len(rate)) // 60), replicates=100, seed=seed)
    assert isinstance(found.fit.curve, Constant)
    reason = next(r.reason for r in found.refused if r.parameter == 'beta')
    assert reason.startswith('the service time falls with the rate, from 4')
    assert found.held_out is not None and found.held_out.median_error < 0.06
    assert found.power_law().alpha == pytest.approx(0.0380, rel=0.03)
    # The slower frames of low rates are in the scatter, so in the tail that is promised.
    service = law * (1.0 + 0.12 * random.standard_normal(len(rate)))
    assert np.mean(service <= found.power_law().quantile(0.99, 23.0, 1)) >= 0.98
