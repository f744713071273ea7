"""Run the controller in a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
import math
from typing import Any

from laimr_ros.control.actions import Cancel, Ended, Scale, Send, Wake
from laimr_ros.control.controller import Controller
from laimr_ros.control.events import (
    Cause,
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
from laimr_ros.control.nouns import Frame, Outcome
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.result import ANSWERED, ENDINGS, OPEN, RunResult
from laimr_ros.simulation.scenarios import Fault, Scenario
from laimr_ros.simulation.things import Call, PoolWorld, Worker
from laimr_ros.simulation.workload import Draws, fault_times, Workload, workload_of
from laimr_ros.simulation.world import World
import numpy as np

_CODES = {outcome: code for code, outcome in enumerate(Outcome)}
# After the last frame's limit the run ends, whatever is still open.
_MARGIN = 5.0
_ROUTING = (FrameArrived, FrameDone, FrameFailed)


def simulate(
    scenario: Scenario, policy: Policy, seed: int, *,
    clock: Callable[[], float] | None = None, workload: Workload | None = None
) -> RunResult:
    """
    Run one policy in one scenario.

    :param seed: of everything random; arrivals, service and network times of the k-th frame of a
        robot and start-up times are functions of it alone, whatever the policy does.
    :param clock: wall clock in seconds that the controller's calls are timed by; None not to.
    :param workload: frames to take instead of the scenario's own.
    """
    if workload is None:
        workload = workload_of(scenario, seed)
    books = Books(workload, scenario)
    shards = scenario.dispatchers
    runs = []
    for number in range(shards):
        chosen = np.flatnonzero(workload.robot % shards == number)
        run = Run(_share(scenario, number), policy, seed, workload, chosen, books,
                  clock=clock, number=number)
        run.run()
        runs.append(run)
    return books.result(scenario, policy, seed, runs)


def _share(scenario: Scenario, number: int) -> Scenario:
    """Return the part of a scenario that one dispatcher has."""
    count = scenario.dispatchers
    if count == 1:
        return scenario

    def part(whole: int) -> int:
        return whole // count + (number < whole % count)

    return replace(
        scenario, dispatchers=1,
        pools={name: replace(
            pool, min_replicas=part(pool.min_replicas), max_replicas=part(pool.max_replicas),
            initial_replicas=part(pool.initial_replicas))
            for name, pool in scenario.pools.items()},
        instances={name: replace(
            law, capacity=law.capacity / count, background=law.background / count)
            for name, law in scenario.instances.items()})


class Books:
    """How every frame ended, by its number in the workload."""

    def __init__(self, workload: Workload, scenario: Scenario) -> None:
        """Start with every frame open."""
        self.workload = workload
        count = len(workload.time)
        self.pools = tuple(scenario.pools)
        self.numbers = {name: k for k, name in enumerate(self.pools)}
        self._first = {name: lane.pools[0] for name, lane in scenario.lanes.items()}
        self.finished = [math.nan] * count
        self.ending = [OPEN] * count
        self.pool = [-1] * count
        self.offloaded = [False] * count

    def ended(self, now: float, ended: Ended) -> None:
        """Note how a frame ended."""
        number = ended.frame.id
        if self.ending[number] != OPEN:
            raise RuntimeError(f'frame {number} ended twice: fix the controller')
        code = self.ending[number] = _CODES[ended.outcome]
        if code == ANSWERED:
            self.finished[number] = now
        if ended.pool:
            self.pool[number] = self.numbers[ended.pool]
            # By the scenario's order, whichever pool the policy prefers.
            self.offloaded[number] = ended.pool != self._first[ended.frame.lane]

    def result(
        self, scenario: Scenario, policy: Policy, seed: int, runs: Sequence[Run]
    ) -> RunResult:
        """Return what came out."""
        work = self.workload
        chosen = np.flatnonzero((work.time >= scenario.warm_up) & (work.time < scenario.end))
        ending = np.asarray(self.ending, np.int8)
        timed: dict[str, list[float]] = {}
        for run in runs:
            for kind, values in run.decision_s.items():
                timed.setdefault(kind, []).extend(values)
        return RunResult(
            scenario.name, policy.name, scenario.rate, seed, tuple(scenario.lanes), self.pools,
            tuple(lane.slo for lane in scenario.lanes.values()), scenario.measured,
            work.time[chosen], np.asarray(self.finished)[chosen], ending[chosen],
            work.lane[chosen], np.asarray(self.pool, np.int16)[chosen], work.robot[chosen],
            np.asarray(self.offloaded, bool)[chosen],
            {name: sum(run.world.pools[name].seconds for run in runs) for name in self.pools},
            {name: np.asarray(runs[0].world.pools[name].log, np.float64) for name in self.pools},
            len(work.time),
            dict(zip(ENDINGS, np.bincount(ending, minlength=len(ENDINGS)).tolist())),
            {kind: np.asarray(values) for kind, values in timed.items()})


class Run:
    """
    One controller in its world.

    Everything happens in callbacks of SimPy's events, a process a frame would cost too much.
    Events reach the controller as the dispatch loop hands them in, actions are done in their
    order, and what a replica cannot take fails in an event of its own, never within another.

    :param chosen: numbers of this dispatcher's frames in the workload, ascending.
    """

    def __init__(
        self, scenario: Scenario, policy: Policy, seed: int, workload: Workload,
        chosen: np.ndarray[Any, Any], books: Books, *, clock: Callable[[], float] | None = None,
        number: int = 0
    ) -> None:
        """Prepare; nothing happens before :meth:`run`."""
        self._scenario = scenario
        self._seed = seed
        self._books = books
        self._clock = clock
        self.decision_s: dict[str, list[float]] = {}
        if clock is not None:
            self.decision_s = {'routing': [], 'scaling': []}
            self._handle = self._handle_timed  # type: ignore[method-assign]
        self._draws = Draws(seed)
        self._times: list[float] = workload.time[chosen].tolist()
        self._ids: list[int] = chosen.tolist()
        self._robots: list[int] = workload.robot[chosen].tolist()
        self._counts: list[int] = workload.count[chosen].tolist()
        self._lanes = [workload.lanes[k] for k in workload.lane[chosen].tolist()]
        self._names = {robot: f'robot{robot}' for robot in set(self._robots)}
        self._next = 0
        # Of each frame that is open: robot, count, and how often it was sent.
        self._open: dict[int, list[int]] = {}
        self._calls: dict[tuple[int, str], Call] = {}
        self._workers: dict[str, Worker] = {}
        self._wake = math.inf
        world = self.world = World(
            scenario, self._draws, (scenario.warm_up, scenario.end),
            number * len(scenario.pools))
        self.env = world.env
        world.on_ready = self._ready
        world.on_draining = self._draining
        world.on_changed = self._observed
        world.on_answer = self._answer
        world.on_failed = self._failed
        world.on_late = self._late
        world.on_gone = self._gone
        known: Mapping[str, list[float]] = {}
        if policy.scaling == 'clairvoyant':
            known = {lane: [t for t, own in zip(self._times, self._lanes) if own == lane]
                     for lane in scenario.lanes}
        self.controller = Controller(
            policy.configuration(scenario), policy.maker(scenario, known))
        self._doers: dict[type, Callable[[Any], None]] = {
            Send: self._send, Cancel: self._cancel, Ended: self._ended, Scale: self._scale,
            Wake: self._set_wake}

    def run(self) -> None:
        """Let time pass until every frame has ended."""
        scenario, world = self._scenario, self.world
        world.open()
        self._handle(Tick())
        for number, fault in enumerate(scenario.faults):
            self._prepare(number, fault)
        self._follow()
        self.env.run(until=scenario.end)
        patience = max(lane.slo + (lane.late_by or lane.slo) * lane.late_answers
                       for lane in scenario.lanes.values())
        limit = scenario.end + patience + _MARGIN
        while self._open and self.env.now < limit:
            self.env.run(until=min(limit, self.env.now + 1.0))
        world.close()

    # ----- the controller

    def _handle(self, event: Event) -> None:
        doers = self._doers
        for action in self.controller.handle(self.env.now, event):
            doers[type(action)](action)

    def _handle_timed(self, event: Event) -> None:
        assert self._clock is not None
        before = self._clock()
        actions = self.controller.handle(self.env.now, event)
        took = self._clock() - before
        if isinstance(event, Tick):
            self.decision_s['scaling'].append(took)
        elif isinstance(event, _ROUTING):
            self.decision_s['routing'].append(took)
        for action in actions:
            self._doers[type(action)](action)

    # ----- frames

    def _follow(self) -> None:
        if self._next < len(self._times):
            self.world.later(self._times[self._next] - self.env.now, self._arrive)

    def _arrive(self, event: Any) -> None:
        k = self._next
        self._next = k + 1
        number, robot = self._ids[k], self._robots[k]
        self._open[number] = [robot, self._counts[k], 0]
        now = self.env.now
        self._handle(FrameArrived(Frame(number, self._names[robot], self._lanes[k], now, now)))
        self._follow()

    def _send(self, action: Send) -> None:
        number = action.frame.id
        frame = self._open[number]
        robot, count, sending = frame
        frame[2] = sending + 1
        worker = self._workers.get(action.replica)
        if worker is None:
            raise RuntimeError(
                f'frame {number} was sent to {action.replica!r}, which was lost: fix the '
                'controller')
        pool = worker.pool
        half = 0.5 * pool.network(self._draws.network(robot, count, sending))
        call = Call(
            number, worker, pool.services[action.model],
            self._draws.service(robot, count, sending), half, self.env.now + action.timeout)
        self._calls[number, action.replica] = call
        self.world.send(call)

    def _cancel(self, action: Cancel) -> None:
        call = self._calls.pop((action.frame.id, action.replica), None)
        if call is not None:
            self.world.forget(call)
            self.world.later(0.0, self._settle, call.worker)

    def _settle(self, event: Any) -> None:
        self.world.settle(event.value)

    def _take_back(self, call: Call) -> None:
        del self._calls[call.frame, call.worker.name]
        self.world.forget(call)

    def _answer(self, call: Call) -> None:
        self._take_back(call)
        self._handle(FrameDone(
            call.frame, call.worker.name, call.began - call.reached, call.service))
        if call.worker.state == 'draining':
            self.world.settle(call.worker)

    def _failed(self, call: Call) -> None:
        self._take_back(call)
        self._handle(FrameFailed(call.frame, call.worker.name, Cause.UNAVAILABLE))

    def _late(self, call: Call) -> None:
        self._take_back(call)
        self._handle(FrameFailed(call.frame, call.worker.name, Cause.DEADLINE))
        if call.worker.state == 'draining':
            self.world.settle(call.worker)

    def _ended(self, action: Ended) -> None:
        self._books.ended(self.env.now, action)
        del self._open[action.frame.id]

    # ----- replicas

    def _scale(self, action: Scale) -> None:
        self.world.scale(action.pool, action.replicas)

    def _ready(self, worker: Worker) -> None:
        self._workers[worker.name] = worker
        self._handle(ReplicaReady(worker.pool.name, worker.name))

    def _draining(self, worker: Worker) -> None:
        self._handle(ReplicaDraining(worker.name))

    def _gone(self, worker: Worker) -> None:
        self._handle(ReplicaLost(worker.name, 'worker lost'))
        # Whatever of its frames the controller did not take back is not waited for.
        self._workers.pop(worker.name, None)

    def _observed(self, pool: PoolWorld) -> None:
        self._handle(PoolObserved(
            pool.name, pool.count('ready'), pool.count('starting') + pool.pending,
            pool.measured_start_up()))

    # ----- time

    def _set_wake(self, action: Wake) -> None:
        self._wake = action.at
        self.world.later(action.at - self.env.now, self._awake, action.at)

    def _awake(self, event: Any) -> None:
        if event.value == self._wake:
            self._handle(Tick())

    def _prepare(self, number: int, fault: Fault) -> None:
        scenario, world = self._scenario, self.world
        at = scenario.warm_up + fault.at_share * scenario.measured
        if fault.kind == 'replica_death':
            for when, which in fault_times(
                    self._seed, number, fault.every, scenario.end - at):
                world.later(at + when, lambda event: world.kill(*event.value),
                            (fault.pool, which))
        elif fault.kind == 'link_cut':
            world.later(at, lambda event: world.cut(
                fault.pool, fault.duration, fault.detect))
        else:
            world.later(at, lambda event: self._slow_down(fault))

    def _slow_down(self, fault: Fault) -> None:
        for name, pool in self.world.pools.items():
            if fault.pool in ('', name):
                pool.slow_down *= fault.factor
