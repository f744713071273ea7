"""Invariants of the controller under random orders of every event, sensible or not."""

from __future__ import annotations

from controller_harness import configure, Harness, make_lane, make_pool
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, RuleBasedStateMachine
from laimr_ros.control import hedging
from laimr_ros.control.events import (
    CameraLeft,
    Cause,
    ConfigurationChanged,
    FrameDone,
    FrameFailed,
    PoolObserved,
    ReplicaDraining,
    ReplicaLost,
    ReplicaReady,
)
from laimr_ros.control.nouns import Configuration, Outcome, PowerLaw

CAMERAS = [f'cam{i}' for i in range(5)]
LANES = ['fast', 'good', 'all']
POOLS = ['edge', 'cloud']
REPLICAS = [f'{pool}{i}' for pool in POOLS for i in range(3)]
LONGEST = 4.0


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """Draw a configuration; one lane and one pool at least stay."""
    models = {'m': PowerLaw(0.05, 0.01, 1.2), 'n': PowerLaw(0.2, 0.0, 1.0, 0.5)}
    names = draw(st.sampled_from([POOLS, ['edge'], ['cloud']]))
    pools = []
    for name in names:
        least = draw(st.integers(0, 2))
        pools.append(make_pool(
            name, models=models, network=draw(st.sampled_from([0.0, 0.02, 0.2])),
            min_replicas=least, max_replicas=least + draw(st.integers(0, 4)),
            max_in_flight=draw(st.integers(1, 3))))
    lanes = []
    for name in draw(st.sampled_from([LANES, LANES[:2], LANES[1:], LANES[:1]])):
        lanes.append(make_lane(
            name, draw(st.sampled_from([0.1, 0.5, 2.0])),
            *draw(st.permutations(names))[:draw(st.integers(1, len(names)))],
            model=draw(st.sampled_from(['m', 'n'])), supersede=draw(st.booleans()),
            max_queue=draw(st.sampled_from([1, 3, 1000])), late_answers=draw(st.booleans())))
    return configure(
        lanes, pools, draw(st.sampled_from(['laimr', 'laimr', 'laimr_paper'])),
        exploration=draw(st.sampled_from([0.0, 0.01, 0.5])),
        hedge_share=draw(st.sampled_from([0.0, 0.5, 0.99])), max_attempts=draw(st.integers(1, 4)),
        suspend_after=draw(st.integers(1, 3)), probe_interval=draw(st.sampled_from([0.1, 5.0])),
        stabilisation=draw(st.sampled_from([0.0, 1.0, 30.0])),
        routing_quantile=draw(st.sampled_from([0.5, 0.95])))


class ControllerMachine(RuleBasedStateMachine):
    """The harness holds every single action against its own books; here is only chance."""

    @initialize(configuration=configurations())
    def start(self, configuration: Configuration) -> None:
        # So that second copies are sent in runs as short as these.
        self.least_samples = hedging._LEAST_SAMPLES
        hedging._LEAST_SAMPLES = 1
        self.harness = Harness(configuration, now=1000.0)

    def _frame(self, data: st.DataObject) -> tuple[int, str]:
        """Return a frame that is out and where."""
        out = [(f, r) for r, frames in self.harness.sent.items() for f in frames]
        return data.draw(st.sampled_from(sorted(out)))

    def _anything_out(self) -> bool:
        return hasattr(self, 'harness') and any(self.harness.sent.values())

    @rule(
        camera=st.sampled_from(CAMERAS), data=st.data(),
        age=st.sampled_from([0.0, 0.0, 0.0, 0.03, 0.3, 10.0, -0.2]),
        defect=st.sampled_from(['', '', '', '', '', 'empty image']))
    def frame_arrives(self, camera: str, data: st.DataObject, age: float, defect: str) -> None:
        lane = data.draw(st.sampled_from(sorted(self.harness.configuration.lanes)))
        self.harness.arrive(camera, lane, age=age, defect=defect)

    @rule(data=st.data(), count=st.integers(2, 12))
    def burst_arrives(self, data: st.DataObject, count: int) -> None:
        lane = data.draw(st.sampled_from(sorted(self.harness.configuration.lanes)))
        for k in range(count):
            self.harness.arrive(CAMERAS[k % len(CAMERAS)], lane)

    @precondition(_anything_out)
    @rule(data=st.data(), service=st.sampled_from([0.0, 0.01, 0.05, 0.5]))
    def frame_is_done(self, data: st.DataObject, service: float) -> None:
        frame, replica = self._frame(data)
        self.harness.handle(FrameDone(frame, replica, 0.0, service))

    @precondition(_anything_out)
    @rule(data=st.data(), cause=st.sampled_from(list(Cause)))
    def frame_fails(self, data: st.DataObject, cause: Cause) -> None:
        frame, replica = self._frame(data)
        self.harness.handle(FrameFailed(frame, replica, cause, 'says the worker'))

    @rule(frame=st.integers(0, 60), replica=st.sampled_from([*REPLICAS, 'never heard of']))
    def something_is_done(self, frame: int, replica: str) -> None:
        """Answers that are stale, doubled, or of frames and replicas that never were."""
        self.harness.handle(FrameDone(frame, replica, 0.0, 0.05))

    @rule(
        frame=st.integers(0, 60), replica=st.sampled_from([*REPLICAS, 'never heard of']),
        cause=st.sampled_from(list(Cause)))
    def something_fails(self, frame: int, replica: str, cause: Cause) -> None:
        self.harness.handle(FrameFailed(frame, replica, cause))

    @rule(replica=st.sampled_from(REPLICAS), data=st.data())
    def replica_becomes_ready(self, replica: str, data: st.DataObject) -> None:
        # Now and then under the name of one that another pool has.
        pool = data.draw(st.sampled_from(sorted(self.harness.configuration.pools)))
        self.harness.handle(ReplicaReady(pool, replica))

    @rule(replica=st.sampled_from([*REPLICAS, 'never heard of']))
    def replica_drains(self, replica: str) -> None:
        self.harness.handle(ReplicaDraining(replica))

    @rule(replica=st.sampled_from([*REPLICAS, 'never heard of']))
    def replica_is_lost(self, replica: str) -> None:
        self.harness.handle(ReplicaLost(replica, 'gone'))

    @rule(
        data=st.data(), ready=st.integers(0, 9), starting=st.integers(0, 9),
        start_up=st.sampled_from([0.0, 2.0, float('inf')]))
    def pool_is_observed(
        self, data: st.DataObject, ready: int, starting: int, start_up: float
    ) -> None:
        pool = data.draw(st.sampled_from(sorted(self.harness.configuration.pools)))
        self.harness.handle(PoolObserved(pool, ready, starting, start_up))

    @rule(camera=st.sampled_from([*CAMERAS, 'never seen']))
    def camera_leaves(self, camera: str) -> None:
        self.harness.handle(CameraLeft(camera))

    @rule(configuration=configurations())
    def configuration_changes(self, configuration: Configuration) -> None:
        self.harness.handle(ConfigurationChanged(configuration))

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.1, 0.5]))
    def time_passes(self, seconds: float) -> None:
        """Move on without the controller being told."""
        self.harness.now += seconds

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.5, 2.0]))
    def driver_keeps_time(self, seconds: float) -> None:
        self.harness.run_until(self.harness.now + seconds)

    @rule()
    def driver_ticks(self) -> None:
        self.harness.tick()

    @invariant()
    def snapshot_can_be_taken(self) -> None:
        if hasattr(self, 'harness'):
            self.harness.controller.snapshot(self.harness.now)

    def teardown(self) -> None:
        """Whatever happened, with time every frame ends."""
        if not hasattr(self, 'harness'):
            return
        hedging._LEAST_SAMPLES = self.least_samples
        harness = self.harness
        harness.run_until(harness.now + 2.0 * LONGEST + 0.5)
        assert not harness.open
        counters = harness.controller.counters
        assert counters.in_flight == 0
        assert sum(counters.ended[o] for o in Outcome) == harness.received
        assert not harness.controller._jobs
        for camera in CAMERAS:
            harness.handle(CameraLeft(camera))
        assert not harness.controller.cameras


ControllerMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
TestControllerProperties = ControllerMachine.TestCase


@st.composite
def hedging_configurations(draw: st.DrawFn) -> Configuration:
    """Draw a configuration under which second copies are sent as often as can be."""
    models = {'m': PowerLaw(0.05, 0.01, 1.2)}
    pools = [make_pool(name, models=models, network=0.01, max_in_flight=draw(st.integers(1, 2)))
             for name in POOLS]
    lanes = [make_lane(name, 2.0, *draw(st.permutations(POOLS)), late_answers=draw(st.booleans()))
             for name in LANES[:draw(st.integers(1, 2))]]
    return configure(
        lanes, pools, hedge_share=0.99, hedge_quantile=0.5, exploration=0.0,
        max_attempts=draw(st.integers(2, 4)), suspend_after=3)


class HedgingMachine(ControllerMachine):
    """The same with frames that are often out twice."""

    @initialize(configuration=hedging_configurations())
    def start(self, configuration: Configuration) -> None:
        super().start(configuration)
        for name in REPLICAS:
            self.harness.handle(ReplicaReady(name[:-1], name))
        for lane in self.harness.controller.lanes.values():
            assert lane.hedging is not None
            for k in range(4):
                frame = self.harness.arrive(f'cam{k}', lane.queue.lane.name)
                self.harness.done(frame, 0.05)

    @rule(configuration=hedging_configurations())
    def configuration_changes(self, configuration: Configuration) -> None:
        super().configuration_changes(configuration)

    @precondition(lambda self: self._anything_out())
    @rule(data=st.data())
    def copy_is_out(self, data: st.DataObject) -> None:
        """Let time pass until second copies are out."""
        self.harness.run_until(self.harness.now + 0.02)


HedgingMachine.TestCase.settings = ControllerMachine.TestCase.settings
TestHedgingProperties = HedgingMachine.TestCase
