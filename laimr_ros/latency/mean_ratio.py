"""A running mean that forgets at once when what it averages has changed."""

from __future__ import annotations

from collections import deque
import math

#: A change is looked for among so many of the last frames.
RECENT_FRAMES = 64
# Residuals beyond so many standard deviations count as that many: one outlier is no change.
_CLIP = 3.0
# CUSUM for a shift of one standard deviation; about 30,000 frames between false alarms on
# Gaussian residuals (Siegmund 1985).
_SLACK = 0.5
_THRESHOLD = 9.0
# A deviation is known after so many frames; before, the mean weighs every frame alike anyway.
_WARM_UP = 20
_LEAST_DEVIATION = 0.02
_LEAST_VARIANCE = _LEAST_DEVIATION * _LEAST_DEVIATION
# Weights of a frame in the deviation: the first one's, and the least.
_FIRST_WEIGHT, _LEAST_WEIGHT = 1.0 / 6.0, 0.01


class MeanRatio:
    """
    Arithmetic mean of actual over modelled time, with change detection.

    A running mean over the last frames. A two-sided CUSUM (Page 1954) of the standardised,
    clipped log residuals runs beside it; when it says that the level has moved, the mean starts
    anew from the frames since the likeliest time of the move, so a shift is followed within a
    few frames and not within a memory's length.

    :param memory: frames that the running mean remembers.
    :param deviation: first guess of the standard deviation of log residuals.
    :param step_limit: one frame counts as at most this many times faster or slower than the mean.
    :param limit: the mean stays within this and its inverse.
    :ivar deviation: standard deviation of log residuals.
    :ivar changes: how often the level was found to have moved.
    """

    __slots__ = ('_centre', '_down', '_down_frames', '_frames', '_limit', '_memory', '_recent',
                 '_step_limit', '_up', '_up_frames', '_variance', '_weighed', '_weight', 'changes',
                 'deviation', 'log_mean', 'mean')

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
        self.deviation = max(_LEAST_DEVIATION, deviation)
        self._variance = self.deviation * self.deviation
        self._weight = _FIRST_WEIGHT
        self._up = self._down = 0.0
        self._up_frames = self._down_frames = 0
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_FRAMES)

    def update(self, ratio: float, residual: float) -> int:
        """
        Learn one ratio.

        :param residual: ``log(ratio / mean)``.
        :return: 0, or how many of the last frames belong to a new level just found.
        """
        mean = self.mean
        if ratio > mean * self._step_limit:
            ratio = mean * self._step_limit
        elif ratio < mean / self._step_limit:
            ratio = mean / self._step_limit
        self._frames += 1
        # The first frames weigh fully, so a wrong starting value is gone after a few of them.
        if self._weighed < self._memory:
            self._weighed += 1
        mean += (ratio - mean) / self._weighed
        off = residual - self._centre
        deviation = self.deviation
        bound = _CLIP * deviation
        if self._frames > _WARM_UP:
            off = bound if off > bound else off if off > -bound else -bound
            run = self._watch(off / deviation, ratio)
            if run:
                moved, mean = self._since(run)
                self.changes += 1
                self._weighed = min(moved, self._memory)
                self._restart()
                self._set(mean)
                return moved
        else:
            # The first guess may be far off.
            off = min(3.0 * bound, max(-3.0 * bound, off))
        self._set(mean)
        weight = self._weight
        self._centre += weight * off
        variance = self._variance + weight * (off * off - self._variance)
        self._variance = variance if variance > _LEAST_VARIANCE else _LEAST_VARIANCE
        self.deviation = math.sqrt(self._variance)
        if weight > _LEAST_WEIGHT:
            self._weight = weight / (1.0 + weight)
        return 0

    def _set(self, mean: float) -> None:
        if mean > self._limit:
            mean = self._limit
        elif mean * self._limit < 1.0:
            mean = 1.0 / self._limit
        self.mean = mean
        self.log_mean = math.log(mean)

    def _watch(self, z: float, ratio: float) -> int:
        """Run the CUSUM; return for how many frames it has been rising if it alarms, else 0."""
        self._recent.append((z, ratio))
        up = self._up + z - _SLACK
        if up > 0.0:
            self._up = up
            self._up_frames += 1
            if up >= _THRESHOLD:
                return self._up_frames
        elif self._up_frames:
            self._up, self._up_frames = 0.0, 0
        down = self._down - z - _SLACK
        if down > 0.0:
            self._down = down
            self._down_frames += 1
            if down >= _THRESHOLD:
                return self._down_frames
        elif self._down_frames:
            self._down, self._down_frames = 0.0, 0
        return 0

    def _since(self, run: int) -> tuple[int, float]:
        """
        Return how many of the last frames are of the new level, and their mean ratio.

        The likeliest time of the change, given Gaussian residuals: the one that maximises the
        squared sum of the residuals since over their number.
        """
        total = ratios = 0.0
        best, moved, mean = -1.0, 1, self.mean
        for count, (z, ratio) in enumerate(reversed(self._recent), start=1):
            if count > run:
                break
            total += z
            ratios += ratio
            if total * total > best * count:
                best, moved, mean = total * total / count, count, ratios / count
        return moved, mean

    def _restart(self) -> None:
        self._up = self._down = 0.0
        self._up_frames = self._down_frames = 0
        self._recent.clear()

    def rescale(self, factor: float) -> None:
        """Multiply the mean: the model it corrects was replaced."""
        self._restart()
        self._set(self.mean * factor)

    def restore(self, mean: float, weighed: int, centre: float, deviation: float) -> None:
        """Go on from a state."""
        self._weighed = max(0, min(weighed, self._memory))
        self._frames = self._weighed
        self._centre = centre
        self.deviation = max(_LEAST_DEVIATION, deviation)
        self._variance = self.deviation * self.deviation
        self._weight = max(_LEAST_WEIGHT, 1.0 / (6.0 + self._frames))
        self._set(mean)

    def to_state(self) -> dict[str, object]:
        """Return what was learned as plain values."""
        return {'mean': self.mean, 'weighed': self._weighed,
                'centre': self._centre, 'deviation': self.deviation}
