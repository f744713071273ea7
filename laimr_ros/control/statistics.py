"""Recent latencies, for diagnostics."""

from __future__ import annotations

from collections import deque
import math


class RecentLatencies:
    """
    Quantiles over the last ``window`` seconds, of at most ``size`` samples.

    :param window: seconds that a sample counts.
    :param size: samples kept.
    """

    def __init__(self, window: float = 60.0, size: int = 2048) -> None:
        """Start empty."""
        self._window = window
        self._samples: deque[tuple[float, float]] = deque(maxlen=size)

    def add(self, now: float, seconds: float) -> None:
        """Note one latency in seconds."""
        self._samples.append((now, seconds))

    def recent(self, now: float, span: float) -> list[float]:
        """Return the samples of the last ``span`` seconds, the newest first."""
        values = []
        for at, seconds in reversed(self._samples):
            if at < now - span:
                break
            values.append(seconds)
        return values

    def quantiles(self, now: float, *ps: float) -> tuple[float, ...]:
        """Return quantiles in seconds (nearest rank); NaN without samples."""
        horizon = now - self._window
        while self._samples and self._samples[0][0] < horizon:
            self._samples.popleft()
        values = sorted(value for _, value in self._samples)
        if not values:
            return tuple(math.nan for _ in ps)
        return tuple(values[max(0, math.ceil(p * len(values)) - 1)] for p in ps)
