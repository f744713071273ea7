"""Test the exact utilisation form, and where the affine form is and is not the same."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from laimr_ros.latency.model import lognormal_quantile, PowerLaw
from laimr_ros.latency.utilisation import Demand, InstanceLoad, UtilisationLaw
import numpy as np
import pytest
from scipy import optimize


def law(load: InstanceLoad, gamma: float = 1.0, **fields: float) -> UtilisationLaw:
    values = {'reference': 0.6, 'speed_up': 2.0, 'resource': 0.5, **fields}
    return UtilisationLaw('m', load=load, gamma=gamma, **values)


def test_the_formula_by_hand() -> None:
    # U = (2 * 0.5 + 3 * 0.25 + 0.25) / 4 = 0.5; (0.6 / 2) * (1 + 0.5 ** 2) = 0.375.
    load = InstanceLoad(4.0, 0.25, (Demand('other', 3.0, 0.25),))
    assert law(load, 2.0).utilisation(2.0, 1) == pytest.approx(0.5)
    assert law(load, 2.0).mean(2.0, 1) == pytest.approx(0.375)


def test_all_models_of_an_instance_share_its_utilisation() -> None:
    load = InstanceLoad(4.0, 0.0, (Demand('a', 2.0, 0.5), Demand('b', 1.0, 1.0)))
    a = UtilisationLaw('a', 0.1, load, gamma=1.5, resource=0.5)
    b = UtilisationLaw('b', 0.9, load, gamma=0.7, resource=1.0)
    assert a.utilisation(2.0, 1) == b.utilisation(1.0, 1) == load.utilisation() == 0.5
    busier = load.with_demand(Demand('b', 2.0, 1.0))
    assert busier.utilisation() == pytest.approx(0.75)
    assert UtilisationLaw('a', 0.1, busier, gamma=1.5, resource=0.5).mean(2.0, 1) > a.mean(2.0, 1)


def test_replicas_may_bring_capacity_or_share_it() -> None:
    shared = law(InstanceLoad(4.0, 1.0))
    own = law(InstanceLoad(4.0, 1.0, each_replica=True))
    assert shared.utilisation(4.0, 2) == shared.utilisation(4.0, 1) == pytest.approx(0.75)
    assert own.utilisation(4.0, 2) == pytest.approx(own.utilisation(2.0, 1)) == pytest.approx(0.5)


RATES = np.linspace(0.0, 6.0, 25)


@pytest.mark.parametrize('each_replica', [False, True])
@pytest.mark.parametrize('replicas', [1, 3])
def test_forms_agree_for_gamma_1(each_replica: bool, replicas: int) -> None:
    # alpha = L/S (1 + base), beta = L/S R/R_max (N R/R_max where they share), gamma = 1.
    load = InstanceLoad(8.0, 1.0, (Demand('other', 1.0, 0.5),), each_replica)
    exact = law(load, 1.0)
    affine = exact.as_power_law(replicas)
    base = (1.0 + 0.5 / (replicas if each_replica else 1)) / 8.0
    slope = 0.5 / 8.0 * (1 if each_replica else replicas)
    assert affine.alpha == pytest.approx(0.3 * (1.0 + base))
    assert affine.beta == pytest.approx(0.3 * slope)
    assert (affine.gamma, affine.cv) == (1.0, exact.cv)
    for rate in RATES:
        assert exact.mean(rate, replicas) == pytest.approx(affine.mean(rate, replicas))


@pytest.mark.parametrize('gamma', [0.5, 0.9, 1.49, 2.5])
def test_forms_agree_without_other_load_whatever_gamma(gamma: float) -> None:
    # alpha = L/S, beta = L/S (R/R_max) ** gamma.
    exact = law(InstanceLoad(4.0), gamma)
    affine = exact.as_power_law()
    assert (affine.alpha, affine.gamma) == (0.3, gamma)
    assert affine.beta == pytest.approx(0.3 * 0.125 ** gamma)
    for rate in RATES:
        assert exact.mean(rate, 1) == pytest.approx(affine.mean(rate, 1))


@pytest.mark.parametrize('gamma', [0.5, 0.9, 1.49, 2.5])
def test_forms_differ_for_other_gammas(gamma: float) -> None:
    exact = law(InstanceLoad(4.0, 1.2), gamma)
    with pytest.raises(ValueError, match=f'^gamma is {gamma:g} and the instance is used to 0.3 '):
        exact.as_power_law()
    truth = np.array([exact.mean(rate, 1) for rate in RATES[:-4]])
    # Splitting (a + b) ** gamma into a ** gamma + b ** gamma, as the paper's text does.
    split = 0.3 * (1.0 + 0.3 ** gamma) + 0.3 * 0.125 ** gamma * RATES[:-4] ** gamma
    assert np.max(np.abs(split / truth - 1.0)) > 0.01
    # Not even with the same exponent and the best of all alphas and betas.
    design = np.stack([np.ones(21), RATES[:-4] ** gamma], 1)
    best = design @ np.linalg.lstsq(design, truth, rcond=None)[0]
    assert np.max(np.abs(best / truth - 1.0)) > 1e-3


def test_a_fit_is_near_where_it_was_fitted_and_far_away_beyond() -> None:
    # Why the affine form is an empirical fit.
    exact = law(InstanceLoad(4.0, 1.2), 2.5)
    low = np.linspace(0.1, 2.5, 25)
    truth = np.array([exact.mean(rate, 1) for rate in low])
    (alpha, beta, gamma), _ = optimize.curve_fit(
        lambda x, a, b, g: a + b * x ** g, low, truth, (0.3, 0.01, 1.5))
    fitted = PowerLaw(alpha, beta, gamma)
    assert max(abs(fitted.mean(r, 1) / exact.mean(r, 1) - 1.0) for r in low) < 5e-3
    assert abs(fitted.mean(5.5, 1) / exact.mean(5.5, 1) - 1.0) > 0.02


def test_saturation_is_infinite() -> None:
    exact = law(InstanceLoad(4.0, 1.0), 1.5)
    assert exact.mean(5.999, 1) < 0.6
    assert exact.mean(6.0, 1) == math.inf
    assert exact.quantile(0.99, 6.0, 1) == math.inf


NUMBER = st.floats(allow_nan=True, allow_infinity=True)


@given(rate=NUMBER, other=NUMBER, replicas=st.integers(-1, 5), each=st.booleans())
def test_there_is_always_an_answer(rate, other, replicas, each) -> None:
    exact = law(InstanceLoad(4.0, 1.0, (Demand('other', other),), each), 1.5)
    assert exact.mean(rate, replicas) > 0.0
    assert exact.quantile(0.99, rate, replicas) > 0.0


def test_quantile_is_lognormal_about_the_mean() -> None:
    exact = law(InstanceLoad(4.0), cv=0.4)
    assert exact.quantile(0.9, 2.0, 1) == pytest.approx(
        lognormal_quantile(exact.mean(2.0, 1), 0.4, 0.9))


@pytest.mark.parametrize(('name', 'make'), [
    ('capacity', lambda: InstanceLoad(0.0)),
    ('capacity', lambda: InstanceLoad(math.nan)),
    ('background', lambda: InstanceLoad(1.0, -1.0)),
    ('demands', lambda: InstanceLoad(1.0, 0.0, (Demand('a', 1.0), Demand('a', 2.0)))),
    ('reference', lambda: law(InstanceLoad(1.0), reference=0.0)),
    ('speed_up', lambda: law(InstanceLoad(1.0), speed_up=math.inf)),
    ('gamma', lambda: law(InstanceLoad(1.0), gamma=0.0)),
    ('resource', lambda: law(InstanceLoad(1.0), resource=-1.0)),
    ('cv', lambda: law(InstanceLoad(1.0), cv=math.nan)),
])
def test_a_bad_value_is_named(name, make) -> None:
    with pytest.raises(ValueError, match=f'^{name} (is|are) '):
        make()
