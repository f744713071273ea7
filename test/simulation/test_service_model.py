"""The exact form, solved for the load that services bring about."""

from __future__ import annotations

import math

from laimr_ros.latency.model import PowerLaw
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import crossed
from laimr_ros.simulation.service_model import SharedInstance
import pytest
from simulation_harness import one_pool

PAPER = SharedInstance(0.73, 3.0, 24.0, 1.49)


@pytest.mark.parametrize('rate', [0.0, 0.5, 1.0, 2.5, 4.0, 4.7])
def test_services_solve_the_form(rate: float) -> None:
    service = PAPER.mean(rate, 8)
    used = (3.0 * (rate * service + 1.0)) / 24.0
    assert service == pytest.approx(0.73 * (1.0 + used ** 1.49), rel=1e-3)


def test_it_is_nearly_what_the_paper_measured() -> None:
    # Fig. 2 with 8 replicas; nothing here was fitted to it.
    measured = PowerLaw(0.73, 1.29, 1.49)
    for rate in (1.0, 2.0, 3.0, 4.0):
        assert PAPER.mean(rate, 8) == pytest.approx(measured.mean(rate, 8), rel=0.05)


def test_few_replicas_cannot_use_the_whole_instance() -> None:
    assert PAPER.mean(100.0, 8) == pytest.approx(1.46)
    assert PAPER.mean(100.0, 2) == pytest.approx(0.73 * (1.0 + 0.25 ** 1.49))
    assert PAPER.mean(1.0, 0) == math.inf
    assert PAPER.mean(math.inf, 3) == math.inf


def test_services_never_get_quicker_with_more_of_either() -> None:
    means = [PAPER.mean(0.1 * k, 8) for k in range(80)]
    assert means == sorted(means)
    assert [PAPER.mean(4.0, n) for n in range(1, 9)] == sorted(
        PAPER.mean(4.0, n) for n in range(1, 9))


def test_quantiles_are_lognormal() -> None:
    mean, sigma = PAPER.mean(2.0, 8), math.sqrt(math.log1p(0.15 ** 2))
    assert PAPER.quantile(0.99, 2.0, 8) == pytest.approx(
        mean * math.exp(2.3263 * sigma - sigma ** 2 / 2.0), rel=1e-4)


@pytest.mark.parametrize(('background', 'capacity'), [(0.0, 2.0), (30.0, 24.0)])
def test_an_instance_without_room_is_full_at_once(background: float, capacity: float) -> None:
    model = SharedInstance(0.5, 3.0, capacity, 1.0, background)
    assert model.mean(0.1, 1) == pytest.approx(1.0)


def test_the_simulated_world_agrees_on_the_mean() -> None:
    scenario = one_pool(
        robots=8, rate=3.0, replicas=8, service=0.73, cv=0.15, gamma=1.49, capacity=24.0,
        warm_up=100.0, measured=3000.0, pool={'cpus': 3.0})
    result = simulate(scenario, crossed('overflow', 'fixed'), 1)
    # Poisson arrivals find the time average, and the power of a mean is less than the mean power.
    assert 1.0 <= result.latency.mean() / PAPER.mean(3.0, 8) < 1.08
