"""How many servers a load needs, and what load so many servers take."""

from __future__ import annotations

import math

from laimr_ros.latency.decay import Discipline
from laimr_ros.latency.erlang import halfin_whitt
from laimr_ros.latency.queueing import wait_quantile
from laimr_ros.latency.search import fewest, largest

_MOST_SERVERS = 1_000_000


def square_root_beta(waiting: float) -> float:
    """
    Return ``beta`` of square-root staffing for a probability of waiting.

    The inverse of Halfin and Whitt's ``P(wait) = 1 / (1 + beta Phi(beta) / phi(beta))``.

    :param waiting: share of arrivals that may wait, 0 to 1; infinite ``beta`` for none.
    """
    if not waiting > 0.0:
        return math.inf
    return largest(lambda beta: halfin_whitt(beta) >= waiting, 40.0, tolerance=1e-12)


def square_root_servers(offered: float, waiting: float) -> int:
    """
    Return ``a + beta sqrt(a)`` servers, rounded up, at least one more than the load fills.

    :param offered: offered load ``a`` in erlangs.
    :param waiting: share of arrivals that may wait, over 0, up to 1.
    :raises ValueError: for a load or a share that no number of servers is enough for.
    """
    if not offered < math.inf:
        raise ValueError(f'offered load is {offered}: give a finite number of erlangs')
    if not waiting > 0.0:
        raise ValueError(f'waiting is {waiting}: some arrivals always wait; give a share over 0')
    if offered <= 0.0:
        return 0
    return max(math.ceil(offered + square_root_beta(waiting) * math.sqrt(offered)),
               math.floor(offered) + 1)


def fewest_servers(
    p: float, limit: float, rate: float, service_mean: float, *, ca2: float = 1.0,
    cs2: float = 1.0, discipline: Discipline = Discipline.POOLED, most: int = _MOST_SERVERS,
) -> int | None:
    """
    Return the fewest servers with the ``p`` quantile of the wait within a limit.

    :param p: quantile, 0 to 1.
    :param limit: in seconds, >= 0.
    :param rate: arrivals per second.
    :param service_mean: mean service time in seconds.
    :param most: largest number to consider.
    :return: None if ``most`` are not enough.
    """
    offered = max(rate, 0.0) * max(service_mean, 0.0)
    if not offered < most or limit != limit:
        return None
    return fewest(
        lambda servers: wait_quantile(
            p, rate, service_mean, servers, ca2=ca2, cs2=cs2, discipline=discipline) <= limit,
        math.floor(offered) + 1 if offered > 0.0 else 0, most)


def largest_rate(
    p: float, limit: float, service_mean: float, servers: int, *, ca2: float = 1.0,
    cs2: float = 1.0, discipline: Discipline = Discipline.POOLED,
) -> float:
    """
    Return the largest rate, per second, with the ``p`` quantile of the wait within a limit.

    :param p: quantile, 0 to 1.
    :param limit: in seconds, >= 0; without any waiting the queue must still not be saturated.
    :param service_mean: mean service time in seconds.
    :param servers: number of servers.
    """
    if servers <= 0 or not service_mean < math.inf:
        return 0.0
    if service_mean <= 0.0:
        return math.inf
    return largest(
        lambda rate: wait_quantile(
            p, rate, service_mean, servers, ca2=ca2, cs2=cs2, discipline=discipline) <= limit,
        servers / service_mean)
