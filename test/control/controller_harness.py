"""A driver of the controller that keeps its own books and checks every invariant on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
import math
from typing import Any, TypeVar

from laimr_ros.control.actions import Action, Cancel, Ended, Scale, Send, Wake
from laimr_ros.control.controller import Controller
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
from laimr_ros.control.nouns import (
    Configuration,
    Frame,
    Lane,
    Limits,
    Network,
    Outcome,
    Pool,
    PowerLaw,
)

T = TypeVar('T')


def make_pool(
    name: str = 'edge', service: float = 0.1, *, network: float = 0.0, cv: float = 0.0,
    models: Mapping[str, PowerLaw] | None = None, **fields: Any
) -> Pool:
    """Return a pool whose times are constants: predictions can be worked out by hand."""
    fields.setdefault('max_replicas', 10)
    return Pool(name, models or {'m': PowerLaw(service, cv=cv)}, network=Network(network, 0.0),
                **fields)


def make_lane(name: str = 'lane', slo: float = 1.0, *pools: str, **fields: Any) -> Lane:
    """Return a lane of model ``m``."""
    fields.setdefault('model', 'm')
    return Lane(name, slo=slo, pools=pools or ('edge',), **fields)


def configure(
    lanes: Iterable[Lane], pools: Iterable[Pool], policy: str = 'laimr', **limits: Any
) -> Configuration:
    """Return a configuration of these lanes and pools."""
    return Configuration(
        {lane.name: lane for lane in lanes}, {pool.name: pool for pool in pools},
        limits=Limits(**limits), policy=policy)


def only(actions: Iterable[Action], kind: type[T]) -> list[T]:
    """Return the actions of one kind."""
    return [a for a in actions if isinstance(a, kind)]


class Harness:
    """
    Drives a controller and holds its actions against independent books.

    :param controller: driven by nobody else.
    :ivar sent: frames out on each replica, as the wire sees it.
    :ivar wake: the last wake asked for.
    """

    def __init__(self, configuration: Configuration, now: float = 0.0) -> None:
        self.controller = Controller(configuration)
        self.configuration = configuration
        self.now = now
        self.wake = math.inf
        self.open: dict[int, Frame] = {}
        self.ended: dict[int, Ended] = {}
        self.sends: dict[int, list[Send]] = {}
        self.sent: dict[str, dict[int, Frame]] = {}
        self.pool_of: dict[str, str] = {}
        self.draining: set[str] = set()
        self.quiet_until: dict[str, float] = {}
        self.accused_until: dict[str, float] = {}
        self.observed: set[str] = set()
        self.received = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.by_lane: Counter[str] = Counter()
        self.by_camera: Counter[str] = Counter()
        self.left: set[str] = set()
        self.published: dict[str, float] = {}
        self.desired: dict[str, int] = {}
        self.defective: set[int] = set()
        self.limits: dict[int, float] = {}
        self.on_time = 0
        self.hedged = 0
        self.answering = ''
        self._most_hedged = configuration.limits.hedge_share
        self._next_id = 0
        # Heaps may keep what was allowed before, so bounds rest on the most there ever was.
        self._most_open = 0
        self._most_replicas = 0
        self._most_attempts = configuration.limits.max_attempts
        self.refusals: Counter[int] = Counter()
        self._widest: dict[str, int] = {}

    # ----- events in few words

    def arrive(
        self, camera: str = 'cam', lane: str = 'lane', *, age: float = 0.0, defect: str = ''
    ) -> int:
        """Let a frame arrive that was captured ``age`` seconds ago; return its id."""
        frame = Frame(self._next_id, camera, lane, self.now - age, self.now)
        self._next_id += 1
        self.handle(FrameArrived(frame, defect))
        return frame.id

    def ready(self, *replicas: str, pool: str = 'edge') -> list[Action]:
        """Let replicas become ready."""
        return [a for r in replicas for a in self.handle(ReplicaReady(pool, r))]

    def done(self, frame: int, service: float = 0.0, replica: str = '') -> list[Action]:
        """Let the answer to a frame come from where it was last sent, or from ``replica``."""
        return self.handle(FrameDone(
            frame, replica or self.sends[frame][-1].replica, service=service))

    def fail(self, frame: int, cause: Cause, replica: str = '') -> list[Action]:
        """Let a frame come back unanswered."""
        return self.handle(FrameFailed(frame, replica or self.sends[frame][-1].replica, cause))

    def tick(self, to: float | None = None) -> list[Action]:
        """Move on to a time and tick."""
        if to is not None:
            self.now = max(self.now, to)
        return self.handle(Tick())

    def run_until(self, end: float) -> list[Action]:
        """Tick at the wakes asked for, and at no other time, until ``end``."""
        actions = []
        steps = 0
        while self.wake <= end:
            actions += self.tick(self.wake)
            steps += 1
            assert steps < 2_000, 'the controller asks to be woken without end'
        self.now = max(self.now, end)
        out = {frame for frames in self.sent.values() for frame in frames}
        assert all(self.limits[f] > end - 1e-9 or f in out for f in self.open), \
            'a frame waits past its limit'
        return actions

    # ----- what became of frames

    def where(self, frame: int) -> str:
        """Return the replica that a frame is out on, ``'queued'`` or how it ended."""
        if frame in self.ended:
            return self.ended[frame].outcome.value
        for replica, frames in self.sent.items():
            if frame in frames:
                return replica
        return 'queued'

    # ----- one event, and all the books

    def handle(self, event: Event) -> list[Action]:
        """Hand an event in, check everything, return the actions."""
        answered = self._before(event)
        actions = self.controller.handle(self.now, event)
        for action in actions:
            self._check_action(action, answered)
        if isinstance(event, ReplicaLost):
            assert not self.sent.get(event.replica), 'frames left on a lost replica'
        self._check_counters()
        self._check_bounds()
        assert self.wake < math.inf
        return actions

    def _before(self, event: Event) -> int | None:
        """Note what an event says; return the frame that it may answer."""
        if isinstance(event, FrameArrived):
            frame = event.frame
            self.open[frame.id] = frame
            self.sends[frame.id] = []
            self.received += 1
            self.by_lane[frame.lane] += 1
            self.by_camera[frame.camera] += 1
            self.left.discard(frame.camera)
            lane = self.configuration.lanes[frame.lane]
            self.limits[frame.id] = (
                frame.captured + lane.slo * (2.0 if lane.late_answers else 1.0))
            if event.defect:
                self.defective.add(frame.id)
        elif isinstance(event, (FrameDone, FrameFailed)):
            frames = self.sent.get(event.replica, {})
            mine = frames.pop(event.frame_id, None) is not None
            if isinstance(event, FrameDone):
                self.answering = event.replica
                return event.frame_id if mine else None
            if mine and event.cause is Cause.BUSY:
                self.refusals[event.frame_id] += 1
            if event.replica in self.pool_of:
                if event.cause is Cause.UNAVAILABLE:
                    # While it is left alone anyway, hearing it again says nothing new.
                    if self.now >= self.accused_until.get(event.replica, -math.inf):
                        self.accused_until[event.replica] = self.now + 1.0
                        self._keep_quiet(event.replica, 1.0)
                elif event.cause in (Cause.INTERNAL, Cause.DEADLINE):
                    # A number of these may have it left alone already, from an unknown time on.
                    self.accused_until[event.replica] = math.inf
                elif event.cause is Cause.BUSY and mine:
                    self._keep_quiet(event.replica, 0.01)
        elif isinstance(event, ReplicaReady):
            if self.pool_of.get(event.replica) != event.pool:
                self.pool_of[event.replica] = event.pool
            self.draining.discard(event.replica)
            self.quiet_until.pop(event.replica, None)
            self.accused_until.pop(event.replica, None)
            self.sent.setdefault(event.replica, {})
        elif isinstance(event, ReplicaDraining):
            self.draining.add(event.replica)
        elif isinstance(event, ReplicaLost):
            self._forget(event.replica)
        elif isinstance(event, PoolObserved):
            self.observed.add(event.pool)
        elif isinstance(event, CameraLeft):
            self.left.add(event.camera)
        elif isinstance(event, ConfigurationChanged):
            self._reconfigure(event.configuration)
        return None

    def _keep_quiet(self, replica: str, seconds: float) -> None:
        until = max(self.quiet_until.get(replica, 0.0), self.now + seconds)
        self.quiet_until[replica] = until

    def _forget(self, replica: str) -> None:
        self.pool_of.pop(replica, None)
        self.draining.discard(replica)
        self.quiet_until.pop(replica, None)
        self.accused_until.pop(replica, None)

    def _reconfigure(self, new: Configuration) -> None:
        self.configuration = new
        # A frame that waited for its last attempt when fewer were allowed may still have it.
        self._most_attempts = max(self._most_attempts, new.limits.max_attempts)
        self._most_hedged = max(self._most_hedged, new.limits.hedge_share)
        for replica, pool in list(self.pool_of.items()):
            if pool not in new.pools:
                self._forget(replica)
        self.observed &= set(new.pools)
        for name in [n for n in self.by_lane if n not in new.lanes]:
            del self.by_lane[name]

    def _check_action(self, action: Action, answered: int | None) -> None:
        if isinstance(action, Send):
            self._check_send(action)
        elif isinstance(action, Cancel):
            frames = self.sent[action.replica]
            assert frames.pop(action.frame.id) is action.frame
        elif isinstance(action, Ended):
            self._check_ended(action, answered)
        elif isinstance(action, Scale):
            pool = self.configuration.pools[action.pool]
            assert action.pool in self.observed, 'scaled before anything was observed'
            assert pool.min_replicas <= action.replicas <= pool.max_replicas
            self.desired[action.pool] = action.replicas
        elif isinstance(action, Wake):
            assert self.now <= action.at < math.inf
            self.wake = action.at

    def _check_send(self, action: Send) -> None:
        frame = action.frame
        lane_slo = self.configuration.lanes[frame.lane].slo
        assert self.open[frame.id] is frame, 'sent after it ended'
        copies = [replica for replica, frames in self.sent.items() if frame.id in frames]
        assert action.replica not in copies, 'sent there twice'
        if copies:
            limits = self.configuration.limits
            assert len(copies) == 1 and limits.hedge_share > 0.0, 'sent twice at once'
            assert self.configuration.policy == 'laimr'
            assert not self.sent[action.replica], 'a copy stands before nobody and behind nobody'
            assert self.now + action.prediction.completion <= frame.captured + lane_slo + 1e-6
            self.hedged += 1
            assert self.hedged <= self._most_hedged * self.received + 1e-6
        assert frame.id not in self.defective
        lane = self.configuration.lanes[frame.lane]
        assert self.pool_of[action.replica] == action.pool, 'sent to a replica that is gone'
        assert action.replica not in self.draining
        assert self.now >= self.quiet_until.get(action.replica, -math.inf) - 1e-9, 'suspended'
        assert action.pool in lane.pools
        assert action.offloaded == (action.pool != lane.pools[0])
        assert action.model == lane.model
        assert action.model in self.configuration.pools[action.pool].models
        assert 0.0 < action.timeout < math.inf
        assert self.now + action.timeout <= self.limits[frame.id] + 1e-6
        prediction = action.prediction
        assert prediction.wait >= 0.0 and prediction.network >= 0.0 and prediction.service > 0.0
        assert prediction.completion >= prediction.wait + prediction.service - 1e-9
        frames = self.sent[action.replica]
        frames[frame.id] = frame
        assert len(frames) <= self.configuration.pools[action.pool].max_in_flight
        self.sends[frame.id].append(action)
        # A busy worker's refusal is not held against the frame, within bounds.
        free = min(self.refusals[frame.id], 8)
        assert len(self.sends[frame.id]) <= self._most_attempts + free

    def _check_ended(self, action: Ended, answered: int | None) -> None:
        frame = action.frame
        assert self.open.pop(frame.id) is frame, 'ended twice'
        for replica, frames in self.sent.items():
            assert frame.id not in frames, f'ended while {replica} still works on it'
        self.ended[frame.id] = action
        self.outcomes[action.outcome] += 1
        self.on_time += action.on_time
        assert action.attempts == len(self.sends[frame.id])
        if action.outcome is Outcome.ANSWERED:
            assert frame.id == answered, 'answered without an answer'
            assert frame.captured >= self.published.get(frame.camera, -math.inf), \
                'published after its camera had moved on'
            self.published[frame.camera] = frame.captured
            # The last sent to it: where two copies were out, not always the very last.
            by = [s for s in self.sends[frame.id] if s.replica == self.answering][-1]
            assert (action.pool, action.replica) == (by.pool, by.replica)
            assert action.prediction is by.prediction
            assert action.offloaded == by.offloaded
        else:
            assert action.reason
            assert not action.on_time
        if frame.id in self.defective:
            assert action.outcome is Outcome.REJECTED

    def _check_counters(self) -> None:
        controller = self.controller
        counts = controller.counters.as_dict()
        assert counts['received'] == self.received
        for outcome in Outcome:
            assert counts[outcome.value] == self.outcomes[outcome]
        assert counts['in_flight'] == len(self.open)
        assert counts['received'] == counts['in_flight'] + sum(
            counts[o.value] for o in Outcome)
        assert counts['on_time'] == self.on_time
        waiting = 0
        for name, lane in controller.lanes.items():
            assert lane.counters.received == self.by_lane[name]
            open_here = sum(f.lane == name for f in self.open.values())
            assert lane.counters.in_flight == open_here
            waiting += len(lane.queue)
        out = len({frame for frames in self.sent.values() for frame in frames})
        assert waiting + out == len(self.open)
        for name, camera in controller.cameras.items():
            open_here = sum(f.camera == name for f in self.open.values())
            assert camera.counters.in_flight == camera.open == open_here
        # A camera that left is forgotten with its last frame, and none before.
        for name in self.by_camera:
            assert name in controller.cameras or name in self.left
        for name in self.left:
            if not any(f.camera == name for f in self.open.values()):
                assert name not in controller.cameras
                self.by_camera.pop(name, None)
                # Should it come back, it starts anew.
                self.published.pop(name, None)
        for name, camera in controller.cameras.items():
            assert camera.counters.received == self.by_camera[name]

    def _check_bounds(self) -> None:
        controller = self.controller
        self._most_open = most_open = max(self._most_open, len(self.open))
        self._most_replicas = most_replicas = max(self._most_replicas, len(self.pool_of))
        for name, lane in controller.lanes.items():
            widest = max(self._widest.get(name, 0), self.configuration.lanes[name].max_queue)
            self._widest[name] = widest
            assert len(lane.queue) <= widest
            assert len(lane.queue._heap) <= 2 * most_open + 65
        assert len(controller._timers) <= 4 * (most_open + 2 * most_replicas) + 257
        for pool in controller.pools.values():
            assert len(pool._open) <= 4 * most_replicas + 257
            assert len(pool._full) <= 4 * most_replicas + 257
