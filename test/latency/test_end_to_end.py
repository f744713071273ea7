"""Test wait, service and network put together, and the inverse questions."""

from __future__ import annotations

from dataclasses import replace
import math

from hypothesis import given
from hypothesis import strategies as st
from laimr_ros.latency.decay import Discipline
from laimr_ros.latency.end_to_end import LatencyModel
from laimr_ros.latency.model import Network, PowerLaw
from laimr_ros.latency.queueing import mean_wait, wait_quantile
from laimr_ros.latency.utilisation import InstanceLoad, UtilisationLaw
import numpy as np
import pytest

PAPER = LatencyModel(PowerLaw(0.73, 1.29, 1.49, 0.2), Network(0.01, 0.3))
SIMPLE = LatencyModel(PowerLaw(0.1, 0.0, 1.0, 0.3), Network(0.02, 0.5), max_in_flight=2)


def test_parts_add_up_to_the_union_bound() -> None:
    part = 1.0 - 0.01 / 3.0
    parts = SIMPLE.parts(0.99, 15.0, 2)
    assert parts.wait == wait_quantile(part, 15.0, 0.1, 2, cs2=0.09)
    assert parts.service == SIMPLE.service.quantile(part, 15.0, 2)
    assert parts.network == SIMPLE.network.quantile(part)
    assert SIMPLE.quantile(0.99, 15.0, 2) == parts.total


@pytest.mark.parametrize('rate', [0.0, 4.0, 15.0, 18.0])
def test_independent_parts_need_less_time(rate: float) -> None:
    tighter = replace(SIMPLE, independent=True)
    assert SIMPLE.service.quantile(0.99, rate, 2) < tighter.quantile(0.99, rate, 2)
    assert tighter.quantile(0.99, rate, 2) < SIMPLE.quantile(0.99, rate, 2)
    assert tighter.quantile(0.99, 20.0, 2) == math.inf
    assert tighter.replicas_needed(0.4, 40.0) <= SIMPLE.replicas_needed(0.4, 40.0)


def test_mean_is_the_sum_of_means() -> None:
    assert SIMPLE.mean(15.0, 2) == pytest.approx(
        mean_wait(15.0, 0.1, 2, cs2=0.09) + 0.1 + 0.02)


def test_a_replica_with_one_frame_idles_while_the_answer_travels() -> None:
    one = LatencyModel(SIMPLE.service, SIMPLE.network, max_in_flight=1)
    assert one.occupancy(0.0, 1) == pytest.approx(0.12)
    assert SIMPLE.occupancy(0.0, 1) == pytest.approx(0.1)
    assert one.quantile(0.99, 15.0, 2) > SIMPLE.quantile(0.99, 15.0, 2)
    assert one.quantile(0.99, 9.0, 1) == math.inf


def test_two_views_of_one_object() -> None:
    for p in (None, 0.5, 0.99):
        by_rate, by_replicas = PAPER.g_lambda(5, p), PAPER.g_replicas(2.0, p)
        assert by_rate(2.0) == by_replicas(5)
        assert by_rate(2.0) == (PAPER.mean(2.0, 5) if p is None else PAPER.quantile(p, 2.0, 5))
    # Latency grows with traffic at fixed capacity, and falls with capacity at fixed traffic.
    rates = [PAPER.g_lambda(6, 0.99)(rate) for rate in np.linspace(0.0, 4.0, 15)]
    replicas = [PAPER.g_replicas(4.0, 0.99)(n) for n in range(1, 30)]
    assert rates == sorted(rates)
    assert replicas == sorted(replicas, reverse=True)
    assert replicas[0] == math.inf


@given(
    rate=st.floats(0.0, 50.0), slo=st.floats(0.2, 20.0), alpha=st.floats(0.01, 1.0),
    beta=st.floats(0.0, 2.0), gamma=st.floats(0.3, 2.0), p=st.sampled_from([0.5, 0.95, 0.99]))
def test_replicas_needed_are_enough_and_one_less_is_not(rate, slo, alpha, beta, gamma, p) -> None:
    model = LatencyModel(PowerLaw(alpha, beta, gamma), Network(0.01))
    replicas = model.replicas_needed(slo, rate, p)
    if replicas is None:
        # Not even an idle replica is quick enough (or only in the limit).
        assert model.quantile(p, rate, 100_000) > slo
        return
    assert model.quantile(p, rate, replicas) <= slo
    assert replicas == 1 or model.quantile(p, rate, replicas - 1) > slo


def test_replicas_needed_by_trying_each() -> None:
    for rate in (0.5, 1.0, 4.0, 6.0):
        by_hand = next(n for n in range(1, 200) if PAPER.quantile(0.99, rate, n) <= 1.8)
        assert PAPER.replicas_needed(1.8, rate) == by_hand
    assert PAPER.replicas_needed(0.5, 1.0) is None
    assert PAPER.replicas_needed(1.8, 4.0, most=3) is None
    assert PAPER.replicas_needed(1.8, 0.0) == 1


@pytest.mark.parametrize('replicas', [1, 4, 30])
def test_rate_allowed_is_the_inverse(replicas: int) -> None:
    rate = PAPER.rate_allowed(1.8, replicas)
    assert PAPER.quantile(0.99, rate, replicas) <= 1.8
    assert PAPER.quantile(0.99, rate + 1e-4, replicas) > 1.8
    assert PAPER.replicas_needed(1.8, rate) <= replicas


def test_no_rate_is_allowed_where_the_service_is_too_slow() -> None:
    assert PAPER.rate_allowed(0.5, 10) == 0.0


def test_blind_pushing_needs_more_replicas_than_one_queue() -> None:
    needed = {d: LatencyModel(SIMPLE.service, SIMPLE.network, d).replicas_needed(0.35, 40.0)
              for d in Discipline}
    assert needed[Discipline.POOLED] < needed[Discipline.ROUND_ROBIN] < needed[Discipline.RANDOM]


def test_works_with_the_exact_form() -> None:
    exact = UtilisationLaw('m', 0.2, InstanceLoad(4.0, 0.5), gamma=1.5, resource=0.2)
    model = LatencyModel(exact, Network(0.001))
    assert model.quantile(0.99, 2.0, 2) < math.inf
    # The instance is saturated, however many replicas share it.
    assert model.quantile(0.99, 20.0, 100) == math.inf
    assert model.replicas_needed(2.0, 20.0) is None


NUMBER = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.floats(0.0, 10.0))


@given(rate=NUMBER, replicas=st.integers(-1, 20))
def test_there_is_always_an_answer(rate, replicas) -> None:
    for model in (PAPER, SIMPLE, replace(SIMPLE, independent=True)):
        assert model.quantile(0.99, rate, replicas) > 0.0
        assert model.mean(rate, replicas) > 0.0
    if math.isnan(rate) or replicas <= 0:
        assert PAPER.quantile(0.99, rate, replicas) == math.inf
