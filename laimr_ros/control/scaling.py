"""
How many replicas a pool needs, from steady-state formulas and a forecast.

Nothing here looks at the state of this instant: that is routing's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
import math

from laimr_ros.control.nouns import Limits, Pool
from laimr_ros.latency.model import lognormal_quantile, Network, ServiceModel
from laimr_ros.latency.queueing import wait_quantile

# The share of the error budget that each part of a sum may use (union bound).
_PARTS = 3.0


@dataclass(frozen=True)
class Stream:
    """
    The frames of one lane, as a pool sees them.

    :param rate: frames per second to be ready for.
    :param model: service-time model on this pool.
    :param ratio: learned correction of its mean.
    :param slo: deadline in seconds.
    :param backlog: frames waiting now.
    :param ca2: squared coefficient of variation of the times between frames.
    :param cv: coefficient of variation of the service time; NaN for the model's own.
    """

    rate: float
    model: ServiceModel
    ratio: float
    slo: float
    backlog: int = 0
    ca2: float = 1.0
    cv: float = math.nan

    @property
    def spread(self) -> float:
        """Return the coefficient of variation of the service time."""
        return self.model.cv if math.isnan(self.cv) else self.cv


def predicted_quantile(
    p: float, streams: Sequence[Stream], replicas: int, network: Network, max_in_flight: int = 1
) -> tuple[float, ...]:
    """
    Return the ``p`` quantile of wait + service + network for each stream, in seconds.

    ``q_W(1 - e/3) + q_S(1 - e/3) + q_net(1 - e/3)`` with ``e = 1 - p`` (union bound: no
    independence assumed). A replica that holds one frame at a time is idle while the answer
    travels, so its round trip counts as occupancy.

    :return: one value a stream; infinite when the pool is saturated or empty.
    """
    if replicas <= 0:
        return tuple(math.inf for _ in streams)
    part = 1.0 - (1.0 - p) / _PARTS
    rate = sum(s.rate for s in streams)
    means = [s.model.mean(rate, replicas) * s.ratio for s in streams]
    occupancies = [
        max(mean, (mean + network.mean) / max_in_flight) for mean in means]
    wait = 0.0
    if rate > 0.0:
        mean = sum(s.rate * o for s, o in zip(streams, occupancies)) / rate
        second = sum(
            s.rate * o * o * (1.0 + s.spread ** 2) for s, o in zip(streams, occupancies)) / rate
        cs2 = max(0.0, second / (mean * mean) - 1.0) if mean > 0.0 else 0.0
        # Indices of dispersion of independent streams add in proportion to their rates.
        ca2 = sum(s.rate * s.ca2 for s in streams) / rate
        wait = wait_quantile(part, rate, mean, replicas, ca2=ca2, cs2=cs2)
    away = network.quantile(part)
    return tuple(
        wait + lognormal_quantile(mean, s.spread, part) + away
        for s, mean in zip(streams, means))


def utilisation(streams: Sequence[Stream], replicas: int) -> float:
    """Return the share of time that a replica is busy; infinite without replicas."""
    if replicas <= 0:
        return math.inf
    rate = sum(s.rate for s in streams)
    return sum(s.rate * s.model.mean(rate, replicas) * s.ratio for s in streams) / replicas


def attainable(
    p: float, streams: Sequence[Stream], pool: Pool, network: Network, margin: float
) -> list[bool]:
    """Return of each stream whether its frames can be on time in a pool without any queue."""
    alone = predicted_quantile(
        p, [replace(s, rate=0.0) for s in streams], max(1, pool.max_replicas),
        network, pool.max_in_flight)
    return [q <= margin * s.slo for s, q in zip(streams, alone)]


def replicas_needed(
    streams: Sequence[Stream], pool: Pool, network: Network, margin: float, limits: Limits,
    guess: int = 0
) -> int:
    """
    Return the fewest replicas, within the pool's bounds, that meet every stream's SLO.

    A backlog must also be worked off within ``drain_time``. Where no number is enough the
    *useful* most is returned: a stream whose service alone is later than its SLO would
    otherwise hold the pool at its maximum for nothing, so such streams only count by load.

    :param guess: where to look first; a good one saves most of the work.
    """
    low, high = pool.min_replicas, pool.max_replicas
    if not any(s.rate > 0.0 or s.backlog for s in streams):
        return low
    p = limits.quantile
    can = attainable(p, streams, pool, network, margin)
    load = sum((s.rate + s.backlog / limits.drain_time) * s.model.mean(0.0, 1) * s.ratio
               for s in streams)
    floor = min(high, max(low, math.ceil(load - 1e-9)))
    if not any(can):
        return floor

    def enough(replicas: int) -> bool:
        quantiles = predicted_quantile(p, streams, replicas, network, pool.max_in_flight)
        return all(q <= margin * s.slo for q, s, c in zip(quantiles, streams, can) if c)

    below, above = floor, high
    if below <= guess < above:
        # It seldom changes: two looks tell.
        if not enough(guess):
            below = guess + 1
        elif guess == below or not enough(guess - 1):
            return guess
        else:
            above = guess - 1
    while below < above:
        middle = (below + above) // 2
        if enough(middle):
            above = middle
        else:
            below = middle + 1
    return below


def share_served(
    streams: Sequence[Stream], pool: Pool, network: Network, margin: float, limits: Limits,
    replicas: int
) -> float:
    """
    Return the largest share (0 to 1) of the streams that so many replicas serve in time.

    Streams that cannot be on time there at all are load, but nothing is asked for them.
    """
    can = attainable(limits.quantile, streams, pool, network, margin)

    def fits(share: float) -> bool:
        part = [replace(s, rate=share * s.rate) if c else s for s, c in zip(streams, can)]
        quantiles = predicted_quantile(
            limits.quantile, part, replicas, network, pool.max_in_flight)
        return all(q <= margin * s.slo for q, s, c in zip(quantiles, part, can)
                   if c and s.rate > 0.0)

    if fits(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(10):
        middle = (low + high) / 2.0
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class PoolScaler:
    """
    The desired number of one pool over time: up at once, down only after a quiet while.

    Level-triggered and fail-static: until the pool was observed nothing is desired.
    """

    def __init__(self) -> None:
        """Start without a wish."""
        self.desired: int | None = None
        self._low_since: float | None = None
        self._low_most = 0

    def start_from(self, observed: int, pool: Pool) -> int:
        """Start from what is there, so that a restart changes nothing; return it."""
        self.desired = min(pool.max_replicas, max(pool.min_replicas, observed))
        self._low_since = None
        return self.desired

    def decide(
        self, now: float, up: int, down: int, pool: Pool, limits: Limits, *, burst: bool = False
    ) -> int | None:
        """
        Return the desired number now, or None where nothing is known.

        :param up: replicas needed for the forecast.
        :param down: replicas that would do with margin, for the slow rate; never below ``up``.
        :param burst: a burst alarm is up: no time to take anything away.
        """
        if self.desired is None:
            return None
        desired = min(pool.max_replicas, max(pool.min_replicas, self.desired))
        target = min(pool.max_replicas, max(pool.min_replicas, up, down))
        if target >= desired or burst:
            # Between the two margins the number stays: neither too few nor clearly too many.
            if up > desired:
                desired = min(pool.max_replicas, up)
            self._low_since = None
        elif self._low_since is None:
            self._low_since, self._low_most = now, target
        else:
            self._low_most = max(self._low_most, target)
        if self._low_since is not None and now - self._low_since >= limits.stabilisation:
            # The bounds may have become narrower within the window.
            desired = min(desired, max(pool.min_replicas, self._low_most))
            self._low_since = None
        self.desired = desired
        return desired
