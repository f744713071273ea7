"""What is known of each pool this instant: its replicas, what they have in flight, its costs."""

from __future__ import annotations

from collections.abc import Mapping
import heapq
import math
from typing import Any

from laimr_ros.control.jobs import Job
from laimr_ros.control.nouns import Limits, Pool
from laimr_ros.control.statistics import RecentLatencies
from laimr_ros.latency.arrivals import WindowRate
from laimr_ros.latency.correction import Correction
from laimr_ros.latency.model import lognormal_quantile, PowerLaw, ServiceModel
from laimr_ros.latency.refit import PowerLawRefit

# A service time this much luckier than usual is still hoped for before a frame is given up.
_LUCKY = 0.1
# Round trips below this are noise of the host, not network.
_LEAST_NETWORK = 1e-4
# Answers after which their own spread is believed rather than the model's.
_ENOUGH_FOR_CV = 50
_FIRST_SUSPENSION = 1.0
_LONGEST_SUSPENSION = 30.0
# Lost replicas whose failures are remembered.
_GRUDGES = 256


class Replica:
    """
    One replica and what it has in flight.

    :ivar free_at: when it will have finished all it has in flight, on its own side.
    :ivar next_return: when its first answer should be back here.
    :ivar accused: left alone because it failed, not because it was busy.
    """

    __slots__ = ('accused', 'draining', 'failures', 'free_at', 'in_flight', 'last_done', 'name',
                 'next_return', 'pool', 'refusals', 'suspended_until', 'suspension', 'version')

    def __init__(self, name: str, pool: PoolState) -> None:
        """Start idle."""
        self.name = name
        self.pool = pool
        self.in_flight: dict[int, Job] = {}
        self.free_at = 0.0
        self.next_return = 0.0
        self.last_done = 0.0
        self.draining = False
        self.accused = False
        self.failures = 0
        self.refusals = 0
        self.suspension = _FIRST_SUSPENSION
        self.suspended_until = 0.0
        self.version = 0

    def answered(self) -> None:
        """Forget what it was accused of: it works."""
        self.failures = 0
        self.refusals = 0
        self.suspension = _FIRST_SUSPENSION


class Costs:
    """
    What one model costs on one pool now, all in seconds.

    ``*_high`` are at the routing quantile, ``low`` is a lucky frame's service and network.
    """

    __slots__ = ('base', 'low', 'model', 'network', 'network_high', 'refit', 'service',
                 'service_correction', 'service_high')

    def __init__(self, model: ServiceModel, quantile: float) -> None:
        """Start from the model alone."""
        self.model = model
        self.refit = PowerLawRefit(model) if isinstance(model, PowerLaw) else None
        self.service_correction = Correction(quantile, self._tail_ratio(quantile))
        self.base = model.mean(0.0, 1)
        self.service = self.service_high = self.network = self.network_high = self.low = 0.0

    def _tail_ratio(self, quantile: float) -> float:
        return lognormal_quantile(1.0, self.model.cv, quantile)

    @property
    def cv(self) -> float:
        """Return the coefficient of variation: learned, or the model's while little is known."""
        correction = self.service_correction
        return correction.cv if correction.samples >= _ENOUGH_FOR_CV else self.model.cv

    @property
    def present(self) -> ServiceModel:
        """Return the model as refitted from served frames, or as calibrated."""
        return self.model if self.refit is None else self.refit.model

    def rebase(self, base: float) -> None:
        """Go on from another modelled mean at the present load, in seconds."""
        self.service_correction.rebase(self.base, base)
        self.base = base

    def to_state(self) -> dict[str, object]:
        """Return what was learned as plain values."""
        state: dict[str, object] = {'correction': self.service_correction.to_state()}
        if self.refit is not None:
            state['refit'] = self.refit.to_state()
        return state

    def restore(self, state: Mapping[str, Any], age_s: float, quantile: float) -> None:
        """Go on from a saved state if it is young and sound, else stay as calibrated."""
        model = self.model
        if isinstance(model, PowerLaw) and _table(state, 'refit').get('calibration') != [
                model.alpha, model.beta, model.gamma]:
            # Corrections of another calibration would be wrong for this one.
            return
        self.service_correction = Correction.from_state(
            _table(state, 'correction'), age_s, quantile, self._tail_ratio(quantile))
        if isinstance(model, PowerLaw):
            self.refit = PowerLawRefit.from_state(_table(state, 'refit'), age_s, model)


def _table(state: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = state.get(key)
    return value if isinstance(value, Mapping) else {}


class PoolState:
    """
    One pool this instant.

    Replicas with room are kept in a heap by (frames in flight, time it is free), those without
    in a heap by the time of their next answer; both lazily: an entry counts only while its
    version is the replica's.
    """

    def __init__(self, pool: Pool, limits: Limits) -> None:
        """Start without replicas."""
        self.config = pool
        self.replicas: dict[str, Replica] = {}
        self._grudges: dict[str, tuple[int, float, float]] = {}
        self.sent = WindowRate(5.0)
        self.latencies = RecentLatencies()
        self.starting = 0
        self.sent_total = 0
        self.offloaded_total = 0
        self.start_up = pool.start_up
        self.predicted = math.nan
        #: Answers counted against the completion predicted for them, and how many kept to it.
        self.judged = 0
        self.covered = 0
        self.last_used: dict[str, float] = {}
        self._open: list[tuple[int, float, int, Replica, int]] = []
        self._full: list[tuple[float, int, Replica, int]] = []
        self._sequence = 0
        self._quantile = limits.routing_quantile
        self._ready = 0
        self._rate = 0.0
        self._network_mean = max(pool.network.mean, _LEAST_NETWORK)
        self._network_correction = self._correct_network()
        self.costs = {name: Costs(model, self._quantile) for name, model in pool.models.items()}
        self.refresh_all(0.0)

    def _network_tail_ratio(self) -> float:
        network = self.config.network
        if network.mean <= 0.0:
            return 1.0
        return network.quantile(self._quantile) / self._network_mean

    def _correct_network(self) -> Correction:
        return Correction(self._quantile, self._network_tail_ratio())

    def reconfigure(self, pool: Pool, limits: Limits, now: float) -> None:
        """Use another configuration; what was learned is kept unless its model changed."""
        old, known = self.config, self.costs
        self.config = pool
        anew = limits.routing_quantile != self._quantile
        self._quantile = limits.routing_quantile
        if anew or old.network != pool.network:
            self._network_mean = max(pool.network.mean, _LEAST_NETWORK)
            self._network_correction = self._correct_network()
        self.costs = {
            name: known[name] if not anew and old.models.get(name) == model
            else Costs(model, self._quantile)
            for name, model in pool.models.items()}
        self.refresh_all(now)
        if old.start_up != pool.start_up:
            self.start_up = pool.start_up
        for replica in self.replicas.values():
            self.touch(replica)

    # ----- costs

    def refresh(self, costs: Costs) -> None:
        """Recompute one model's costs from its model and what was learned."""
        correction = self._network_correction
        costs.service = costs.base * costs.service_correction.mean_ratio
        costs.service_high = costs.service * costs.service_correction.tail_ratio
        costs.network = self._network_mean * correction.mean_ratio
        costs.network_high = costs.network * correction.tail_ratio
        costs.low = lognormal_quantile(costs.service, costs.cv, _LUCKY) + 0.5 * costs.network

    def refresh_all(self, now: float) -> None:
        """Recompute every model's costs for the pool's present load."""
        self._rate = self.sent.rate(now)
        replicas = max(1, self.ready)
        for costs in self.costs.values():
            costs.base = costs.present.mean(self._rate, replicas)
            self.refresh(costs)

    def learn(self, model: str, service: float, network: float) -> None:
        """Learn from one answer: measured service and network time in seconds."""
        costs = self.costs.get(model)
        if costs is None:
            return
        costs.service_correction.update(costs.base, service)
        replicas = max(1, self.ready)
        if costs.refit is not None and costs.refit.update(self._rate, replicas, service):
            costs.rebase(costs.present.mean(self._rate, replicas))
        self._network_correction.update(self._network_mean, max(network, _LEAST_NETWORK))
        self.refresh(costs)

    def learn_slower(self, model: str, elapsed: float) -> None:
        """Learn from a frame that was given up: its service took at least this long."""
        costs = self.costs.get(model)
        # One given up before even the mean would have been due says nothing.
        if costs is not None and elapsed > costs.service:
            costs.service_correction.miss(costs.base, elapsed)
            self.refresh(costs)

    def to_state(self) -> dict[str, object]:
        """Return what was learned of the pool as plain values, fit for JSON."""
        return {
            'network': self._network_correction.to_state(),
            'models': {name: costs.to_state() for name, costs in self.costs.items()},
        }

    def restore(self, state: Mapping[str, Any], age_s: float) -> None:
        """
        Go on from a saved state where it is young and sound, else stay as calibrated.

        :param age_s: how long ago it was saved, in seconds.
        """
        self._network_correction = Correction.from_state(
            _table(state, 'network'), age_s, self._quantile, self._network_tail_ratio())
        models = _table(state, 'models')
        for name, costs in self.costs.items():
            costs.restore(_table(models, name), age_s, self._quantile)
        self.refresh_all(0.0)

    # ----- replicas

    @property
    def ready(self) -> int:
        """Return how many replicas take frames (suspended ones not counted)."""
        return self._ready

    def _count(self) -> None:
        self._ready = sum(
            1 for r in self.replicas.values() if not r.draining and r.suspended_until == 0.0)

    def add(self, name: str, now: float = math.inf) -> Replica:
        """
        Take a replica in, or back in.

        Its word ends a first suspension, but only an answer clears it: one that says it is ready,
        fails and says so again serves its further suspensions out.

        :param now: present time in seconds; if left out, a suspension is over.
        """
        replica = self.replicas.get(name)
        if replica is None:
            replica = self.replicas[name] = Replica(name, self)
            failures, suspension, until = self._grudges.pop(name, (0, _FIRST_SUSPENSION, 0.0))
            replica.failures, replica.suspension = failures, suspension
            replica.suspended_until = until
            replica.accused = until > now
        replica.draining = False
        if replica.suspended_until <= now or replica.suspension <= 2.0 * _FIRST_SUSPENSION:
            replica.accused = False
            replica.suspended_until = 0.0
        self._count()
        self.touch(replica)
        return replica

    def drain(self, replica: Replica) -> None:
        """Send it nothing more."""
        replica.draining = True
        replica.version += 1
        self._count()

    def remove(self, replica: Replica) -> None:
        """Forget a replica, but not what it is accused of: it may come back."""
        self.replicas.pop(replica.name, None)
        if replica.failures:
            self._grudges[replica.name] = (
                replica.failures, replica.suspension,
                replica.suspended_until if replica.accused else 0.0)
            if len(self._grudges) > _GRUDGES:
                del self._grudges[next(iter(self._grudges))]
        replica.draining = True
        replica.version += 1
        self._count()

    def suspend(self, replica: Replica, now: float, seconds: float = 0.0) -> float:
        """
        Leave a replica alone for a while, longer if it was to be left alone anyway.

        :param seconds: how long; 0 if it failed, for a time that doubles until it answers.
        :return: when it may be tried again.
        """
        if seconds <= 0.0:
            seconds = replica.suspension
            replica.suspension = min(2.0 * seconds, _LONGEST_SUSPENSION)
            replica.accused = True
        replica.suspended_until = max(replica.suspended_until, now + seconds)
        replica.version += 1
        self._count()
        return replica.suspended_until

    def resume(self, replica: Replica) -> None:
        """Try a suspended replica again; one more failure suspends it longer."""
        replica.accused = False
        replica.suspended_until = 0.0
        self._count()
        self.touch(replica)

    def touch(self, replica: Replica) -> None:
        """Note that a replica's state changed: put it where it belongs."""
        replica.version += 1
        if replica.draining or replica.suspended_until > 0.0:
            return
        self._sequence += 1
        busy = len(replica.in_flight)
        if busy < self.config.max_in_flight:
            heapq.heappush(
                self._open, (busy, replica.free_at, self._sequence, replica, replica.version))
            if len(self._open) > 4 * len(self.replicas) + 256:
                self._open = [e for e in self._open if e[4] == e[3].version]
                heapq.heapify(self._open)
        else:
            heapq.heappush(
                self._full, (replica.next_return, self._sequence, replica, replica.version))
            if len(self._full) > 4 * len(self.replicas) + 256:
                self._full = [e for e in self._full if e[3] == e[2].version]
                heapq.heapify(self._full)

    def best(self) -> Replica | None:
        """Return the replica with room that is free first, or None if all are full."""
        heap = self._open
        while heap:
            entry = heap[0]
            if entry[4] == entry[3].version:
                return entry[3]
            heapq.heappop(heap)
        return None

    def next_return(self) -> float:
        """Return when the first full replica should answer; infinite if there is none."""
        heap = self._full
        while heap:
            entry = heap[0]
            if entry[3] == entry[2].version:
                return entry[0]
            heapq.heappop(heap)
        return math.inf

    def wait(self, replica: Replica, now: float, costs: Costs) -> float:
        """Return how long a frame sent now waits behind what a replica has in flight."""
        if not replica.in_flight:
            return 0.0
        # An overdue frame has no known end; it is taken to need a quarter of a service more.
        free_at = max(replica.free_at, now + 0.25 * costs.service)
        return max(0.0, free_at - now - 0.5 * costs.network)

    def send(self, replica: Replica, job: Job, now: float, costs: Costs) -> None:
        """Note that a frame is sent to a replica."""
        arrives = now + 0.5 * costs.network
        begins = max(arrives, replica.free_at) if replica.in_flight else arrives
        replica.free_at = begins + costs.service
        if not replica.in_flight:
            replica.next_return = replica.free_at + 0.5 * costs.network
        replica.in_flight[job.frame.id] = job
        self.sent.add(now)
        self._rate = self.sent.rate(now)
        self.sent_total += 1
        self.offloaded_total += job.offloaded
        self.last_used[job.lane.model] = now
        self.touch(replica)

    def take_back(self, replica: Replica, job: Job, now: float, *, still_busy: bool) -> None:
        """
        Note that a frame is no longer in flight on a replica.

        :param still_busy: the worker may still be at it (it was given up, not answered).
        """
        if replica.in_flight.pop(job.frame.id, None) is None:
            return
        self._judge(job, now, answered=not still_busy)
        if still_busy:
            replica.free_at = max(now, replica.free_at)
            replica.next_return = replica.free_at
        else:
            replica.last_done = now
            replica.free_at = now
            replica.next_return = now
            first = True
            for other in replica.in_flight.values():
                costs = self.costs.get(other.lane.model)
                if costs is None:
                    continue
                # The next one began when this one's answer left: half a round trip ago.
                begun = now - 0.5 * costs.network if first else replica.free_at
                replica.free_at = begun + costs.service
                if first:
                    replica.next_return = replica.free_at + 0.5 * costs.network
                    first = False
        self.touch(replica)

    def _judge(self, job: Job, now: float, *, answered: bool) -> None:
        """Count whether a completion predicted at the routing quantile was kept."""
        if job.prediction is None:
            return
        late = now - job.sent_at > job.prediction.completion
        # One given up before its predicted completion says nothing either way.
        if answered or late:
            self.judged += 1
            self.covered += not late
