"""When a frame of a lane is so late that a second copy of it is worth sending."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
import math

from laimr_ros.control.budgets import HedgeBudget

# With fewer completions their quantile means nothing.
_LEAST_SAMPLES = 100
_MOST_SAMPLES = 500


class Hedging:
    """
    Second copies of one lane's frames (Dean and Barroso 2013, The Tail at Scale).

    A copy is due once a frame is out for longer than a quantile of the lane's own last 500
    completions, from sending to answer; until there were 100, none is.

    :param share: copies over frames, 0 (never) to 1.
    :param quantile: of completions, 0 to 1.
    """

    __slots__ = ('_order', '_quantile', '_sorted', 'budget')

    def __init__(self, share: float, quantile: float) -> None:
        """Start without completions."""
        self.budget = HedgeBudget(share)
        self._quantile = quantile
        self._order: deque[float] = deque()
        self._sorted: list[float] = []

    def completed(self, seconds: float) -> None:
        """Note how long a frame took from its first sending to its answer."""
        self._order.append(seconds)
        insort(self._sorted, seconds)
        if len(self._order) > _MOST_SAMPLES:
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]

    def delay(self) -> float:
        """Return after how many seconds a copy is due; infinite while that is not known."""
        count = len(self._sorted)
        if count < _LEAST_SAMPLES:
            return math.inf
        return self._sorted[min(count - 1, math.ceil(self._quantile * count - 1e-9))]
