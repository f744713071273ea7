"""How bursty arrivals are: the index of dispersion of their counts, over many time scales."""

from __future__ import annotations

import math


class Burstiness:
    """
    Index of dispersion ``I(tau) = Var N(tau) / E N(tau)`` at dyadic time scales, online.

    1 for Poisson arrivals at every scale, about the squared coefficient of variation of the gaps
    for a renewal stream at long scales, near 0 for a steady beat (Cox and Lewis 1966).

    The variance is half the mean squared difference of neighbouring counts, so a slow rise of
    the rate (which scaling follows anyway) is not taken for burstiness; of variation slower than
    ``tau`` only part is seen. Counts are forgotten exponentially.

    :param tick: shortest time scale in seconds, > 0.
    :param levels: number of scales, each twice the one before.
    :param horizon: seconds over which counts are forgotten (at least 40 counts of a scale).
    """

    #: Counts of a scale that weigh as much as the prior, in :meth:`ca2`.
    PRIOR_COUNTS = 10.0
    #: The least and largest value that :meth:`ca2` gives.
    LOWEST, HIGHEST = 0.05, 10.0
    # Fewer arrivals in a step than this say little: even a beat then looks like Poisson.
    _ENOUGH = 8.0

    __slots__ = ('_levels', 'tick')

    def __init__(self, tick: float = 0.1, levels: int = 8, horizon: float = 300.0) -> None:
        """Start without arrivals."""
        self.tick = tick
        # Per scale: [keep, weight, sum of counts, sum of half squared differences,
        #             the count before or -1, the first half of the next scale's count or -1].
        self._levels = [
            [1.0 - 1.0 / max(40.0, horizon / (tick * 2 ** k)), 0.0, 0.0, 0.0, -1.0, -1.0]
            for k in range(levels)]

    def add(self, count: float) -> None:
        """Take the arrivals of one more tick; ticks follow each other without a gap."""
        for level in self._levels:
            before = level[4]
            if before >= 0.0:
                keep, difference = level[0], count - before
                level[1] = level[1] * keep + 1.0
                level[2] = level[2] * keep + 0.5 * (count + before)
                level[3] = level[3] * keep + 0.5 * difference * difference
            level[4] = count
            half = level[5]
            if half < 0.0:
                level[5] = count
                return
            level[5] = -1.0
            count += half

    def interrupt(self) -> None:
        """Take note of a pause: the next tick does not follow the last one."""
        for level in self._levels:
            level[4] = level[5] = -1.0

    def dispersion(self, tau: float) -> tuple[float, float]:
        """
        Return the index of dispersion at the scale nearest to ``tau`` seconds, and its evidence.

        :return: the index (1 where nothing is known) and how many counts it rests on.
        """
        level = self._level(tau)
        if level[2] <= 0.0:
            return 1.0, 0.0
        return level[3] / level[2], level[1]

    def _level(self, tau: float | None) -> list[float]:
        levels = self._levels
        if tau is None:
            for level in levels:
                if level[2] >= self._ENOUGH * level[1] > 0.0:
                    return level
            return levels[-1]
        k = round(math.log2(max(tau, self.tick) / self.tick))
        return levels[min(max(0, k), len(levels) - 1)]

    def ca2(self, tau: float | None = None, *, prior: float = 1.0) -> float:
        """
        Return the squared coefficient of variation to put into a queueing formula.

        The index of dispersion, drawn towards the prior while it rests on few counts, and kept
        within :attr:`LOWEST` and :attr:`HIGHEST`.

        :param tau: the queue's time scale in seconds, see :func:`queue_time_scale`; None for the
            shortest with enough arrivals in it.
        :param prior: what to believe without evidence: 1 (Poisson) or, where the robots are
            known, :func:`laimr_ros.latency.rhythm.superposed_ca2`.
        """
        level = self._level(tau)
        value = prior
        if level[2] > 0.0:
            # A step with less than one arrival says nothing of regularity.
            counts = level[1] * min(1.0, level[2] / level[1] / self._ENOUGH)
            index = level[3] / level[2]
            value = (self.PRIOR_COUNTS * prior + counts * index) / (self.PRIOR_COUNTS + counts)
        return min(self.HIGHEST, max(self.LOWEST, value))


def queue_time_scale(
    rate: float, service_mean: float, servers: int, *, ca2: float = 1.0, cs2: float = 1.0
) -> float:
    """
    Return the time scale at which bursts matter to a queue, in seconds.

    ``rho^2 (ca2 + cs2) / (2 (1 - rho)^2)`` service completions: where the supremum of robust
    queueing is attained for a constant index of dispersion (Whitt and You 2018, Operations
    Research 66). Shorter variation is averaged out, longer variation is seen as another rate.

    :param rate: arrivals per second.
    :param service_mean: mean service time in seconds.
    :param servers: number of servers, > 0.
    :return: seconds, 0 without load and infinite when saturated.
    """
    rho = rate * service_mean / servers
    if rho >= 1.0:
        return math.inf
    return service_mean / servers * rho * rho * (ca2 + cs2) / (2.0 * (1.0 - rho) ** 2)
