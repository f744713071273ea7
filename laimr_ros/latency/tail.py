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
# Step of the tracker, in standard deviations of the residuals.
_STEP = 0.1
_LEAST_SPREAD = 0.01
# A quantile is at most this many times the mean, and no residual counts as more extreme.
LOG_LIMIT = math.log(8.0)
_MEDIAN_RANK = 0.5
_COVERAGE_FRAMES = 500


class TailTracker:
    """
    The ``1 - alpha`` quantile of residuals ``log(actual / predicted mean)``, online.

    Two parts. A conformal quantile: the value of rank ``ceil((n + 1)(1 - alpha))`` among the
    last residuals, right on average after few frames and unmoved by outliers. And adaptive
    conformal inference (Gibbs and Candes 2021, arXiv 2106.00170): an offset ``b += eta (1{r >
    q} - alpha)`` that brings the long-run share of misses to ``alpha`` even where residuals
    drift. ``eta`` is a tenth of the residuals' present spread, so that it fits a steady worker
    and an erratic one.

    Schedule: without residuals the model's own ratio is used, or a larger one that was seen.
    From the 19th frame on the quantile is learned, at a share of misses of 0.05 until 100
    frames, of 5 / n from then on, of ``alpha`` once ``5 / alpha`` frames came in (500 for 0.01).

    :param alpha: share of misses to arrive at, 0 to 1.
    :param prior: the model's guess of the quantile, in log units.
    """

    __slots__ = ('_alpha', '_dist_z', '_frames', '_hits', '_level', '_offset', '_prior',
                 '_quantile', '_recent', '_residuals', '_sorted', '_window', 'misses', 'samples')

    def __init__(self, alpha: float, prior: float) -> None:
        """Start without evidence."""
        self._alpha = alpha
        self._prior = min(LOG_LIMIT, max(0.0, prior))
        self._window = int(min(
            _LARGEST_WINDOW, max(_LEAST_WINDOW, math.ceil(_MISSES_NEEDED / alpha))))
        self._dist_z = max(0.5, NormalDist().inv_cdf(1.0 - alpha)) if alpha < 0.5 else 0.5
        self._residuals: deque[float] = deque()
        self._sorted: list[float] = []
        self._offset = 0.0
        self._level = max(alpha, _FIRST_ALPHA)
        self._quantile = self._prior
        self._recent: deque[bool] = deque()
        self._hits = 0
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
        return self._hits / len(self._recent) if self._recent else 1.0

    def update(self, residual: float, *, censored: bool = False) -> None:
        """
        Learn from one frame.

        :param residual: ``log(actual / predicted mean)``.
        :param censored: it was at least that much and nobody waited for the end: a miss.
        """
        miss = censored or residual > self._quantile
        if censored:
            # It lies beyond both what was waited for and what was predicted.
            residual = max(residual, self._quantile + self._spread())
        self.samples += 1
        self.misses += miss
        recent = self._recent
        recent.append(not miss)
        self._hits += not miss
        if len(recent) > _COVERAGE_FRAMES:
            self._hits -= recent.popleft()
        self._insert(residual)
        if self.samples > 1.0 / self._level:
            offset = self._offset + _STEP * self._spread() * (miss - self._level)
            # Negative windup would cost coverage when the traffic changes.
            self._offset = min(LOG_LIMIT, max(-self._spread(), offset))
        self._refresh()

    def _insert(self, residual: float) -> None:
        residual = min(LOG_LIMIT, max(-LOG_LIMIT, residual))
        residuals, ordered = self._residuals, self._sorted
        residuals.append(residual)
        insort(ordered, residual)
        if len(residuals) > self._window:
            del ordered[bisect_left(ordered, residuals.popleft())]

    def _refresh(self) -> None:
        n = len(self._sorted)
        alpha = self._alpha
        if alpha < _FIRST_ALPHA:
            self._level = alpha = max(alpha, min(_FIRST_ALPHA, _MISSES_NEEDED / max(n, 1)))
        rank = math.ceil((n + 1) * (1.0 - alpha) - 1e-9)
        if rank > n:
            base = max(self._prior, self._sorted[-1]) if n else self._prior
        else:
            base = self._sorted[rank - 1]
        self._quantile = min(LOG_LIMIT, max(0.0, base + self._offset))

    def _spread(self) -> float:
        """Return the residuals' spread as a standard deviation, from median to quantile."""
        ordered = self._sorted
        n = len(ordered)
        if n < 20:
            return max(_LEAST_SPREAD, self._prior / self._dist_z)
        rank = min(n - 1, math.ceil((n + 1) * (1.0 - self._alpha)) - 1)
        return max(_LEAST_SPREAD, (ordered[rank] - ordered[n // 2]) / self._dist_z)

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
        self._offset = min(LOG_LIMIT, max(-LOG_LIMIT, offset))
        self.samples, self.misses = samples, misses
        self._refresh()
