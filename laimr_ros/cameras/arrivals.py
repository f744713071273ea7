"""When a camera takes its pictures: periodic, Poisson or bounded-Pareto, perhaps a burst."""

from __future__ import annotations

from dataclasses import dataclass
import math

import numpy as np

PROCESSES = ('periodic', 'poisson', 'bounded_pareto')


@dataclass(frozen=True)
class ArrivalSpec:
    """
    The law of the times between frames.

    :param process: ``periodic``, ``poisson`` or ``bounded_pareto``.
    :param rate_hz: mean rate outside the burst, in frames a second.
    :param jitter: ``periodic`` only: largest deviation of each frame from its beat, as a part of
        the period, 0 to 0.5. Deviations do not add up.
    :param pareto_shape: ``bounded_pareto`` only: exponent of the tail; lower is burstier.
    :param pareto_ratio: ``bounded_pareto`` only: longest interval over shortest.
    :param burst_start_s: when the burst begins, in seconds after the first frame.
    :param burst_duration_s: how long it lasts, in seconds; 0 for none.
    :param burst_factor: by how much the rate is multiplied then.
    :raises ValueError: for a law that cannot be.
    """

    process: str = 'periodic'
    rate_hz: float = 10.0
    jitter: float = 0.0
    pareto_shape: float = 1.5
    pareto_ratio: float = 100.0
    burst_start_s: float = 0.0
    burst_duration_s: float = 0.0
    burst_factor: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.process not in PROCESSES:
            raise ValueError(f'arrival process {self.process!r} is unknown; '
                             f'use one of {", ".join(PROCESSES)}')
        for name, low, high in (
            ('rate_hz', 1e-6, 1e6), ('jitter', 0.0, 0.5), ('pareto_shape', 0.05, 50.0),
            ('pareto_ratio', 1.000001, 1e9), ('burst_factor', 1e-6, 1e6),
            ('burst_duration_s', 0.0, math.inf), ('burst_start_s', 0.0, math.inf),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f'{name} is {value!r}; set a value from {low} to {high}')


class Arrivals:
    """
    A sequence of arrival times, the same for the same law and seed.

    :param spec: the law.
    :param seed: of the sequence.
    """

    def __init__(self, spec: ArrivalSpec, seed: int = 0) -> None:
        self.spec = spec
        self._random = np.random.default_rng([seed % 2**32, 4])
        self._beat_s: float | None = None  # Of the arrival before, without its jitter.

    def next(self) -> float:
        """Return the time of the next arrival, in seconds after the first; the first is at 0."""
        spec, before_s = self.spec, self._beat_s
        if before_s is None:
            self._beat_s = 0.0
            return 0.0
        self._beat_s = _advance(spec, before_s, self._interval())
        if spec.process != 'periodic' or not spec.jitter:
            return self._beat_s
        period_s = self._beat_s - before_s
        return self._beat_s + float(self._random.uniform(-1, 1)) * spec.jitter * period_s

    def change(self, spec: ArrivalSpec, now_s: float) -> None:
        """
        Change the law.

        :param spec: the law from now on.
        :param now_s: when the next interval begins, in seconds after the first arrival.
        """
        self.spec = spec
        if self._beat_s is not None:
            self._beat_s = now_s

    def _interval(self) -> float:
        """Return an interval in units of the mean interval."""
        process, random = self.spec.process, self._random
        if process == 'periodic':
            return 1.0
        if process == 'poisson':
            return float(random.exponential())
        shape, ratio = self.spec.pareto_shape, self.spec.pareto_ratio
        # The inverse of the bounded Pareto's distribution function, lower bound 1.
        u = float(random.random())
        value = (1.0 - u * (1.0 - ratio ** -shape)) ** (-1.0 / shape)
        return float(value / bounded_pareto_mean(shape, ratio))


def _advance(spec: ArrivalSpec, from_s: float, beats: float) -> float:
    """Return when so many mean intervals have passed since a time, given the burst."""
    now_s = from_s
    burst_end_s = spec.burst_start_s + spec.burst_duration_s
    for end_s, rate_hz in (
        (spec.burst_start_s, spec.rate_hz),
        (burst_end_s, spec.rate_hz * spec.burst_factor),
    ):
        if now_s < end_s:
            passed = (end_s - now_s) * rate_hz
            if passed >= beats:
                return now_s + beats / rate_hz
            beats -= passed
            now_s = end_s
    return now_s + beats / spec.rate_hz


def bounded_pareto_mean(shape: float, ratio: float) -> float:
    """
    Return the mean of a bounded Pareto law whose lower bound is 1.

    :param shape: exponent of the tail.
    :param ratio: upper bound over lower bound.
    """
    mass = 1.0 - ratio ** -shape
    if math.isclose(shape, 1.0, rel_tol=1e-9):
        return float(math.log(ratio) / mass)
    return float(shape / (shape - 1.0) * (1.0 - ratio ** (1.0 - shape)) / mass)
