"""Test service-time and network models."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from laimr_ros.latency.model import lognormal_quantile, Network, normal_quantile, PowerLaw
import pytest
from scipy import stats


@given(
    mean=st.floats(1e-4, 1e3), cv=st.floats(0.01, 3.0), p=st.floats(0.001, 0.999))
def test_lognormal_quantile_is_that_of_scipy(mean: float, cv: float, p: float) -> None:
    sigma = math.sqrt(math.log(1.0 + cv ** 2))
    law = stats.lognorm(s=sigma, scale=mean * math.exp(-sigma ** 2 / 2.0))
    assert law.mean() == pytest.approx(mean)
    assert law.std() / law.mean() == pytest.approx(cv, rel=1e-6)
    assert lognormal_quantile(mean, cv, p) == pytest.approx(law.ppf(p), rel=1e-7)


def test_lognormal_quantile_of_a_constant_is_the_constant() -> None:
    assert lognormal_quantile(0.3, 0.0, 0.99) == 0.3
    assert lognormal_quantile(0.0, 0.5, 0.99) == 0.0


@pytest.mark.parametrize('p', [0.5, 0.9, 0.95, 0.99, 1.0 - 0.01 / 3.0])
def test_normal_quantile_is_that_of_scipy(p: float) -> None:
    assert normal_quantile(p) == pytest.approx(stats.norm.ppf(p), abs=1e-9)


@pytest.mark.parametrize('p', [0.0, 1.0, -0.1, 1.1])
def test_normal_quantile_refuses_what_is_no_probability(p: float) -> None:
    with pytest.raises(ValueError):
        normal_quantile(p)


def test_power_law_gives_the_published_calibration() -> None:
    # Figure 2 of arXiv 2505.07417: YOLOv5m, three CPUs a replica.
    law = PowerLaw(0.73, 1.29, 1.49)
    assert law.mean(0.0, 1) == 0.73
    assert law.mean(1.0, 1) == pytest.approx(0.73 + 1.29)
    assert law.mean(4.0, 4) == pytest.approx(law.mean(1.0, 1))
    assert law.mean(4.0, 2) == pytest.approx(0.73 + 1.29 * 2.8089, rel=1e-4)


@given(
    rate=st.floats(0.0, 1e3), replicas=st.integers(1, 1000), beta=st.floats(0.0, 10.0),
    gamma=st.floats(0.0, 3.0))
def test_power_law_falls_with_replicas_and_rises_with_rate(
    rate: float, replicas: int, beta: float, gamma: float
) -> None:
    law = PowerLaw(0.1, beta, gamma)
    here = law.mean(rate, replicas)
    assert here >= 0.1
    assert law.mean(rate, replicas + 1) <= here * (1.0 + 1e-12)
    assert law.mean(1.1 * rate, replicas) >= here * (1.0 - 1e-12)


def test_power_law_without_replicas_takes_for_ever() -> None:
    assert PowerLaw(0.1).mean(1.0, 0) == math.inf


def test_power_law_quantile_is_lognormal_about_its_mean() -> None:
    law = PowerLaw(0.2, 0.1, 1.0, cv=0.4)
    assert law.quantile(0.99, 2.0, 2) == pytest.approx(lognormal_quantile(0.3, 0.4, 0.99))


@pytest.mark.parametrize(('name', 'values'), [
    ('alpha', {'alpha': 0.0}),
    ('alpha', {'alpha': -1.0}),
    ('alpha', {'alpha': math.nan}),
    ('alpha', {'alpha': math.inf}),
    ('beta', {'alpha': 1.0, 'beta': -0.1}),
    ('gamma', {'alpha': 1.0, 'gamma': math.nan}),
    ('cv', {'alpha': 1.0, 'cv': -0.1}),
])
def test_power_law_names_a_bad_parameter(name: str, values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f'^{name} is '):
        PowerLaw(**values)


def test_network_quantile_is_lognormal() -> None:
    assert Network(0.06, 0.3).quantile(0.95) == pytest.approx(lognormal_quantile(0.06, 0.3, 0.95))
    assert Network(0.0).quantile(0.99) == 0.0


@pytest.mark.parametrize('values', [{'mean': -0.1}, {'mean': math.inf}, {'cv': math.nan}])
def test_network_names_a_bad_parameter(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f'^network {next(iter(values))} is '):
        Network(**values)
