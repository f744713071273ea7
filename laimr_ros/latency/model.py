"""
Service time and network time of one frame.

Two views of the service time are kept apart, because for ``gamma != 1`` neither follows from the
other: :class:`PowerLaw` is an *empirical fit* in the arrival rate each replica sees (the form used
for control, arXiv 2505.07417 section III); the exact form, in the utilisation of an instance that
several models may share, is :class:`~laimr_ros.latency.utilisation.UtilisationLaw`. Both are a
:class:`ServiceModel`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
import math
from statistics import NormalDist
from typing import Protocol


@lru_cache(maxsize=256)
def normal_quantile(p: float) -> float:
    """Return the standard normal quantile. :raises ValueError: unless ``0 < p < 1``."""
    return NormalDist().inv_cdf(p)


def lognormal_quantile(mean: float, cv: float, p: float) -> float:
    """
    Return the ``p`` quantile of a lognormal variable.

    ``mean * exp(z_p * s - s**2 / 2)`` with ``s**2 = ln(1 + cv**2)`` (Johnson, Kotz and
    Balakrishnan, Continuous Univariate Distributions 1, ch. 14).

    :param mean: mean, in any unit.
    :param cv: coefficient of variation, 0 for a constant.
    """
    if cv <= 0.0 or mean <= 0.0:
        return mean
    variance = math.log1p(cv * cv)
    return mean * math.exp(normal_quantile(p) * math.sqrt(variance) - variance / 2.0)


class ServiceModel(Protocol):
    """How long a worker is busy with one frame, given the load its replica carries."""

    @property
    def cv(self) -> float:
        """Return the coefficient of variation of the service time at fixed load."""

    def mean(self, rate: float, replicas: int) -> float:
        """Return the mean service time in seconds at ``rate`` frames/s over ``replicas``."""

    def quantile(self, p: float, rate: float, replicas: int) -> float:
        """Return the ``p`` quantile of the service time in seconds."""


@dataclass(frozen=True)
class PowerLaw:
    """
    Service time ``alpha + beta * (rate / replicas)**gamma``, lognormal about that mean.

    An empirical fit (arXiv 2505.07417, per-replica form), not a derivation.

    :param alpha: service time of an idle replica in seconds, > 0.
    :param beta: slowdown in seconds at one frame/s per replica, >= 0.
    :param gamma: exponent, >= 0.
    :param cv: coefficient of variation about the mean, >= 0.
    :raises ValueError: for a value out of its range.
    """

    alpha: float
    beta: float = 0.0
    gamma: float = 1.0
    cv: float = 0.15

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not (math.isfinite(self.alpha) and self.alpha > 0.0):
            raise ValueError(f'alpha is {self.alpha}: give the idle service time in seconds, > 0')
        for name in ('beta', 'gamma', 'cv'):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f'{name} is {value}: give a number >= 0')

    def mean(self, rate: float, replicas: int) -> float:
        """Return the mean service time in seconds; infinite without replicas or for no rate."""
        if replicas <= 0 or not rate < math.inf:
            return math.inf
        if rate <= 0.0 or self.beta == 0.0:
            return self.alpha
        try:
            return self.alpha + self.beta * math.pow(rate / replicas, self.gamma)
        except OverflowError:
            return math.inf

    def quantile(self, p: float, rate: float, replicas: int) -> float:
        """Return the ``p`` quantile of the service time in seconds."""
        return lognormal_quantile(self.mean(rate, replicas), self.cv, p)


@dataclass(frozen=True)
class Network:
    """
    Network round trip of one frame, lognormal.

    :param mean: mean round trip in seconds, >= 0.
    :param cv: coefficient of variation, >= 0.
    :raises ValueError: for a negative or infinite value.
    """

    mean: float = 0.001
    cv: float = 0.3

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ('mean', 'cv'):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f'network {name} is {value}: give a number >= 0')

    def quantile(self, p: float) -> float:
        """Return the ``p`` quantile of the round trip in seconds."""
        return lognormal_quantile(self.mean, self.cv, p)
