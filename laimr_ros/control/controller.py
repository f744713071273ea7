"""
The controller: events with their time go in, actions come out.

It does no I/O and owns no clock. The ROS node, the simulator and the tests drive this object.
"""

from __future__ import annotations

from collections.abc import Callable
import heapq
import math
from typing import Any

from laimr_ros.control.actions import Action, Cancel, Ended, Scale, Send, Wake
from laimr_ros.control.counters import Counters, ReasonedCounters
from laimr_ros.control.events import (
    CameraLeft,
    Cause,
    ConfigurationChanged,
    Event,
    FrameArrived,
    FrameDone,
    FrameFailed,
    PoolObserved,
    ReplicaDraining,
    ReplicaLost,
    ReplicaReady,
    Tick,
)
from laimr_ros.control.hedging import Hedging
from laimr_ros.control.jobs import Job, Stage
from laimr_ros.control.lanes import LaneQueue
from laimr_ros.control.nouns import Configuration, Outcome
from laimr_ros.control.policies import make_policy, PolicyMaker
from laimr_ros.control.pools import PoolState, Replica
from laimr_ros.control.routing import Decision, Verdict
from laimr_ros.control.snapshot import take_snapshot
from laimr_ros.control.statistics import RecentLatencies
from laimr_ros.latency.arrivals import Arrivals, WindowRate

# Failures that say something about the replica, not about the frame or about us.
_REPLICA_FAULTS = frozenset({Cause.UNAVAILABLE, Cause.INTERNAL})
_RETRIED = frozenset({Cause.UNAVAILABLE, Cause.INTERNAL, Cause.BUSY})
# A waiting frame is not looked at more often than this, and a busy replica is left alone for at
# least this long, in seconds.
_SHORTEST_PAUSE = 0.01
# A replica that refuses again and again is tried less and less often, down to this.
_LONGEST_PAUSE = 1.0
# A worker cannot have been at a frame for longer than it was away, but for its clock.
_CLOCK_ERROR = 1.0
# Refusals of busy replicas that a frame may meet beyond its attempts.
_FREE_REFUSALS = 8
# Above this utilisation no second copies are sent: they would delay everybody's first.
_HEDGE_RHO = 0.7
# Whoever carries frames reports each by its time-out; one still out so many seconds after its
# limit is taken for lost, so that it does not occupy its replica for ever.
_LOST_AFTER = 1.0


class LaneState:
    """
    One lane this instant: its queue and its statistics.

    :ivar hedging: its second copies; None if there are to be none.
    """

    __slots__ = ('arrivals', 'counters', 'hedging', 'latencies', 'queue')

    def __init__(self, queue: LaneQueue, fast: float, slow: float) -> None:
        """Start empty."""
        self.queue = queue
        self.arrivals = Arrivals(fast, slow)
        self.hedging: Hedging | None = None
        self.counters = Counters()
        self.latencies = RecentLatencies()


class CameraState:
    """
    One camera this instant.

    :ivar owed: urgency of the oldest of its frames that waited in vain since one was sent; its
        next one takes that place. Otherwise a slow camera would be starved by fast ones, whose
        frames inherit their places from one another.
    """

    __slots__ = ('arrivals', 'counters', 'lane', 'last_answered', 'last_captured', 'left',
                 'open', 'owed')

    def __init__(self) -> None:
        """Start without frames."""
        self.arrivals = WindowRate(5.0)
        self.counters = ReasonedCounters()
        self.lane = ''
        self.last_captured = -math.inf
        self.last_answered = -math.inf
        self.left = False
        self.open = 0
        self.owed = math.inf


class Controller:
    """
    Routes frames to replicas and says how many replicas there should be.

    :param configuration: lanes, pools and limits; replaced by a ``ConfigurationChanged`` event.
    :param policies: makes who routes and who plans; by the configuration's policy if left out.
    """

    def __init__(
        self, configuration: Configuration, policies: PolicyMaker = make_policy
    ) -> None:
        """Start without cameras and replicas."""
        self._make_policy = policies
        self.counters = Counters()
        self.lanes: dict[str, LaneState] = {}
        self.cameras: dict[str, CameraState] = {}
        self.pools: dict[str, PoolState] = {}
        self._jobs: dict[int, Job] = {}
        self._replicas: dict[str, Replica] = {}
        self._timers: list[tuple[float, int, Job | Replica]] = []
        self._sequence = 0
        self._next_scaling = -math.inf
        self._wake = math.inf
        self._actions: list[Action] = []
        self._handlers: dict[type, Callable[[float, Any], None]] = {
            FrameArrived: self._frame_arrived,
            FrameDone: self._frame_done,
            FrameFailed: self._frame_failed,
            ReplicaReady: self._replica_ready,
            ReplicaDraining: self._replica_draining,
            ReplicaLost: self._replica_lost,
            PoolObserved: self._pool_observed,
            CameraLeft: self._camera_left,
            ConfigurationChanged: self._configuration_changed,
            Tick: self._tick,
        }
        self._configure(configuration)

    @property
    def configuration(self) -> Configuration:
        """Return the configuration in force."""
        return self._configuration

    def handle(self, now: float, event: Event) -> list[Action]:
        """
        Take one event in and say what to do.

        :param now: when it happened, in seconds; never earlier than in the last call.
        :return: actions, to be done in their order.
        :raises KeyError: for an unknown lane or pool.
        """
        actions = self._actions = []
        self._handlers[type(event)](now, event)
        wake = self._next_scaling
        if self._timers and self._timers[0][0] < wake:
            wake = self._timers[0][0]
        wake = max(wake, now)
        if wake < self._wake or self._wake <= now:
            self._wake = wake
            actions.append(Wake(wake))
        return actions

    def snapshot(self, now: float) -> dict[str, Any]:
        """Return what diagnostics show: counters, lanes, pools and cameras as plain values."""
        return take_snapshot(self, now)

    # ----- frames

    def _frame_arrived(self, now: float, event: FrameArrived) -> None:
        frame = event.frame
        lane = self.lanes[frame.lane]
        camera = self.cameras.get(frame.camera)
        if camera is None:
            camera = self.cameras[frame.camera] = CameraState()
        camera.left = False
        camera.lane = frame.lane
        camera.open += 1
        camera.arrivals.add(now)
        self.counters.received += 1
        lane.counters.received += 1
        camera.counters.received += 1
        job = Job(frame, lane.queue.lane)
        if camera.owed < job.urgency:
            job.urgency = camera.owed
        self._jobs[frame.id] = job
        if event.defect:
            self._end(now, job, Outcome.REJECTED, event.defect)
            return
        camera.last_captured = max(camera.last_captured, frame.captured)
        lane.arrivals.add(now)
        self._router.arrived(now, frame.lane)
        if now >= job.limit:
            self._end(now, job, Outcome.EXPIRED, 'older than its deadline on arrival')
            return
        if camera.last_answered > frame.captured:
            self._end(now, job, Outcome.SUPERSEDED, 'a newer frame was already answered')
            return
        queue = lane.queue
        if not len(queue):
            # Nothing of this lane waits, so nothing is overtaken by sending at once.
            decision = self._router.decide(job, now)
            if decision.verdict is Verdict.SEND:
                if not decision.late:
                    decision = self._router.explore(job, now, decision, lane.arrivals)
                self._send(now, job, decision)
                return
        else:
            decision = None
        self._enqueue(now, job)
        if job.stage is not Stage.QUEUED:
            return
        if decision is None:
            decision = self._router.decide(job, now)
        self._settle(now, job, decision)

    def _enqueue(self, now: float, job: Job) -> None:
        queue = self.lanes[job.frame.lane].queue
        lane = queue.lane
        if len(queue) >= lane.max_queue and not (
                lane.supersede and queue.holds(job.frame.camera)):
            self._end(now, job, Outcome.REJECTED, 'lane queue full')
            return
        superseded = queue.push(job)
        if superseded is not None:
            self._end(now, superseded, Outcome.SUPERSEDED, 'a newer frame came while it waited')

    def _settle(self, now: float, job: Job, decision: Decision) -> None:
        """Do to a waiting frame what was decided."""
        if decision.verdict is Verdict.SEND:
            self._dequeue(job)
            self._send(now, job, decision)
        elif decision.verdict is Verdict.HOLD:
            job.review_at = min(job.limit, max(decision.review_at, now + _SHORTEST_PAUSE))
            job.last_chance = decision.last_chance
            self._watch(job)
        else:
            probe = self._router.probe(job, now)
            if probe is not None:
                self._dequeue(job)
                self._send(now, job, probe)
            else:
                self._end(now, job, Outcome.EXPIRED, 'predicted later than its deadline')

    def _dequeue(self, job: Job) -> None:
        if job.stage is Stage.QUEUED:
            self.lanes[job.frame.lane].queue.discard(job)

    def _send(self, now: float, job: Job, decision: Decision) -> None:
        pool, replica, costs = decision.pool, decision.replica, decision.costs
        assert pool is not None and replica is not None and costs is not None
        job.stage = Stage.SENT
        job.replica = replica
        job.sent_at = now
        job.attempts += 1
        job.prediction = decision.prediction()
        job.review_at = math.inf
        hedging = self.lanes[job.frame.lane].hedging
        if hedging is not None and job.attempts == 1:
            hedging.budget.earn()
            job.review_at = now + hedging.delay()
            self._watch(job)
        lane = job.lane
        job.offloaded = lane.pools[0] != pool.config.name
        self.cameras[job.frame.camera].owed = math.inf
        pool.send(replica, job, now, costs)
        self._planner.sent(now, lane.name, pool.config.name)
        self._router.sent(now, job, pool)
        self._actions.append(Send(
            job.frame, pool.config.name, replica.name, lane.model, job.limit - now,
            job.prediction, job.offloaded))

    def _hedge(self, now: float, job: Job) -> None:
        """Send a second copy of a frame that is out for long, if that delays nobody."""
        job.review_at = math.inf
        lane = self.lanes[job.frame.lane]
        limits = self._configuration.limits
        if (lane.hedging is None or job.other is not None or len(lane.queue)
                or job.lane is not lane.queue.lane
                or job.attempts >= limits.max_attempts
                or self.cameras[job.frame.camera].last_answered > job.frame.captured):
            return
        decision = self._router.second(job, now)
        if (decision is None or decision.pool is None
                or not self._planner.rho[decision.pool.config.name] <= _HEDGE_RHO
                or lane.arrivals.bursting(now) or not lane.hedging.budget.take()):
            return
        job.set_aside()
        self._send(now, job, decision)

    def _drop_other(self, now: float, job: Job) -> None:
        """Take back the copy of a frame that is not needed any more."""
        other = job.other
        if other is None:
            return
        job.other = None
        self._actions.append(Cancel(job.frame, other.replica.name))
        pool = other.replica.pool
        pool.take_back(other.replica, job, now, still_busy=True)
        costs = pool.costs.get(job.lane.model)
        elapsed = now - other.sent_at - other.prediction.wait - other.prediction.network
        if costs is not None and elapsed > costs.service_high:
            # Were those that lose not counted, only quick ones would be.
            pool.learn_slower(job.lane.model, elapsed)

    def _dispatch(self, now: float) -> None:
        """Send waiting frames, the most urgent first, until none can go."""
        queues = [lane.queue for lane in self.lanes.values() if len(lane.queue)]
        lining_up = list(queues)
        while lining_up:
            chosen = None
            head = None
            for queue in lining_up:
                job = queue.head()
                if job is not None and (head is None or job.urgency < head.urgency):
                    chosen, head = queue, job
            if head is None or chosen is None:
                break
            decision = self._router.decide(head, now, at_head=True)
            if decision.verdict is Verdict.HOLD:
                # Whoever stands behind it wants the same pools and would overtake it.
                lining_up.remove(chosen)
            elif decision.late:
                chosen.stand_back()
            else:
                self._settle(now, head, decision)
        # Nobody who can be on time needs what room is left.
        for queue in queues:
            while (job := queue.last_resort()) is not None:
                decision = self._router.decide(job, now, at_head=True)
                if decision.verdict is Verdict.HOLD:
                    break
                self._settle(now, job, decision)

    def _frame_done(self, now: float, event: FrameDone) -> None:
        job = self._jobs.get(event.frame_id)
        replica = self._replicas.get(event.replica)
        if job is not None and replica is not None:
            job.turn_to(replica)
        if job is None or job.replica is not replica or replica is None:
            # Ended already, or sent elsewhere meanwhile: its other copy will end it.
            if replica is not None:
                replica.answered()
            return
        pool = replica.pool
        trip = now - job.sent_at
        costs = pool.costs.get(job.lane.model)
        service = event.service
        if not 0.0 < service < trip + _CLOCK_ERROR:
            # A foreign server that does not say, or one whose times cannot be: it began when the
            # frame was there and the one before was out.
            away = costs.network if costs is not None else 0.0
            begun = max(job.sent_at + 0.5 * away, replica.last_done - 0.5 * away)
            service = max(1e-6, now - 0.5 * away - begun)
        queue = event.queue if 0.0 < event.queue < trip + _CLOCK_ERROR else 0.0
        network = max(0.0, trip - queue - service)
        pool.take_back(replica, job, now, still_busy=False)
        pool.learn(job.lane.model, service, network)
        self._router.learned(now, pool.config.name, job.lane.model)
        replica.answered()
        camera = self.cameras[job.frame.camera]
        if camera.last_answered > job.frame.captured:
            self._end(now, job, Outcome.SUPERSEDED, 'a newer frame was answered first',
                      queue=queue, service=service, network=network)
        else:
            if not job.lane.out_of_order:
                camera.last_answered = job.frame.captured
            self._end(now, job, Outcome.ANSWERED, '' if now <= job.deadline else 'late',
                      queue=queue, service=service, network=network)
        self._dispatch(now)

    def _frame_failed(self, now: float, event: FrameFailed) -> None:
        job = self._jobs.get(event.frame_id)
        replica = self._replicas.get(event.replica)
        if replica is not None and event.cause in _REPLICA_FAULTS:
            self._accuse(now, replica, at_once=event.cause is Cause.UNAVAILABLE)
        if job is not None and replica is not None:
            job.turn_to(replica)
        if job is None or job.replica is None or job.replica.name != event.replica:
            if replica is not None:
                self._dispatch(now)
            return
        pool = job.replica.pool
        late = event.cause is Cause.DEADLINE
        pool.take_back(job.replica, job, now, still_busy=late)
        if late:
            elapsed = now - job.sent_at
            pool.learn_slower(job.lane.model, elapsed)
            predicted = job.prediction
            if replica is not None and predicted is not None and elapsed >= predicted.completion:
                self._accuse(now, replica, at_once=False)
        elif event.cause is Cause.BUSY and replica is not None:
            # Somebody else keeps it busy too: let it get one frame done.
            costs = pool.costs.get(job.lane.model)
            pause = max(_SHORTEST_PAUSE, costs.service if costs is not None else 0.1)
            self._suspend(
                now, replica, max(pause, min(pause * 2.0 ** replica.refusals, _LONGEST_PAUSE)))
            replica.refusals = min(replica.refusals + 1, 30)
            job.refusals += 1
        detail = event.detail or event.cause.value
        if job.fall_back():
            pass  # Its other copy will end it.
        elif late:
            self._end(now, job, Outcome.EXPIRED, 'no answer by its deadline')
        elif event.cause in _RETRIED and now < job.limit:
            self._retry(now, job, detail)
        else:
            self._end(now, job, Outcome.FAILED, detail)
        self._dispatch(now)

    def _retry(self, now: float, job: Job, detail: str) -> None:
        """Give a frame that came back unanswered another chance."""
        # A worker that is busy refuses at no cost: that is not held against the frame.
        counted = job.attempts - min(job.refusals, _FREE_REFUSALS)
        if counted >= self._configuration.limits.max_attempts:
            self._end(now, job, Outcome.FAILED, f'{detail} ({job.attempts} attempts)')
            return
        if self.cameras[job.frame.camera].last_answered > job.frame.captured:
            self._end(now, job, Outcome.SUPERSEDED, 'a newer frame was already answered')
            return
        job.replica = None
        job.stage = Stage.QUEUED
        # The lane may have changed while it was out.
        job.lane = self.lanes[job.frame.lane].queue.lane
        self._enqueue(now, job)
        if job.stage is Stage.QUEUED:
            self._settle(now, job, self._router.decide(job, now))

    def _accuse(self, now: float, replica: Replica, *, at_once: bool) -> None:
        """Leave a replica alone that is unreachable or keeps failing."""
        replica.failures += 1
        limit = 1 if at_once else self._configuration.limits.suspend_after
        # A suspension that is over but for the next tick is over.
        if replica.failures >= limit and not (
                replica.accused and now < replica.suspended_until):
            self._suspend(now, replica)

    def _suspend(self, now: float, replica: Replica, seconds: float = 0.0) -> None:
        """Leave a replica alone, for so many seconds or, 0, for longer each time."""
        before = replica.suspended_until
        until = replica.pool.suspend(replica, now, seconds)
        if until != before:
            self._timer(until, replica)

    def _end(
        self, now: float, job: Job, outcome: Outcome, reason: str = '', *, queue: float = 0.0,
        service: float = 0.0, network: float = 0.0
    ) -> None:
        """End a frame: the only place where one does."""
        if job.stage is Stage.QUEUED:
            self.lanes[job.frame.lane].queue.discard(job)
        first_sent = job.sent_at
        if job.other is not None:
            first_sent = min(first_sent, job.other.sent_at)
            self._drop_other(now, job)
        frame, replica = job.frame, job.replica
        job.stage = Stage.ENDED
        del self._jobs[frame.id]
        on_time = outcome is Outcome.ANSWERED and now <= job.deadline
        latency = now - frame.captured
        lane = self.lanes[frame.lane]
        camera = self.cameras[frame.camera]
        if outcome is Outcome.EXPIRED and not job.attempts:
            camera.owed = min(camera.owed, job.urgency)
        for counters in (self.counters, lane.counters, camera.counters):
            counters.ended[outcome] += 1
            if outcome is Outcome.ANSWERED and not on_time:
                counters.late += 1
        if outcome is Outcome.ANSWERED:
            lane.latencies.add(now, latency)
            if lane.hedging is not None:
                lane.hedging.completed(now - first_sent)
            if replica is not None:
                replica.pool.latencies.add(now, now - frame.received)
        else:
            camera.counters.reasons[f'{outcome.value}: {reason[:120]}'] += 1
            if len(camera.counters.reasons) > 50:
                # Foreign servers word their errors as they like: keep the most frequent.
                kept = camera.counters.reasons.most_common(25)
                camera.counters.reasons.clear()
                camera.counters.reasons.update(dict(kept))
        sent = job.attempts > 0
        self._actions.append(Ended(
            frame, outcome, reason, on_time, replica.pool.config.name if replica else '',
            replica.name if replica else '', job.offloaded, job.prediction, latency,
            (job.sent_at if sent else now) - frame.received, network, queue, service,
            job.attempts))
        camera.open -= 1
        if camera.left and camera.open == 0:
            del self.cameras[frame.camera]

    # ----- replicas

    def _replica_ready(self, now: float, event: ReplicaReady) -> None:
        pool = self.pools[event.pool]
        known = self._replicas.get(event.replica)
        if known is not None and known.pool is not pool:
            self._remove_replica(now, known, 'moved to another pool')
        replica = self._replicas[event.replica] = pool.add(event.replica, now)
        if replica.suspended_until > 0.0:
            self._timer(replica.suspended_until, replica)
        pool.refresh_all(now)
        self._router.refresh(now)
        self._dispatch(now)

    def _replica_draining(self, now: float, event: ReplicaDraining) -> None:
        replica = self._replicas.get(event.replica)
        if replica is not None:
            replica.pool.drain(replica)
            self._review_queues(now)

    def _replica_lost(self, now: float, event: ReplicaLost) -> None:
        replica = self._replicas.get(event.replica)
        if replica is not None:
            self._remove_replica(now, replica, event.reason or 'worker lost')
            self._review_queues(now)

    def _remove_replica(self, now: float, replica: Replica, reason: str) -> None:
        del self._replicas[replica.name]
        replica.pool.remove(replica)
        orphans = list(replica.in_flight.values())
        replica.in_flight.clear()
        for job in orphans:
            self._actions.append(Cancel(job.frame, replica.name))
            job.turn_to(replica)
            if job.fall_back():
                continue
            if now >= job.limit:
                self._end(now, job, Outcome.EXPIRED, 'no answer by its deadline')
            else:
                self._retry(now, job, reason)

    def _review_queues(self, now: float) -> None:
        """Look at every waiting frame again: what it waited for may be gone."""
        for lane in self.lanes.values():
            for job in sorted(lane.queue, key=lambda j: j.urgency):
                if job.stage is Stage.QUEUED:
                    self._settle(now, job, self._router.decide(job, now))

    # ----- time

    def _watch(self, job: Job) -> None:
        """See to it that a waiting frame is looked at by its ``review_at``."""
        if job.review_at < job.timer_at:
            job.timer_at = job.review_at
            self._timer(job.timer_at, job)

    def _timer(self, at: float, what: Job | Replica) -> None:
        self._sequence += 1
        heapq.heappush(self._timers, (at, self._sequence, what))
        if len(self._timers) > 4 * (len(self._jobs) + len(self._replicas)) + 256:
            self._timers = [entry for entry in self._timers if self._pending(*entry)]
            heapq.heapify(self._timers)

    @staticmethod
    def _pending(at: float, _: int, what: Job | Replica) -> bool:
        """Return whether a timer still means something; each frame and replica has but one."""
        if isinstance(what, Job):
            return at == what.timer_at and what.stage is not Stage.ENDED
        return at == what.suspended_until

    def _tick(self, now: float, event: Tick) -> None:
        resumed = False
        timers = self._timers
        while timers and timers[0][0] <= now:
            entry = heapq.heappop(timers)
            if not self._pending(*entry):
                continue
            what = entry[2]
            if isinstance(what, Replica):
                what.pool.resume(what)
                resumed = True
                continue
            what.timer_at = math.inf
            if what.review_at > now:
                self._watch(what)
            elif what.stage is Stage.SENT:
                self._hedge(now, what)
            else:
                self._settle(now, what, self._router.decide(
                    what, now, last_chance=what.last_chance))
            timers = self._timers
        if resumed:
            self._dispatch(now)
        if now >= self._next_scaling:
            self._next_scaling = now + self._configuration.limits.scale_interval
            self._give_up_lost(now)
            self._scale(now)

    def _give_up_lost(self, now: float) -> None:
        """End frames that are out long past their limit without a word."""
        lost = [job for job in self._jobs.values()
                if job.limit < now - _LOST_AFTER and job.stage is Stage.SENT]
        for job in lost:
            replica = job.replica
            assert replica is not None
            self._actions.append(Cancel(job.frame, replica.name))
            replica.pool.take_back(replica, job, now, still_busy=True)
            self._accuse(now, replica, at_once=False)
            self._end(now, job, Outcome.EXPIRED, 'no answer by its deadline')
        if lost:
            self._dispatch(now)

    def _scale(self, now: float) -> None:
        for pool in self.pools.values():
            pool.refresh_all(now)
        self._router.refresh(now)
        for name, replicas in self._planner.plan(now):
            self._actions.append(Scale(name, replicas))

    # ----- the world around

    def _pool_observed(self, now: float, event: PoolObserved) -> None:
        pool = self.pools[event.pool]
        pool.starting = event.starting
        if event.start_up > 0.0 and math.isfinite(event.start_up):
            pool.start_up = event.start_up
        wish = self._planner.observed(event.pool, event.ready + event.starting)
        if wish is not None:
            self._actions.append(Scale(event.pool, wish))

    def _camera_left(self, now: float, event: CameraLeft) -> None:
        camera = self.cameras.get(event.camera)
        if camera is not None:
            camera.left = True
            if camera.open == 0:
                del self.cameras[event.camera]

    def _configuration_changed(self, now: float, event: ConfigurationChanged) -> None:
        new = event.configuration
        for name in [n for n in self.lanes if n not in new.lanes]:
            for job in [j for j in self._jobs.values() if j.frame.lane == name]:
                if job.stage is Stage.SENT and job.replica is not None:
                    self._actions.append(Cancel(job.frame, job.replica.name))
                    job.replica.pool.take_back(job.replica, job, now, still_busy=True)
                self._end(now, job, Outcome.REJECTED, 'its lane was removed')
            del self.lanes[name]
        removed = [pool for name, pool in self.pools.items() if name not in new.pools]
        self._configure(new, now)
        self._router.refresh(now)
        for lane in self.lanes.values():
            for job in lane.queue:
                job.lane = lane.queue.lane
        # Only now, so that nothing goes from one replica of a removed pool to the next.
        for pool in removed:
            for replica in list(pool.replicas.values()):
                self._remove_replica(now, replica, 'its pool was removed')
        self._next_scaling = min(self._next_scaling, now)
        self._dispatch(now)
        self._review_queues(now)

    def _configure(self, configuration: Configuration, now: float = 0.0) -> None:
        old = getattr(self, '_configuration', configuration).limits
        self._configuration = configuration
        limits = configuration.limits
        windows = (limits.fast_window, limits.slow_window)
        pools = {}
        for name, pool in configuration.pools.items():
            state = self.pools.get(name)
            if state is None:
                state = PoolState(pool, limits)
            else:
                state.reconfigure(pool, limits, now)
            pools[name] = state
        self.pools = pools
        lanes = {}
        for name, lane in configuration.lanes.items():
            known = self.lanes.get(name)
            if known is None:
                known = LaneState(LaneQueue(lane), *windows)
            else:
                known.queue.lane = lane
                if windows != (old.fast_window, old.slow_window):
                    known.arrivals = Arrivals(*windows)
            wanted = (limits.hedge_share, limits.hedge_quantile)
            if limits.hedge_share == 0.0:
                known.hedging = None
            elif known.hedging is None or wanted != (old.hedge_share, old.hedge_quantile):
                known.hedging = Hedging(*wanted)
            lanes[name] = known
        self.lanes = lanes
        self._policy = self._make_policy(
            configuration, pools, lanes, getattr(self, '_policy', None))
        self._router, self._planner = self._policy
