"""Forms that a mean service time can have in the arrival rate, ready to be fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_GAMMAS = (0.5, 1.0, 1.5, 2.5)
GAMMA_RANGE = (0.05, 5.0)


class Curve(Protocol):
    """A form with parameters."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters, in order."""

    @property
    def bounds(self) -> tuple[Sequence[float], Sequence[float]]:
        """Return lowest and highest values of the parameters."""

    def mean(self, values: Floats, rate: Floats) -> Floats:
        """
        Return mean service times in seconds.

        :param values: of the parameters, shape (..., parameters).
        :param rate: frames/s for each replica, shape (points,).
        :return: shape (..., points).
        """

    def starts(self, rate: Floats, service: Floats) -> list[Floats]:
        """Return values from which to look for the best ones."""


@dataclass(frozen=True)
class Constant:
    """``alpha``, whatever the rate."""

    names: tuple[str, ...] = ('alpha',)
    bounds: tuple[Sequence[float], Sequence[float]] = ((1e-9,), (np.inf,))

    def mean(self, values: Floats, rate: Floats) -> Floats:
        """Return mean service times in seconds."""
        return values[..., :1] + 0.0 * rate

    def starts(self, rate: Floats, service: Floats) -> list[Floats]:
        """Return the median."""
        return [np.array([np.median(service)])]


@dataclass(frozen=True)
class Power:
    """
    ``alpha + beta * rate ** gamma``.

    :param gamma: its value where it is not to be fitted.
    """

    gamma: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters."""
        return ('alpha', 'beta', 'gamma') if self.gamma is None else ('alpha', 'beta')

    @property
    def bounds(self) -> tuple[Sequence[float], Sequence[float]]:
        """Return the ranges; ``beta`` may be negative, so that an interval can hold 0."""
        low, high = (1e-9, -np.inf), (np.inf, np.inf)
        if self.gamma is not None:
            return low, high
        return (*low, GAMMA_RANGE[0]), (*high, GAMMA_RANGE[1])

    def mean(self, values: Floats, rate: Floats) -> Floats:
        """Return mean service times in seconds."""
        gamma: Any = values[..., 2:3] if self.gamma is None else self.gamma
        result: Floats = values[..., :1] + values[..., 1:2] * np.power(rate, gamma)
        return result

    def starts(self, rate: Floats, service: Floats) -> list[Floats]:
        """Return the straight line in ``rate ** gamma``, for some gammas."""
        found = []
        for gamma in _GAMMAS if self.gamma is None else (self.gamma,):
            design = np.stack([np.ones_like(rate), rate ** gamma], 1) / service[:, None]
            alpha, beta = np.linalg.lstsq(design, np.ones_like(rate), rcond=None)[0]
            alpha = max(float(alpha), 1e-3 * float(np.median(service)))
            values = [alpha, float(beta)] + ([gamma] if self.gamma is None else [])
            found.append(np.array(values))
        return found


@dataclass(frozen=True)
class Utilisation:
    """
    ``service * (1 + ((rate * resource + background) / capacity) ** gamma)``.

    ``service`` is ``L_m / S``: only with a reference latency ``L_m`` from elsewhere does it say
    the speed-up, ``L_m / service``.

    :param resource: ``R_m`` of one inference, known.
    :param capacity: ``R_max`` of the instance, in the same unit a second, known.
    :param background: ``B`` where it is known and not to be fitted.
    """

    resource: float
    capacity: float
    background: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters."""
        return ('service', 'gamma', 'background')[:3 if self.background is None else 2]

    @property
    def bounds(self) -> tuple[Sequence[float], Sequence[float]]:
        """Return the ranges."""
        low, high = (1e-9, GAMMA_RANGE[0]), (np.inf, GAMMA_RANGE[1])
        if self.background is not None:
            return low, high
        return (*low, 0.0), (*high, self.capacity)

    def mean(self, values: Floats, rate: Floats) -> Floats:
        """Return mean service times in seconds."""
        background: Any = values[..., 2:3] if self.background is None else self.background
        used = (rate * self.resource + background) / self.capacity
        result: Floats = values[..., :1] * (1.0 + np.power(used, values[..., 1:2]))
        return result

    def starts(self, rate: Floats, service: Floats) -> list[Floats]:
        """Return a grid of gammas and backgrounds."""
        found = []
        backgrounds = [0.02, 0.2, 0.5] if self.background is None else [0.0]
        for gamma in _GAMMAS:
            for share in backgrounds:
                values = np.array([1.0, gamma, share * self.capacity][:len(self.names)])
                values[0] = float(np.median(service / self.mean(values, rate)))
                found.append(values)
        return found
