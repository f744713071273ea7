"""How many replicas each pool should have: lanes' rates spread over pools, then scaled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
import math
from typing import Protocol

from laimr_ros.control.lanes import LaneQueue
from laimr_ros.control.nouns import Configuration, Network
from laimr_ros.control.pools import PoolState
from laimr_ros.control.scaling import (
    attainable,
    PoolScaler,
    predicted_quantile,
    replicas_needed,
    share_served,
    Stream,
    utilisation,
)
from laimr_ros.latency.arrivals import Arrivals, WindowRate
from laimr_ros.latency.burstiness import queue_time_scale

#: Frames per second by lane and pool.
_Demand = dict[tuple[str, str], float]


class _Lane(Protocol):
    """What is needed of a lane's state."""

    @property
    def queue(self) -> LaneQueue: ...

    @property
    def arrivals(self) -> Arrivals: ...


class Planner:
    """
    Turns arrival rates into desired replicas, pool by pool in the lanes' order of preference.

    What a pool cannot serve in time even at its maximum is taken to overflow to the lane's
    next pool; a lane too slow for a pool altogether moves on whole to the first that it is quick
    enough on. A later pool is also ready for what is being offloaded to it now.
    """

    def __init__(
        self, configuration: Configuration, pools: Mapping[str, PoolState],
        lanes: Mapping[str, _Lane], previous: Planner | None = None
    ) -> None:
        """Plan for these lanes and pools; keep what the previous planner knew of them."""
        self._limits = configuration.limits
        self._pools = pools
        self._lanes = lanes
        rank = configuration.preference()
        self._order = sorted(pools, key=lambda name: rank[name])
        self._place = {name: number for number, name in enumerate(self._order)}
        self.scalers = {name: PoolScaler() for name in pools}
        self._sent = {
            (lane.name, pool): WindowRate(self._limits.fast_window)
            for lane in configuration.lanes.values() for pool in lane.pools}
        self._wishes: dict[str, int] = {}
        # Of the plan before, for the rise and the fall.
        self._needs: dict[str, tuple[int, int]] = {}
        # What pools passed on to others that had been planned already, for the next plan: lanes
        # may have two pools in opposite orders.
        self._left: tuple[_Demand, _Demand] = {}, {}
        # A first estimate for diagnostics before the first plan.
        self.rates: dict[str, float] = dict.fromkeys(pools, 0.0)
        self.rho: dict[str, float] = dict.fromkeys(pools, 0.0)
        if previous is not None:
            for name in self.scalers:
                if name in previous.scalers:
                    self.scalers[name] = previous.scalers[name]
            for key in self._sent:
                if key in previous._sent and previous._limits.fast_window == (
                        self._limits.fast_window):
                    self._sent[key] = previous._sent[key]
            self._wishes = {n: w for n, w in previous._wishes.items() if n in pools}

    def sent(self, now: float, lane: str, pool: str) -> None:
        """Note that a frame of a lane went to a pool."""
        self._sent[lane, pool].add(now)

    def observed(self, pool: str, replicas: int) -> int | None:
        """Note how many replicas there are; return a first wish if there was none."""
        scaler = self.scalers[pool]
        if scaler.desired is not None:
            return None
        wish = scaler.start_from(replicas, self._pools[pool].config)
        self._wishes[pool] = wish
        return wish

    def plan(self, now: float) -> Iterator[tuple[str, int]]:
        """Yield each pool whose desired number changed, with the new number."""
        limits = self._limits
        up = {(name, lane.queue.lane.pools[0]): lane.arrivals.upper(
                  now, self._pools[lane.queue.lane.pools[0]].start_up)
              for name, lane in self._lanes.items()}
        down = {(name, lane.queue.lane.pools[0]): lane.arrivals.slow(now)
                for name, lane in self._lanes.items()}
        for demand, left in zip((up, down), self._left):
            for key, rate in left.items():
                demand[key] = demand.get(key, 0.0) + rate
        self._left = {}, {}
        reach = self._reach()
        for name in self._order:
            pool = self._pools[name]
            config = pool.config
            network = self._network(pool)
            ups: list[Stream] = []
            downs: list[Stream] = []
            nows: list[Stream] = []
            names: list[str] = []
            burst = False
            for lane_name, state in self._lanes.items():
                lane = state.queue.lane
                if name not in lane.pools:
                    continue
                key = (lane_name, name)
                first = lane.pools[0] == name
                flowing = self._sent[key].rate(now)
                costs = pool.costs[lane.model]
                ratio = costs.service_correction.mean_ratio
                rate_up = up.get(key, 0.0)
                rate_down = down.get(key, 0.0)
                if not first:
                    rate_up, rate_down = max(rate_up, flowing), max(rate_down, flowing)
                target = next((p for p in lane.pools[lane.pools.index(name) + 1:]
                               if reach[lane_name, p]), None)
                moves_on = target is not None and not reach[key]
                if moves_on and target is not None:
                    for demand, left, rate in zip(
                            (up, down), self._left, (rate_up, rate_down)):
                        self._pass_on(demand, left, lane_name, name, target, rate)
                    rate_up = rate_down = flowing
                backlog = len(state.queue) if first else 0
                ca2 = self._ca2(state.arrivals, now, max(rate_down, flowing), pool, costs.service)
                stream = Stream(
                    rate_up, costs.present, ratio, lane.slo, backlog, ca2, costs.cv)
                ups.append(stream)
                downs.append(replace(stream, rate=rate_down, backlog=0))
                nows.append(replace(stream, rate=flowing, backlog=0))
                burst = burst or state.arrivals.bursting(now)
                names.append('' if moves_on else lane_name)
            self.rates[name] = sum(s.rate for s in nows)
            self.rho[name] = utilisation(nows, max(1, pool.ready)) if pool.ready else 0.0
            quantiles = [
                q for q, s in zip(
                    predicted_quantile(limits.quantile, nows, pool.ready, network,
                                       config.max_in_flight), nows) if s.rate > 0.0]
            pool.predicted = max(quantiles, default=0.0) if pool.ready else float('inf')
            before = self._needs.get(name, (0, 0))
            needed = replicas_needed(
                ups, config, network, limits.slo_margin, limits, before[0])
            enough = replicas_needed(
                downs, config, network, limits.scale_in_margin, limits, before[1])
            self._needs[name] = needed, enough
            for demand, left, streams, all_served in (
                    # Fewer than there may be do, at this very margin.
                    (up, self._left[0], ups, needed < config.max_replicas),
                    (down, self._left[1], downs, False)):
                if streams and not all_served:
                    served = share_served(
                        streams, config, network, limits.slo_margin, limits,
                        config.max_replicas)
                    if served < 1.0:
                        for lane_name, target, rate in self._overflow(
                                streams, names, name, 1.0 - served):
                            self._pass_on(demand, left, lane_name, name, target, rate)
            wish = self.scalers[name].decide(
                now, needed, enough, config, limits, burst=burst)
            if wish is not None and wish != self._wishes.get(name):
                self._wishes[name] = wish
                yield name, wish

    def _overflow(
        self, streams: list[Stream], names: list[str], pool: str, share: float
    ) -> Iterator[tuple[str, str, float]]:
        """Yield the share of each lane's rate that goes to the lane's next pool."""
        for stream, lane_name in zip(streams, names):
            if not lane_name:
                continue
            lane = self._lanes[lane_name].queue.lane
            after = lane.pools.index(pool) + 1
            if after < len(lane.pools):
                yield lane_name, lane.pools[after], share * stream.rate

    def _pass_on(
        self, demand: _Demand, left: _Demand, lane: str, pool: str, target: str, rate: float
    ) -> None:
        """Add to what a pool is to be ready for, in the next plan if it had its turn in this."""
        to = demand if self._place[target] > self._place[pool] else left
        to[lane, target] = to.get((lane, target), 0.0) + rate

    @staticmethod
    def _ca2(
        arrivals: Arrivals, now: float, rate: float, pool: PoolState, service: float
    ) -> float:
        """Return how bursty a lane is on the time scale that its queue feels."""
        scale = queue_time_scale(rate, service, max(1, pool.ready))
        return arrivals.ca2(now, scale if math.isfinite(scale) else None)

    @staticmethod
    def _network(pool: PoolState) -> Network:
        """Return a pool's round trip as it is now."""
        return Network(next(iter(pool.costs.values())).network, pool.config.network.cv)

    def _reach(self) -> dict[tuple[str, str], bool]:
        """Return of each lane and pool whether its frames can be on time there at all."""
        reach = {}
        for lane_name, state in self._lanes.items():
            lane = state.queue.lane
            for name in lane.pools:
                pool = self._pools[name]
                costs = pool.costs[lane.model]
                stream = Stream(
                    0.0, costs.present, costs.service_correction.mean_ratio, lane.slo,
                    cv=costs.cv)
                reach[lane_name, name], = attainable(
                    self._limits.quantile, [stream], pool.config, self._network(pool),
                    self._limits.slo_margin)
        return reach
