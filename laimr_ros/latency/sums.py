"""
The quantile of wait + service + network where the three are independent of each other.

In a first-come-first-served queue a frame's wait depends on the frames before it, its own service
and round trip do not; so this holds as long as nothing slows all three at once. It is far tighter
than the union bound, which adds up three times the bad luck of one frame in three hundred.
"""

from __future__ import annotations

import math

import numpy as np

_NODES, _WEIGHTS = (
    tuple(values.tolist()) for values in np.polynomial.legendre.leggauss(24))
# An exponential variable is never beyond this many means.
_FAR = 45.0
_ROOT_HALF = math.sqrt(0.5)


def sum_quantile(
    p: float, alpha: float, eta: float, service_mean: float, service_cv: float,
    network_mean: float = 0.0, network_cv: float = 0.0,
) -> float:
    """
    Return the ``p`` quantile of a wait, a service time and a round trip, added, in seconds.

    Service and network together are taken to be log-normal with their two moments (Fenton 1960).

    :param p: quantile, 0 to 1 exclusive.
    :param alpha: of the wait's tail ``alpha exp(-eta t)``: 0 for no wait.
    :param eta: likewise, 1/s; 0 for a saturated queue, which makes the sum infinite.
    :param service_mean: in seconds; so is the following mean.
    :param service_cv: coefficient of variation; so is the following.
    """
    mean = service_mean + network_mean
    if not (0.0 < p < 1.0 and mean < math.inf and eta > 0.0):
        return 0.0 if p <= 0.0 else math.inf
    scatter = math.hypot(service_mean * service_cv, network_mean * network_cv)
    # A constant is as good as nearly one, and has no density to trouble with.
    variance = math.log1p(max(scatter / mean, 1e-6) ** 2) if mean > 0.0 else 0.0
    sigma = math.sqrt(variance)
    middle = math.log(mean) - 0.5 * variance if mean > 0.0 else 0.0
    beyond = 1.0 - p

    def above(x: float) -> float:
        """Return how likely service and network take longer."""
        if x <= 0.0:
            return 1.0
        return 0.5 * math.erfc((math.log(x) - middle) / sigma * _ROOT_HALF)

    if mean <= 0.0:
        return max(0.0, math.log(alpha / beyond) / eta) if alpha > 0.0 else 0.0

    def excess(t: float) -> float:
        """Return the logarithm of how much likelier than wanted the sum is longer."""
        alone = above(t)
        if alpha <= 0.0 or eta == math.inf:
            return math.log(max(alone, 1e-300) / beyond)
        # The wait in units of its mean, w: integral of exp(-w) above(t - w / eta).
        end = min(eta * t, _FAR)
        edge = min(max(eta * (t - mean), 0.0), end)
        together = math.exp(-end) if end < _FAR else 0.0
        for low, high in ((0.0, edge), (edge, end)):
            half, centre = 0.5 * (high - low), 0.5 * (high + low)
            if half > 0.0:
                together += half * sum(
                    weight * math.exp(-(centre + half * node))
                    * above(t - (centre + half * node) / eta)
                    for node, weight in zip(_NODES, _WEIGHTS))
        return math.log(max((1.0 - alpha) * alone + alpha * together, 1e-300) / beyond)

    # Bracketed by the smallest part and by what is surely enough; the logarithm of the tail is
    # nearly straight, so that false position (Illinois) needs few steps.
    low, high = 0.0, mean
    above_low, above_high = -math.log(beyond), excess(high)
    while above_high > 0.0:
        low, above_low = high, above_high
        high *= 2.0
        above_high = excess(high)
    side = 0
    for _ in range(60):
        t = (low * above_high - high * above_low) / (above_high - above_low)
        if high - low <= 1e-6 * high:
            break
        here = excess(t)
        if abs(here) < 1e-6:
            break
        if here > 0.0:
            low, above_low = t, here
            above_high = above_high * 0.5 if side == 1 else above_high
            side = 1
        else:
            high, above_high = t, here
            above_low = above_low * 0.5 if side == -1 else above_low
            side = -1
    return t
