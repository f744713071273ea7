"""
Waiting time in front of ``c`` equal servers: G/G/c with one queue, or a queue a server.

The tail is ``P(W > t) ~ alpha exp(-eta t)`` (Abate, Choudhury and Whitt, Exponential
approximations for tail probabilities in queues I, 1995). ``eta`` is exact for the fitted
distributions (see :mod:`~laimr_ros.latency.decay`), ``alpha = eta E[W]`` as proposed there;
both are exact for M/M/c. ``E[W]`` starts from Allen and Cunneen's ``(Ca2 + Cs2) / 2`` times
that of M/M/c, refined after Whitt (Approximations for the GI/G/m queue, 1993) for ``Ca2 = 1``;
the two factors for other arrivals are of our own making, in the form of Kraemer and
Langenbach-Belz (1976) and of Whitt's many-server diffusion (2004), their constants chosen to
simulations. ``docs/queueing.md`` compares with simulation, other cells than those included.

Single values are quick (microseconds); the same functions take arrays in place of any number.
Saturated, or no number: infinite wait. Nothing arrives, or service takes no time: none.
"""

from __future__ import annotations

from collections.abc import Callable
import math
from typing import Any, overload

from laimr_ros.latency.decay import decay_rate, Discipline
from laimr_ros.latency.erlang import erlang_b, erlang_c, Floats, halfin_whitt
import numpy as np
import numpy.typing as npt

__all__ = ['Discipline', 'erlang_b', 'erlang_c', 'mean_wait', 'wait_quantile', 'wait_tail']

_POISSON = 1.0
# Utilisation at which nobody waits; below it the numbers would leave the range of doubles.
_NOTHING = 1e-9
# A variability beyond all measure: nothing can be said but that waits have no end.
_BOUNDLESS = 1e12


def wait_tail(
    rate: float, service_mean: float, servers: int, *, ca2: float = 1.0, cs2: float = 1.0,
    discipline: Discipline = Discipline.POOLED,
) -> tuple[float, float]:
    """
    Return ``alpha`` and ``eta`` (1/s) of ``P(W > t) ~ alpha exp(-eta t)``.

    :param rate: arrivals per second.
    :param service_mean: mean service time in seconds.
    :param servers: number of servers.
    :param ca2: squared coefficient of variation of inter-arrival times of the whole stream.
    :param cs2: squared coefficient of variation of service times.
    :param discipline: how arrivals find a server.
    :return: ``(0, inf)`` where nothing waits, ``(1, 0)`` when saturated, or when a coefficient
        is no number or over 1e12.
    """
    if rate <= 0.0 or service_mean <= 0.0:
        return 0.0, math.inf
    offered = rate * service_mean
    if not offered < servers or not (ca2 < _BOUNDLESS and cs2 < _BOUNDLESS):
        return 1.0, 0.0
    ca2, cs2 = max(ca2, 0.0), max(cs2, 0.0)
    rho = offered / servers
    if rho < _NOTHING:
        return 0.0, math.inf
    decay = decay_rate(rho, ca2, cs2, servers, discipline)
    if decay == math.inf:
        return 0.0, math.inf
    together = 1 if discipline is not Discipline.POOLED else servers
    own = discipline.split_scv(ca2, servers)
    waits = erlang_c(together, rho * together)
    # From here on in mean service times, and times the number of servers that work together.
    poisson_mean = waits / (1.0 - rho) * 0.5 * (1.0 + cs2) * _many_servers(together, rho, cs2)
    if own > 1.0 and discipline is not Discipline.RANDOM:
        poisson_decay = decay_rate(rho, _POISSON, cs2)
        alpha = poisson_decay * poisson_mean * _burstier(together, rho, own)
    else:
        alpha = decay * poisson_mean * (own + cs2) / (1.0 + cs2)
        if own < 1.0:
            alpha *= _smoother(together, rho, own, cs2)
    if discipline is Discipline.ROUND_ROBIN and ca2 > 1.0 and servers > 1:
        # Several bursty gaps added up are not what the two moments of the sum let expect.
        alpha *= math.pow(decay_rate(rho, own, cs2) / decay, 0.4)
    return min(alpha, 1.0), decay * together / service_mean


@overload
def wait_quantile(
    p: float, rate: float, service_mean: float, servers: int, *, ca2: float = 1.0,
    cs2: float = 1.0, discipline: Discipline = Discipline.POOLED,
) -> float: ...
@overload
def wait_quantile(
    p: npt.ArrayLike, rate: npt.ArrayLike, service_mean: npt.ArrayLike, servers: npt.ArrayLike, *,
    ca2: npt.ArrayLike = 1.0, cs2: npt.ArrayLike = 1.0,
    discipline: Discipline = Discipline.POOLED,
) -> Floats: ...


def wait_quantile(
    p: Any, rate: Any, service_mean: Any, servers: Any, *, ca2: Any = 1.0, cs2: Any = 1.0,
    discipline: Discipline = Discipline.POOLED,
) -> Any:
    """
    Return the ``p`` quantile of the wait in a G/G/c queue, in seconds.

    ``max(0, ln(alpha / (1 - p)) / eta)``; exact for M/M/c. Infinite when saturated, 0 without
    arrivals. The parameters are as for :func:`wait_tail`; each may be an array.

    :param p: quantile, 0 to 1.
    """
    if _any_array(p, rate, service_mean, servers, ca2, cs2):
        return _each(wait_quantile, discipline, p, rate, service_mean, servers, ca2, cs2)
    if p <= 0.0:
        return 0.0
    alpha, eta = wait_tail(
        rate, service_mean, servers, ca2=ca2, cs2=cs2, discipline=discipline)
    if eta == 0.0:
        return math.inf
    if alpha <= 1.0 - p:
        return 0.0
    return math.log(alpha / (1.0 - p)) / eta if p < 1.0 else math.inf


@overload
def mean_wait(
    rate: float, service_mean: float, servers: int, *, ca2: float = 1.0, cs2: float = 1.0,
    discipline: Discipline = Discipline.POOLED,
) -> float: ...
@overload
def mean_wait(
    rate: npt.ArrayLike, service_mean: npt.ArrayLike, servers: npt.ArrayLike, *,
    ca2: npt.ArrayLike = 1.0, cs2: npt.ArrayLike = 1.0,
    discipline: Discipline = Discipline.POOLED,
) -> Floats: ...


def mean_wait(
    rate: Any, service_mean: Any, servers: Any, *, ca2: Any = 1.0, cs2: Any = 1.0,
    discipline: Discipline = Discipline.POOLED,
) -> Any:
    """
    Return the mean wait in a G/G/c queue, in seconds; exact for M/M/c and M/G/1.

    The parameters are as for :func:`wait_tail`; each may be an array.
    """
    if _any_array(rate, service_mean, servers, ca2, cs2):
        return _each(mean_wait, discipline, rate, service_mean, servers, ca2, cs2)
    alpha, eta = wait_tail(
        rate, service_mean, servers, ca2=ca2, cs2=cs2, discipline=discipline)
    return alpha / eta if eta > 0.0 else math.inf


def _any_array(*values: Any) -> bool:
    return any(isinstance(value, (np.ndarray, list, tuple)) for value in values)


def _each(function: Callable[..., float], discipline: Discipline, *values: Any) -> Any:
    """Apply a function of single values to arrays that are broadcast together."""
    def one(*numbers: Any) -> float:
        *others, servers, ca2, cs2 = (float(number) for number in numbers)
        return function(*others, int(servers), ca2=ca2, cs2=cs2, discipline=discipline)

    return np.vectorize(one, otypes=[np.float64])(*values)


def _many_servers(servers: int, rho: float, cs2: float) -> float:
    """Return Whitt's correction (1993, section 2) of ``E[W]`` for Poisson arrivals."""
    if servers == 1 or cs2 >= 1.0:
        return 1.0
    gamma = min(0.24, (1.0 - rho) * (servers - 1) * (math.sqrt(4.0 + 5.0 * servers) - 2.0)
                / (16.0 * servers * rho))
    light = 1.0 + gamma
    heavy = (1.0 - 4.0 * gamma) * math.exp(-2.0 * (1.0 - rho) / (3.0 * rho))
    between = math.pow(min(1.0, 0.5 * (light + heavy)), 1.0 - cs2)
    return (4.0 * (1.0 - cs2) * light + cs2 * between) / (4.0 - 3.0 * cs2)


def _smoother(servers: int, rho: float, ca2: float, cs2: float) -> float:
    """Return what arrivals smoother than Poisson's take off the mean wait, at most 1."""
    if ca2 + cs2 <= 0.0:
        return 0.0
    one = (1.0 - rho) / rho * (1.0 - ca2) * (1.0 + cs2) / (3.0 * (ca2 + cs2))
    many = 1.0 + (0.85 + 1.05 * min(cs2, 1.0)) * (math.sqrt(servers) - 1.0) * math.sqrt(1.0 - rho)
    return math.exp(-one * many)


def _burstier(servers: int, rho: float, ca2: float) -> float:
    """Return what arrivals burstier than Poisson's do to ``alpha``, at least 1."""
    spare = (1.0 - rho) * math.sqrt(servers)
    return halfin_whitt(spare / math.sqrt(1.0 + 0.9 * (ca2 - 1.0))) / halfin_whitt(spare)
