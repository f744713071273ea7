"""Test the index of dispersion against streams where it is known."""

from __future__ import annotations

from itertools import pairwise
import math
import random

from arrival_streams import beats, bounded_pareto, stream
from laimr_ros.latency.arrivals import Arrivals
from laimr_ros.latency.burstiness import Burstiness, queue_time_scale
from laimr_ros.latency.queueing import wait_quantile
import numpy as np
import pytest


def watch(times: list[float], horizon: float = 1e9) -> Burstiness:
    """Return the burstiness of arrivals from their times."""
    burstiness = Burstiness(0.1, horizon=horizon)
    for count in np.bincount((np.array(times) / 0.1).astype(int)):
        burstiness.add(float(count))
    return burstiness


@pytest.mark.parametrize('tau', [0.1, 0.8, 3.2])
def test_poisson_arrivals_have_one(tau: float) -> None:
    _, times = stream('fast poisson', 1, 1500.0)
    index, counts = watch(list(times)).dispersion(tau)
    # Relative standard error of a variance from differences: sqrt(3 / n).
    assert index == pytest.approx(1.0, abs=4.0 * math.sqrt(3.0 / counts))
    assert counts == pytest.approx(1500.0 / tau, rel=0.02)


def test_a_renewal_stream_tends_to_its_squared_coefficient_of_variation() -> None:
    times = list(bounded_pareto(random.Random(2), 20.0, 6000.0))
    gaps = np.diff(times)
    expected = float(np.var(gaps) / np.mean(gaps) ** 2)
    assert expected > 2.0
    burstiness = watch(times)
    assert burstiness.dispersion(12.8)[0] == pytest.approx(expected, rel=0.25)
    # Its shortest gap makes it regular at short scales.
    indices = [burstiness.dispersion(tau)[0] for tau in (0.1, 0.8, 6.4)]
    assert indices[0] < 1.0
    assert indices == sorted(indices)


def test_periodic_robots_together_are_smoother_than_poisson() -> None:
    times = beats(random.Random(3), 40, 600.0)
    burstiness = watch(times)
    # Within a beat they look random, over several they do not.
    assert burstiness.dispersion(0.1)[0] > 0.5
    assert burstiness.dispersion(6.4)[0] < 0.12
    assert burstiness.ca2(6.4) < 0.25


def test_robots_that_fire_together_are_burstier_than_poisson() -> None:
    times = [k + 0.001 * robot for k in range(300) for robot in range(10)]
    assert watch(times).ca2(0.2) > 4.0


def test_a_slow_rise_is_not_burstiness() -> None:
    rng = random.Random(4)
    now, times = 0.0, []
    while now < 600.0:
        now += rng.expovariate(2.0 + 0.1 * now)
        times.append(now)
    counts = np.bincount(np.array(times).astype(int))
    assert np.var(counts) / np.mean(counts) > 5.0
    assert watch(times).dispersion(0.8)[0] == pytest.approx(1.0, abs=0.25)


def test_without_evidence_it_is_the_prior() -> None:
    burstiness = Burstiness()
    assert burstiness.ca2() == 1.0
    assert burstiness.ca2(prior=0.3) == 0.3
    assert burstiness.dispersion(1.0) == (1.0, 0.0)


def test_few_counts_say_little_and_many_decide() -> None:
    regular = Burstiness()
    seen = []
    for _ in range(600):
        regular.add(1.0)
        seen.append(regular.ca2(1.6))
    assert seen[40] > 0.8
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < 0.25


def test_it_is_bounded_both_ways() -> None:
    regular, wild = Burstiness(), Burstiness()
    for k in range(20_000):
        regular.add(5.0)
        wild.add(1000.0 if k % 100 == 0 else 0.0)
    assert regular.ca2(0.8) == Burstiness.LOWEST
    assert wild.ca2(0.1) == Burstiness.HIGHEST


def test_old_traffic_is_forgotten() -> None:
    burstiness = Burstiness(0.1, horizon=60.0)
    rng = random.Random(5)
    for _ in range(6000):
        burstiness.add(100.0 * (rng.random() < 0.1))
    assert burstiness.ca2(0.4) > 5.0
    for _ in range(6000):
        burstiness.add(10.0)
    assert burstiness.ca2(0.4) < 0.2


def test_a_pause_is_no_difference() -> None:
    burstiness = Burstiness()
    for _ in range(50):
        for _ in range(20):
            burstiness.add(10.0)
        burstiness.interrupt()
        for _ in range(20):
            burstiness.add(2.0)
        burstiness.interrupt()
    assert burstiness.dispersion(0.1)[0] == 0.0


def test_time_scale_grows_with_load_and_is_infinite_when_saturated() -> None:
    scales = [queue_time_scale(rate, 0.5, 4) for rate in (1.0, 4.0, 7.0, 7.9)]
    assert scales == sorted(scales)
    assert queue_time_scale(0.0, 0.5, 4) == 0.0
    assert queue_time_scale(8.0, 0.5, 4) == math.inf
    # M/M/1 at rho 0.5: 0.25 * 2 / (2 * 0.25) = 1 service time.
    assert queue_time_scale(0.5, 1.0, 1) == pytest.approx(1.0)


@pytest.mark.parametrize('robots', [6, 20, 60])
def test_measured_at_the_queues_scale_it_predicts_safely_and_better_than_poisson(
    robots: int
) -> None:
    # Lindley's recursion over the very arrivals: one server, lognormal service, cv 0.3.
    rho, cs2 = 0.9, 0.09
    service = rho / robots
    rng = random.Random(robots)
    times = beats(rng, robots, 800.0)
    arrivals = Arrivals()
    sigma = math.sqrt(math.log1p(cs2))
    wait, waits = 0.0, []
    for before, now in pairwise(times):
        arrivals.add(now)
        served = service * rng.lognormvariate(-sigma * sigma / 2.0, sigma)
        wait = max(0.0, wait + served - (now - before))
        waits.append(wait)
    simulated = float(np.quantile(waits, 0.99))
    ca2 = arrivals.ca2(times[-1], queue_time_scale(robots, service, 1, ca2=0.2, cs2=cs2))
    measured = wait_quantile(0.99, robots, service, 1, ca2=ca2, cs2=cs2)
    poisson = wait_quantile(0.99, robots, service, 1, ca2=1.0, cs2=cs2)
    assert simulated <= measured <= 0.6 * poisson
