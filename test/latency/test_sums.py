"""Test the quantile of wait, service and network added, against sampling."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from laimr_ros.latency.model import lognormal_quantile
from laimr_ros.latency.sums import sum_quantile
import numpy as np
import pytest

COUNT = 400_000


def lognormal(random: np.random.Generator, mean: float, cv: float) -> np.ndarray:
    variance = math.log1p(cv * cv)
    return mean * random.lognormal(-variance / 2.0, math.sqrt(variance), COUNT)


@pytest.mark.parametrize(('alpha', 'eta', 'service', 'network'), [
    (0.15, 31.0, (0.05, 0.3), (0.027, 0.25)),
    (0.8, 4.0, (0.05, 0.3), (0.02, 0.3)),
    (0.8, 4.0, (0.05, 0.0), (0.0, 0.0)),
    (0.5, 500.0, (0.05, 1.0), (0.02, 0.5)),
    (0.0, math.inf, (0.05, 0.3), (0.02, 0.3)),
    (0.9, 0.5, (0.1, 0.8), (0.3, 1.0)),
    (1.0, 10.0, (0.1, 0.1), (0.0, 0.0)),
])
@pytest.mark.parametrize('p', [0.5, 0.95, 0.99])
def test_it_is_that_of_samples(alpha, eta, service, network, p) -> None:
    random = np.random.default_rng(1)
    wait = np.where(random.random(COUNT) < alpha, random.exponential(1.0 / eta, COUNT), 0.0)
    total = wait + lognormal(random, *service) + lognormal(random, *network)
    assert sum_quantile(p, alpha, eta, *service, *network) == pytest.approx(
        np.quantile(total, p), rel=0.04)


@given(mean=st.floats(1e-3, 10.0), cv=st.floats(0.01, 2.0), p=st.floats(0.01, 0.999))
def test_without_wait_and_network_it_is_the_service_time(mean, cv, p) -> None:
    assert sum_quantile(p, 0.0, math.inf, mean, cv) == pytest.approx(
        lognormal_quantile(mean, cv, p), rel=1e-3)


@given(
    p=st.floats(0.001, 0.9999), alpha=st.floats(0.0, 1.0), eta=st.floats(1e-6, 1e9),
    mean=st.floats(0.0, 100.0), cv=st.floats(0.0, 5.0))
def test_there_is_always_an_answer_and_more_wait_never_less_time(p, alpha, eta, mean, cv) -> None:
    alone = sum_quantile(p, 0.0, math.inf, mean, cv)
    together = sum_quantile(p, alpha, eta, mean, cv, 0.0, 0.0)
    assert 0.0 <= alone < math.inf
    assert alone * (1.0 - 1e-3) <= together < math.inf


def test_at_its_ends() -> None:
    assert sum_quantile(0.99, 1.0, 0.0, 0.1, 0.1) == math.inf
    assert sum_quantile(0.99, 0.5, 1.0, math.inf, 0.1) == math.inf
    assert sum_quantile(0.99, 0.5, 1.0, math.nan, 0.1) == math.inf
    assert sum_quantile(0.99, 0.5, 1.0, 0.0, 0.1) == pytest.approx(math.log(50.0))
    assert sum_quantile(0.99, 0.0, math.inf, 0.0, 0.1) == 0.0
    assert sum_quantile(1.0, 0.5, 1.0, 0.1, 0.1) == math.inf
    assert sum_quantile(0.0, 0.5, 1.0, 0.1, 0.1) == 0.0
