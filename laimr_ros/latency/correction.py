"""Keep a prediction true: learn from each served frame how far off the model is."""

from __future__ import annotations

import math

# A single frame counts as at most this many times faster or slower than what is believed, so
# that one outlier (a page fault, a paused host) does not turn every later decision.
_MAX_STEP_RATIO = 8.0
# Beyond this no correction is believed: it is a broken clock, not a slow worker.
_LONGEST_RATIO = 1e6


class Correction:
    """
    Multiplicative correction of the service-time model, for one model on one pool.

    The mean ratio is a running arithmetic mean over the last frames (scaling multiplies rates
    with it, so a mean of logarithms would be too low); the tail ratio is tracked by adaptive
    conformal inference, ``q += eta (1{r > q} - alpha)`` with ``r = log(actual / predicted
    mean)`` (Gibbs and Candes 2021, arXiv 2106.00170).

    :param tail: the quantile to be covered, 0 to 1.
    :param tail_ratio: first guess of quantile over mean, from the model.
    :param memory: frames that the running average remembers.
    :param eta: step of the tail tracker, in log units.
    """

    def __init__(
        self, tail: float, tail_ratio: float, *, memory: int = 50, eta: float = 0.05
    ) -> None:
        """Start without evidence: the model is believed."""
        self._alpha = 1.0 - tail
        self._eta = eta
        self._memory = memory
        self._mean = 1.0
        self._log_tail = math.log(max(tail_ratio, 1.0))
        self.samples = 0

    @property
    def mean_ratio(self) -> float:
        """Return actual over modelled mean service time."""
        return self._mean

    @property
    def tail_ratio(self) -> float:
        """Return the tracked quantile over the *corrected* mean, at least 1."""
        return math.exp(max(0.0, self._log_tail))

    def update(self, modelled: float, actual: float) -> None:
        """
        Learn from one served frame.

        :param modelled: the model's own mean service time, uncorrected, in seconds.
        :param actual: the measured service time in seconds.
        """
        if not (modelled > 0.0 and actual > 0.0 and math.isfinite(modelled)):
            return
        ratio = actual / modelled
        mean = self._mean
        seen = min(mean * _MAX_STEP_RATIO, max(mean / _MAX_STEP_RATIO, ratio))
        self.samples += 1
        # The first frames weigh fully, so a wrong starting value is gone after a few of them.
        mean += (seen - mean) / min(self.samples, self._memory)
        self._mean = mean = min(_LONGEST_RATIO, max(1.0 / _LONGEST_RATIO, mean))
        above = 1.0 if ratio > mean * math.exp(self._log_tail) else 0.0
        self._log_tail += self._eta * (above - self._alpha)
        self._log_tail = min(math.log(_MAX_STEP_RATIO), max(0.0, self._log_tail))
