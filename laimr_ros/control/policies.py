"""What a policy consists of, and which one decides: who routes, and who plans replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from laimr_ros.control.jobs import Job
from laimr_ros.control.lanes import LaneQueue
from laimr_ros.control.nouns import Configuration
from laimr_ros.control.paper import PaperPlanner, PaperRouter, Traffic
from laimr_ros.control.planning import Planner
from laimr_ros.control.pools import PoolState
from laimr_ros.control.routing import Decision, Router
from laimr_ros.latency.arrivals import Arrivals


class RoutingPolicy(Protocol):
    """Says where frames go, one at a time; see :class:`~laimr_ros.control.routing.Router`."""

    @property
    def explored(self) -> int: ...

    def arrived(self, now: float, lane: str) -> None: ...

    def decide(
        self, job: Job, now: float, *, at_head: bool = False, last_chance: bool = False
    ) -> Decision: ...

    def explore(self, job: Job, now: float, best: Decision, arrivals: Arrivals) -> Decision: ...

    def second(self, job: Job, now: float) -> Decision | None: ...

    def probe(self, job: Job, now: float) -> Decision | None: ...

    def sent(self, now: float, job: Job, pool: PoolState) -> None: ...

    def learned(self, now: float, pool: str, model: str) -> None: ...

    def refresh(self, now: float) -> None: ...


class Scaler(Protocol):
    """What is wished for one pool."""

    @property
    def desired(self) -> int | None: ...


class ScalingPolicy(Protocol):
    """Says how many replicas pools should have; see :class:`.planning.Planner`."""

    rates: dict[str, float]
    rho: dict[str, float]

    @property
    def scalers(self) -> Mapping[str, Scaler]: ...

    def sent(self, now: float, lane: str, pool: str) -> None: ...

    def observed(self, pool: str, replicas: int) -> int | None: ...

    def plan(self, now: float) -> Iterator[tuple[str, int]]: ...


class _Lane(Protocol):
    """What is needed of a lane's state."""

    @property
    def queue(self) -> LaneQueue: ...

    @property
    def arrivals(self) -> Arrivals: ...


# From configuration, pools, lanes and who decided until now, as :func:`make_policy`.
PolicyMaker = Callable[
    [Configuration, Mapping[str, PoolState], Mapping[str, Any],
     'tuple[RoutingPolicy, ScalingPolicy] | None'],
    'tuple[RoutingPolicy, ScalingPolicy]']


def make_policy(
    configuration: Configuration, pools: Mapping[str, PoolState], lanes: Mapping[str, _Lane],
    previous: tuple[RoutingPolicy, ScalingPolicy] | None = None
) -> tuple[RoutingPolicy, ScalingPolicy]:
    """
    Return who routes and who plans.

    :param pools: the controller's own.
    :param lanes: the controller's own.
    :param previous: who did so until now. What is learned is kept if the policy is the same;
        replicas that were wished for stay wished for in any case.
    """
    limits = configuration.limits
    queues = {name: lane.queue for name, lane in lanes.items()}
    old_router, old_planner = previous or (None, None)
    router: RoutingPolicy
    planner: ScalingPolicy
    if configuration.policy == 'laimr_paper':
        traffic = Traffic(
            configuration.lanes, limits.fast_window,
            old_router.traffic if isinstance(old_router, PaperRouter) else None)
        router = PaperRouter(pools, queues, traffic)
        planner = PaperPlanner(
            configuration, pools, traffic,
            old_planner if isinstance(old_planner, PaperPlanner) else None)
    else:
        router = Router(
            pools, queues, limits.probe_interval, exploration=limits.exploration,
            previous=old_router if isinstance(old_router, Router) else None)
        planner = Planner(
            configuration, pools, lanes,
            old_planner if isinstance(old_planner, Planner) else None)
    if old_planner is not None and type(old_planner) is not type(planner):
        for name, scaler in old_planner.scalers.items():
            if scaler.desired is not None and name in pools:
                planner.observed(name, scaler.desired)
    return router, planner
