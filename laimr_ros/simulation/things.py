"""The things of a simulated world: calls, workers, instances and pools."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
import math

from laimr_ros.simulation.scenarios import InstanceLaw, ModelLaw, PoolLaw, Scenario
from laimr_ros.simulation.workload import lognormal_law
import numpy as np

# Start-up times that the holder of replicas remembers, and the quantile it tells of them.
_REMEMBERED = 50
_TOLD = 0.9


class Call:
    """
    One sending of a frame to a worker.

    :ivar wanted: whether an answer is still waited for.
    :ivar half: time the frame needs to get there, and its answer back, in seconds.
    :ivar normal: decides its service time.
    """

    __slots__ = ('began', 'deadline', 'frame', 'half', 'law', 'normal', 'reached', 'service',
                 'timed', 'wanted', 'worker')

    def __init__(
        self, frame: int, worker: Worker, law: ServiceLaw, normal: float, half: float,
        deadline: float
    ) -> None:
        """Send it."""
        self.frame = frame
        self.worker = worker
        self.law = law
        self.normal = normal
        self.half = half
        self.deadline = deadline
        self.reached = self.began = self.service = 0.0
        self.wanted = True
        self.timed = False


class Worker:
    """
    One replica as it really is.

    :ivar known: whether the dispatcher may send to it.
    :ivar open: calls that the dispatcher waits for.
    """

    __slots__ = ('alive', 'born', 'known', 'name', 'open', 'pool', 'queue', 'serving', 'state')

    def __init__(self, name: str, pool: PoolWorld, born: float) -> None:
        """Start up."""
        self.name = name
        self.pool = pool
        self.born = born
        self.state = 'starting'
        self.alive = True
        self.known = False
        self.serving: Call | None = None
        self.queue: deque[Call] = deque()
        self.open: dict[int, Call] = {}


class InstanceWorld:
    """One hardware tier: CPUs reserved by replicas, and held by those that serve."""

    def __init__(self, law: InstanceLaw) -> None:
        """Start without replicas."""
        self.law = law
        self.reserved = 0.0
        self.held = law.background
        self.pools: list[PoolWorld] = []


class ServiceLaw:
    """Service times of one model on one instance."""

    def __init__(self, model: ModelLaw, instance: InstanceWorld) -> None:
        """Prepare."""
        self._instance = instance
        self._capacity = instance.law.capacity
        self._gamma = model.gamma
        self._mean = model.idle / instance.law.speed_up
        self.draw: Callable[[float], float] = (
            _exponential if model.law == 'exponential' else lognormal_law(1.0, model.cv))

    def mean(self) -> float:
        """Return the mean for a service that begins now, its own CPUs held already."""
        used: float = self._instance.held / self._capacity
        return float(self._mean * (1.0 + used ** self._gamma)) if used > 0.0 else self._mean


def _exponential(normal: float) -> float:
    """Return the unit exponential of the same probability as a standard normal number."""
    return -math.log(max(1e-300, 0.5 * math.erfc(normal / math.sqrt(2.0))))


class PoolWorld:
    """
    One pool: its workers, what its holder was asked for, and what was measured.

    :ivar pending: replicas that wait for room on the instance.
    :ivar started: start-ups so far.
    :ivar slow_down: factor on service times.
    :ivar cut: whether nothing passes to and from it.
    :ivar seconds: replica-seconds in the measured window.
    """

    def __init__(
        self, name: str, law: PoolLaw, instance: InstanceWorld, scenario: Scenario
    ) -> None:
        """Start without replicas."""
        self.name = name
        self.law = law
        self.instance = instance
        instance.pools.append(self)
        self.services = {
            model: ServiceLaw(scenario.models[model], instance) for model in law.models}
        self.network = lognormal_law(law.network.mean, law.network.cv)
        self.start_up = lognormal_law(law.start_up.mean, law.start_up.cv)
        self.workers: list[Worker] = []
        self.desired = law.initial_replicas
        self.pending = 0
        self.started = 0
        self.slow_down = 1.0
        self.cut = False
        self.recent: deque[float] = deque(maxlen=_REMEMBERED)
        self.seconds = 0.0
        self.log: list[tuple[float, int, int]] = []

    def count(self, state: str) -> int:
        """Return how many workers are in a state."""
        return sum(worker.state == state for worker in self.workers)

    def measured_start_up(self) -> float:
        """Return what the holder tells of start-up times, in seconds; 0 for nothing."""
        return float(np.quantile(self.recent, _TOLD)) if self.recent else 0.0
