"""Test waits in G/G/c queues against theory, an independent simulator and our own simulation."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from laimr_ros.latency.decay import decay_rate, Discipline
from laimr_ros.latency.queueing import mean_wait, wait_quantile, wait_tail
import numpy as np
import pytest
from scipy import optimize

sys.path.append(str(Path(__file__).resolve().parents[2]))
from benchmarks.queue_simulation import draw, estimate, pooled_waits

DISCIPLINES = list(Discipline)


@pytest.mark.parametrize('cs2', [0.0, 0.1, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize('rho', [0.1, 0.5, 0.9])
def test_mean_wait_of_m_g_1_is_pollaczek_and_khinchine(rho: float, cs2: float) -> None:
    service = 0.2
    assert mean_wait(rho / service, service, 1, cs2=cs2) == pytest.approx(
        rho * service * (1.0 + cs2) / (2.0 * (1.0 - rho)), rel=1e-6)


@pytest.mark.parametrize(
    ('ca2', 'rho'), [*itertools.product([0.05, 0.25, 0.5], [0.5, 0.7, 0.9])])
def test_p99_of_g_m_1_is_near_the_exact_one(ca2: float, rho: float) -> None:
    # P(W > t) = s exp(-(1 - s) mu t) with s = A(mu (1 - s)), A the transform of the gaps.
    sigma = optimize.brentq(
        lambda s: (1.0 + (1.0 - s) / rho * ca2) ** (-1.0 / ca2) - s, 0.0, 1.0 - 1e-9)
    assert decay_rate(rho, ca2, 1.0) == pytest.approx(1.0 - sigma, rel=1e-6)
    assert wait_quantile(0.99, rho, 1.0, 1, ca2=ca2) == pytest.approx(
        math.log(sigma / 0.01) / (1.0 - sigma), rel=0.05)


@pytest.mark.parametrize(
    ('ca2', 'cs2'), [*itertools.product([0.0, 0.1, 1.0, 4.0], [0.1, 1.0, 3.0])])
@pytest.mark.parametrize('discipline', DISCIPLINES)
def test_decay_rate_solves_its_equation(ca2: float, cs2: float, discipline: Discipline) -> None:
    rho, servers = 0.8, 4
    x = decay_rate(rho, ca2, cs2, servers, discipline)
    # E exp(x S) by numbers drawn evenly from each law would need its own quantiles; integrate.
    def transform(scv, s):
        if scv == 0.0:
            return math.exp(s)
        if scv <= 1.0:
            return (1.0 - s * scv) ** (-1.0 / scv)
        p = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
        return p / (1.0 - s / (2 * p)) + (1 - p) / (1.0 - s / (2 * (1 - p)))

    if discipline is Discipline.POOLED:
        gaps = transform(ca2, -x / rho)
    elif discipline is Discipline.ROUND_ROBIN:
        gaps = transform(ca2, -x / (rho * servers)) ** servers
    else:
        one = transform(ca2, -x / (rho * servers))
        gaps = one / servers / (1.0 - (1.0 - 1.0 / servers) * one)
    assert x > 0.0
    assert transform(cs2, x) * gaps == pytest.approx(1.0, rel=1e-6)


def test_lots_and_turns_change_what_a_queue_sees() -> None:
    assert Discipline.RANDOM.split_scv(0.1, 4) == pytest.approx((0.1 + 3) / 4)
    assert Discipline.ROUND_ROBIN.split_scv(4.0, 8) == 0.5
    assert Discipline.POOLED.split_scv(4.0, 8) == 4.0


def test_lots_leave_poisson_arrivals_poisson() -> None:
    # Four queues M/M/1, each at a quarter of the rate.
    assert wait_quantile(0.99, 16.0, 0.2, 4, discipline=Discipline.RANDOM) == pytest.approx(
        wait_quantile(0.99, 4.0, 0.2, 1))


@pytest.mark.parametrize('ca2', [0.1, 1.0, 4.0])
@pytest.mark.parametrize('rho', [0.5, 0.8, 0.95])
def test_one_queue_is_better_than_turns_and_turns_than_lots(ca2: float, rho: float) -> None:
    pooled, lots, turns = (
        mean_wait(8 * rho, 1.0, 8, ca2=ca2, cs2=0.5, discipline=d) for d in (
            Discipline.POOLED, Discipline.RANDOM, Discipline.ROUND_ROBIN))
    assert pooled < turns < lots


@pytest.mark.parametrize('discipline', DISCIPLINES)
def test_one_server_has_one_discipline(discipline: Discipline) -> None:
    assert wait_tail(0.8, 1.0, 1, ca2=0.3, cs2=2.0, discipline=discipline) == wait_tail(
        0.8, 1.0, 1, ca2=0.3, cs2=2.0)


ANY = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=300)
@given(
    p=st.one_of(ANY, st.floats(0.0, 1.0)), rate=st.one_of(ANY, st.floats(0.0, 100.0)),
    service=st.one_of(ANY, st.floats(0.0, 1.0)), servers=st.integers(-1, 200),
    ca2=st.one_of(ANY, st.floats(0.0, 20.0)), cs2=st.one_of(ANY, st.floats(0.0, 20.0)),
    discipline=st.sampled_from(DISCIPLINES))
def test_there_is_always_an_answer(p, rate, service, servers, ca2, cs2, discipline) -> None:
    kwargs = {'ca2': ca2, 'cs2': cs2, 'discipline': discipline}
    assert wait_quantile(p, rate, service, servers, **kwargs) >= 0.0
    assert mean_wait(rate, service, servers, **kwargs) >= 0.0
    alpha, eta = wait_tail(rate, service, servers, **kwargs)
    assert 0.0 <= alpha <= 1.0
    assert eta >= 0.0


def test_what_is_no_number_waits_for_ever() -> None:
    nan = math.nan
    for args in ((nan, 0.1, 2), (1.0, nan, 2)):
        assert wait_quantile(0.99, *args) == math.inf
        assert mean_wait(*args) == math.inf
    assert wait_quantile(0.99, 1.0, 0.1, 2, ca2=nan) == math.inf
    assert wait_quantile(0.99, 1.0, 0.1, 2, cs2=math.inf) == math.inf
    # Found by chance: the products of such numbers leave the range of doubles.
    assert wait_quantile(0.5, 1.0, 0.25, 3, ca2=0.0, cs2=1.6e307) == math.inf
    assert mean_wait(1.0, 0.25, 1, ca2=0.0, cs2=6e307) == math.inf
    assert wait_quantile(nan, 1.0, 0.1, 2) == math.inf
    assert wait_quantile(1.0, 1.0, 0.1, 2) == math.inf
    assert wait_quantile(0.0, 1.0, 0.1, 2) == 0.0


def test_arrays_give_what_single_values_give() -> None:
    rates = np.linspace(0.0, 12.0, 7)
    servers = np.array([1, 4, 16])[:, None]
    for ca2, discipline in itertools.product((0.2, 1.0, 3.0), DISCIPLINES):
        waits = wait_quantile(0.99, rates, 0.5, servers, ca2=ca2, cs2=0.3, discipline=discipline)
        means = mean_wait(rates, 0.5, servers, ca2=ca2, cs2=0.3, discipline=discipline)
        assert waits.shape == means.shape == (3, 7)
        for i, j in itertools.product(range(3), range(7)):
            args = (float(rates[j]), 0.5, int(servers[i, 0]))
            kwargs = {'ca2': ca2, 'cs2': 0.3, 'discipline': discipline}
            assert waits[i, j] == wait_quantile(0.99, *args, **kwargs)
            assert means[i, j] == mean_wait(*args, **kwargs)


@given(
    servers=st.integers(1, 64), rho=st.floats(0.05, 0.94), ca2=st.floats(0.0, 6.0),
    cs2=st.floats(0.01, 3.0), discipline=st.sampled_from(DISCIPLINES))
def test_more_load_never_waits_less(servers, rho, ca2, cs2, discipline) -> None:
    def wait(at: float) -> float:
        return wait_quantile(0.99, at * servers, 1.0, servers, ca2=ca2, cs2=cs2,
                             discipline=discipline)
    assert wait(rho + 0.05) >= wait(rho) * (1.0 - 1e-6)


@pytest.mark.parametrize(('servers', 'rho'), [(1, 0.7), (4, 0.8)])
def test_m_m_c_is_within_the_interval_of_another_simulator(servers: int, rho: float) -> None:
    ciw = pytest.importorskip('ciw', reason='pip install ciw')
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rho * servers)],
        service_distributions=[ciw.dists.Exponential(1.0)], number_of_servers=[servers])
    means, waiting = [], []
    for seed in range(10):
        ciw.seed(seed)
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_customers(4000, method='Finish')
        waits = np.array([r.waiting_time for r in simulation.get_all_records()])[400:]
        means.append(waits.mean())
        waiting.append((waits > 0.0).mean())
    for measured, predicted in (
            (means, mean_wait(rho * servers, 1.0, servers)),
            (waiting, wait_tail(rho * servers, 1.0, servers)[0])):
        # 99.8 % for ten seeds (Student's t, 9 degrees of freedom).
        half = 4.3 * np.std(measured, ddof=1) / math.sqrt(10)
        assert abs(np.mean(measured) - predicted) < half


def test_our_simulation_agrees_with_the_other_one() -> None:
    # Of the same gaps and service times, one customer after the other, without a heap.
    random = np.random.default_rng(5)
    gaps, services = draw(random, 0.5, 500) / 2.5, draw(random, 2.0, 500)
    free, now, expected = [0.0] * 3, 0.0, []
    for gap, service in zip(gaps, services):
        now += gap
        server = min(range(3), key=lambda k: free[k])
        expected.append(max(0.0, free[server] - now))
        free[server] = max(now, free[server]) + service
    assert pooled_waits(gaps, services, 3) == pytest.approx(expected)


@pytest.mark.parametrize('scv', [0.0, 0.1, 1.0, 4.0])
@pytest.mark.parametrize('family', ['usual', 'lognormal'])
def test_drawn_times_have_their_two_moments(scv: float, family: str) -> None:
    times = draw(np.random.default_rng(3), scv, 400_000, family)
    assert times.mean() == pytest.approx(1.0, rel=0.02)
    assert times.var() == pytest.approx(scv, rel=0.1)


# All 126 cells: python -m benchmarks.queueing, docs/queueing.md.
@pytest.mark.parametrize(('discipline', 'servers', 'ca2', 'cs2', 'rho'), [
    ('pooled', 1, 0.1, 1.0, 0.7),
    ('pooled', 1, 4.0, 0.1, 0.5),
    ('pooled', 4, 1.0, 0.1, 0.7),
    ('pooled', 4, 4.0, 1.0, 0.5),
    ('pooled', 16, 4.0, 1.0, 0.7),
    ('pooled', 16, 0.1, 1.0, 0.9),
    ('random', 4, 4.0, 0.1, 0.5),
    ('random', 16, 0.1, 0.1, 0.7),
    ('round_robin', 4, 0.1, 1.0, 0.7),
    ('round_robin', 4, 4.0, 1.0, 0.5),
])
def test_p99_is_within_15_percent_of_simulation(discipline, servers, ca2, cs2, rho) -> None:
    truth = estimate(discipline, servers, rho, ca2, cs2, count=300_000, seed=11)
    found = wait_quantile(
        0.99, rho * servers, 1.0, servers, ca2=ca2, cs2=cs2, discipline=Discipline(discipline))
    # The simulation's own uncertainty on top: 300,000 arrivals are few.
    assert abs(found - truth.wait) <= 0.15 * truth.wait + truth.error
