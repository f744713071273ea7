"""Baselines as a policy of the controller: a rule for each pool, and routing without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import functools
import math
from typing import Any

from laimr_ros.control.baselines import Reading, Rule
from laimr_ros.control.jobs import Job
from laimr_ros.control.lanes import LaneQueue
from laimr_ros.control.nouns import Configuration
from laimr_ros.control.paper import PaperRouter, Traffic
from laimr_ros.control.pools import PoolState, Replica
from laimr_ros.control.routing import Decision, Verdict
from laimr_ros.latency.arrivals import Arrivals

#: Makes the rule of a pool by the pool's name.
RuleMaker = Callable[[str], Rule]


class Wish:
    """What is wished for one pool; None until it was observed."""

    __slots__ = ('desired',)

    def __init__(self) -> None:
        """Start without a wish."""
        self.desired: int | None = None


class BaselinePlanner:
    """
    Asks a rule for each pool's replicas, in the lanes' order of preference.

    What a rule wishes beyond its pool's bound is demand of the lanes' next pool: its frames and
    its rate are passed on in that proportion. Latency and busy replicas are a pool's own.
    """

    def __init__(
        self, configuration: Configuration, pools: Mapping[str, PoolState],
        lanes: Mapping[str, Any], make_rule: RuleMaker
    ) -> None:
        """Plan for these lanes and pools."""
        self._pools = pools
        self._lanes = lanes
        self.scalers: dict[str, Wish] = {name: Wish() for name in pools}
        self.rates: dict[str, float] = dict.fromkeys(pools, 0.0)
        self.rho: dict[str, float] = dict.fromkeys(pools, 0.0)
        self._rules = {name: make_rule(name) for name in pools}
        rank = configuration.preference()
        self._order = sorted(pools, key=lambda name: rank[name])
        # The lanes each pool is first for; else those that may come to it.
        self._users = {
            name: [lane for lane in configuration.lanes.values()
                   if name in lane.pools and lane.pools.index(name) == rank[name]]
            for name in pools}
        self._first = {
            name: [lane.name for lane in configuration.lanes.values() if lane.pools[0] == name]
            for name in pools}
        self._next = {
            name: next((lane.pools[lane.pools.index(name) + 1]
                        for lane in configuration.lanes.values()
                        if name in lane.pools[:-1]), None)
            for name in pools}

    def sent(self, now: float, lane: str, pool: str) -> None:
        """Note that a frame went to a pool."""

    def observed(self, pool: str, replicas: int) -> int | None:
        """Note how many replicas there are; return a first wish if there was none."""
        scaler = self.scalers[pool]
        if scaler.desired is not None:
            return None
        config = self._pools[pool].config
        scaler.desired = min(config.max_replicas, max(config.min_replicas, replicas))
        return scaler.desired

    def plan(self, now: float) -> Iterator[tuple[str, int]]:
        """Yield each pool whose desired number changed, with the new number."""
        carried: dict[str, tuple[float, float]] = {}
        for name in self._order:
            pool, scaler = self._pools[name], self.scalers[name]
            config = pool.config
            in_flight = busy = 0
            for replica in pool.replicas.values():
                count = len(replica.in_flight)
                in_flight += count
                busy += count > 0
            waiting, rate = carried.get(name, (0.0, 0.0))
            for lane in self._first[name]:
                state = self._lanes[lane]
                waiting += len(state.queue)
                rate += max(state.arrivals.fast(now), state.arrivals.slow(now))
            ready = pool.ready
            self.rates[name] = pool.sent.rate(now)
            self.rho[name] = busy / ready if ready else 0.0
            if scaler.desired is None:
                continue
            users = self._users[name]
            services = [config.models[lane.model].mean(0.0, 1) for lane in users]
            reading = Reading(
                now, scaler.desired, ready, in_flight + waiting,
                min(1.0, busy / ready) if ready else 0.0, rate,
                sum(services) / len(services) if services else 0.0,
                max((lane.slo for lane in users), default=math.inf),
                functools.partial(pool.latencies.recent, now))
            wish = self._rules[name].wish(reading)
            target = self._next[name]
            if wish > config.max_replicas and target is not None:
                share = (wish - config.max_replicas) / wish
                before = carried.get(target, (0.0, 0.0))
                # What is in flight here already stays here.
                beyond = max(0.0, reading.ongoing * share)
                carried[target] = before[0] + beyond, before[1] + rate * share
            wish = min(config.max_replicas, max(config.min_replicas, wish))
            if wish != scaler.desired:
                scaler.desired = wish
                yield name, wish


class OverflowRouter:
    """
    Routes without a model: to the lane's first pool with room, else the frame waits.

    One queue a lane, the earliest deadline first; replicas take the next frame as they come free.
    """

    explored = 0

    def __init__(self, pools: Mapping[str, PoolState], queues: Mapping[str, LaneQueue]) -> None:
        """Look at the controller's own pools."""
        self._lane_pools = {
            name: tuple(pools[p] for p in queue.lane.pools) for name, queue in queues.items()}

    def arrived(self, now: float, lane: str) -> None:
        """Note that a frame arrived."""

    def learned(self, now: float, pool: str, model: str) -> None:
        """Learn nothing."""

    def sent(self, now: float, job: Job, pool: PoolState) -> None:
        """Note that a frame was sent."""

    def refresh(self, now: float) -> None:
        """Do nothing."""

    def decide(
        self, job: Job, now: float, *, at_head: bool = False, last_chance: bool = False
    ) -> Decision:
        """Decide about one frame."""
        if job.limit <= now:
            return Decision(Verdict.HOPELESS)
        for pool in self._lane_pools[job.lane.name]:
            replica = pool.best()
            if replica is not None:
                return _send(job, now, pool, replica)
        return Decision(Verdict.HOLD, job.limit)

    def explore(self, job: Job, now: float, best: Decision, arrivals: Arrivals) -> Decision:
        """Return the best: nothing is learned."""
        return best

    def second(self, job: Job, now: float) -> Decision | None:
        """Return None: each frame is sent once."""
        return None

    def probe(self, job: Job, now: float) -> Decision | None:
        """Return None: frames are given up only at their limit."""
        return None


class RoundRobinRouter(PaperRouter):
    """Pushes frames to the replicas of the lane's first pool in turn, as a Service does."""

    def __init__(
        self, pools: Mapping[str, PoolState], queues: Mapping[str, LaneQueue],
        configuration: Configuration
    ) -> None:
        """Look at the controller's own pools."""
        super().__init__(
            pools, queues, Traffic(configuration.lanes, configuration.limits.fast_window))

    def decide(
        self, job: Job, now: float, *, at_head: bool = False, last_chance: bool = False
    ) -> Decision:
        """Decide about one frame."""
        if job.limit <= now:
            return Decision(Verdict.HOPELESS)
        pool = self._lane_pools[job.lane.name][0]
        replica = self._in_turn(pool)
        if replica is None:
            return Decision(Verdict.HOLD, job.limit)
        return _send(job, now, pool, replica)


def _send(job: Job, now: float, pool: PoolState, replica: Replica) -> Decision:
    """Return the decision to send a frame to a replica."""
    costs = pool.costs[job.lane.model]
    return Decision.send(pool, replica, costs, pool.wait(replica, now, costs))
