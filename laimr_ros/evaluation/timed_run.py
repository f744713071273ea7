"""A simulated run whose controller is timed: routing and scaling apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
import gc
import math
import time
from typing import Any

from laimr_ros.control.nouns import Configuration
from laimr_ros.control.policies import PolicyMaker, RoutingPolicy, ScalingPolicy
from laimr_ros.control.pools import PoolState
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.runs import key_of, Row
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.result import nearest_rank
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario
from laimr_ros.simulation.workload import workload_of
import numpy as np

#: ``wall``: what passes, neighbours on the machine included; ``cpu``: what this thread works.
CLOCKS: Mapping[str, Callable[[], float]] = {
    'wall': time.perf_counter, 'cpu': time.thread_time}


@dataclass(frozen=True)
class TimedRun:
    """
    One simulated run with a watch on the controller.

    :param policy: one of the policies that are compared.
    :param overrides: of the scenario.
    :param clock: one of :data:`CLOCKS`.
    """

    scenario: str
    policy: str
    seed: int
    overrides: Mapping[str, Any] = field(default_factory=dict)
    clock: str = 'wall'

    def key(self) -> str:
        """Return what tells this run from any other, the text of scenario and policy included."""
        scenario, policy = self._scenario(), POLICIES[self.policy]
        return key_of(self, scenario, policy, policy.configuration(scenario))

    def weight(self) -> float:
        """Return the frames it has."""
        scenario = self._scenario()
        return scenario.rate * scenario.end

    def run(self) -> Row:
        """Simulate; return times in microseconds."""
        scenario, clock = self._scenario(), CLOCKS[self.clock]
        policy = _Watched(**{f.name: getattr(POLICIES[self.policy], f.name)
                             for f in fields(Policy)}, clock=clock)
        workload = workload_of(scenario, self.seed)
        # What a collection costs is a matter of the simulated world's size, not of who decides.
        gc.collect()
        gc.disable()
        try:
            result = simulate(scenario, policy, self.seed, clock=clock, workload=workload)
        finally:
            gc.enable()
        routing = result.decision_s['routing']
        whole = float(routing.sum() + result.decision_s['scaling'].sum())
        return {
            'key': self.key(), 'scenario': self.scenario, 'policy': self.policy,
            'seed': self.seed, 'clock': self.clock, 'rate': scenario.rate,
            'robots': scenario.robots, 'dispatchers': scenario.dispatchers,
            'replicas': float(sum(pool.max_replicas for pool in scenario.pools.values())),
            'frames': result.received,
            **_quantiles('routing', routing), **_quantiles('scaling', np.array(policy.times)),
            'frame_us': 1e6 * whole / max(1, result.received),
            # Of one core, for one of the dispatchers, were time as fast as it is outside.
            'core_share': whole / scenario.end / scenario.dispatchers,
            'service_s': least_service(scenario)}

    def _scenario(self) -> Scenario:
        return load_scenario(self.scenario, self.overrides)


def least_service(scenario: Scenario) -> float:
    """Return the least mean service time of any model on any pool that may serve it."""
    return min(
        scenario.models[lane.model].idle
        / scenario.instances[scenario.pools[pool].instance].speed_up
        for lane in scenario.lanes.values() for pool in lane.pools)


def _quantiles(name: str, seconds: Any) -> dict[str, float]:
    return {f'{name}_calls': float(len(seconds)),
            **{f'{name}_{label}_us': 1e6 * nearest_rank(seconds, p) if len(seconds) else math.nan
               for label, p in (('p50', 0.5), ('p99', 0.99), ('max', 1.0))}}


@dataclass(frozen=True)
class _Watched(Policy):
    """A policy whose scaling decisions are timed by themselves, not with what a tick else does."""

    clock: Callable[[], float] = time.perf_counter
    times: list[float] = field(default_factory=list, compare=False)

    def maker(
        self, scenario: Scenario, arrivals: Mapping[str, Sequence[float]]
    ) -> PolicyMaker:
        make = super().maker(scenario, arrivals)

        def make_watched(
            configuration: Configuration, pools: Mapping[str, PoolState],
            lanes: Mapping[str, Any],
            previous: tuple[RoutingPolicy, ScalingPolicy] | None = None
        ) -> tuple[RoutingPolicy, ScalingPolicy]:
            router, planner = make(configuration, pools, lanes, previous)
            return router, _Watch(planner, self.clock, self.times)

        return make_watched


class _Watch:
    """Somebody who scales, and how long each of his decisions took."""

    def __init__(
        self, inner: ScalingPolicy, clock: Callable[[], float], times: list[float]
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._times = times
        # Called for every frame: not by a detour.
        self.sent = inner.sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def plan(self, now: float) -> Iterator[tuple[str, int]]:
        before = self._clock()
        yield from self._inner.plan(now)
        self._times.append(self._clock() - before)
