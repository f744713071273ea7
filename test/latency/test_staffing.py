"""Test the inverse questions: servers for a load, load for servers."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from laimr_ros.latency.decay import Discipline
from laimr_ros.latency.erlang import erlang_c, halfin_whitt
from laimr_ros.latency.queueing import wait_quantile
from laimr_ros.latency.search import fewest, largest
from laimr_ros.latency.staffing import (
    fewest_servers,
    largest_rate,
    square_root_beta,
    square_root_servers,
)
import pytest


@given(limit=st.integers(-5, 2000), least=st.integers(0, 50), extra=st.integers(0, 2000))
def test_fewest_finds_the_edge(limit: int, least: int, extra: int) -> None:
    most = least + extra
    expected = max(limit, least) if limit <= most else None
    assert fewest(lambda n: n >= limit, least, most) == expected


def test_fewest_of_an_empty_range_is_none() -> None:
    assert fewest(lambda n: True, 5, 4) is None


@given(limit=st.floats(0.0, 20.0))
def test_largest_finds_the_edge(limit: float) -> None:
    assert largest(lambda x: x <= limit, 10.0) == pytest.approx(min(limit, 10.0), abs=1e-7)


@given(waiting=st.floats(1e-6, 0.999))
def test_square_root_beta_is_the_inverse(waiting: float) -> None:
    assert halfin_whitt(square_root_beta(waiting)) == pytest.approx(waiting, rel=1e-6)


def test_square_root_beta_at_its_ends() -> None:
    assert square_root_beta(0.0) == math.inf
    assert square_root_beta(1.0) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize('offered', [10.0, 100.0, 1000.0])
@pytest.mark.parametrize('waiting', [0.05, 0.2, 0.5])
def test_square_root_staffing_is_within_a_server_of_erlang_c(
    offered: float, waiting: float
) -> None:
    servers = math.floor(offered) + 1
    while erlang_c(servers, offered) > waiting:
        servers += 1
    assert abs(square_root_servers(offered, waiting) - servers) <= 1


def test_square_root_staffing_needs_more_than_the_load() -> None:
    assert square_root_servers(8.0, 1.0) == 9
    assert square_root_servers(0.0, 0.1) == 0
    with pytest.raises(ValueError, match='^waiting is 0'):
        square_root_servers(8.0, 0.0)
    with pytest.raises(ValueError, match='^offered load is nan'):
        square_root_servers(math.nan, 0.1)


@given(
    rate=st.floats(0.1, 200.0), limit=st.floats(0.0, 2.0), ca2=st.floats(0.1, 4.0),
    discipline=st.sampled_from([Discipline.POOLED, Discipline.RANDOM]))
def test_fewest_servers_holds_and_one_less_does_not(rate, limit, ca2, discipline) -> None:
    kwargs = {'ca2': ca2, 'cs2': 0.2, 'discipline': discipline}
    servers = fewest_servers(0.99, limit, rate, 0.3, **kwargs)
    if servers is None:
        # A queue of its own for each server leaves a chance of waiting however many there are.
        assert discipline is Discipline.RANDOM
        return
    assert wait_quantile(0.99, rate, 0.3, servers, **kwargs) <= limit
    assert servers == 1 or wait_quantile(0.99, rate, 0.3, servers - 1, **kwargs) > limit


def test_fewest_servers_at_its_ends() -> None:
    assert fewest_servers(0.99, 0.1, 0.0, 0.3) == 0
    assert fewest_servers(0.99, 0.1, math.nan, 0.3) is None
    assert fewest_servers(0.99, 0.1, math.inf, 0.3) is None
    assert fewest_servers(0.99, math.nan, 1.0, 0.3) is None
    assert fewest_servers(0.99, 0.1, 100.0, 0.3, most=30) is None
    assert fewest_servers(0.99, 0.1, 3000.0, 1.0) == pytest.approx(3150, rel=0.05)


@given(servers=st.integers(1, 100), limit=st.floats(0.01, 3.0))
def test_largest_rate_is_the_inverse(servers: int, limit: float) -> None:
    rate = largest_rate(0.99, limit, 0.3, servers)
    assert 0.0 < rate < servers / 0.3
    assert wait_quantile(0.99, 0.9999 * rate, 0.3, servers) <= limit
    assert wait_quantile(0.99, 1.0001 * rate, 0.3, servers) > limit


def test_largest_rate_at_its_ends() -> None:
    assert largest_rate(0.99, 0.1, 0.3, 0) == 0.0
    assert largest_rate(0.99, 0.1, math.inf, 3) == 0.0
    assert largest_rate(0.99, 0.1, 0.0, 3) == math.inf
