"""
The exact form of the service time: a function of how busy the whole instance is.

``(L_m / S_mi) (1 + U_i ** gamma)`` with ``U_i = (sum lambda_m R_m + B_i) / R_max_i`` (arXiv
2505.07417, section III). All models on an instance share its ``U_i``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math

from laimr_ros.latency.model import lognormal_quantile, PowerLaw


@dataclass(frozen=True)
class Demand:
    """
    What one model asks of an instance.

    :param model: its name.
    :param rate: frames per second.
    :param resource: ``R_m``, what one inference takes, for example CPU-seconds.
    """

    model: str
    rate: float
    resource: float = 1.0


@dataclass(frozen=True)
class InstanceLoad:
    """
    What an instance can do, and what it carries.

    :param capacity: ``R_max``, for example CPUs.
    :param background: ``B``, what others use of it, in the same unit.
    :param demands: of the models on it.
    :param each_replica: whether every replica brings capacity (and background) of its own, as a
        pod with a CPU limit does, and demands are spread evenly over them; otherwise all replicas
        share one capacity.
    :raises ValueError: for a value out of its range.
    """

    capacity: float
    background: float = 0.0
    demands: tuple[Demand, ...] = ()
    each_replica: bool = False

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.0 < self.capacity < math.inf:
            raise ValueError(f'capacity is {self.capacity}: give a number > 0')
        if not 0.0 <= self.background < math.inf:
            raise ValueError(f'background is {self.background}: give a number >= 0')
        names = [demand.model for demand in self.demands]
        if len(set(names)) != len(names):
            raise ValueError(f'demands are of {names}: give every model once')

    def with_demand(self, demand: Demand) -> InstanceLoad:
        """Return the load with one model's demand put in place of what it asked for before."""
        return replace(self, demands=(
            *(d for d in self.demands if d.model != demand.model), demand))

    def utilisation(self, replicas: int = 1) -> float:
        """Return ``U``: 1 is all there is; infinite without replicas, or for no rate."""
        if replicas <= 0:
            return math.inf
        asked = sum(max(d.rate, 0.0) * d.resource if d.rate == d.rate else math.inf
                    for d in self.demands)
        if self.each_replica:
            asked /= replicas
        used = (asked + self.background) / self.capacity
        return used if used == used else math.inf


@dataclass(frozen=True)
class UtilisationLaw:
    """
    Service time ``(reference / speed_up) (1 + U ** gamma)``, lognormal about that mean.

    :param model: name, as in the demands of the instance.
    :param reference: ``L_m``, service time on idle reference hardware, in seconds.
    :param load: of the instance; what it says of this model's own rate is not used.
    :param speed_up: ``S_mi``, how much faster the instance is than the reference hardware.
    :param gamma: exponent, > 0.
    :param resource: ``R_m``, what one inference takes of the capacity.
    :param cv: coefficient of variation about the mean.
    :raises ValueError: for a value out of its range.
    """

    model: str
    reference: float
    load: InstanceLoad
    speed_up: float = 1.0
    gamma: float = 1.0
    resource: float = 1.0
    cv: float = 0.15

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ('reference', 'speed_up', 'gamma'):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f'{name} is {getattr(self, name)}: give a number > 0')
        for name in ('resource', 'cv'):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f'{name} is {getattr(self, name)}: give a number >= 0')

    def utilisation(self, rate: float, replicas: int) -> float:
        """Return ``U`` of the instance with this model at a rate, the others as they are."""
        return self.load.with_demand(
            Demand(self.model, rate, self.resource)).utilisation(replicas)

    def mean(self, rate: float, replicas: int) -> float:
        """
        Return the mean service time in seconds.

        Infinite from ``U = 1`` on: what is asked for more than there is has no steady state,
        whatever the formula may give.
        """
        used = self.utilisation(rate, replicas)
        if used >= 1.0:
            return math.inf
        return self.reference / self.speed_up * (1.0 + math.pow(used, self.gamma))

    def quantile(self, p: float, rate: float, replicas: int) -> float:
        """Return the ``p`` quantile of the service time in seconds."""
        return lognormal_quantile(self.mean(rate, replicas), self.cv, p)

    def as_power_law(self, replicas: int = 1) -> PowerLaw:
        """
        Return the affine per-replica form that is *the same function* below saturation.

        With ``base`` the utilisation without this model and ``slope`` what one frame/s on each
        replica adds to it (``R / R_max``; times ``replicas`` where they share one capacity):

        * ``gamma = 1``: ``alpha = L / S (1 + base)``, ``beta = L / S slope``, ``gamma = 1``;
        * ``base = 0``: ``alpha = L / S``, ``beta = L / S slope ** gamma``, the same ``gamma``.

        :param replicas: their number, which ``base`` and ``slope`` may depend on.
        :raises ValueError: otherwise: ``(base + slope x) ** gamma`` is not affine in
            ``x ** gamma``, and a power law can only be fitted to it.
        """
        base = self.utilisation(0.0, replicas)
        slope = self.resource / self.load.capacity
        if not self.load.each_replica:
            slope *= replicas
        alone = self.reference / self.speed_up
        if self.gamma == 1.0 and base < math.inf:
            return PowerLaw(alone * (1.0 + base), alone * slope, 1.0, self.cv)
        if base == 0.0:
            return PowerLaw(alone, alone * math.pow(slope, self.gamma), self.gamma, self.cv)
        raise ValueError(
            f'gamma is {self.gamma:g} and the instance is used to {base:.3g} without '
            f'{self.model!r}: no power law in its rate is the same; fit one instead')
