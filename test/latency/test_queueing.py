"""Test queueing formulas against tables, direct summation and closed forms."""

from __future__ import annotations

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import strategies as st
from laimr_ros.latency.queueing import erlang_b, erlang_c, wait_quantile
import pytest


def summed_erlang_b(servers: int, offered: Fraction) -> Fraction:
    """Return Erlang-B by its defining sum, exactly."""
    terms = [offered ** k / math.factorial(k) for k in range(servers + 1)]
    return terms[-1] / sum(terms)


def summed_erlang_c(servers: int, offered: Fraction) -> Fraction:
    """Return Erlang-C by its defining sum, exactly."""
    queued = offered ** servers / math.factorial(servers) * servers / (servers - offered)
    return queued / (queued + sum(
        offered ** k / math.factorial(k) for k in range(servers)))


@given(servers=st.integers(0, 60), hundredths=st.integers(1, 10_000))
def test_erlang_b_is_its_sum(servers: int, hundredths: int) -> None:
    offered = Fraction(hundredths, 100)
    assert erlang_b(servers, float(offered)) == pytest.approx(
        float(summed_erlang_b(servers, offered)), rel=1e-9)


@given(servers=st.integers(1, 60), thousandths=st.integers(1, 999))
def test_erlang_c_is_its_sum(servers: int, thousandths: int) -> None:
    offered = servers * Fraction(thousandths, 1000)
    assert erlang_c(servers, float(offered)) == pytest.approx(
        float(summed_erlang_c(servers, offered)), rel=1e-9)


# Traffic tables: the load that so many trunks carry at 1 % blocking.
@pytest.mark.parametrize(('servers', 'offered'), [
    (1, 0.0101), (2, 0.153), (5, 1.361), (10, 4.461), (20, 12.03), (50, 37.90), (100, 84.06)])
def test_erlang_b_agrees_with_traffic_tables(servers: int, offered: float) -> None:
    assert erlang_b(servers, offered) == pytest.approx(0.01, rel=0.01)


def test_erlang_b_is_stable_for_thousands_of_servers() -> None:
    # Heavy traffic, a = c: B tends to sqrt(2 / (pi c)).
    assert erlang_b(10_000, 10_000.0) == pytest.approx(math.sqrt(2.0 / (math.pi * 1e4)), rel=0.02)


def test_erlang_c_at_its_ends() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1.0 / 3.0)
    assert erlang_c(3, 0.0) == 0.0
    assert erlang_c(3, 3.0) == 1.0
    assert erlang_c(3, 4.0) == 1.0
    assert erlang_c(0, 0.5) == 1.0


def test_wait_quantile_is_exact_for_one_server() -> None:
    # M/M/1: P(W > t) = rho exp(-(mu - lambda) t).
    rate, service, p = 4.0, 0.2, 0.99
    assert wait_quantile(p, rate, service, 1) == pytest.approx(math.log(0.8 / 0.01) / (5.0 - 4.0))


@given(
    servers=st.integers(1, 50), thousandths=st.integers(1, 999),
    service=st.floats(0.01, 10.0), p=st.floats(0.5, 0.9999))
def test_wait_quantile_inverts_the_tail_of_m_m_c(
    servers: int, thousandths: int, service: float, p: float
) -> None:
    offered = servers * Fraction(thousandths, 1000)
    rate = float(offered) / service
    waits = float(summed_erlang_c(servers, offered))
    wait = wait_quantile(p, rate, service, servers)
    if waits <= 1.0 - p:
        assert wait == pytest.approx(0.0, abs=1e-6 * service)
    else:
        tail = waits * math.exp(-(servers / service - rate) * wait)
        assert tail == pytest.approx(1.0 - p, rel=1e-6)


@pytest.mark.parametrize('servers', [1, 2, 16])
def test_wait_quantile_scales_with_variability_in_heavy_traffic(servers: int) -> None:
    # Kingman's limit: half of Ca2 + Cs2 times that of M/M/c.
    rate = 0.9995 * servers
    poisson = wait_quantile(0.99, rate, 1.0, servers)
    for ca2, cs2, factor in ((1.0, 0.0, 0.5), (3.0, 1.0, 2.0), (0.1, 0.3, 0.2), (4.0, 4.0, 4.0)):
        assert wait_quantile(0.99, rate, 1.0, servers, ca2=ca2, cs2=cs2) == pytest.approx(
            factor * poisson, rel=0.01)


def test_wait_quantile_at_its_ends() -> None:
    assert wait_quantile(0.99, 0.0, 0.2, 2) == 0.0
    assert wait_quantile(0.99, 1.0, 0.0, 2) == 0.0
    assert wait_quantile(0.99, 10.0, 0.2, 2) == math.inf
    assert wait_quantile(0.99, 11.0, 0.2, 2) == math.inf
    assert wait_quantile(0.99, 1.0, math.inf, 2) == math.inf
    assert wait_quantile(0.99, 1.0, 0.2, 0) == math.inf


@given(servers=st.integers(1, 40), thousandths=st.integers(1, 999))
def test_wait_quantile_falls_with_servers(servers: int, thousandths: int) -> None:
    rate = servers * thousandths / 1000.0
    assert wait_quantile(0.99, rate, 1.0, servers + 1) <= wait_quantile(0.99, rate, 1.0, servers)
