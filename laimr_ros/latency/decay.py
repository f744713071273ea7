"""
How fast the tail of the wait falls: the exponent of ``P(W > t) ~ alpha * exp(-eta t)``.

With all ``c`` servers busy, ``eta`` is the positive root of ``E[exp(eta S / c)] E[exp(-eta T)] =
1`` for inter-arrival times ``T`` and service times ``S`` (Abate, Choudhury and Whitt, Asymptotics
for steady-state tail probabilities in structured Markov queueing models, 1994; for several
servers Takahashi 1981). It needs whole distributions; of two moments they are made as is usual
(Whitt, The Queueing Network Analyzer, 1983): gamma up to a squared coefficient of variation of
1, above it a two-phase hyper-exponential with balanced means.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
import math


class Discipline(Enum):
    """
    How arrivals find a server.

    ``POOLED``: one queue, a free server takes the next (G/G/c). ``RANDOM`` and ``ROUND_ROBIN``:
    pushed at once to one of ``c`` queues, each with a server of its own (G/G/1 at a ``c``-th of
    the rate). Drawing lots makes each queue's arrivals more like Poisson, turns smooth them.
    """

    POOLED = 'pooled'
    RANDOM = 'random'
    ROUND_ROBIN = 'round_robin'

    def split_scv(self, scv: float, servers: int) -> float:
        """
        Return the squared coefficient of variation of the gaps that one queue sees.

        ``(scv + c - 1) / c`` where lots are drawn, ``scv / c`` in turns; exact if gaps are
        independent of each other.
        """
        if self is Discipline.RANDOM:
            return (scv + servers - 1) / servers
        return scv / servers if self is Discipline.ROUND_ROBIN else scv


class _Gamma:
    """Gamma, mean 1; a constant at 0, exponential at 1."""

    __slots__ = ('pole', 'scv')

    def __init__(self, scv: float) -> None:
        self.scv = scv
        self.pole = 1.0 / scv if scv > 1e-12 else math.inf

    def log_mgf(self, s: float) -> tuple[float, float]:
        """Return ``ln E exp(s X)`` and its derivative, ``s`` below the pole."""
        if self.scv <= 1e-12:
            return s, 1.0
        left = 1.0 - s * self.scv
        return -math.log(left) / self.scv, 1.0 / left


class _TwoPhase:
    """Hyper-exponential with balanced means, mean 1, squared coefficient of variation over 1."""

    __slots__ = ('one', 'pole', 'share', 'two')

    def __init__(self, scv: float) -> None:
        self.share = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
        self.one, self.two = 0.5 / self.share, 0.5 / (1.0 - self.share)
        self.pole = 1.0 / self.two

    def log_mgf(self, s: float) -> tuple[float, float]:
        """Return ``ln E exp(s X)`` and its derivative, ``s`` below the pole."""
        one, two = 1.0 / (1.0 - self.one * s), 1.0 / (1.0 - self.two * s)
        value = self.share * one + (1.0 - self.share) * two
        slope = self.share * self.one * one * one + (1.0 - self.share) * self.two * two * two
        return math.log(value), slope / value


@lru_cache(maxsize=1024)
def _shape(scv: float) -> _Gamma | _TwoPhase:
    # Above this balanced means leave nothing of the second phase in double precision.
    return _Gamma(scv) if scv <= 1.0 else _TwoPhase(min(scv, 1e6))


def decay_rate(
    rho: float, ca2: float, cs2: float, servers: int = 1,
    discipline: Discipline = Discipline.POOLED,
) -> float:
    """
    Return ``eta / c`` (pooled) or ``eta`` of one queue (split), times the mean service time.

    :param rho: utilisation of each server, between 0 and 1.
    :param ca2: squared coefficient of variation of the gaps of the whole stream, >= 0.
    :param cs2: that of service times, >= 0.
    :return: infinite where nothing ever waits.
    """
    if servers == 1:
        discipline = Discipline.POOLED
    if ca2 == 1.0 and cs2 == 1.0 and discipline is not Discipline.ROUND_ROBIN:
        return 1.0 - rho
    split = discipline is not Discipline.POOLED
    if not split:
        servers = 1
    gaps, services = _shape(ca2), _shape(cs2)
    scale = 1.0 / (rho * servers)
    share = 1.0 / servers

    def excess(x: float) -> tuple[float, float]:
        served, slope = services.log_mgf(x)
        came, gap_slope = gaps.log_mgf(-x * scale)
        gap_slope *= scale
        if split and discipline is Discipline.ROUND_ROBIN:
            came, gap_slope = came * servers, gap_slope * servers
        elif split:
            # A geometric number of gaps: share f / (1 - (1 - share) f).
            kept = 1.0 - (1.0 - share) * math.exp(came)
            came, gap_slope = came + math.log(share / kept), gap_slope / kept
        return served + came, slope - gap_slope

    # Convex, zero at zero and falling there: Newton from the right, halving where it leaves.
    low, high = 0.0, services.pole
    effective = discipline.split_scv(ca2, servers)
    x = 2.0 * (1.0 - rho) / max(effective + cs2, 1e-9)
    if x >= high:
        x = 0.9 * high
    for _ in range(80):
        value, slope = excess(x)
        if value < 0.0:
            low = x
        else:
            high = x
        step = x - value / slope if slope > 0.0 else math.inf
        if not low < step < high:
            if high == math.inf:
                step = 2.0 * x
                if step > 1e9:
                    return math.inf
            else:
                step = 0.5 * (low + high)
        if abs(step - x) <= 1e-9 * x:
            return step
        x = step
    return x
