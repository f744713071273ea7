"""Keep a prediction true: learn from each served frame how far off the model is."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
import math
from statistics import NormalDist

from laimr_ros.latency.mean_ratio import MeanRatio, RECENT_FRAMES
from laimr_ros.latency.tail import LOG_LIMIT, TailTracker

# A single frame counts as at most this many times faster or slower than what is believed, so
# that one outlier (a page fault, a paused host) does not turn every later decision.
_MAX_STEP_RATIO = 8.0
# Beyond this no correction is believed: it is a broken clock, not a slow worker.
_LONGEST_RATIO = 1e6
_SHORTEST_SEEN, _LONGEST_SEEN = 1e-9, 1e9
_STATE_VERSION = 1
# What is believed of a saved state. A ratio that is too high would keep every frame away, and so
# never be corrected; one that is too low is, by the first frames.
_LEAST_RESTORED, _MOST_RESTORED = 1e-4, 64.0
_MOST_DEVIATION, _MOST_CENTRE = 3.0, 5.0
_MOST_FRAMES = 1e15


class Correction:
    """
    Multiplicative correction of the service-time model, for one model on one pool.

    The mean ratio is a running arithmetic mean over the last frames (scaling multiplies rates
    with it, so a mean of logarithms would be too low) that starts anew when the level has moved,
    see :class:`MeanRatio`; the ratio of the tail to it is tracked by adaptive conformal
    inference, see :class:`TailTracker`.

    :param tail: the quantile to be covered, 0 to 1.
    :param tail_ratio: first guess of quantile over mean, from the model.
    :param memory: frames that the running average remembers.
    :raises ValueError: unless ``0 < tail < 1``.
    """

    __slots__ = ('_logs', '_mean', '_tail', '_tail_ratio', 'damage', 'resumed', 'samples')

    def __init__(self, tail: float, tail_ratio: float, *, memory: int = 50) -> None:
        """Start without evidence: the model is believed."""
        if not 0.0 < tail < 1.0:
            raise ValueError(f'quantile to be covered is {tail}: give a number between 0 and 1')
        prior = min(LOG_LIMIT, math.log(max(tail_ratio, 1.0)))
        z = NormalDist().inv_cdf(tail) if tail > 0.7 else 1.0
        self._mean = MeanRatio(memory, prior / z, _MAX_STEP_RATIO, _LONGEST_RATIO)
        self._tail = TailTracker(1.0 - tail, prior)
        self._tail_ratio = math.exp(prior)
        self._logs: deque[float] = deque(maxlen=RECENT_FRAMES)
        self.samples = 0
        #: Whether this goes on from a saved state.
        self.resumed = False
        #: Why a saved state was not believed; empty unless it was damaged.
        self.damage = ''

    @property
    def mean_ratio(self) -> float:
        """Return actual over modelled mean service time."""
        return self._mean.mean

    @property
    def tail_ratio(self) -> float:
        """Return the tracked quantile over the *corrected* mean, at least 1."""
        return self._tail_ratio

    @property
    def cv(self) -> float:
        """Return the coefficient of variation of actual service times about the prediction."""
        deviation = self._mean.deviation
        return math.sqrt(math.expm1(min(9.0, deviation * deviation)))

    @property
    def alpha(self) -> float:
        """Return the share of misses aimed at now; it starts at 0.05, see the tracker."""
        return self._tail.alpha

    @property
    def coverage(self) -> float:
        """Return the share of all frames under their predicted quantile."""
        return self._tail.coverage

    @property
    def recent_coverage(self) -> float:
        """Return the share of the last 500 frames under their predicted quantile."""
        return self._tail.recent_coverage

    @property
    def changes(self) -> int:
        """Return how often the level was found to have moved."""
        return self._mean.changes

    def quantile_ratio(self, p: float) -> float:
        """
        Return another quantile over the corrected mean, at least 1.

        From the recent frames; where they are too few for it, the tracked quantile stretched as
        if the logarithm were Gaussian.
        """
        value = self._tail.quantile_at(p)
        if value is None:
            z = NormalDist().inv_cdf
            scale = z(p) / max(0.5, z(1.0 - self._tail.alpha))
            value = math.log(self._tail_ratio) * max(1.0, scale)
        return math.exp(min(LOG_LIMIT, max(0.0, value)))

    def update(self, modelled: float, actual: float) -> None:
        """
        Learn from one served frame.

        :param modelled: the model's own mean service time, uncorrected, in seconds.
        :param actual: the measured service time in seconds.
        """
        if modelled > 0.0 and actual > 0.0 and modelled < math.inf:
            self._learn(actual / modelled, False)

    def miss(self, modelled: float, elapsed: float) -> None:
        """
        Learn from a frame that was given up before its answer: it took longer than predicted.

        :param modelled: the model's own mean service time, uncorrected, in seconds.
        :param elapsed: for how long its service was waited for, in seconds.
        """
        if modelled > 0.0 and elapsed > 0.0 and modelled < math.inf:
            # It says nothing of the mean if it was given up earlier than the mean.
            self._learn(max(elapsed / modelled, self._mean.mean), True)

    def _learn(self, ratio: float, censored: bool) -> None:
        mean = self._mean
        if not _SHORTEST_SEEN < ratio < _LONGEST_SEEN:
            ratio = _SHORTEST_SEEN if ratio < 1.0 else _LONGEST_SEEN
        log_ratio = math.log(ratio)
        residual = log_ratio - mean.log_mean
        self.samples += 1
        self._logs.append(log_ratio)
        tail = self._tail
        tail.update(residual, censored=censored)
        changed = mean.update(ratio, residual)
        if changed:
            # Those frames did not belong to the tail of the old level but to the new one.
            log_mean = mean.log_mean
            tail.revise([r - log_mean for r in list(self._logs)[-changed:]])
        self._tail_ratio = math.exp(tail.log_quantile)

    def rebase(self, before: float, after: float) -> None:
        """
        Go on with another model under the correction, without a jump of the prediction.

        :param before: what the old model says, in seconds, at the present load.
        :param after: what the new one says.
        """
        if before > 0.0 and after > 0.0 and math.isfinite(before) and math.isfinite(after):
            self._mean.rescale(before / after)
            self._logs.clear()

    def to_state(self) -> dict[str, object]:
        """Return what was learned as plain values, fit for JSON."""
        return {'version': _STATE_VERSION, 'samples': self.samples,
                'mean': self._mean.to_state(), 'tail': self._tail.to_state()}

    @classmethod
    def from_state(
        cls, state: Mapping[str, object], age_s: float, tail: float, tail_ratio: float, *,
        memory: int = 50, max_age_s: float = 3600.0
    ) -> Correction:
        """
        Go on from a saved state if it is young and sound, else start from the calibration.

        :param age_s: how long ago it was saved, in seconds.
        :param max_age_s: an older state is not used.
        :return: a correction whose ``resumed`` tells which it was.
        """
        if 0.0 <= age_s <= max_age_s and state.get('version') == _STATE_VERSION:
            resumed = cls(tail, tail_ratio, memory=memory)
            try:
                resumed._restore(state)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # A damaged file must not stop a start: the calibration is always there.
                fresh = cls(tail, tail_ratio, memory=memory)
                fresh.damage = f'{type(error).__name__}: {error}'[:200]
                return fresh
            return resumed
        return cls(tail, tail_ratio, memory=memory)

    def _restore(self, state: Mapping[str, object]) -> None:
        mean, tail = _table(state, 'mean'), _table(state, 'tail')
        residuals = tail['residuals']
        if not isinstance(residuals, list):
            raise TypeError(f'residuals are {type(residuals).__name__}: expected a list')
        samples = int(_number(tail, 'samples', 0.0, _MOST_FRAMES))
        misses = int(_number(tail, 'misses', 0.0, samples))
        # Residuals are saved rounded.
        limit = LOG_LIMIT + 1e-3
        self._mean.restore(
            _number(mean, 'mean', _LEAST_RESTORED, _MOST_RESTORED),
            int(_number(mean, 'weighed', 0.0, _MOST_FRAMES)),
            _number(mean, 'centre', -_MOST_CENTRE, _MOST_CENTRE),
            _number(mean, 'deviation', 0.0, _MOST_DEVIATION))
        self._tail.restore(
            [_between('residual', r, -limit, limit) for r in residuals],
            _number(tail, 'offset', -_MOST_FRAMES, _MOST_FRAMES), samples, misses)
        self._tail_ratio = math.exp(self._tail.log_quantile)
        self.samples = int(_number(state, 'samples', 0.0, _MOST_FRAMES))
        self.resumed = True


def _table(state: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = state[key]
    if not isinstance(value, Mapping):
        raise TypeError(f'{key} is {type(value).__name__}: expected a mapping')
    return value


def _number(state: Mapping[str, object], key: str, least: float, most: float) -> float:
    return _between(key, state[key], least, most)


def _between(name: str, value: object, least: float, most: float) -> float:
    # Compared before it is made a float: an integer may be too large for one. No NaN passes.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (
            not least <= value <= most):
        raise ValueError(f'{name} is not a number from {least:g} to {most:g}')
    return float(value)
