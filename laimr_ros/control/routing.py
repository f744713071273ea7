"""Where a frame goes: by predicted completion from what is in flight this instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
import math

from laimr_ros.control.actions import Prediction
from laimr_ros.control.jobs import Job
from laimr_ros.control.lanes import LaneQueue
from laimr_ros.control.pools import Costs, PoolState, Replica


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
    """

    __slots__ = ('costs', 'late', 'pool', 'replica', 'review_at', 'verdict', 'wait')

    def __init__(self, verdict: Verdict, review_at: float = math.inf) -> None:
        """Decide without a replica."""
        self.verdict = verdict
        self.review_at = review_at
        self.pool: PoolState | None = None
        self.replica: Replica | None = None
        self.costs: Costs | None = None
        self.wait = 0.0
        self.late = False

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
    quantile gets the frame, at once or by waiting for it; later pools are offload targets.
    """

    def __init__(
        self, pools: Mapping[str, PoolState], queues: Mapping[str, LaneQueue],
        probe_interval: float
    ) -> None:
        """Look at the controller's own pools and queues."""
        self._probe_interval = probe_interval
        self._lane_pools: dict[str, tuple[tuple[PoolState, str], ...]] = {}
        self._ahead: dict[tuple[str, str], Sequence[LaneQueue]] = {}
        for name, queue in queues.items():
            lane = queue.lane
            self._lane_pools[name] = tuple((pools[p], lane.model) for p in lane.pools)
            for pool in lane.pools:
                # Frames of lanes with longer deadlines do not stand before this lane's.
                self._ahead[name, pool] = tuple(
                    q for q in queues.values()
                    if pool == q.lane.pools[0] and q.lane.slo <= lane.slo)

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
        hold: PoolState | None = None
        some_ready = False
        lane = job.lane
        for pool, model in self._lane_pools[lane.name]:
            ready = pool.ready
            if ready == 0:
                continue
            some_ready = True
            costs = pool.costs[model]
            if costs.low < fastest:
                fastest = costs.low
            high = costs.network_high + costs.service_high
            if hold is not None:
                # Already waiting for a preferred pool: only note until when this one can help.
                if job.deadline - high > depart_by:
                    depart_by = job.deadline - high
                continue
            replica = pool.best()
            if replica is not None:
                wait = pool.wait(replica, now, costs) if replica.in_flight else 0.0
                if wait + high <= remaining:
                    decision = Decision(Verdict.SEND)
                    decision.pool, decision.replica = pool, replica
                    decision.costs, decision.wait = costs, wait
                    return decision
                mean = wait + costs.network + costs.service
                if mean < fallback_mean and wait + costs.low <= limit:
                    fallback_mean = mean
                    fallback = Decision(Verdict.SEND)
                    fallback.pool, fallback.replica = pool, replica
                    fallback.costs, fallback.wait = costs, wait
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
        if hold is not None:
            return Decision(Verdict.HOLD, self._review(depart_by, job, fastest, now))
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

    def probe(self, job: Job, now: float) -> Decision | None:
        """
        Return where a hopeless frame may go to learn whether the pool is still that slow.

        Without this a pool once believed too slow would never be tried again.
        """
        if job.limit <= now:
            return None
        for pool, model in self._lane_pools[job.lane.name]:
            if now - pool.last_used.get(model, -math.inf) < self._probe_interval:
                continue
            replica = pool.best()
            if replica is not None:
                costs = pool.costs[model]
                decision = Decision(Verdict.SEND)
                decision.pool, decision.replica = pool, replica
                decision.costs, decision.wait = costs, pool.wait(replica, now, costs)
                return decision
        return None
