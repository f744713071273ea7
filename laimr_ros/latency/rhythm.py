"""The rhythm of one robot, and what many rhythms make together."""

from __future__ import annotations

from collections.abc import Iterable
import math

# Gaps weigh at least this much, so a changed rhythm is known after some tens of frames.
_LEAST_WEIGHT = 1.0 / 32.0
# A gap so many times the usual one is a pause, not part of the rhythm.
_PAUSE = 10.0
# The regularity of so many gaps weighs as much as the belief that a robot is Poisson.
_PRIOR_GAPS = 4.0


class Rhythm:
    """
    Rate and regularity of one robot's frames, in a few numbers.

    Start: one frame reads as 1 frame/s, as with a window, for at most ten seconds. Silence: after
    twice the usual gap the rate falls as one over the time since the last frame; after ten usual
    gaps it is exactly 0 and the next frame goes on with the rhythm known before.
    """

    __slots__ = ('_gaps', '_last', '_mean', '_square')

    def __init__(self) -> None:
        """Start without frames."""
        self._last = -math.inf
        self._gaps = 0
        self._mean = 0.0
        self._square = 0.0

    def add(self, now: float) -> None:
        """Note a frame at time ``now`` (seconds; never earlier than the last)."""
        gap = now - self._last
        self._last = now
        gaps = self._gaps
        if gaps == 0:
            if gap < _PAUSE:
                self._gaps, self._mean, self._square = 1, gap, 0.0
            return
        mean = self._mean
        if gap > _PAUSE * mean and gap > 1.0:
            # After a pause the old rhythm is believed only a little.
            self._gaps = min(gaps, 4)
            return
        self._gaps = gaps = gaps + 1
        weight = max(_LEAST_WEIGHT, 1.0 / gaps)
        step = gap - mean
        self._mean = mean + weight * step
        # West's update of an exponentially weighted variance.
        self._square = (1.0 - weight) * (self._square + weight * step * step)

    def rate(self, now: float) -> float:
        """Return frames per second at ``now``."""
        since = now - self._last
        if self._gaps == 0:
            return 1.0 / max(1.0, since) if since < _PAUSE else 0.0
        mean = max(self._mean, 1e-6)
        if since <= 2.0 * mean:
            return 1.0 / mean
        return 1.0 / since if since < max(_PAUSE * mean, 1.0) else 0.0

    @property
    def gaps(self) -> int:
        """Return on how many gaps between frames this rests."""
        return self._gaps

    @property
    def scv(self) -> float:
        """Return the squared coefficient of variation of the gaps, near 1 while few are known."""
        mean, gaps = self._mean, self._gaps
        if mean <= 0.0 or gaps < 2:
            return 1.0
        gaps = min(gaps, int(1.0 / _LEAST_WEIGHT))
        # The variance of few gaps is too small on average.
        square = self._square * gaps / (gaps - 1)
        return (_PRIOR_GAPS + gaps * min(10.0, square / (mean * mean))) / (_PRIOR_GAPS + gaps)

    @property
    def periodic(self) -> bool:
        """Return whether the robot keeps a beat: clearly smoother than Poisson."""
        return self._gaps >= 8 and self.scv < 0.4


def superposed_ca2(streams: Iterable[tuple[float, float]], rho: float) -> float:
    """
    Return the squared coefficient of variation to expect of independent streams together.

    ``w sum(share_i scv_i) + 1 - w`` with ``w = 1 / (1 + 4 (1 - rho)^2 (n - 1))`` and
    ``n = 1 / sum(share_i^2)`` (Whitt 1983, The Queueing Network Analyzer, eq. 29): many beats
    look Poisson to a lightly loaded queue and stay regular to a heavily loaded one. Robots that
    are triggered *together* are not independent: what :class:`Burstiness` measures goes first.

    :param streams: rate in frames per second and squared coefficient of variation of each.
    :param rho: utilisation of the queue, 0 to 1.
    """
    total = squares = weighted = 0.0
    for rate, scv in streams:
        total += rate
        squares += rate * rate
        weighted += rate * scv
    if total <= 0.0:
        return 1.0
    idle = 1.0 - min(1.0, max(0.0, rho))
    weight = 1.0 / (1.0 + 4.0 * idle * idle * (total * total / squares - 1.0))
    return weight * weighted / total + 1.0 - weight
