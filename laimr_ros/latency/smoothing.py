"""An exponentially smoothed rate that chooses its own weight."""

from __future__ import annotations

import math


class SelfTuningRate:
    """
    Exponential smoothing of counts per step, with the weight that predicts best.

    Several weights run side by side. Each predicts the count of the next step; the rate is that
    of the weight whose squared errors, forgotten over ``memory`` steps, are smallest. So the
    weight that the paper tunes by hand follows the traffic: small on steady traffic, large on
    traffic that keeps changing.

    Start: the first whole step's count is every weight's level, before it the rate is 0.
    Silence: empty steps count as 0; after ``forget`` of them the rate is exactly 0 and the next
    arrival starts afresh (what was learned about the weights is kept).

    :param weights: the weights to choose from, each above 0 and at most 1.
    :param step: length of a step in seconds.
    :param memory: steps over which errors are forgotten.
    :param forget: empty steps after which traffic is taken to have ended.
    :raises ValueError: for a weight out of its range, or without weights.
    """

    WEIGHTS = (0.03, 0.1, 0.3, 0.8)

    __slots__ = ('_count', '_decay', '_empty', '_end', '_errors', '_forget', '_levels', '_step',
                 '_weights')

    def __init__(
        self, weights: tuple[float, ...] = WEIGHTS, *, step: float = 1.0, memory: int = 200,
        forget: int = 30
    ) -> None:
        """Start without arrivals."""
        if not weights or not all(0.0 < w <= 1.0 for w in weights):
            raise ValueError(
                f'smoothing weights are {weights}: give some, each above 0 and at most 1')
        self._weights = weights
        self._step = step
        self._decay = 1.0 - 1.0 / memory
        self._forget = forget
        self._levels: list[float] | None = None
        self._errors = [0.0] * len(weights)
        self._count = 0
        self._end = -math.inf
        self._empty = 0

    def add(self, now: float, count: int = 1) -> None:
        """Count arrivals at time ``now`` (seconds; never earlier than the last call)."""
        if now >= self._end:
            self._advance(now)
            if self._end == -math.inf:
                self._end = now + self._step
        self._count += count

    def _advance(self, now: float) -> None:
        """Close the steps that ended by ``now``."""
        while now >= self._end > -math.inf:
            count = self._count
            self._count = 0
            self._end += self._step
            self._empty = 0 if count else self._empty + 1
            if self._empty >= self._forget:
                self._levels = None
                self._end = -math.inf
                self._empty = 0
                return
            levels = self._levels
            if levels is None:
                self._levels = [float(count)] * len(self._weights)
                continue
            errors, decay = self._errors, self._decay
            for k, weight in enumerate(self._weights):
                error = count - levels[k]
                errors[k] = decay * errors[k] + error * error
                levels[k] += weight * error

    @property
    def weight(self) -> float:
        """Return the weight in use."""
        errors = self._errors
        return self._weights[errors.index(min(errors))]

    def rate(self, now: float) -> float:
        """Return arrivals per second, predicted for the step after ``now``."""
        self._advance(now)
        if self._levels is None:
            return 0.0
        errors = self._errors
        return self._levels[errors.index(min(errors))] / self._step
