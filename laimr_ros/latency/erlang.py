"""
Erlang's two formulas, for one value quickly and for arrays, stable for millions of servers.

Both come from the Poisson distribution with the offered load ``a`` as its mean: the blocking
probability ``B(c, a)`` is the probability of ``c`` given at most ``c``, and the probability of
waiting is ``C = B / (1 - rho (1 - B))`` (Kleinrock, Queueing Systems I, 1975, section 3).
"""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Up to here Jagerman's recurrence takes no longer than the series.
_FEW = 24
_NEGLIGIBLE = 1e-13


@overload
def erlang_b(servers: int, offered: float) -> float: ...
@overload
def erlang_b(servers: npt.ArrayLike, offered: npt.ArrayLike) -> Floats: ...


def erlang_b(servers: Any, offered: Any) -> Any:
    """
    Return the Erlang-B blocking probability.

    :param servers: number of servers, >= 0; or an array of them.
    :param offered: offered load ``a`` in erlangs, >= 0; or an array, broadcast with the other.
        What is no load at all blocks nothing (0), what is no number blocks all (1).
    """
    if isinstance(servers, int) and isinstance(offered, (int, float)):
        return _blocking(servers, offered)
    return _blocking_array(np.asarray(servers, np.float64), np.asarray(offered, np.float64))


@overload
def erlang_c(servers: int, offered: float) -> float: ...
@overload
def erlang_c(servers: npt.ArrayLike, offered: npt.ArrayLike) -> Floats: ...


def erlang_c(servers: Any, offered: Any) -> Any:
    """
    Return the Erlang-C probability that an arrival waits; 1 when saturated.

    :param servers: number of servers, >= 0; or an array of them.
    :param offered: offered load in erlangs; or an array, broadcast with the other.
    """
    if isinstance(servers, int) and isinstance(offered, (int, float)):
        if offered <= 0.0:
            return 0.0
        if not offered < servers:
            return 1.0
        blocking = _blocking(servers, offered)
        return blocking / (1.0 - offered / servers * (1.0 - blocking))
    c = np.asarray(servers, np.float64)
    a = np.asarray(offered, np.float64)
    with np.errstate(all='ignore'):
        many = _blocking_array(c, a)
        waits = many / (1.0 - a / c * (1.0 - many))
    return np.where(a <= 0.0, 0.0, np.where(a < c, waits, 1.0))


def halfin_whitt(beta: float) -> float:
    """
    Return the probability of waiting with ``a + beta sqrt(a)`` servers, as ``a`` grows.

    ``1 / (1 + beta Phi(beta) / phi(beta))`` (Halfin and Whitt 1981).

    :param beta: spare servers in square roots of the load; 1 where it is not above 0.
    """
    if not beta > 0.0:
        return 1.0
    half = 0.5 * beta * beta
    if half > 700.0:
        return 0.0
    # The normal distribution over its density, by the complementary error function.
    ratio = 0.5 * math.erfc(-beta / math.sqrt(2.0)) * math.sqrt(2.0 * math.pi) * math.exp(half)
    return 1.0 / (1.0 + beta * ratio)


def _blocking(servers: int, offered: float) -> float:
    if not offered > 0.0:
        return 1.0 if servers <= 0 or offered != offered else 0.0
    if offered == math.inf:
        return 1.0
    if servers <= _FEW:
        # B(0) = 1, B(k) = a B(k-1) / (k + a B(k-1)) (Jagerman 1974).
        blocking = 1.0
        for k in range(1, servers + 1):
            blocking = offered * blocking / (k + offered * blocking)
        return blocking
    total, term = 1.0, 1.0
    if offered > servers:
        # 1/B = 1 + c/a + c/a (c-1)/a + ...: all terms positive and falling.
        left = servers
        while left > 0 and term > _NEGLIGIBLE * total:
            term *= left / offered
            total += term
            left -= 1
        return 1.0 / total
    # B = f(c) / (1 - f(c) (a/(c+1) + a/(c+1) a/(c+2) + ...)) with the Poisson probability f.
    total, k = 0.0, servers
    while term > _NEGLIGIBLE * (1.0 + total):
        k += 1
        term *= offered / k
        total += term
    mass = math.exp(_log_mass(servers, offered))
    return mass / (1.0 - mass * total)


def _log_mass(count: int, mean: float) -> float:
    """
    Return the logarithm of a Poisson probability without cancellation (Loader 2000).

    :param count: of which the probability is asked, at least 16 for full accuracy.
    """
    excess = (mean - count) / count
    if excess < -0.999:
        return count * math.log(mean) - mean - math.lgamma(count + 1.0)
    inverse = 1.0 / (count * count)
    # Stirling's series of log(count!).
    remainder = (1 / 12 - (1 / 360 - (1 / 1260 - inverse / 1680) * inverse) * inverse) / count
    return (-0.5 * math.log(2.0 * math.pi * count) - remainder
            - count * (excess - math.log1p(excess)))


def _blocking_array(servers: Floats, offered: Floats) -> Floats:
    """Return ``B`` by incomplete gamma functions, an independent way to the same numbers."""
    # Imported where it is used: whoever routes frames needs single values only.
    from scipy import special
    c, a = np.broadcast_arrays(servers, offered)
    safe = np.clip(a, 1e-300, 1e15)
    log_mass = c * np.log(safe) - safe - special.gammaln(c + 1.0)
    below = special.gammaincc(c + 1.0, safe)
    with np.errstate(all='ignore'):
        ordinary = np.exp(log_mass) / below
        # Far above the servers both underflow; there 1/B = 1 + c/a + c (c-1)/a^2 + ...
        heavy = np.ones_like(safe)
        term = np.ones_like(safe)
        active = (a > c) & (below < 0.1)
        left = c.astype(np.float64)
        while np.any(active):
            term = np.where(active, term * left / safe, 0.0)
            heavy = heavy + term
            left = left - 1.0
            active = active & (left > 0.0) & (term > _NEGLIGIBLE * heavy)
        ordinary = np.where((a > c) & (below < 0.1), 1.0 / heavy, ordinary)
    limited = np.where(a <= 0.0, np.where(c <= 0.0, 1.0, 0.0), ordinary)
    result: Floats = np.where(np.isnan(a) | (a == np.inf) | (c <= 0.0), 1.0, limited)
    return result
