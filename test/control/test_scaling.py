"""Test how many replicas are asked for."""

from __future__ import annotations

import math

from controller_harness import make_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from laimr_ros.control.nouns import Limits
from laimr_ros.control.scaling import (
    PoolScaler,
    predicted_quantile,
    replicas_needed,
    share_served,
    Stream,
    utilisation,
)
from laimr_ros.latency.model import lognormal_quantile, Network, PowerLaw
from laimr_ros.latency.queueing import wait_quantile
import pytest

NEAR = Network(0.0, 0.0)
LIMITS = Limits()


def stream(rate: float, service: float = 0.1, slo: float = 1.0, *, cv: float = 0.0,
           ratio: float = 1.0, backlog: int = 0, beta: float = 0.0) -> Stream:
    """Return a stream with a service time that is constant unless said otherwise."""
    return Stream(rate, PowerLaw(service, beta, 1.0, cv), ratio, slo, backlog)


# ----- the predicted quantile

def test_the_quantile_is_the_sum_of_its_parts() -> None:
    network = Network(0.05, 0.3)
    q, = predicted_quantile(0.99, [stream(9.0, 0.2, cv=1.0)], 3, network, max_in_flight=8)
    part = 1.0 - 0.01 / 3.0
    assert q == pytest.approx(
        wait_quantile(part, 9.0, 0.2, 3, cs2=1.0) + lognormal_quantile(0.2, 1.0, part)
        + network.quantile(part))


def test_one_frame_at_a_time_leaves_a_replica_idle_while_the_answer_travels() -> None:
    network = Network(0.2, 0.0)
    # 0.1 s of work, 0.3 s of occupancy: 4 frames/s need more than one replica.
    assert predicted_quantile(0.99, [stream(4.0)], 1, network) == (math.inf,)
    assert predicted_quantile(0.99, [stream(4.0)], 1, network, 3)[0] < math.inf


def test_a_mixture_of_models_varies_more_than_each() -> None:
    mixed = [stream(3.0, 0.1), stream(3.0, 0.5)]
    same = [stream(3.0, 0.3), stream(3.0, 0.3)]
    wait_mixed = predicted_quantile(0.99, mixed, 3, NEAR)[0] - 0.1
    wait_same = predicted_quantile(0.99, same, 3, NEAR)[0] - 0.3
    assert wait_mixed > 1.3 * wait_same
    # Squared coefficients of variation of the service: 0.04 / 0.09 and 0.
    part = 1.0 - 0.01 / 3.0
    assert wait_mixed == pytest.approx(wait_quantile(part, 6.0, 0.3, 3, cs2=0.04 / 0.09))
    assert wait_same == pytest.approx(wait_quantile(part, 6.0, 0.3, 3, cs2=0.0))


def test_what_was_learned_counts() -> None:
    assert predicted_quantile(0.99, [stream(4.0, 0.1, ratio=2.0)], 2, NEAR) == (
        predicted_quantile(0.99, [stream(4.0, 0.2)], 2, NEAR))


def test_without_replicas_or_capacity_there_is_no_end() -> None:
    assert predicted_quantile(0.99, [stream(1.0), stream(2.0)], 0, NEAR) == (math.inf, math.inf)
    assert predicted_quantile(0.99, [stream(10.0)], 1, NEAR) == (math.inf,)
    assert predicted_quantile(0.99, [], 1, NEAR) == ()


def test_utilisation_is_busy_time() -> None:
    assert utilisation([stream(4.0, 0.1), stream(1.0, 0.2, ratio=3.0)], 2) == pytest.approx(0.5)
    assert utilisation([stream(4.0)], 0) == math.inf
    assert utilisation([], 3) == 0.0


# ----- how many are needed

@settings(max_examples=200, deadline=None)
@given(
    rates=st.lists(st.floats(0.0, 20.0), min_size=1, max_size=3),
    service=st.floats(0.02, 0.5), slo=st.floats(0.3, 3.0), beta=st.floats(0.0, 0.1),
    cv=st.floats(0.0, 0.5), backlog=st.integers(0, 20), low=st.integers(0, 3),
    more=st.integers(0, 20), margin=st.floats(0.5, 1.0), away=st.floats(0.0, 0.1),
    max_in_flight=st.integers(1, 3), guess=st.integers(0, 25))
def test_the_fewest_that_do_agree_with_brute_force(
    rates: list[float], service: float, slo: float, beta: float, cv: float, backlog: int,
    low: int, more: int, margin: float, away: float, max_in_flight: int, guess: int
) -> None:
    pool = make_pool(min_replicas=low, max_replicas=low + more, max_in_flight=max_in_flight)
    network = Network(away, 0.3)
    streams = [
        stream(rate, service * (k + 1), slo * (k + 1), beta=beta, cv=cv,
               backlog=backlog if k == 0 else 0)
        for k, rate in enumerate(rates)]
    needed = replicas_needed(streams, pool, network, margin, LIMITS, guess)
    assert pool.min_replicas <= needed <= pool.max_replicas
    if not any(rates) and not backlog:
        assert needed == pool.min_replicas
        return
    alone = predicted_quantile(
        LIMITS.quantile, [stream(0.0, service * (k + 1), beta=beta, cv=cv)
                          for k in range(len(rates))], 1, network, max_in_flight)
    attainable = [q <= margin * s.slo for q, s in zip(alone, streams)]
    load = sum((s.rate + s.backlog / LIMITS.drain_time) * s.model.mean(0.0, 1) for s in streams)

    def does(replicas: int) -> bool:
        quantiles = predicted_quantile(
            LIMITS.quantile, streams, replicas, network, max_in_flight)
        return replicas >= load - 1e-9 and all(
            q <= margin * s.slo for q, s, can in zip(quantiles, streams, attainable) if can)

    enough = [n for n in range(pool.min_replicas, pool.max_replicas + 1) if does(n)]
    assert needed == (enough[0] if enough else pool.max_replicas)


def test_nothing_to_do_needs_the_fewest() -> None:
    assert replicas_needed([stream(0.0)], make_pool(min_replicas=2), NEAR, 0.9, LIMITS) == 2
    assert replicas_needed([], make_pool(min_replicas=0), NEAR, 0.9, LIMITS) == 0


def test_a_backlog_is_worked_off_in_time() -> None:
    limits = Limits(drain_time=2.0)
    # 100 frames of 0.1 s in 2 s: five replicas, whatever arrives.
    assert replicas_needed([stream(0.0, backlog=100)], make_pool(), NEAR, 0.9, limits) == 5


def test_a_stream_that_cannot_be_on_time_counts_by_its_load_only() -> None:
    hopeless = stream(4.0, service=0.5, slo=0.1)
    assert replicas_needed([hopeless], make_pool(), NEAR, 0.9, LIMITS) == 2
    both = [hopeless, stream(1.0, 0.1, 2.0)]
    assert 2 < replicas_needed(both, make_pool(), NEAR, 0.9, LIMITS) < 10


@given(service=st.floats(0.05, 0.2), rate=st.floats(0.1, 20.0))
def test_more_load_never_needs_fewer(service: float, rate: float) -> None:
    pool = make_pool(max_replicas=50)
    here = replicas_needed([stream(rate, service)], pool, NEAR, 0.9, LIMITS)
    assert replicas_needed([stream(1.3 * rate, service)], pool, NEAR, 0.9, LIMITS) >= here
    assert replicas_needed([stream(rate, service)], pool, NEAR, 0.5, LIMITS) >= here


# ----- what share a full pool serves

def test_all_is_served_where_all_fits() -> None:
    assert share_served([stream(5.0)], make_pool(), NEAR, 0.9, LIMITS, 10) == 1.0
    assert share_served([], make_pool(), NEAR, 0.9, LIMITS, 10) == 1.0


@pytest.mark.parametrize('rate', [12.0, 20.0, 100.0])
def test_the_share_is_the_most_that_fits(rate: float) -> None:
    pool = make_pool()
    share = share_served([stream(rate)], pool, NEAR, 0.9, LIMITS, 1)
    assert 0.0 < share < 1.0
    part = [stream(share * rate)]
    over = [stream((share + 0.01) * rate)]
    assert predicted_quantile(LIMITS.quantile, part, 1, NEAR)[0] <= 0.9
    assert predicted_quantile(LIMITS.quantile, over, 1, NEAR)[0] > 0.9


def test_a_stream_that_cannot_be_on_time_takes_no_other_down() -> None:
    hopeless = stream(2.0, service=0.5, slo=0.1)
    assert share_served([hopeless, stream(5.0)], make_pool(), NEAR, 0.9, LIMITS, 10) == 1.0
    # But it is load.
    assert share_served([hopeless, stream(5.0)], make_pool(), NEAR, 0.9, LIMITS, 1) == 0.0


# ----- over time

def test_nothing_is_desired_before_anything_was_observed() -> None:
    scaler = PoolScaler()
    assert scaler.decide(0.0, 5, 5, make_pool(), LIMITS) is None
    assert scaler.desired is None


@pytest.mark.parametrize(('observed', 'desired'), [(0, 1), (4, 4), (99, 10)])
def test_it_starts_from_what_is_there_within_bounds(observed: int, desired: int) -> None:
    scaler = PoolScaler()
    assert scaler.start_from(observed, make_pool()) == desired


def started(replicas: int) -> PoolScaler:
    """Return a scaler that starts from so many replicas."""
    scaler = PoolScaler()
    scaler.start_from(replicas, make_pool())
    return scaler


def test_up_at_once() -> None:
    assert started(2).decide(0.0, 7, 3, make_pool(), LIMITS) == 7


def test_down_only_after_the_whole_window() -> None:
    scaler = started(7)
    pool, limits = make_pool(), Limits(stabilisation=30.0)
    for now in range(30):
        assert scaler.decide(float(now), 2, 3, pool, limits) == 7
    assert scaler.decide(30.0, 2, 3, pool, limits) == 3


def test_down_to_the_most_that_was_needed_within_the_window() -> None:
    scaler = started(7)
    pool, limits = make_pool(), Limits(stabilisation=30.0)
    for now, needed in ((0.0, 2), (10.0, 5), (20.0, 2)):
        assert scaler.decide(now, needed, needed, pool, limits) == 7
    assert scaler.decide(30.0, 2, 2, pool, limits) == 5


def test_a_need_within_the_window_starts_it_again() -> None:
    scaler = started(7)
    pool, limits = make_pool(), Limits(stabilisation=30.0)
    assert scaler.decide(0.0, 2, 2, pool, limits) == 7
    assert scaler.decide(20.0, 7, 7, pool, limits) == 7
    assert scaler.decide(31.0, 2, 2, pool, limits) == 7
    assert scaler.decide(60.0, 2, 2, pool, limits) == 7
    assert scaler.decide(61.0, 2, 2, pool, limits) == 2


def test_between_the_margins_nothing_moves() -> None:
    scaler = started(4)
    for now in range(0, 300, 10):
        # Three would be enough now, but not with room to spare.
        assert scaler.decide(float(now), 3, 5, make_pool(), LIMITS) == 4


def test_bounds_hold_whatever_is_wanted() -> None:
    scaler = started(4)
    pool = make_pool(min_replicas=2, max_replicas=6)
    assert scaler.decide(0.0, 99, 99, pool, LIMITS) == 6
    assert scaler.decide(1.0, 1, 1, make_pool(max_replicas=3), LIMITS) == 3
    assert scaler.decide(2.0, 1, 1, make_pool(min_replicas=5), LIMITS) == 5


def test_bounds_that_narrow_within_the_window_hold_at_its_end() -> None:
    limits = Limits(stabilisation=10.0)
    scaler = started(8)
    assert scaler.decide(0.0, 5, 5, make_pool(), limits) == 8
    narrow = make_pool(min_replicas=0, max_replicas=3)
    assert scaler.decide(5.0, 1, 1, narrow, limits) == 3
    assert scaler.decide(10.0, 1, 1, narrow, limits) <= 3
    scaler = started(8)
    assert scaler.decide(0.0, 1, 1, make_pool(), limits) == 8
    assert scaler.decide(10.0, 1, 1, make_pool(min_replicas=6), limits) == 6


@settings(max_examples=100)
@given(
    wants=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.floats(0.1, 10.0)),
                   max_size=60),
    first=st.integers(0, 12))
def test_it_stays_in_bounds_and_falls_at_most_once_a_window(
    wants: list[tuple[int, int, float]], first: int
) -> None:
    pool, limits = make_pool(min_replicas=2, max_replicas=9), Limits(stabilisation=15.0)
    scaler = PoolScaler()
    before = scaler.start_from(first, pool)
    now, fell = 0.0, -math.inf
    for up, down, elapsed in wants:
        now += elapsed
        after = scaler.decide(now, up, down, pool, limits)
        assert after is not None
        assert 2 <= after <= 9
        assert after >= min(9, up)
        if after < before:
            assert now - fell >= 15.0 - 1e-9
            fell = now
        before = after
