"""A quantile that is kept true: recent residuals, and a step that answers every miss."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
import math
from statistics import NormalDist

# Quantiles are learned at this share of misses first.
_FIRST_ALPHA = 0.05
# ... and at so many misses over frames seen then, until the share asked for is reached.
_MISSES_NEEDED = 5.0
_LEAST_WINDOW, _LARGEST_WINDOW = 100, 1000
# Step and bounds of the offset, in standard deviations of the residuals. The bounds keep it from
# winding up while the residuals' own quantile has yet to follow.
_STEP = 0.1
_LEAST_OFFSET, _MOST_OFFSET = -1.0, 3.0
_LEAST_SPREAD = 0.01
# A quantile is at most this many times the mean, and no residual counts as more extreme.
LOG_LIMIT = math.log(8.0)
_COVERAGE_FRAMES = 500


def _deviations(alpha: float) -> float:
    """Return how many standard deviations a Gaussian quantile lies above the median."""
    return max(0.5, NormalDist().inv_cdf(1.0 - alpha))


class TailTracker:
    """
    The ``1 - alpha`` quantile of residuals ``log(actual / predicted mean)``, online.

    Two parts. A conformal quantile: the value of rank ``ceil((n + 1)(1 - alpha))`` among the
    last residuals, right on average after few frames and unmoved by outliers. And adaptive
    conformal inference (Gibbs and Candes 2021, arXiv 2106.00170): an offset ``b += eta (1{r >
    q} - alpha)`` that brings the long-run share of misses to ``alpha`` even where residuals
    drift. The offset is kept in units of the residuals' present spread, and ``eta`` is a tenth
    of it, so that one setting fits a steady worker and an erratic one.

    Schedule: without residuals the model's own ratio is used, or a larger one that was seen.
    From the 19th frame on the quantile is learned, at a share of misses of 0.05 until 100
    frames, of 5 / n from then on, of ``alpha`` once ``5 / alpha`` frames came in (500 for 0.01).

    :param alpha: share of misses to arrive at, 0 to 1.
    :param prior: the model's guess of the quantile, in log units.
    """

    __slots__ = ('_alpha', '_index', '_level', '_offset', '_prior', '_quantile', '_ranked',
                 '_recent', '_recent_misses', '_residuals', '_sorted', '_spread', '_window', '_z',
                 'misses', 'samples')

    def __init__(self, alpha: float, prior: float) -> None:
        """Start without evidence."""
        self._alpha = alpha
        self._prior = min(LOG_LIMIT, max(0.0, prior))
        self._window = int(min(
            _LARGEST_WINDOW, max(_LEAST_WINDOW, math.ceil(_MISSES_NEEDED / alpha))))
        self._residuals: deque[float] = deque()
        self._sorted: list[float] = []
        self._offset = 0.0
        self._level = max(alpha, _FIRST_ALPHA)
        self._z = _deviations(self._level)
        self._spread = max(_LEAST_SPREAD, self._prior / _deviations(alpha))
        self._quantile = self._prior
        self._index = self._ranked = 0
        self._recent: deque[bool] = deque()
        self._recent_misses = 0
        self.samples = 0
        self.misses = 0

    @property
    def log_quantile(self) -> float:
        """Return the tracked quantile in log units, 0 or more."""
        return self._quantile

    @property
    def alpha(self) -> float:
        """Return the share of misses aimed at now (see the schedule)."""
        return self._level

    @property
    def coverage(self) -> float:
        """Return the share of all frames that stayed under the quantile; 1 before the first."""
        return 1.0 - self.misses / self.samples if self.samples else 1.0

    @property
    def recent_coverage(self) -> float:
        """Return the same over the last 500 frames."""
        return 1.0 - self._recent_misses / len(self._recent) if self._recent else 1.0

    def update(self, residual: float, *, censored: bool = False) -> None:
        """
        Learn from one frame.

        :param residual: ``log(actual / predicted mean)``.
        :param censored: it was at least that much and nobody waited for the end: a miss.
        """
        miss = censored or residual > self._quantile
        if censored:
            # It lies beyond both what was waited for and what was predicted.
            residual = max(residual, self._quantile + self._spread)
        self.samples += 1
        recent = self._recent
        recent.append(miss)
        if miss:
            self.misses += 1
            self._recent_misses += 1
        if len(recent) > _COVERAGE_FRAMES and recent.popleft():
            self._recent_misses -= 1
        self._insert(residual)
        if self.samples > 20:
            offset = self._offset + (_STEP * (1.0 - self._level) if miss else -_STEP * self._level)
            if offset > _MOST_OFFSET:
                offset = _MOST_OFFSET
            elif offset < _LEAST_OFFSET:
                offset = _LEAST_OFFSET
            self._offset = offset
        self._refresh()

    def _insert(self, residual: float) -> None:
        if residual > LOG_LIMIT:
            residual = LOG_LIMIT
        elif residual < -LOG_LIMIT:
            residual = -LOG_LIMIT
        residuals, ordered = self._residuals, self._sorted
        residuals.append(residual)
        insort(ordered, residual)
        if len(residuals) > self._window:
            del ordered[bisect_left(ordered, residuals.popleft())]

    def _refresh(self) -> None:
        """Recompute the quantile from the residuals and the offset."""
        ordered = self._sorted
        n = len(ordered)
        if n != self._ranked:
            self._rank(n)
        index = self._index
        if index < n:
            spread = (ordered[index] - ordered[n // 2]) / self._z
            if spread < _LEAST_SPREAD:
                spread = _LEAST_SPREAD
            self._spread = spread
            quantile = ordered[index] + self._offset * spread
        else:
            quantile = max(self._prior, ordered[-1]) if n else self._prior
        if quantile < 0.0:
            quantile = 0.0
        self._quantile = quantile if quantile < LOG_LIMIT else LOG_LIMIT

    def _rank(self, n: int) -> None:
        """Choose which of ``n`` ordered residuals is the quantile (past the last: too few)."""
        alpha = self._alpha
        if alpha < _FIRST_ALPHA:
            alpha = max(alpha, min(_FIRST_ALPHA, _MISSES_NEEDED / max(n, 1)))
        if alpha != self._level:
            self._level = alpha
            self._z = _deviations(alpha)
        self._index = math.ceil((n + 1) * (1.0 - alpha) - 1e-9) - 1
        self._ranked = n

    def quantile_at(self, p: float) -> float | None:
        """Return another quantile of the recent residuals, or None if too few are known."""
        n = len(self._sorted)
        rank = math.ceil((n + 1) * p - 1e-9)
        if not 1 <= rank <= n:
            return None
        return self._sorted[rank - 1]

    def revise(self, newest: Sequence[float]) -> None:
        """Replace the newest residuals, the oldest of them first: their prediction was wrong."""
        count = min(len(newest), len(self._residuals))
        for _ in range(count):
            del self._sorted[bisect_left(self._sorted, self._residuals.pop())]
        for residual in newest[len(newest) - count:]:
            self._insert(residual)
        self._refresh()

    def to_state(self) -> dict[str, object]:
        """Return what was learned as plain values."""
        return {'residuals': [round(r, 6) for r in self._residuals], 'offset': self._offset,
                'samples': self.samples, 'misses': self.misses}

    def restore(
        self, residuals: Sequence[float], offset: float, samples: int, misses: int
    ) -> None:
        """Go on from a state."""
        for residual in residuals[-self._window:]:
            self._insert(residual)
        self._offset = min(_MOST_OFFSET, max(_LEAST_OFFSET, offset))
        self.samples, self.misses = samples, misses
        self._refresh()
