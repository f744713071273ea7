"""
The paper's own Algorithm 1 with its mean model, as a policy to compare with.

Seo, Nguyen, Elmroth, arXiv 2505.07417. Kept as published, weaknesses included: a mean is held
against a target for the tail, the model never learns, in-flight frames are not looked at, and all
of a lane's frames turn to the cloud at once. What the paper leaves open is fixed here:

- The service rate of the Erlang-C term is ``mu = 1 / (alpha + beta (lambda / N)**gamma)``: the
  power law is a fit of service time.
- ``lambda_accum`` starts as :class:`~laimr_ros.latency.windows.EwmaRate` says.
- A pool that several lanes prefer sees the sum of their rates; a pool that frames are offloaded
  to is predicted for the lane's whole rate on top.
- If no pool is predicted to meet the SLO the frame goes to the last one, the cloud.
- Scaling out goes to the fewest replicas predicted to meet the SLO, or to the most there may be;
  scaling in goes one by one, once utilisation was under its floor for the stabilisation window.
- A frame is given up at its limit, not before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import functools
import math

from laimr_ros.control.actions import Prediction
from laimr_ros.control.jobs import Job
from laimr_ros.control.lanes import LaneQueue
from laimr_ros.control.nouns import Configuration, Lane, Limits, Pool
from laimr_ros.control.pools import PoolState, Replica
from laimr_ros.control.routing import Decision, Verdict
from laimr_ros.latency.arrivals import Arrivals
from laimr_ros.latency.erlang import erlang_c
from laimr_ros.latency.model import ServiceModel
from laimr_ros.latency.search import fewest
from laimr_ros.latency.windows import EwmaRate

# What a saturated pool is reported to need, in seconds: reports know no infinity.
_FOREVER = 3600.0


def mean_wait_and_service(
    model: ServiceModel, rate: float, replicas: int
) -> tuple[float, float]:
    """
    Return the mean wait, by Erlang-C, and the mean service time in seconds.

    :param rate: frames per second over all replicas.
    :return: an infinite wait for a saturated or empty pool.
    """
    service = model.mean(rate, replicas)
    if replicas <= 0 or not service < math.inf:
        return math.inf, service
    spare = replicas / service - rate
    if spare <= 0.0:
        return math.inf, service
    return erlang_c(replicas, rate * service) / spare, service


class Traffic:
    """
    The paper's ``lambda_accum`` of each lane, and of what is offloaded to each pool.

    :param window: sliding window in seconds.
    :param previous: what was known until now.
    """

    def __init__(
        self, lanes: Mapping[str, Lane], window: float, previous: Traffic | None = None
    ) -> None:
        """Start without frames."""
        self.window = window
        self._lanes = lanes
        self._arrived = {name: EwmaRate(window=window) for name in lanes}
        self._offloaded = {
            (name, pool): EwmaRate(window=window)
            for name, lane in lanes.items() for pool in lane.pools[1:]}
        if previous is not None and previous.window == window:
            self._arrived.update(
                (k, v) for k, v in previous._arrived.items() if k in self._arrived)
            self._offloaded.update(
                (k, v) for k, v in previous._offloaded.items() if k in self._offloaded)

    def arrived(self, now: float, lane: str) -> None:
        """Count a frame."""
        self._arrived[lane].add(now)

    def sent(self, now: float, lane: str, pool: str) -> None:
        """Count a frame that was sent, if it was offloaded."""
        rate = self._offloaded.get((lane, pool))
        if rate is not None:
            rate.add(now)

    def rate(self, now: float, lane: str) -> float:
        """Return a lane's frames per second."""
        return self._arrived[lane].rate(now)

    def offered(self, now: float, pool: str, lane: str) -> float:
        """Return the rate a pool would see if all of a lane's frames went there."""
        return sum(
            self._arrived[name].rate(now) for name, other in self._lanes.items()
            if name == lane or other.pools[0] == pool)

    def demand(self, now: float, pool: str) -> dict[str, float]:
        """Return each lane's frames per second that a pool is there for."""
        return {
            name: self._arrived[name].rate(now) if lane.pools[0] == pool
            else self._offloaded[name, pool].rate(now)
            for name, lane in self._lanes.items() if pool in lane.pools}


class PaperDecision(Decision):
    """A decision of the mean model."""

    __slots__ = ('_prediction',)

    def __init__(self, pool: PoolState, replica: Replica, model: str, wait: float,
                 service: float) -> None:
        """Send to a replica; ``wait`` and ``service`` are means in seconds."""
        super().__init__(Verdict.SEND)
        self.pool, self.replica, self.costs = pool, replica, pool.costs[model]
        wait, service = min(wait, _FOREVER), min(service, _FOREVER)
        network = pool.config.network.mean
        self.wait = wait
        self._prediction = Prediction(wait, network, service, wait + network + service)

    def prediction(self) -> Prediction:
        """Return what the mean model predicts."""
        return self._prediction


class PaperRouter:
    """
    Sends each frame at once, in turn over the replicas of the pool that ``g(lambda)`` chooses.

    Each replica has its own queue then: N x M/M/1, while the model says M/M/c. A replica that
    has ``max_in_flight`` frames is passed over, and with all of them full frames are held: give
    pools a large ``max_in_flight`` for the paper's blind push.
    """

    explored = 0

    def __init__(
        self, pools: Mapping[str, PoolState], queues: Mapping[str, LaneQueue], traffic: Traffic
    ) -> None:
        """Look at the controller's own pools and queues."""
        self.traffic = traffic
        self._lane_pools = {
            name: tuple(pools[p] for p in queue.lane.pools) for name, queue in queues.items()}
        self._turn: dict[str, int] = {}
        self._next: dict[str, int] = {}

    def arrived(self, now: float, lane: str) -> None:
        """Count a frame into ``lambda_accum``."""
        self.traffic.arrived(now, lane)

    def learned(self, now: float, pool: str, model: str) -> None:
        """Learn nothing: the paper's model is fitted once."""

    def sent(self, now: float, job: Job, pool: PoolState) -> None:
        """Move on to the next replica."""
        name = pool.config.name
        self._turn[name] = self._next.get(name, 0)
        self.traffic.sent(now, job.lane.name, name)

    def refresh(self, now: float) -> None:
        """Do nothing: all there is are the arrivals."""

    def decide(
        self, job: Job, now: float, *, at_head: bool = False, last_chance: bool = False
    ) -> Decision:
        """Decide about one frame."""
        if job.limit <= now:
            return Decision(Verdict.HOPELESS)
        lane = job.lane
        chosen: tuple[PoolState, float, float] | None = None
        for pool in self._lane_pools[lane.name]:
            if pool.ready == 0:
                continue
            config = pool.config
            rate = self.traffic.offered(now, config.name, lane.name)
            wait, service = mean_wait_and_service(config.models[lane.model], rate, pool.ready)
            chosen = pool, wait, service
            if wait + service + config.network.mean <= lane.slo:
                break
        if chosen is None:
            return Decision(Verdict.HOLD, job.limit)
        pool, wait, service = chosen
        replica = self._in_turn(pool)
        if replica is None:
            return Decision(Verdict.HOLD, job.limit)
        return PaperDecision(pool, replica, lane.model, wait, service)

    def _in_turn(self, pool: PoolState) -> Replica | None:
        """Return the replica whose turn it is, or None if all are full."""
        name = pool.config.name
        replicas = list(pool.replicas.values())
        turn = self._turn.get(name, 0)
        for k in range(len(replicas)):
            index = (turn + k) % len(replicas)
            replica = replicas[index]
            if (not replica.draining and replica.suspended_until == 0.0
                    and len(replica.in_flight) < pool.config.max_in_flight):
                self._next[name] = index + 1
                return replica
        return None

    def explore(self, job: Job, now: float, best: Decision, arrivals: Arrivals) -> Decision:
        """Return the best: nothing is learned."""
        return best

    def second(self, job: Job, now: float) -> Decision | None:
        """Return None: the paper sends each frame once."""
        return None

    def probe(self, job: Job, now: float) -> Decision | None:
        """Return None: nothing is learned, and frames are given up only at their limit."""
        return None


class PaperScaler:
    """The desired number of one pool over time."""

    def __init__(self) -> None:
        """Start without a wish."""
        self.desired: int | None = None
        self._low_since: float | None = None

    def start_from(self, observed: int, pool: Pool) -> int:
        """Start from what is there, so that a restart changes nothing; return it."""
        self.desired = min(pool.max_replicas, max(pool.min_replicas, observed))
        self._low_since = None
        return self.desired

    def decide(
        self, now: float, needed: int, rho: float, pool: Pool, limits: Limits
    ) -> int | None:
        """
        Return the desired number now, or None where nothing is known.

        :param needed: ``desired`` if the SLO is met, more if not.
        :param rho: utilisation of ``desired`` replicas.
        """
        if self.desired is None:
            return None
        low, high = pool.min_replicas, pool.max_replicas
        desired = min(high, max(low, self.desired))
        if needed > desired:
            desired = min(high, needed)
            self._low_since = None
        elif not rho < limits.rho_low:
            self._low_since = None
        elif self._low_since is None:
            self._low_since = now
        if self._low_since is not None and now - self._low_since >= limits.stabilisation:
            desired = max(low, desired - 1)
        self.desired = desired
        return desired


class PaperPlanner:
    """Turns the mean model's predictions into desired replicas, for each pool by itself."""

    def __init__(
        self, configuration: Configuration, pools: Mapping[str, PoolState], traffic: Traffic,
        previous: PaperPlanner | None = None
    ) -> None:
        """Plan for these pools; keep what the previous planner knew of them."""
        self._limits = configuration.limits
        self._lanes = configuration.lanes
        self._pools = pools
        self._traffic = traffic
        self.scalers: dict[str, PaperScaler] = {name: PaperScaler() for name in pools}
        self._wishes: dict[str, int] = {}
        if previous is not None:
            self.scalers.update((n, s) for n, s in previous.scalers.items() if n in pools)
            self._wishes = {n: w for n, w in previous._wishes.items() if n in pools}
        self.rates: dict[str, float] = dict.fromkeys(pools, 0.0)
        self.rho: dict[str, float] = dict.fromkeys(pools, 0.0)

    def sent(self, now: float, lane: str, pool: str) -> None:
        """Note that a frame went to a pool; the router counts it."""

    def observed(self, pool: str, replicas: int) -> int | None:
        """Note how many replicas there are; return a first wish if there was none."""
        scaler = self.scalers[pool]
        if scaler.desired is not None:
            return None
        wish = self._wishes[pool] = scaler.start_from(replicas, self._pools[pool].config)
        return wish

    def plan(self, now: float) -> Iterator[tuple[str, int]]:
        """Yield each pool whose desired number changed, with the new number."""
        for name, pool in self._pools.items():
            config, scaler = pool.config, self.scalers[name]
            demand = self._traffic.demand(now, name)
            self.rates[name] = sum(demand.values())
            self.rho[name] = self._utilisation(config, demand, pool.ready) if pool.ready else 0.0
            pool.predicted = max(self._predict(config, demand, pool.ready).values(), default=0.0)
            if scaler.desired is None:
                continue
            present = min(config.max_replicas, max(config.min_replicas, scaler.desired))
            needed = fewest(
                functools.partial(self._meets, config, demand),
                present, config.max_replicas)
            rho = self._utilisation(config, demand, present)
            wish = scaler.decide(
                now, config.max_replicas if needed is None else needed, rho, config, self._limits)
            if wish is not None and wish != self._wishes.get(name):
                self._wishes[name] = wish
                yield name, wish

    def _predict(
        self, pool: Pool, demand: Mapping[str, float], replicas: int
    ) -> dict[str, float]:
        """Return the mean latency of each lane that sends frames, in seconds: ``g(N)``."""
        rate = sum(demand.values())
        return {
            lane: sum(mean_wait_and_service(pool.models[self._lanes[lane].model], rate, replicas))
            + pool.network.mean for lane, own in demand.items() if own > 0.0}

    def _meets(self, pool: Pool, demand: Mapping[str, float], replicas: int) -> bool:
        predicted = self._predict(pool, demand, replicas)
        return all(latency <= self._lanes[lane].slo for lane, latency in predicted.items())

    def _utilisation(self, pool: Pool, demand: Mapping[str, float], replicas: int) -> float:
        rate = sum(demand.values())
        if rate <= 0.0:
            return 0.0
        if replicas <= 0:
            return math.inf
        return sum(
            own * pool.models[self._lanes[lane].model].mean(rate, replicas)
            for lane, own in demand.items()) / replicas
