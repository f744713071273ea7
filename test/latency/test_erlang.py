"""Test Erlang's formulas: tables by exact arithmetic, thousands of servers, arrays, bad input."""

from __future__ import annotations

from decimal import Decimal, localcontext
import math
import time

from hypothesis import given
from hypothesis import strategies as st
from laimr_ros.latency.erlang import erlang_b, erlang_c, halfin_whitt
import numpy as np
import pytest
from scipy import stats


def exact_erlang_b(servers: int, offered: float) -> float:
    """Return the recurrence in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        a, blocking = Decimal(offered), Decimal(1)
        for k in range(1, servers + 1):
            blocking = a * blocking / (k + a * blocking)
        return float(blocking)


def exact_erlang_c(servers: int, offered: float) -> float:
    blocking = exact_erlang_b(servers, offered)
    return blocking / (1.0 - offered / servers * (1.0 - blocking))


@pytest.mark.parametrize('servers', [1, 2, 24, 25, 60, 250, 1000, 4000])
@pytest.mark.parametrize('rho', [0.3, 0.9, 0.999, 1.0, 1.001, 1.2, 5.0])
def test_single_values_and_arrays_are_exact_to_1e_9(servers: int, rho: float) -> None:
    offered = rho * servers
    truth = exact_erlang_b(servers, offered)
    assert erlang_b(servers, offered) == pytest.approx(truth, rel=1e-9, abs=1e-300)
    assert erlang_b(np.array([servers]), offered)[0] == pytest.approx(truth, rel=1e-9, abs=1e-290)
    if rho < 1.0:
        waits = exact_erlang_c(servers, offered)
        assert erlang_c(servers, offered) == pytest.approx(waits, rel=1e-9, abs=1e-300)
        assert erlang_c(servers, np.array([offered]))[0] == pytest.approx(
            waits, rel=1e-9, abs=1e-290)


# Published values, for example Cooper, Introduction to Queueing Theory (1981), and by hand.
@pytest.mark.parametrize(('servers', 'offered', 'blocking'), [
    (1, 1.0, 1 / 2), (2, 1.0, 1 / 5), (3, 1.0, 1 / 16), (5, 3.0, 81 / 736), (10, 5.0, 0.018385)])
def test_erlang_b_by_hand(servers: int, offered: float, blocking: float) -> None:
    assert erlang_b(servers, offered) == pytest.approx(blocking, rel=1e-4)


def test_arrays_are_broadcast() -> None:
    servers, offered = np.arange(1, 50)[:, None], np.linspace(0.0, 60.0, 13)
    table = erlang_c(servers, offered)
    assert table.shape == (49, 13)
    for i in (0, 10, 48):
        for j in range(13):
            assert table[i, j] == pytest.approx(
                erlang_c(int(servers[i, 0]), float(offered[j])), rel=1e-9, abs=1e-290)


@given(
    servers=st.integers(-2, 5000),
    offered=st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.floats(0.0, 6000.0)))
def test_there_is_always_an_answer(servers: int, offered: float) -> None:
    for function in (erlang_b, erlang_c):
        assert 0.0 <= function(servers, offered) <= 1.0
        assert 0.0 <= function(np.array([servers]), offered)[0] <= 1.0


def test_a_thousand_servers_take_microseconds() -> None:
    def best(function, *args):
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            function(*args)
            times.append(time.perf_counter() - begin)
        return min(times)

    def recurrence(servers, offered):
        blocking = 1.0
        for k in range(1, servers + 1):
            blocking = offered * blocking / (k + offered * blocking)
        return blocking

    # Against the plain recurrence on the same machine in the same moment.
    assert best(erlang_b, 1000, 700.0) < 0.5 * best(recurrence, 1000, 700.0)
    assert best(erlang_b, 10_000, 9000.0) < 0.2 * best(recurrence, 10_000, 9000.0)


@given(beta=st.floats(0.001, 30.0))
def test_halfin_whitt_is_its_formula(beta: float) -> None:
    formula = 1.0 / (1.0 + beta * stats.norm.cdf(beta) / stats.norm.pdf(beta))
    assert halfin_whitt(beta) == pytest.approx(formula, rel=1e-9, abs=1e-300)


def test_halfin_whitt_is_the_limit_of_erlang_c() -> None:
    for beta in (0.2, 0.5, 1.0, 2.0):
        offered = 1e6
        servers = round(offered + beta * math.sqrt(offered))
        assert erlang_c(servers, offered) == pytest.approx(halfin_whitt(beta), rel=5e-3)
    assert halfin_whitt(0.0) == 1.0
    assert halfin_whitt(-1.0) == 1.0
    assert halfin_whitt(100.0) == 0.0
