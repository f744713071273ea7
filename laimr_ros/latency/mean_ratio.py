"""A running mean that forgets at once when what it averages has changed."""

from __future__ import annotations

import math

# Residuals beyond so many standard deviations count as that many: one outlier is no change.
_CLIP = 3.0
# CUSUM for a shift of one standard deviation; about 30,000 frames between false alarms on
# Gaussian residuals (Siegmund 1985).
_SLACK = 0.5
_THRESHOLD = 9.0
# A deviation is known after so many frames; before, the mean weighs every frame alike anyway.
_WARM_UP = 20
_LEAST_DEVIATION = 0.02
_VARIANCE_MEMORY = 100.0


class MeanRatio:
    """
    Arithmetic mean of actual over modelled time, with change detection.

    A running mean over the last frames. A two-sided CUSUM (Page 1954) of the standardised,
    clipped log residuals runs beside it; when it says that the level has moved, the mean starts
    anew from the frames since the move, so a shift is followed within a few frames and not
    within a memory's length.

    :param memory: frames that the running mean remembers.
    :param deviation: first guess of the standard deviation of log residuals.
    :param step_limit: one frame counts as at most this many times faster or slower than the mean.
    :param limit: the mean stays within this and its inverse.
    """

    __slots__ = ('_centre', '_down', '_down_frames', '_down_sum', '_frames', '_limit', '_memory',
                 '_step_limit', '_up', '_up_frames', '_up_sum', '_variance', '_weighed', 'changes',
                 'log_mean', 'mean')

    def __init__(self, memory: int, deviation: float, step_limit: float, limit: float) -> None:
        """Start at 1, without evidence."""
        self._memory = memory
        self._step_limit = step_limit
        self._limit = limit
        self.mean = 1.0
        self.log_mean = 0.0
        self.changes = 0
        self._frames = 0
        self._weighed = 0
        self._centre = 0.0
        self._variance = max(_LEAST_DEVIATION, deviation) ** 2
        self._up = self._down = 0.0
        self._up_frames = self._down_frames = 0
        self._up_sum = self._down_sum = 0.0

    @property
    def deviation(self) -> float:
        """Return the standard deviation of log residuals."""
        return math.sqrt(self._variance)

    def update(self, ratio: float, residual: float) -> int:
        """
        Learn one ratio.

        :param residual: ``log(ratio / mean)``.
        :return: 0, or how many of the last frames belong to a new level just found.
        """
        mean, limit = self.mean, self._step_limit
        seen = mean * limit if ratio > mean * limit else max(mean / limit, ratio)
        self._frames += 1
        self._weighed += 1
        # The first frames weigh fully, so a wrong starting value is gone after a few of them.
        mean += (seen - mean) / min(self._weighed, self._memory)
        changed = 0
        if self._frames > _WARM_UP:
            changed = self._watch(seen, residual)
            if changed:
                total = self._up_sum if self._up >= _THRESHOLD else self._down_sum
                mean = total / changed
                self.changes += 1
                self._weighed = changed
                self._restart()
        self._set(mean)
        if not changed:
            self._learn_deviation(residual)
        return changed

    def _set(self, mean: float) -> None:
        self.mean = mean = min(self._limit, max(1.0 / self._limit, mean))
        self.log_mean = math.log(mean)

    def _learn_deviation(self, residual: float) -> None:
        off = residual - self._centre
        bound = _CLIP * math.sqrt(self._variance)
        if self._frames <= _WARM_UP:
            # The first guess may be far off.
            bound *= 3.0
        off = bound if off > bound else max(-bound, off)
        weight = 1.0 / min(_VARIANCE_MEMORY, self._frames + 5.0)
        self._centre += weight * off
        variance = self._variance + weight * (off * off - self._variance)
        self._variance = max(_LEAST_DEVIATION * _LEAST_DEVIATION, variance)

    def _watch(self, seen: float, residual: float) -> int:
        """Run the CUSUM; return the frames since the level moved, 0 if it did not."""
        z = (residual - self._centre) / math.sqrt(self._variance)
        z = _CLIP if z > _CLIP else max(-_CLIP, z)
        up = self._up + z - _SLACK
        if up > 0.0:
            self._up = up
            self._up_frames += 1
            self._up_sum += seen
            if up >= _THRESHOLD:
                return self._up_frames
        elif self._up_frames:
            self._up, self._up_frames, self._up_sum = 0.0, 0, 0.0
        down = self._down - z - _SLACK
        if down > 0.0:
            self._down = down
            self._down_frames += 1
            self._down_sum += seen
            if down >= _THRESHOLD:
                return self._down_frames
        elif self._down_frames:
            self._down, self._down_frames, self._down_sum = 0.0, 0, 0.0
        return 0

    def _restart(self) -> None:
        self._up = self._down = self._up_sum = self._down_sum = 0.0
        self._up_frames = self._down_frames = 0

    def rescale(self, factor: float) -> None:
        """Multiply the mean: the model it corrects was replaced."""
        self._restart()
        self._set(self.mean * factor)

    def restore(self, mean: float, weighed: int, centre: float, deviation: float) -> None:
        """Go on from a state."""
        self._weighed = max(0, min(weighed, self._memory))
        self._frames = self._weighed
        self._centre = centre
        self._variance = max(_LEAST_DEVIATION, deviation) ** 2
        self._set(mean)

    def to_state(self) -> dict[str, object]:
        """Return what was learned as plain values."""
        return {'mean': self.mean, 'weighed': min(self._weighed, self._memory),
                'centre': self._centre, 'deviation': self.deviation}
