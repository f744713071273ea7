"""How fast, how evenly and how suddenly the frames of one lane arrive."""

from __future__ import annotations

import math

from laimr_ros.latency.burst_alarm import BurstAlarm
from laimr_ros.latency.burstiness import Burstiness
from laimr_ros.latency.forecast import RateForecast
from laimr_ros.latency.smoothing import SelfTuningRate
from laimr_ros.latency.windows import WindowRate

__all__ = ['Arrivals', 'WindowRate']

_TICK = 0.1
# The baseline of the alarm means something only after so long, in seconds.
_WARM_UP = 5.0
# Dispersion and baseline are renewed every so many ticks.
_TICKS_TO_LEARN = 10
# Part of the way from its baseline to the present rate that a burst goes each second.
_NEW_NORMAL = 0.05


class Arrivals:
    """
    Arrivals of one stream for scaling: up on the faster reading, down on the slow one.

    The two windows and their use follow Knative's panic and stable windows. Start: every reading
    is 0 before the first arrival (windows then divide by the time since it, see
    :class:`WindowRate`), the index of dispersion is 1, the alarm is quiet for five seconds.
    Silence: after a slow window without arrivals everything but the burstiness starts afresh.

    :param fast: fast window in seconds.
    :param slow: slow window in seconds, >= fast.
    :param burst_ratio: the burst the alarm is to tell, as a multiple of the slow reading.
    :param false_alarm_interval: mean time between false alarms on Poisson traffic, in seconds.
    :param confidence: of the upper forecast.
    """

    def __init__(
        self, fast: float = 2.0, slow: float = 30.0, *, burst_ratio: float = 2.0,
        false_alarm_interval: float = 3600.0, confidence: float = 0.95
    ) -> None:
        """Start without arrivals."""
        self._fast_window, self._slow_window = fast, max(fast, slow)
        self._middle_window = math.sqrt(fast * self._slow_window)
        self._fast, self._slow = WindowRate(fast), WindowRate(self._slow_window)
        self._middle = WindowRate(self._middle_window)
        self._smoothed = SelfTuningRate()
        self._burstiness = Burstiness(_TICK)
        self._alarm = BurstAlarm(burst_ratio, false_alarm_interval)
        self._forecast = RateForecast(confidence)
        # The tick in progress: its end, its arrivals and when the first of them came.
        self._end = -math.inf
        self._count = 0
        self._opened = 0.0
        self._began = 0.0
        self._baseline = 0.0
        self._dispersion = 1.0
        self._ticks = 0

    def add(self, now: float) -> None:
        """Count one arrival at time ``now`` (seconds; never earlier than the last call)."""
        self._fast.add(now)
        if now >= self._end:
            self._advance(now)
            if self._end == -math.inf:
                self._begin(now)
        self._alarm.add(now)
        if self._count == 0:
            self._opened = now
        self._count += 1

    def _begin(self, now: float) -> None:
        """Start the ticks with a first arrival."""
        self._end = now + _TICK
        self._began = now
        self._baseline = 0.0
        self._ticks = 0
        self._burstiness.interrupt()
        self._alarm.reset()

    def _advance(self, now: float) -> None:
        """Close the ticks that ended by ``now``; only the first may have arrivals."""
        while now >= self._end > -math.inf:
            end, count = self._end, self._count
            if count:
                self._count = 0
                self._slow.add(self._opened, count)
                self._middle.add(self._opened, count)
                self._smoothed.add(self._opened, count)
            elif now - self._opened > self._slow_window + _TICK:
                self._end = -math.inf
                self._alarm.reset()
                return
            self._burstiness.add(count)
            self._ticks += 1
            if self._ticks % _TICKS_TO_LEARN == 0:
                self._learn(end)
            # Ticks end at multiples of their length, without error adding up.
            self._end = self._began + (self._ticks + 1) * _TICK

    def _learn(self, now: float) -> None:
        """Learn what changes slowly, once a second."""
        self._dispersion = self._burstiness.ca2()
        if now - self._began < _WARM_UP:
            return
        slow = self._slow.rate(now)
        if self._baseline == 0.0 or not self._alarm.up(now):
            self._baseline = slow
        else:
            # What comes in a burst is no measure for it, but one that lasts is the new normal.
            self._baseline += _NEW_NORMAL * (slow - self._baseline)
        self._alarm.expect(self._baseline, self._dispersion)

    def fast(self, now: float) -> float:
        """Return the fast reading in frames per second."""
        return self._fast.rate(now)

    def slow(self, now: float) -> float:
        """Return the slow reading in frames per second."""
        self._advance(now)
        return self._with_open_tick(self._slow, self._slow_window, now)

    def smoothed(self, now: float) -> float:
        """Return the self-tuned exponential smoothing, in frames per second."""
        self._advance(now)
        return self._smoothed.rate(now)

    def _with_open_tick(self, window: WindowRate, length: float, now: float) -> float:
        rate = window.rate(now)
        if self._count:
            rate += self._count / (window.span(now) or min(1.0, length))
        return rate

    def forecast(self, now: float, lead: float) -> float:
        """
        Return a point forecast for ``lead`` seconds from now, in frames per second.

        The larger reading, carried on along the rise between the two windows' centres; at most
        doubled, so that one step is not taken for a trend without end.
        """
        fast, slow = self.fast(now), self.slow(now)
        high = max(fast, slow)
        between = (self._slow_window - self._fast_window) / 2.0
        if between <= 0.0 or fast <= slow:
            return high
        return min(2.0 * high, high + (fast - slow) / between * lead)

    def upper(self, now: float, lead: float) -> float:
        """
        Return the rate to be ready for ``lead`` seconds from now, in frames per second.

        An upper confidence bound that learns from its misses, see :class:`RateForecast`. Call it
        a few times a second.
        """
        self._advance(now)
        fast = self._fast.rate(now)
        middle = self._with_open_tick(self._middle, self._middle_window, now)
        slow = self.slow(now)
        span = self._slow.span(now)
        if span <= 0.0:
            return fast
        # A shorter window that is empty was still watched.
        middle_span = min(span, self._middle_window)
        readings = ((fast, min(span, self._fast_window)), (middle, middle_span), (slow, span))
        dispersion = self._dispersion
        self._forecast.review(now, middle, middle_span, dispersion)
        bound = self._forecast.upper(now, lead, readings, dispersion)
        return max(bound, fast) if self.bursting(now) else bound

    def bursting(self, now: float) -> bool:
        """Return whether frames come suddenly faster than they did."""
        return self._alarm.up(now)

    def dispersion(self, now: float, tau: float) -> float:
        """Return the measured index of dispersion at a time scale of ``tau`` seconds."""
        self._advance(now)
        return self._burstiness.dispersion(tau)[0]

    def ca2(self, now: float, tau: float | None = None, *, prior: float = 1.0) -> float:
        """
        Return the squared coefficient of variation for queueing formulas.

        See :meth:`Burstiness.ca2` for the parameters.
        """
        self._advance(now)
        return self._burstiness.ca2(tau, prior=prior)

    @property
    def coverage(self) -> float:
        """Return the share of upper forecasts that the rate did not exceed."""
        return self._forecast.coverage
