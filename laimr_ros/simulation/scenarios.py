"""What a simulated world consists of, and what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
import math
from typing import Any

from laimr_ros.control.nouns import (
    Configuration,
    Instance,
    Lane,
    Limits,
    Network,
    Pool,
    PowerLaw,
)

PROCESSES = ('bounded_pareto', 'poisson', 'periodic', 'trace')
MODULATIONS = ('none', 'surge', 'mmpp')
LAWS = ('lognormal', 'exponential')
FAULTS = ('replica_death', 'link_cut', 'slow_down')


class ScenarioError(ValueError):
    """A scenario cannot be used; the message names the thing, the value and the fix."""


@dataclass(frozen=True)
class ArrivalLaw:
    """
    The law of one robot's times between frames; its mean rate is the scenario's matter.

    :param trace: CSV file with columns ``time_s, robot, lane``, for process ``trace``.
    """

    process: str = 'bounded_pareto'
    pareto_shape: float = 1.5
    pareto_ratio: float = 100.0
    jitter: float = 0.0
    trace: str = ''


@dataclass(frozen=True)
class Modulation:
    """
    A factor over time that multiplies all robots' rates.

    :param factor: within a surge, which lasts ``duration`` seconds of each ``period``.
    :param factors: of each state of a Markov-modulated process, ``sojourns`` its mean stays in
        seconds.
    """

    kind: str = 'none'
    factor: float = 1.0
    duration: float = 10.0
    period: float = 60.0
    factors: tuple[float, ...] = ()
    sojourns: tuple[float, ...] = ()


@dataclass(frozen=True)
class Lognormal:
    """A lognormal law by mean (seconds) and coefficient of variation."""

    mean: float
    cv: float = 0.0


@dataclass(frozen=True)
class ModelLaw:
    """
    True service time of a model: ``idle / speed_up * (1 + U ** gamma)`` on the mean.

    ``U`` is the share of its instance's CPUs that replicas hold when the service begins, this
    one included; as :class:`laimr_ros.detectors.emulated.EmulatedDetector` has it.

    :param idle: mean on an idle instance of speed-up 1, in seconds.
    :param law: ``lognormal`` with ``cv``, or ``exponential``.
    """

    idle: float
    cv: float = 0.15
    gamma: float = 1.0
    law: str = 'lognormal'


@dataclass(frozen=True)
class InstanceLaw:
    """
    A hardware tier.

    :param capacity: ``R_max``, in CPUs.
    :param background: CPUs that others use.
    """

    capacity: float = math.inf
    speed_up: float = 1.0
    background: float = 0.0


@dataclass(frozen=True)
class PoolLaw:
    """
    Replicas that are alike.

    :param cpus: of one replica: held while it serves a frame, and what limits their number.
    :param models: what the controller is told of each model's service time here.
    """

    instance: str
    models: Mapping[str, PowerLaw]
    cpus: float = 1.0
    min_replicas: int = 1
    max_replicas: int = 1
    initial_replicas: int = 1
    max_in_flight: int = 1
    network: Lognormal = Lognormal(0.0)
    start_up: Lognormal = Lognormal(0.0)


@dataclass(frozen=True)
class LaneLaw:
    """
    One lane, see :class:`laimr_ros.control.nouns.Lane`.

    :param share: part of the robots that ask for it.
    """

    model: str
    slo: float
    pools: tuple[str, ...]
    share: float = 1.0
    supersede: bool = False
    late_answers: bool = True
    late_by: float | None = None
    out_of_order: bool = True
    max_queue: int = 100_000


@dataclass(frozen=True)
class Fault:
    """
    What goes wrong.

    :param kind: ``replica_death``: replicas of a pool die, ``every`` so many seconds on the mean;
        ``link_cut``: nothing passes between dispatcher and pool for ``duration`` seconds, which
        the dispatcher notices after ``detect`` seconds; ``slow_down``: service times are
        multiplied by ``factor`` from then on.
    :param pool: where; empty for everywhere (``slow_down`` only).
    :param at_share: when, as a part of the measured window.
    """

    kind: str
    pool: str = ''
    at_share: float = 0.0
    every: float = math.inf
    duration: float = 0.0
    detect: float = 6.0
    factor: float = 1.0


@dataclass(frozen=True)
class Scenario:
    """
    A world and what is asked of it.

    :param rate: frames per second of all robots together, before modulation.
    :param warm_up: not measured, in seconds.
    :param measured: seconds after it in which every frame counts.
    :param dispatchers: each has its share of robots and replicas and knows nothing of the others.
    :param actuation: from asking for a replica until its holder acts, in seconds.
    """

    name: str
    lanes: Mapping[str, LaneLaw]
    pools: Mapping[str, PoolLaw]
    instances: Mapping[str, InstanceLaw]
    models: Mapping[str, ModelLaw]
    robots: int = 1
    rate: float = 1.0
    warm_up: float = 0.0
    measured: float = 60.0
    dispatchers: int = 1
    actuation: float = 0.0
    arrivals: ArrivalLaw = field(default_factory=ArrivalLaw)
    modulation: Modulation = field(default_factory=Modulation)
    faults: tuple[Fault, ...] = ()
    description: str = ''

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        for problem in _problems(self):
            raise ScenarioError(f'scenario {self.name}: {problem}')

    @property
    def end(self) -> float:
        """Return when the last frame is captured at the latest, in seconds."""
        return self.warm_up + self.measured

    def at_rate(self, rate: float) -> Scenario:
        """Return the scenario at another total rate, in frames per second."""
        return replace(self, rate=rate)

    def configuration(
        self, policy: str = 'laimr', limits: Mapping[str, float] | None = None,
        pool_order: str = 'listed'
    ) -> Configuration:
        """
        Return what the controller is told.

        :param limits: those that differ from :class:`~laimr_ros.control.nouns.Limits`' defaults.
        :param pool_order: of every lane. A replica-second costs the same in every pool.
        """
        return Configuration(
            {name: Lane(name, lane.model, lane.slo, lane.pools, lane.supersede, lane.max_queue,
                        lane.late_answers, lane.late_by, lane.out_of_order, pool_order)
             for name, lane in self.lanes.items()},
            {name: Pool(name, dict(pool.models), pool.instance,
                        Network(pool.network.mean, pool.network.cv), pool.min_replicas,
                        pool.max_replicas, pool.max_in_flight, pool.start_up.mean)
             for name, pool in self.pools.items()},
            {name: Instance(name, instance.capacity, instance.background)
             for name, instance in self.instances.items()},
            Limits(**dict[str, Any](limits or {})), policy)


def _problems(scenario: Scenario) -> Iterator[str]:
    for name in ('rate', 'measured'):
        value = getattr(scenario, name)
        if not 0.0 < value < math.inf:
            yield f'{name} is {value}: give a number > 0'
    for name in ('warm_up', 'actuation'):
        value = getattr(scenario, name)
        if not 0.0 <= value < math.inf:
            yield f'{name} is {value}: give seconds >= 0'
    for name in ('robots', 'dispatchers'):
        if getattr(scenario, name) < 1:
            yield f'{name} is {getattr(scenario, name)}: give 1 or more'
    if scenario.arrivals.process not in PROCESSES:
        yield f'arrival process {scenario.arrivals.process!r}: use one of {list(PROCESSES)}'
    modulation = scenario.modulation
    if modulation.kind not in MODULATIONS:
        yield f'modulation {modulation.kind!r}: use one of {list(MODULATIONS)}'
    if modulation.kind == 'mmpp' and not 0 < len(modulation.factors) == len(modulation.sojourns):
        yield ('modulation mmpp has '
               f'{len(modulation.factors)} factors and {len(modulation.sojourns)} sojourns: '
               'give one of each for every state')
    for name, pool in scenario.pools.items():
        if pool.instance not in scenario.instances:
            yield (f'pool {name}: instance {pool.instance!r} is not there; there are '
                   f'{sorted(scenario.instances)}')
        if not pool.min_replicas <= pool.initial_replicas <= pool.max_replicas:
            yield (f'pool {name}: initial_replicas is {pool.initial_replicas}: give a number '
                   f'from {pool.min_replicas} to {pool.max_replicas}')
        if not 0.0 < pool.cpus < math.inf:
            yield f'pool {name}: cpus is {pool.cpus}: give a number > 0'
        for model in pool.models:
            if model not in scenario.models:
                yield (f'pool {name}: model {model!r} is not there; there are '
                       f'{sorted(scenario.models)}')
    for name, law in scenario.models.items():
        if law.law not in LAWS:
            yield f'model {name}: law {law.law!r}: use one of {list(LAWS)}'
        if not (0.0 < law.idle < math.inf and law.cv >= 0.0 and law.gamma >= 0.0):
            yield (f'model {name}: idle {law.idle}, cv {law.cv}, gamma {law.gamma}: give '
                   'seconds > 0 and numbers >= 0')
    if not any(lane.share > 0.0 for lane in scenario.lanes.values()):
        yield 'no lane has a share of the robots: give one a share > 0'
    for fault in scenario.faults:
        if fault.kind not in FAULTS:
            yield f'fault {fault.kind!r}: use one of {list(FAULTS)}'
        if fault.pool not in scenario.pools and (fault.pool or fault.kind != 'slow_down'):
            yield (f'fault {fault.kind}: pool {fault.pool!r} is not there; there are '
                   f'{sorted(scenario.pools)}')
    try:
        scenario.configuration()
    except ValueError as error:
        yield str(error)
