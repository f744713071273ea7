"""An upper bound of the arrival rate a while from now, which learns how wide it must be."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
import math

from laimr_ros.latency.model import normal_quantile


class RateForecast:
    """
    Upper forecast of an arrival rate.

    Level: the longest window whose reading agrees with those of all shorter ones (intersection
    of confidence intervals: Goldenshluger and Nemirovski 1997), so steady traffic is averaged
    long and a change is followed at once. To it are added its own confidence bound and, if the
    windows rise significantly, that rise carried on. The sum is widened by a factor that is
    learned: when the time comes each forecast is held against the rate that came, and a rate
    significantly above it is a miss; ``log(factor) += eta (miss - alpha)`` (adaptive conformal
    inference). On steady traffic the factor stays 1.

    :param confidence: of the bound, 0.5 to 1; misses may be the rest.
    :param most: the bound is at most this many times the largest reading.
    """

    # Confidence intervals to agree, in standard errors: fewer would jump at noise.
    _AGREE = 2.0
    _TREND = 1.0
    _ETA = 0.05
    _LARGEST_FACTOR = 2.0
    _PENDING = 128
    _PAUSE = 1.0

    __slots__ = ('_alpha', '_log_factor', '_most', '_next', '_pending', '_z', 'forecasts',
                 'misses')

    def __init__(self, confidence: float = 0.95, most: float = 2.0) -> None:
        """Start without experience."""
        self._z = normal_quantile(confidence)
        self._alpha = 1.0 - confidence
        self._most = most
        self._log_factor = 0.0
        self._pending: deque[tuple[float, float]] = deque()
        self._next = -math.inf
        self.forecasts = 0
        self.misses = 0

    @property
    def factor(self) -> float:
        """Return the learned widening, 1 or more."""
        return math.exp(self._log_factor)

    @property
    def coverage(self) -> float:
        """Return the share of past forecasts that were not exceeded; 1 before the first."""
        return 1.0 - self.misses / self.forecasts if self.forecasts else 1.0

    def upper(
        self, now: float, lead: float, readings: Sequence[tuple[float, float]],
        dispersion: float = 1.0
    ) -> float:
        """
        Return the rate to be ready for ``lead`` seconds from now, in frames per second.

        :param readings: rate and span in seconds of each window, the shortest first.
        :param dispersion: index of dispersion of the traffic.
        """
        highest = max(rate for rate, _ in readings)
        if highest <= 0.0:
            return 0.0
        level, error, span = self._level(readings, dispersion)
        bound = level + self._z * error
        slope = self._slope(readings, dispersion)
        if slope > 0.0:
            bound += slope * (lead + 0.5 * span)
        bound = min(bound * self.factor, self._most * highest)
        if now >= self._next:
            self._next = now + self._PAUSE
            if len(self._pending) < self._PENDING:
                self._pending.append((now + lead, bound))
        return bound

    def _level(
        self, readings: Sequence[tuple[float, float]], dispersion: float
    ) -> tuple[float, float, float]:
        """Return level, its standard error and the span it was taken over."""
        low, high = -math.inf, math.inf
        chosen = (readings[0][0], 0.0, readings[0][1])
        past = readings[-1][0]
        for rate, span in readings:
            if span <= 0.0:
                break
            # Few arrivals in a short window do not mean that more could not have come.
            error = math.sqrt(dispersion * max(rate, past, 1.0 / span) / span)
            low = max(low, rate - self._AGREE * error)
            high = min(high, rate + self._AGREE * error)
            if low > high:
                break
            chosen = (rate, error, span)
        return chosen

    def _slope(self, readings: Sequence[tuple[float, float]], dispersion: float) -> float:
        """Return the rise in frames per second each second, 0 unless it is significant."""
        (recent, short), (past, long) = readings[-2:]
        apart = 0.5 * (long - short)
        if apart < 0.5 * short:
            return 0.0
        # The short window is part of the long one.
        error = math.sqrt(dispersion * max(recent, past) * (1.0 / short - 1.0 / long))
        rise = recent - past
        return rise / apart if rise > self._TREND * error else 0.0

    def review(self, now: float, rate: float, span: float, dispersion: float = 1.0) -> None:
        """
        Hold forecasts that are due against what came.

        :param rate: reading of the window that ends at ``now``.
        :param span: its length in seconds; a forecast is due when its time is in the middle.
        """
        pending = self._pending
        while pending and pending[0][0] + 0.5 * span <= now:
            due, bound = pending.popleft()
            if now - due > span:
                # Asked too rarely to know what came then.
                continue
            error = math.sqrt(dispersion * max(bound, 1.0 / span) / span)
            miss = rate > bound + self._z * error
            self.forecasts += 1
            self.misses += miss
            step = self._ETA * (miss - self._alpha)
            self._log_factor = min(
                math.log(self._LARGEST_FACTOR), max(0.0, self._log_factor + step))
