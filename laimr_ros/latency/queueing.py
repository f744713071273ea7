"""Waiting time in front of ``c`` equal servers (one shared queue)."""

from __future__ import annotations

import math


def erlang_b(servers: int, offered: float) -> float:
    """
    Return the Erlang-B blocking probability.

    Recurrence ``B(0) = 1, B(k) = a B(k-1) / (k + a B(k-1))`` (Jagerman 1974): stable for
    thousands of servers.

    :param servers: number of servers, >= 0.
    :param offered: offered load ``a`` in erlangs, >= 0.
    """
    blocking = 1.0
    for k in range(1, servers + 1):
        blocking = offered * blocking / (k + offered * blocking)
    return blocking


def erlang_c(servers: int, offered: float) -> float:
    """
    Return the Erlang-C probability that an arrival waits; 1 when saturated.

    ``C = B / (1 - rho (1 - B))`` (Kleinrock, Queueing Systems I).
    """
    if offered <= 0.0:
        return 0.0
    if offered >= servers:
        return 1.0
    blocking = erlang_b(servers, offered)
    return blocking / (1.0 - offered / servers * (1.0 - blocking))


def wait_quantile(
    p: float, rate: float, service_mean: float, servers: int, *, ca2: float = 1.0, cs2: float = 1.0
) -> float:
    """
    Return the ``p`` quantile of the wait in a G/G/c queue, in seconds.

    ``max(0, (ca2 + cs2) / (2 (c mu - lambda)) ln(C / (1 - p)))`` (Abate, Choudhury and Whitt
    1995); exact for M/M/c. Infinite when saturated, 0 without arrivals.

    :param p: quantile, 0 to 1 exclusive.
    :param rate: arrivals per second.
    :param service_mean: mean service time in seconds.
    :param servers: number of servers.
    :param ca2: squared coefficient of variation of inter-arrival times.
    :param cs2: squared coefficient of variation of service times.
    """
    if rate <= 0.0 or service_mean <= 0.0:
        return 0.0
    offered = rate * service_mean
    if offered >= servers or not math.isfinite(offered):
        return math.inf
    waits = erlang_c(servers, offered)
    if waits <= 1.0 - p:
        return 0.0
    spare = servers / service_mean - rate
    return (ca2 + cs2) / (2.0 * spare) * math.log(waits / (1.0 - p))
