"""Tell soon that arrivals come faster than they did: a Poisson CUSUM."""

from __future__ import annotations

from functools import lru_cache
import math

# Up to this threshold run lengths are computed exactly; beyond it they grow by the ratio.
_EXACT_UP_TO = 10.0
_TABLE_STEP = 0.125


def _scale_function(x: float, k: float) -> float:
    """Return ``W(x)`` of the process that gains ``k`` a unit of time and loses 1 an arrival."""
    total = 0.0
    for n in range(int(x) + 1):
        y = (x - n) / k
        total += math.exp(y) * (-y) ** n / math.factorial(n)
    return total / k


def mean_arrivals_to_alarm(threshold: float, ratio: float) -> float:
    """
    Return after how many arrivals, on average, steady Poisson traffic sets off the alarm.

    ``E T = W(h)^2 / W'(h) - integral of W from 0 to h``, the mean time for a spectrally negative
    process to fall ``h`` below its maximum (Avram, Kyprianou and Pistorius 2004, Annals of
    Applied Probability 14), with ``W`` in closed form for Poisson arrivals.

    :param threshold: ``h``, in arrivals, >= 0.
    :param ratio: ``l1 / l0``, > 1.
    """
    log_ratio = math.log(ratio)
    k = (ratio - 1.0) / log_ratio
    h = min(threshold, _EXACT_UP_TO)
    value = _scale_function(h, k)
    slope = (value - (_scale_function(h - 1.0, k) if h >= 1.0 else 0.0)) / k
    # Simpson on pieces of unit length, within which W is smooth.
    integral, left = 0.0, 0.0
    while left < h:
        right = min(left + 1.0, h)
        cells = 8
        width = (right - left) / cells
        for i in range(cells + 1):
            weight = 1.0 if i in (0, cells) else 4.0 if i % 2 else 2.0
            # At the right end of a piece W is continuous, so either side will do.
            integral += weight * _scale_function(left + i * width, k) * width / 3.0
        left = right
    exact = value * value / slope - integral
    # The mean grows as ratio ** h once h is large.
    return exact * math.pow(ratio, threshold - h)


@lru_cache(maxsize=32)
def _run_lengths(ratio: float) -> tuple[float, ...]:
    return tuple(
        mean_arrivals_to_alarm(_TABLE_STEP * i, ratio)
        for i in range(int(_EXACT_UP_TO / _TABLE_STEP) + 1))


def threshold_for(arrivals: float, ratio: float) -> float:
    """
    Return the CUSUM threshold with a mean of so many arrivals between false alarms.

    :param arrivals: arrivals between false alarms.
    :param ratio: ``l1 / l0``, > 1.
    """
    table = _run_lengths(ratio)
    if arrivals >= table[-1]:
        return _EXACT_UP_TO + math.log(arrivals / table[-1]) / math.log(ratio)
    low, high = 0, len(table) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if table[middle] <= arrivals else (low, middle)
    part = (arrivals - table[low]) / (table[high] - table[low])
    return _TABLE_STEP * (low + min(1.0, max(0.0, part)))


class BurstAlarm:
    """
    Poisson CUSUM: ``S = max(0, S + x - k)`` with ``k = (l1 - l0) / ln(l1 / l0)`` (Lucas 1985).

    Up as soon as ``S`` reaches its threshold, which is set so that Poisson traffic at the rate
    ``l0`` raises it once in ``false_alarm_interval`` seconds on average; down again when ``S``
    has fallen under half of it. ``S`` stops at the threshold, so the alarm ends soon after the
    burst. Overdispersed traffic has its counts divided by its index of dispersion, so that it
    does not alarm more often.

    :param ratio: the burst to be told, as a multiple of the rate before, > 1.
    :param false_alarm_interval: mean time between false alarms, in seconds, > 0.
    :raises ValueError: for a value out of its range.
    """

    # Below this rate nothing is a burst that scaling has to hear of, in frames a second.
    _LEAST_RATE = 0.1

    __slots__ = ('_false_alarm_interval', '_ratio', '_slope', '_sum', '_threshold', '_traffic',
                 'up')

    def __init__(self, ratio: float = 2.0, false_alarm_interval: float = 3600.0) -> None:
        """Start quiet."""
        if not (ratio > 1.0 and math.isfinite(ratio)):
            raise ValueError(f'burst ratio is {ratio}: give a number above 1, such as 2')
        if not false_alarm_interval > 0.0:
            raise ValueError(
                f'false alarm interval is {false_alarm_interval}: give seconds above 0')
        self._ratio = ratio
        self._false_alarm_interval = false_alarm_interval
        self._slope = (ratio - 1.0) / math.log(ratio)
        self._sum = 0.0
        self._threshold = math.inf
        self._traffic = (-1.0, 0.0)
        self.up = False

    def update(
        self, count: float, seconds: float, baseline: float, dispersion: float = 1.0
    ) -> bool:
        """
        Take the arrivals of a short while; return whether the alarm is up.

        :param count: arrivals.
        :param seconds: the time they came in, much shorter than the burst to be told.
        :param baseline: rate before the burst, in arrivals per second.
        :param dispersion: index of dispersion of the traffic; taken as 1 if less.
        """
        if (baseline, dispersion) != self._traffic:
            self._traffic = baseline, dispersion
            spread = max(1.0, dispersion)
            self._threshold = spread * threshold_for(
                max(baseline, self._LEAST_RATE) * self._false_alarm_interval / spread,
                self._ratio)
        baseline = max(baseline, self._LEAST_RATE)
        threshold = self._threshold
        value = self._sum + count - self._slope * baseline * seconds
        if value >= threshold:
            value = threshold
            self.up = True
        elif value < 0.5 * threshold:
            self.up = False
        self._sum = max(0.0, value)
        return self.up

    def would_be_up(self, count: float, seconds: float, baseline: float) -> bool:
        """Return what :meth:`update` would, for a while that has not ended; nothing changes."""
        value = self._sum + count - self._slope * max(baseline, self._LEAST_RATE) * seconds
        return value >= self._threshold or (self.up and value >= 0.5 * self._threshold)

    def reset(self) -> None:
        """Start anew, quiet."""
        self._sum = 0.0
        self.up = False
