"""How fast frames arrive: a fast and a slow sliding window."""

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


class Arrivals:
    """
    Arrival rate of one stream for scaling: up on the faster reading, down on the slow one.

    The two windows and their use follow Knative's panic and stable windows.

    :param fast: fast window in seconds.
    :param slow: slow window in seconds, >= fast.
    """

    def __init__(self, fast: float = 2.0, slow: float = 30.0) -> None:
        """Start without arrivals."""
        self._fast_window, self._slow_window = fast, max(fast, slow)
        self._fast, self._slow = WindowRate(fast), WindowRate(self._slow_window)

    def add(self, now: float) -> None:
        """Count one arrival at time ``now`` in seconds."""
        self._fast.add(now)
        self._slow.add(now)

    def fast(self, now: float) -> float:
        """Return the fast reading in frames per second."""
        return self._fast.rate(now)

    def slow(self, now: float) -> float:
        """Return the slow reading in frames per second."""
        return self._slow.rate(now)

    def forecast(self, now: float, lead: float) -> float:
        """
        Return the rate to be ready for ``lead`` seconds from now, in frames per second.

        The larger reading, carried on along the rise between the two windows' centres; at most
        doubled, so that one step is not taken for a trend without end.
        """
        fast, slow = self._fast.rate(now), self._slow.rate(now)
        high = max(fast, slow)
        between = (self._slow_window - self._fast_window) / 2.0
        if between <= 0.0 or fast <= slow:
            return high
        return min(2.0 * high, high + (fast - slow) / between * lead)
