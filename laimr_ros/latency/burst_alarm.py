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
    Poisson CUSUM: ``S = max(0, S - k dt) + 1`` at each arrival, ``k = (l1 - l0) / ln(l1 / l0)``.

    Lucas 1985, Technometrics 27, in continuous time. Up as soon as ``S`` reaches its threshold,
    which is set so that Poisson traffic at the rate ``l0`` raises it once in
    ``false_alarm_interval`` seconds on average; down again when ``S`` has fallen under half of
    it. ``S`` stops at the threshold, so the alarm ends soon after the burst. Overdispersed
    traffic has its counts divided by its index of dispersion, so that it does not alarm more
    often. Start: quiet until :meth:`expect` has told what is normal.

    :param ratio: the burst to be told, as a multiple of the rate before, > 1.
    :param false_alarm_interval: mean time between false alarms, in seconds, > 0.
    :raises ValueError: for a value out of its range.
    """

    # Below this rate nothing is a burst that scaling has to hear of, in frames a second.
    _LEAST_RATE = 0.1

    __slots__ = ('_drift', '_false_alarm_interval', '_last', '_ratio', '_slope', '_sum',
                 '_threshold', '_up')

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
        self._drift = 0.0
        self._threshold = math.inf
        self._sum = self._last = 0.0
        self._up = False

    def expect(self, baseline: float, dispersion: float = 1.0) -> None:
        """
        Say what is normal from now on.

        :param baseline: usual arrivals per second.
        :param dispersion: index of dispersion of the traffic; taken as 1 if less.
        """
        baseline = max(baseline, self._LEAST_RATE)
        spread = max(1.0, dispersion)
        self._drift = self._slope * baseline
        self._threshold = spread * threshold_for(
            baseline * self._false_alarm_interval / spread, self._ratio)

    def add(self, now: float) -> None:
        """Count one arrival at time ``now`` (seconds; never earlier than the last call)."""
        value = self._sum - self._drift * (now - self._last)
        self._last = now
        if value < 0.0:
            value = 0.0
        if self._up and value < 0.5 * self._threshold:
            self._up = False
        value += 1.0
        if value >= self._threshold:
            value = self._threshold
            self._up = True
        # Without a baseline there is nothing to add up.
        self._sum = value if self._drift else 0.0

    def up(self, now: float) -> bool:
        """Return whether the alarm is up."""
        if self._up and self._sum - self._drift * (now - self._last) < 0.5 * self._threshold:
            return False
        return self._up

    def reset(self) -> None:
        """Start anew, quiet, without a baseline."""
        self._sum = self._drift = 0.0
        self._threshold = math.inf
        self._up = False
