"""What a controller can be told of service times on an instance that replicas share."""

from __future__ import annotations

from dataclasses import dataclass, field
import math

from laimr_ros.latency.model import lognormal_quantile
from laimr_ros.simulation.scenarios import Scenario

# Points of the table that the mean is read from.
_POINTS = 256


@dataclass(frozen=True)
class SharedInstance:
    """
    ``idle (1 + U ** gamma)`` with the utilisation that the services themselves bring about.

    The exact form of arXiv 2505.07417, section III, with ``R_m`` the CPUs of a replica for as
    long as it serves: ``U = (cpus (rate S + 1) + background) / capacity``, solved for ``S``. More
    replicas do not make services quicker, as the per-replica form has it; rather fewer of them
    cannot use more of the instance than they have.

    :param idle: mean service time on the idle instance, in seconds.
    :param cpus: of one replica.
    :param capacity: ``R_max``, in CPUs.
    :param background: CPUs that others use.
    :param cv: coefficient of variation about the mean.
    """

    idle: float
    cpus: float
    capacity: float
    gamma: float = 1.0
    background: float = 0.0
    cv: float = 0.15
    _table: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _step: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Solve it for rates up to the one that fills the instance."""
        full = self.idle * 2.0
        most = max(0.0, (self.capacity - self.background) / self.cpus - 1.0) / full
        step = most / (_POINTS - 1)
        table = []
        used = (self.cpus + self.background) / self.capacity
        for k in range(_POINTS):
            # From below, so the least of the solutions is found; it rises with the rate.
            for _ in range(1000):
                service = self.idle * (1.0 + min(1.0, used) ** self.gamma)
                after = min(1.0, (self.cpus * (k * step * service + 1.0) + self.background)
                            / self.capacity)
                if after - used <= 1e-9:
                    break
                used = after
            table.append(used)
        object.__setattr__(self, '_table', tuple(table))
        object.__setattr__(self, '_step', step)

    def utilisation(self, rate: float, replicas: int) -> float:
        """Return ``U`` as a service that begins finds it, itself included; at most 1."""
        bound = min(1.0, (replicas * self.cpus + self.background) / self.capacity)
        if rate <= 0.0:
            return min(bound, self._table[0])
        place = rate / self._step if self._step > 0.0 else math.inf
        if place >= _POINTS - 1:
            return bound
        k = int(place)
        low = self._table[k]
        return min(bound, low + (place - k) * (self._table[k + 1] - low))

    def mean(self, rate: float, replicas: int) -> float:
        """Return the mean service time in seconds; infinite without replicas."""
        if replicas <= 0 or not rate < math.inf:
            return math.inf
        return self.idle * (1.0 + math.pow(self.utilisation(rate, replicas), self.gamma))

    def quantile(self, p: float, rate: float, replicas: int) -> float:
        """Return the ``p`` quantile of the service time in seconds."""
        return lognormal_quantile(self.mean(rate, replicas), self.cv, p)


def shared_instance(
    scenario: Scenario, pool: str, model: str, gamma: float | None = None
) -> SharedInstance:
    """
    Return the service times of a model in a pool of a scenario, as they are simulated.

    :param gamma: another exponent.
    """
    law, true = scenario.pools[pool], scenario.models[model]
    instance = scenario.instances[law.instance]
    return SharedInstance(
        true.idle / instance.speed_up, law.cpus, instance.capacity,
        true.gamma if gamma is None else gamma, instance.background, true.cv)
