"""Service times at many rates, as a calibration measures them, in worlds whose law is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
import functools
from typing import Any

from laimr_ros.evaluation.answers import simulate_answers
from laimr_ros.latency.curves import Utilisation
from laimr_ros.latency.fitting import Observations
from laimr_ros.latency.model import PowerLaw, ServiceModel
from laimr_ros.latency.utilisation import InstanceLoad, UtilisationLaw
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario
from laimr_ros.simulation.workload import generator, lognormal_law
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
#: The paper's calibration of YOLOv5m with 3 CPUs (its Fig. 2).
PAPER = PowerLaw(0.73, 1.29, 1.49)
MEASURED_S = 300.0
WARM_UP_S = 60.0
# Frames so many seconds apart are taken not to share a disturbance, such as a full instance.
_BLOCK_S = 60.0
# Replicas busier than this are saturated: what they see is not the rate that was planned.
_SATURATED = 0.95
_DRAWS = 1000


@dataclass(frozen=True)
class Visit:
    """
    A while at one rate with so many replicas.

    :param rate: of all replicas together, as planned, in frames per second.
    :param created: when each frame was captured, in seconds after the warm-up.
    :param service: its service time in seconds.
    :param latency: from capture to answer in seconds; NaN where the world has no queue.
    """

    replicas: int
    rate: float
    created: Floats
    service: Floats
    latency: Floats


@dataclass(frozen=True)
class World:
    """
    Something whose service times can be measured.

    :param about: what it is, for people.
    :param replicas: the numbers of them to visit.
    :param law: draws service times by; else they are simulated.
    :param scenario: to take pool and instance from.
    :param pool: its replicas are measured.
    :param overrides: of the scenario; keys at the top are replaced as a whole.
    """

    about: str
    replicas: tuple[int, ...]
    law: ServiceModel | None = None
    scenario: str = 'paper'
    pool: str = 'edge'
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def visits(self) -> list[tuple[int, float]]:
        """Return the numbers of replicas and rates at which the replicas keep up."""
        return [(count, rate) for count in self.replicas for rate in RATES
                if self.keeps_up(count, rate)]

    def keeps_up(self, replicas: int, rate: float) -> bool:
        """Return whether replicas all of which serve are more than a rate needs."""
        if self.law is not None:
            return True
        return rate * self.busiest(replicas) <= _SATURATED * replicas

    def busiest(self, replicas: int) -> float:
        """Return the mean service time in seconds while all replicas serve."""
        scenario = self.scene(replicas, 1.0, MEASURED_S)
        pool = scenario.pools[self.pool]
        instance = scenario.instances[pool.instance]
        model = scenario.models[next(iter(scenario.lanes.values())).model]
        used = (replicas * pool.cpus + instance.background) / instance.capacity
        slow = max([fault.factor for fault in scenario.faults], default=1.0)
        return float(slow * model.idle / instance.speed_up * (1.0 + used ** model.gamma))

    def scene(self, replicas: int, rate: float, measured: float) -> Scenario:
        """Return a scenario of this pool alone, its replicas fixed, with Poisson arrivals."""
        base = load_scenario(self.scenario)
        lane, law = next((name, lane) for name, lane in base.lanes.items()
                         if self.pool in lane.pools)
        none = {'min_replicas': 0, 'max_replicas': 0, 'initial_replicas': 0}
        fixed = dict.fromkeys(none, replicas)
        values: dict[str, Any] = {
            'rate': rate, 'measured': measured, 'warm_up': WARM_UP_S,
            'arrivals': {'process': 'poisson'}, 'faults': [], 'modulation': {'kind': 'none'},
            'pools': {name: fixed if name == self.pool else none for name in base.pools},
            'lanes': {lane: {'pools': [self.pool], 'model': law.model}}}
        scenario = load_scenario(self.scenario, {**values, **self.overrides})
        return replace(scenario, lanes={lane: scenario.lanes[lane]})

    def exact(self, replicas: int) -> Utilisation | None:
        """Return the exact form, in the rate of one of the replicas; None for a mere law."""
        if isinstance(self.law, PowerLaw):
            return None
        if isinstance(self.law, UtilisationLaw):
            return Utilisation(self.law.resource, self.law.load.capacity)
        scenario = self.scene(replicas, 1.0, MEASURED_S)
        pool = scenario.pools[self.pool]
        instance = scenario.instances[pool.instance]
        model = scenario.models[next(iter(scenario.lanes.values())).model]
        # CPU-seconds of one frame on the idle instance.
        resource = pool.cpus * model.idle / instance.speed_up
        return Utilisation(replicas * resource, instance.capacity)


# A replica with three CPUs of its own, of which others use a tenth.
_OWN = UtilisationLaw(
    'yolov5m', PAPER.alpha, InstanceLoad(3.0, 0.3, each_replica=True), gamma=PAPER.gamma,
    resource=3.0 * PAPER.alpha, cv=0.15)

WORLDS: Mapping[str, World] = {
    'law': World("drawn by the paper's own power law", (3,), PAPER),
    'own': World('exact form, each replica with CPUs of its own, a tenth used by others',
                 (5, 6, 10), _OWN),
    'edge': World('exact form, simulated: replicas share the edge instance', (1, 2, 4, 8)),
    'cloud': World('exact form, simulated: replicas share the cloud instance', (2, 4, 8, 16),
                   pool='cloud'),
    'precise': World('the same with YOLOv5x on the cloud instance', (10,), scenario='mixed',
                     pool='cloud_precise'),
    'exponential': World(
        'the edge instance with exponential service times', (8,),
        overrides={'models': {'yolov5m': {'law': 'exponential'}}}),
    'drift': World(
        'the edge instance, half as slow again from half-way', (8,),
        overrides={'faults': [
            {'kind': 'slow_down', 'pool': '', 'at_share': 0.5, 'factor': 1.5}]}),
}


@functools.lru_cache(maxsize=64)
def visit(world: str, replicas: int, rate: float, seed: int, measured: float) -> Visit:
    """Return what is measured in a world, by its name in :data:`WORLDS`."""
    place = WORLDS[world]
    if place.law is not None:
        return _drawn(place.law, replicas, rate, seed, measured)
    policy = Policy('fixed', 'overflow', 'fixed')
    scenario = place.scene(replicas, rate, measured)
    # Visits are independent of each other, as they would be.
    own = 100_000 * seed + 100 * replicas + round(10.0 * rate)
    _, answers = simulate_answers(scenario, policy, own)
    served = np.isfinite(answers.service)
    return Visit(replicas, rate, answers.created[served] - WARM_UP_S, answers.service[served],
                 answers.latency[served])


def _drawn(
    law: ServiceModel, replicas: int, rate: float, seed: int, measured: float
) -> Visit:
    random = generator(seed, _DRAWS + replicas, round(1000 * rate))
    created = np.sort(random.uniform(0.0, measured, random.poisson(rate * measured)))
    draw = lognormal_law(law.mean(rate, replicas), law.cv)
    service = np.array([draw(z) for z in random.standard_normal(len(created)).tolist()])
    return Visit(replicas, rate, created, service, np.full(len(created), np.nan))


def observations(visits: Sequence[Visit]) -> Observations:
    """Return the frames of some visits for a fit: rates are of one replica."""
    blocks, number = [], 0
    for one in visits:
        within = (one.created / _BLOCK_S).astype(np.int64)
        blocks.append(number + within)
        number += int(within.max(initial=0)) + 1
    return Observations(
        np.concatenate([np.full(len(v.service), v.rate / v.replicas) for v in visits]),
        np.concatenate([v.service for v in visits]), np.concatenate(blocks))
