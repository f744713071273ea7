"""Test what may be spent on second copies and on the cloud."""

from __future__ import annotations

import math
import random

from hypothesis import given
import hypothesis.strategies as st
from laimr_ros.control.budgets import HedgeBudget, OffloadBucket
import pytest


@given(st.lists(st.booleans(), max_size=500), st.floats(0.0, 1.0), st.floats(1.0, 20.0))
def test_copies_never_exceed_their_share(takes: list[bool], share: float, burst: float) -> None:
    budget = HedgeBudget(share, burst)
    for take in takes:
        budget.earn()
        if take:
            budget.take()
        assert budget.hedged <= share * budget.frames + 1e-6


def test_one_in_twenty_may_be_copied() -> None:
    budget = HedgeBudget(0.05)
    for _ in range(2000):
        budget.earn()
        budget.take()
    assert budget.hedged == 100
    assert budget.refused == 1900


def test_only_a_few_copies_are_saved_up() -> None:
    budget = HedgeBudget(0.05, burst=5.0)
    for _ in range(100_000):
        budget.earn()
    assert [budget.take() for _ in range(7)] == [True] * 5 + [False] * 2


def test_a_copy_that_was_not_made_is_given_back() -> None:
    budget = HedgeBudget(1.0)
    budget.earn()
    assert budget.take()
    budget.give_back()
    assert budget.hedged == 0
    assert budget.take()


def test_a_share_of_zero_allows_none() -> None:
    budget = HedgeBudget(0.0)
    for _ in range(100):
        budget.earn()
    assert not budget.take()


@pytest.mark.parametrize(('share', 'burst', 'message'), [
    (-0.1, 5.0, 'hedging share is -0.1'), (1.5, 5.0, 'hedging share'),
    (math.nan, 5.0, 'hedging share'), (0.05, 0.5, 'hedging burst is 0.5'),
    (0.05, math.nan, 'hedging burst')])
def test_a_wrong_hedge_budget_is_refused(share: float, burst: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HedgeBudget(share, burst)


def test_nothing_is_offloaded_before_the_capacity_is_known() -> None:
    bucket = OffloadBucket()
    assert not bucket.take(0.0)
    assert not bucket.take(1e6)
    assert bucket.next_token(1e6) == math.inf


@pytest.mark.parametrize(('servers', 'service', 'own', 'spare'), [
    (4, 0.5, 0.0, 6.8), (4, 0.5, 3.0, 3.8), (4, 0.5, 7.0, 0.0), (0, 0.5, 0.0, 0.0),
    (1, 2.0, 0.0, 0.425)])
def test_it_is_refilled_at_the_spare_rate(
    servers: int, service: float, own: float, spare: float
) -> None:
    bucket = OffloadBucket(0.85)
    assert bucket.refill_at(0.0, servers, service, own) == pytest.approx(spare)
    # Asked far more often than it allows.
    rng = random.Random(1)
    now, taken = 0.0, 0
    while now < 200.0:
        now += rng.expovariate(50.0)
        taken += bucket.take(now)
    assert taken == pytest.approx(spare * 200.0, abs=servers + 2)


def test_own_traffic_goes_first_as_it_changes() -> None:
    bucket = OffloadBucket(0.8)
    now, taken = 0.0, {0.0: 0, 8.0: 0}
    for own in (0.0, 8.0):
        bucket.refill_at(now, 10, 1.0, own)
        while bucket.take(now):
            pass
        for _ in range(1000):
            now += 0.01
            taken[own] += bucket.take(now)
    assert taken[0.0] == pytest.approx(80, abs=1)
    assert taken[8.0] == 0


def test_a_herd_gets_at_most_a_frame_a_replica() -> None:
    bucket = OffloadBucket(depth=10.0)
    bucket.refill_at(0.0, 4, 0.5, 0.0)
    assert sum(bucket.take(0.0) for _ in range(100)) == 4
    assert not bucket.has(0.0)


def test_new_replicas_may_be_used_at_once() -> None:
    bucket = OffloadBucket()
    bucket.refill_at(0.0, 2, 0.5, 0.0)
    while bucket.take(0.0):
        pass
    bucket.refill_at(0.0, 5, 0.5, 0.0)
    assert sum(bucket.take(0.0) for _ in range(100)) == 3


def test_a_slow_pool_saves_up_one_whole_frame() -> None:
    bucket = OffloadBucket(depth=1.0)
    bucket.refill_at(0.0, 1, 10.0, 0.0)
    assert bucket.take(0.0)
    at = bucket.next_token(0.0)
    assert at == pytest.approx(1.0 / 0.085)
    assert not bucket.take(0.99 * at)
    assert bucket.take(1.01 * at)


def test_a_lost_pool_takes_its_tokens_along() -> None:
    bucket = OffloadBucket()
    bucket.refill_at(0.0, 4, 0.5, 0.0)
    bucket.refill_at(1.0, 0, 0.5, 0.0)
    assert not bucket.take(100.0)


def test_asking_is_free() -> None:
    bucket = OffloadBucket()
    bucket.refill_at(0.0, 1, 1.0, 0.0)
    assert all(bucket.has(0.0) for _ in range(10))
    assert (bucket.taken, bucket.refused) == (0, 0)
    assert bucket.next_token(0.0) == 0.0


@pytest.mark.parametrize(('rho_max', 'depth', 'message'), [
    (0.0, 1.0, 'offload rho_max is 0.0'), (1.1, 1.0, 'offload rho_max'),
    (math.nan, 1.0, 'offload rho_max'), (0.8, 0.0, 'offload depth is 0.0'),
    (0.8, math.inf, 'offload depth')])
def test_a_wrong_bucket_is_refused(rho_max: float, depth: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OffloadBucket(rho_max, depth)
