"""Where a frame goes: by predicted completion from what is in flight this instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
import math

from laimr_ros.control.actions import Prediction
from laimr_ros.control.budgets import OffloadBucket
from laimr_ros.control.jobs import Job
from laimr_ros.control.lanes import LaneQueue
from laimr_ros.control.pools import Costs, PoolState, Replica
from laimr_ros.latency.arrivals import Arrivals, WindowRate
from laimr_ros.latency.exploration import Explorer

# Seconds until a frame may look for stale pools again, once there were none.
_EXPLORE_AGAIN = 1.0
_OFFLOAD_WINDOW = 5.0
# Of the time that is left, the part that waiting for the cheapest pool may take. (With one fast
# and one slow server the slow one is used from some length of the queue on: Lin and Kumar 1984.)
_PATIENCE = 0.6
# A pool a lane may use, its model, and what offloading to it takes.
_Place = tuple[PoolState, str, 'OffloadBucket | None']


class Verdict(Enum):
    """What to do with a waiting frame."""

    SEND = 'send'
    HOLD = 'hold'
    HOPELESS = 'hopeless'


class Decision:
    """
    A verdict and what it rests on.

    :ivar review_at: when a held frame must be looked at again, in seconds.
    :ivar late: whether the frame is sent although it is predicted late.
    :ivar last_chance: whether then waiting for a busy pool is no longer an option.
    """

    __slots__ = ('costs', 'last_chance', 'late', 'pool', 'replica', 'review_at', 'verdict', 'wait')

    def __init__(self, verdict: Verdict, review_at: float = math.inf) -> None:
        """Decide without a replica."""
        self.verdict = verdict
        self.review_at = review_at
        self.pool: PoolState | None = None
        self.replica: Replica | None = None
        self.costs: Costs | None = None
        self.wait = 0.0
        self.late = False
        self.last_chance = True

    @classmethod
    def send(cls, pool: PoolState, replica: Replica, costs: Costs, wait: float) -> Decision:
        """Decide to send the frame to a replica, where it waits so many seconds."""
        decision = cls(Verdict.SEND)
        decision.pool, decision.replica = pool, replica
        decision.costs, decision.wait = costs, wait
        return decision

    def prediction(self) -> Prediction:
        """Return what is predicted of the frame that is sent."""
        costs = self.costs
        assert costs is not None
        return Prediction(
            self.wait, costs.network, costs.service,
            self.wait + costs.network_high + costs.service_high)


class Router:
    """
    Decides for one waiting frame at a time.

    Frames are held here and pulled by free replicas (one shared queue a lane), so a pool
    behaves as G/G/c. The first pool of the lane that is predicted on time at the routing
    quantile gets the frame, at once or by waiting for it; later pools are offload targets. In
    the order ``cheapest`` a frame that would wait for long goes to an idle replica of a later pool
    if that answers sooner: one that is there is paid for anyway.

    Offloading takes a token of the target, refilled at the rate that the target's own lanes
    leave. The bucket paces, it never makes a frame late by prediction: without a token a frame
    tries the next pool, else waits for a token, but only while it has more than one service
    time to spare; then it goes all the same.

    :param probe_interval: a pool predicted too slow is tried again after so many seconds.
    :param exploration: share of frames that may go to a pool not preferred.
    :param previous: the router until now; what it knows of the same pools is kept.
    """

    def __init__(
        self, pools: Mapping[str, PoolState], queues: Mapping[str, LaneQueue],
        probe_interval: float, *, exploration: float = 0.0, previous: Router | None = None
    ) -> None:
        """Look at the controller's own pools and queues."""
        self._probe_interval = probe_interval
        self._pools = pools
        self._queues = queues
        self._exploration = exploration
        self._explorer = Explorer(exploration)
        self._explore_after = -math.inf
        self._buckets: dict[str, OffloadBucket] = {}
        self._offloaded: dict[str, WindowRate] = {}
        if previous is not None:
            if previous._exploration == exploration:
                self._explorer = previous._explorer
            self._buckets = {n: b for n, b in previous._buckets.items() if n in pools}
            self._offloaded = {n: r for n, r in previous._offloaded.items() if n in pools}
        self._lane_pools: dict[str, tuple[_Place, ...]] = {}
        self._ahead: dict[tuple[str, str], Sequence[LaneQueue]] = {}
        for name, queue in queues.items():
            lane = queue.lane
            for pool in lane.pools:
                # Frames of lanes with longer deadlines do not stand before this lane's.
                self._ahead[name, pool] = tuple(
                    q for q in queues.values()
                    if pool == q.lane.pools[0] and q.lane.slo <= lane.slo)
        self._line_up()

    def _line_up(self) -> None:
        """List each lane's pools; without a bucket offloading to a pool is free."""
        for name, queue in self._queues.items():
            lane = queue.lane
            self._lane_pools[name] = tuple(
                (self._pools[p], lane.model, self._buckets.get(p) if rank else None)
                for rank, p in enumerate(lane.pools))

    @property
    def explored(self) -> int:
        """Return how many frames went to a pool that was not preferred, to learn."""
        return self._explorer.explored

    def bucket(self, pool: str) -> OffloadBucket | None:
        """Return what offloading to a pool takes; None before :meth:`refresh`."""
        return self._buckets.get(pool)

    def arrived(self, now: float, lane: str) -> None:
        """Note that a frame arrived; the state of this instant says all about it."""

    def learned(self, now: float, pool: str, model: str) -> None:
        """Note that a frame's answer renewed what is known of a model in a pool."""
        self._explorer.used(f'{pool}/{model}', now)

    def sent(self, now: float, job: Job, pool: PoolState) -> None:
        """Note that a frame was sent: what is offloaded takes a token, if there is one."""
        if job.offloaded:
            name = pool.config.name
            bucket = self._buckets.get(name)
            if bucket is not None:
                bucket.take(now)
                self._offloaded[name].add(now)

    def refresh(self, now: float) -> None:
        """Refill the buckets at the rates that pools' own lanes leave; a few times a second."""
        targets = {p for q in self._queues.values() for p in q.lane.pools[1:]}
        known = len(self._buckets)
        for name in targets:
            bucket = self._buckets.get(name)
            if bucket is None:
                bucket = self._buckets[name] = OffloadBucket()
                self._offloaded[name] = WindowRate(_OFFLOAD_WINDOW)
            pool = self._pools[name]
            own = pool.sent.rate(now) - self._offloaded[name].rate(now)
            # A replica that takes one frame at a time is idle while the answer travels.
            times = [
                max(costs.service, (costs.service + costs.network) / pool.config.max_in_flight)
                for costs in (pool.costs[q.lane.model] for q in self._queues.values()
                              if name in q.lane.pools)]
            bucket.refill_at(now, pool.ready, sum(times) / len(times), own)
        if len(self._buckets) != known:
            self._line_up()

    def decide(
        self, job: Job, now: float, *, at_head: bool = False, last_chance: bool = False
    ) -> Decision:
        """
        Decide about one frame.

        :param at_head: no frame waits before it.
        :param last_chance: another pool can just make it if it goes there now: waiting for a
            busy one is no longer an option.
        """
        remaining = job.deadline - now
        limit = job.limit - now
        if limit <= 0.0:
            return Decision(Verdict.HOPELESS)
        fallback: Decision | None = None
        fallback_mean = math.inf
        fastest = math.inf
        depart_by = -math.inf
        token_at = math.inf
        hold: PoolState | None = None
        behind: Decision | None = None
        some_ready = False
        held_until = math.inf
        lane = job.lane
        cheapest = lane.pool_order == 'cheapest'
        for pool, model, bucket in self._lane_pools[lane.name]:
            ready = pool.ready
            if ready == 0:
                continue
            some_ready = True
            costs = pool.costs[model]
            if costs.low < fastest:
                fastest = costs.low
            high = costs.network_high + costs.service_high
            if hold is not None:
                # Already waiting for a preferred pool: note until when this one can help, or that
                # it can at once.
                if job.deadline - high > depart_by:
                    depart_by = job.deadline - high
                if not (cheapest and high < held_until and held_until > _PATIENCE * remaining):
                    continue
            replica = pool.best()
            if (hold is not None or behind is not None) and (
                    replica is None or replica.in_flight or high >= held_until):
                continue
            if replica is not None:
                wait = pool.wait(replica, now, costs) if replica.in_flight else 0.0
                if wait + high <= remaining:
                    if cheapest and wait > 0.0 and wait + high > _PATIENCE * remaining:
                        # It would stand there behind others.
                        behind = Decision.send(pool, replica, costs, wait)
                        held_until = wait + high
                        continue
                    spare = remaining - wait - high - costs.service
                    if bucket is not None and spare > 0.0 and not bucket.has(now):
                        token_at = min(token_at, now + spare, bucket.next_token(now))
                        continue
                    return Decision.send(pool, replica, costs, wait)
                mean = wait + costs.network + costs.service
                if mean < fallback_mean and wait + costs.low <= limit:
                    fallback_mean = mean
                    fallback = Decision.send(pool, replica, costs, wait)
                    fallback.late = True
            elif not last_chance:
                wait = max(pool.next_return() - now, 0.1 * costs.service)
                wait += (pool.config.max_in_flight - 1) * costs.service
                if not at_head:
                    for queue in self._ahead[lane.name, pool.config.name]:
                        # The frame itself may stand in its lane's queue already.
                        waiting = len(queue) - len(queue.late) - (queue.lane is lane)
                        if waiting > 0:
                            ahead = pool.costs[queue.lane.model].service
                            wait += waiting * ahead / ready
                if wait + high <= remaining:
                    hold = pool
                    held_until = wait + high
        if behind is not None:
            return behind
        if hold is not None or token_at < math.inf:
            review_at = self._review(depart_by, job, fastest, now) if hold else math.inf
            decision = Decision(Verdict.HOLD, min(token_at, review_at))
            decision.last_chance = review_at <= token_at
            return decision
        if fallback is not None:
            return fallback
        if not some_ready:
            return Decision(Verdict.HOLD, job.limit)
        if fastest > limit:
            return Decision(Verdict.HOPELESS)
        return Decision(Verdict.HOLD, job.limit - fastest)

    @staticmethod
    def _review(depart_by: float, job: Job, fastest: float, now: float) -> float:
        return depart_by if depart_by > now else job.limit - fastest

    def explore(self, job: Job, now: float, best: Decision, arrivals: Arrivals) -> Decision:
        """
        Return where a frame may go instead, so that a stale model is renewed; else ``best``.

        Only to a pool where it is predicted on time as well, and never while the burst alarm of
        its lane is up.

        :param best: where it would go by preference, on time.
        :param arrivals: of its lane.
        """
        explorer = self._explorer
        places = self._lane_pools[job.lane.name]
        if len(places) < 2 or not explorer.due(burst=False) or now < self._explore_after:
            return best
        assert best.pool is not None
        choices: dict[str, Decision] = {}
        remaining = job.deadline - now
        for pool, model, bucket in places:
            replica = pool.best() if pool is not best.pool and pool.ready else None
            if replica is None or (bucket is not None and not bucket.has(now)):
                continue
            costs = pool.costs[model]
            wait = pool.wait(replica, now, costs)
            if wait + costs.network_high + costs.service_high <= remaining:
                choices[f'{pool.config.name}/{model}'] = Decision.send(pool, replica, costs, wait)
        chosen = None
        if choices and not arrivals.bursting(now):
            chosen = explorer.choose(now, f'{best.pool.config.name}/{job.lane.model}', choices)
        if chosen is None:
            self._explore_after = now + _EXPLORE_AGAIN
            return best
        return choices[chosen]

    def second(self, job: Job, now: float) -> Decision | None:
        """
        Return where a second copy of a frame that is out would be on time, or None.

        On an idle replica, rather of another pool: what delays the first copy may be common to
        its pool.
        """
        first = job.replica
        if first is None:
            return None
        remaining = job.deadline - now
        same: Decision | None = None
        for pool, model, bucket in self._lane_pools[job.lane.name]:
            replica = pool.best() if pool.ready else None
            if replica is None or replica is first or replica.in_flight or (
                    bucket is not None and not bucket.has(now)):
                continue
            costs = pool.costs[model]
            if costs.network_high + costs.service_high <= remaining:
                decision = Decision.send(pool, replica, costs, 0.0)
                if pool is not first.pool:
                    return decision
                same = decision
        return same

    def probe(self, job: Job, now: float) -> Decision | None:
        """
        Return where a hopeless frame may go to learn whether the pool is still that slow.

        Without this a pool once believed too slow would never be tried again.
        """
        if job.limit <= now:
            return None
        for pool, model, _ in self._lane_pools[job.lane.name]:
            if now - pool.last_used.get(model, -math.inf) < self._probe_interval:
                continue
            replica = pool.best()
            if replica is not None:
                costs = pool.costs[model]
                return Decision.send(pool, replica, costs, pool.wait(replica, now, costs))
        return None
