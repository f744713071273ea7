"""Arrival rates over a sliding window, and smoothed as in the paper."""

from __future__ import annotations

from collections import deque


class WindowRate:
    """
    Arrival rate over a sliding window, in O(1) time and bounded memory.

    Arrivals are counted in buckets, a twentieth of the window each. Defined at both ends: 0
    before the first arrival; until a whole window has passed, arrivals are divided by the time
    since the first one, but by no less than ``min_span``; after silence the rate falls to
    exactly 0 within one window and one bucket, and the next arrival starts afresh.

    :param window: length in seconds, > 0.
    :param min_span: shortest time to divide by, in seconds, so that the very first frames do not
        read as a burst.
    """

    BUCKETS = 20

    __slots__ = ('_buckets', '_first', '_min_span', '_total', '_width', '_window')

    def __init__(self, window: float, min_span: float = 1.0) -> None:
        """Start without arrivals."""
        self._window = window
        self._width = window / self.BUCKETS
        self._min_span = min(min_span, window)
        self._buckets: deque[list[float]] = deque()
        self._total = 0.0
        self._first: float | None = None

    def add(self, now: float, count: int = 1) -> None:
        """Count arrivals at time ``now`` (seconds; never earlier than the last call)."""
        buckets = self._buckets
        if buckets and now < buckets[-1][0] + self._width:
            buckets[-1][1] += count
        else:
            self._expire(now)
            buckets.append([now, float(count)])
            if self._first is None:
                self._first = now
        self._total += count

    def _expire(self, now: float) -> None:
        buckets = self._buckets
        # A bucket leaves when its last possible arrival is a whole window old.
        horizon = now - self._window - self._width
        while buckets and buckets[0][0] <= horizon:
            self._total -= buckets.popleft()[1]
        if not buckets:
            self._total = 0.0
            if self._first is not None and now - self._first > self._window:
                self._first = None

    def rate(self, now: float) -> float:
        """Return arrivals per second over the window that ends at ``now``."""
        self._expire(now)
        buckets = self._buckets
        if not buckets or self._first is None:
            return 0.0
        horizon = now - self._window
        total = self._total
        oldest = buckets[0]
        if oldest[0] < horizon:
            # Only the part of the oldest bucket that is still inside the window counts.
            total -= oldest[1] * min(1.0, (horizon - oldest[0]) / self._width)
        span = min(self._window, max(now - self._first, self._min_span))
        return max(0.0, total) / span

    def span(self, now: float) -> float:
        """Return the seconds that :meth:`rate` divides by now; 0 without arrivals."""
        self._expire(now)
        if self._first is None:
            return 0.0
        return min(self._window, max(now - self._first, self._min_span))


class EwmaRate:
    """
    The paper's ``lambda_accum``: a sliding-window rate, smoothed at each arrival.

    ``value += weight (reading - value)``, as in arXiv 2505.07417, Algorithm 1. What the paper
    leaves open is fixed here. Start: the first arrival's reading is taken as it is (1 / min_span,
    so 1 frame/s), there is no value to smooth it with. Silence: each whole window without an
    arrival counts as one more reading, of 0; after ten such windows the value is exactly 0 and
    the next arrival starts afresh.

    :param weight: weight of the newest reading, 0 (exclusive) to 1.
    :param window: length of the sliding window in seconds, > 0.
    :raises ValueError: for a weight out of its range.
    """

    FORGET = 10

    __slots__ = ('_last', '_value', '_weight', '_window', '_window_rate')

    def __init__(self, weight: float = 0.5, window: float = 2.0) -> None:
        """Start without arrivals."""
        if not 0.0 < weight <= 1.0:
            raise ValueError(f'EWMA weight is {weight}: give a number above 0 and at most 1')
        self._weight = weight
        self._window = window
        self._window_rate = WindowRate(window)
        self._value: float | None = None
        self._last = 0.0

    def add(self, now: float) -> None:
        """Count one arrival at time ``now`` in seconds."""
        self._settle(now)
        self._window_rate.add(now)
        reading = self._window_rate.rate(now)
        value = self._value
        self._value = reading if value is None else value + self._weight * (reading - value)
        self._last = now

    def _settle(self, now: float) -> None:
        """Take the windows that passed in silence into account."""
        if self._value is None:
            return
        silent = int((now - self._last) / self._window)
        if silent >= self.FORGET:
            self._value = None
        elif silent > 0:
            self._value *= (1.0 - self._weight) ** silent
            self._last += silent * self._window

    def rate(self, now: float) -> float:
        """Return the smoothed arrivals per second at ``now``; 0 before the first arrival."""
        if self._value is None:
            return 0.0
        silent = int((now - self._last) / self._window)
        if silent >= self.FORGET:
            return 0.0
        return self._value * (1.0 - self._weight) ** max(0, silent)
