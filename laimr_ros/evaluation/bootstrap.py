"""How sure a number is that was made of a few seeds: percentile bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_RESAMPLES = 2000


def interval(
    statistic: Callable[[Floats], Floats], values: npt.ArrayLike, *, level: float = 0.95
) -> tuple[float, float]:
    """
    Return the percentile bootstrap interval of a statistic (Efron and Tibshirani 1993, ch. 13).

    What is drawn again is the first axis, the seed: whatever else a seed has stays together, so
    that policies compared under common random numbers stay paired. The draws are always the same.

    :param statistic: from samples, shape (resamples, seeds, ...), to one number each.
    :param values: shape (seeds, ...).
    :param level: share of the resamples within the interval.
    :return: both ends, of the resamples in which the statistic is a number; NaN for fewer than two
        seeds, which tell nothing of their scatter.
    """
    sample = np.asarray(values, np.float64)
    count = len(sample)
    if count < 2:
        return math.nan, math.nan
    chosen = np.random.default_rng(1).integers(count, size=(_RESAMPLES, count))
    with np.errstate(invalid='ignore', divide='ignore'):
        found = statistic(sample[chosen])
    # A ratio of no scatter to no scatter, where one seed was drawn every time, is no number.
    found = np.sort(found[~np.isnan(found)])
    if not len(found):
        return math.nan, math.nan
    # Order statistics rather than interpolation, which makes NaN of two infinities.
    tail = 0.5 * (1.0 - level)
    low = found[math.floor(tail * (len(found) - 1))]
    high = found[math.ceil((1.0 - tail) * (len(found) - 1))]
    return float(low), float(high)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median."""
    return interval(lambda samples: np.asarray(np.median(samples, axis=1)), values)
