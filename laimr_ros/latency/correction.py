"""Keep a prediction true: learn from each served frame how far off the model is."""

from __future__ import annotations

import math

# A single frame may move the correction by this factor at most, so that one outlier (a page
# fault, a paused host) does not turn every later decision.
_MAX_STEP_RATIO = 8.0


class Correction:
    """
    Multiplicative correction of the service-time model, for one model on one pool.

    The mean ratio is a running average over the last frames; the tail ratio is tracked by
    adaptive conformal inference, ``q += eta (1{r > q} - alpha)`` with ``r = log(actual /
    predicted mean)`` (Gibbs and Candes 2021, arXiv 2106.00170).

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
        self._log_mean = 0.0
        self._log_tail = math.log(max(tail_ratio, 1.0))
        self.samples = 0

    @property
    def mean_ratio(self) -> float:
        """Return actual over modelled mean service time."""
        return math.exp(self._log_mean)

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
        ratio = math.log(actual / modelled)
        limit = math.log(_MAX_STEP_RATIO)
        step = min(limit, max(-limit, ratio - self._log_mean))
        self.samples += 1
        # The first frames weigh fully, so a wrong starting value is gone after a few of them.
        self._log_mean += step / min(self.samples, self._memory)
        above = 1.0 if ratio - self._log_mean > self._log_tail else 0.0
        self._log_tail += self._eta * (above - self._alpha)
        self._log_tail = min(limit, max(0.0, self._log_tail))
