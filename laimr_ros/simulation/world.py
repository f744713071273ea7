"""What happens in a simulated world: replicas come and go, frames are served, links break."""

from __future__ import annotations

from collections.abc import Callable
import math
from typing import Any

from laimr_ros.simulation.scenarios import Scenario
from laimr_ros.simulation.things import Call, InstanceWorld, PoolWorld, Worker
from laimr_ros.simulation.workload import Draws
from simpy import Environment
from simpy.events import Timeout


class World:
    """
    Pools on their instances in simulated time.

    Whoever uses it sets the hooks, which are called in the course of events.

    :param measure: start and end of the time whose replica-seconds count, in seconds.
    :param place: number of the first pool in the draws of start-ups.
    :ivar on_ready: a worker serves.
    :ivar on_draining: a worker is to take no more frames.
    :ivar on_changed: a pool's numbers changed.
    :ivar on_answer: an answer arrives.
    :ivar on_failed: a worker turns out to be unreachable while a call is open.
    :ivar on_late: a call's deadline passes.
    :ivar on_gone: the dispatcher learns that a worker is gone.
    """

    on_ready: Callable[[Worker], None]
    on_draining: Callable[[Worker], None]
    on_changed: Callable[[PoolWorld], None]
    on_answer: Callable[[Call], None]
    on_failed: Callable[[Call], None]
    on_late: Callable[[Call], None]
    on_gone: Callable[[Worker], None]

    def __init__(
        self, scenario: Scenario, draws: Draws, measure: tuple[float, float], place: int = 0
    ) -> None:
        """Build it; nothing happens before :meth:`open`."""
        self.env = Environment()
        self._scenario = scenario
        self._draws = draws
        self._measure = measure
        instances = {
            name: InstanceWorld(law) for name, law in scenario.instances.items()}
        self.pools = {
            name: PoolWorld(name, law, instances[law.instance], scenario)
            for name, law in scenario.pools.items()}
        self._place = {name: place + k for k, name in enumerate(self.pools)}
        self._changed_at = dict.fromkeys(self.pools, 0.0)
        self._names = 0

    def later(self, delay: float, what: Callable[[Any], Any], value: Any = None) -> None:
        """Call something, after a delay in seconds, with an event that carries a value."""
        event = Timeout(self.env, delay if delay > 0.0 else 0.0, value)
        callbacks: list[Any] = event.callbacks
        callbacks.append(what)

    def open(self) -> None:
        """Have the first replicas ready at once."""
        for pool in self.pools.values():
            for _ in range(pool.law.initial_replicas):
                worker = self._make(pool)
                worker.state = 'ready'
                worker.known = True
                self.on_ready(worker)
            self._note(pool)
            self.on_changed(pool)

    def close(self) -> None:
        """Bring the books up to date."""
        for pool in self.pools.values():
            self._note(pool)

    # ----- replicas

    def scale(self, pool: str, replicas: int) -> None:
        """Ask for a number of replicas."""
        world = self.pools[pool]
        world.desired = replicas
        self.later(self._scenario.actuation, self._reconcile, world)

    def _reconcile(self, event: Any) -> None:
        pool: PoolWorld = event.value
        wanted = [w for w in pool.workers if w.state != 'draining']
        missing = pool.desired - len(wanted)
        pool.pending = 0
        for _ in range(missing):
            instance = pool.instance
            if instance.reserved + pool.law.cpus > instance.law.capacity + 1e-9:
                pool.pending += 1
                continue
            worker = self._make(pool)
            delay = pool.start_up(
                self._draws.start_up(self._place[pool.name], pool.started))
            pool.started += 1
            self.later(delay, self._started, worker)
        if missing < 0:
            # Those that start go first, then the youngest.
            wanted.sort(key=lambda w: (w.state == 'ready', -w.born))
            for worker in wanted[:-missing]:
                if worker.state == 'starting':
                    self._remove(worker)
                else:
                    self._drain(worker)
        self._note(pool)
        self.on_changed(pool)

    def _make(self, pool: PoolWorld) -> Worker:
        self._note(pool)
        self._names += 1
        worker = Worker(f'{pool.name}-{self._names}', pool, self.env.now)
        pool.workers.append(worker)
        pool.instance.reserved += pool.law.cpus
        return worker

    def _started(self, event: Any) -> None:
        worker: Worker = event.value
        if not worker.alive:
            return
        pool = worker.pool
        self._note(pool)
        worker.state = 'ready'
        pool.recent.append(self.env.now - worker.born)
        self._note(pool)
        if not pool.cut:
            worker.known = True
            self.on_ready(worker)
        self.on_changed(pool)

    def _drain(self, worker: Worker) -> None:
        worker.state = 'draining'
        if worker.known:
            self.on_draining(worker)
        self.settle(worker)

    def settle(self, worker: Worker) -> None:
        """Let a draining worker go once nothing is left to do."""
        if (worker.alive and worker.state == 'draining' and worker.serving is None
                and not worker.open):
            known = worker.known
            self._remove(worker)
            if known:
                worker.known = False
                self.on_gone(worker)

    def _remove(self, worker: Worker) -> None:
        pool = worker.pool
        self._note(pool)
        worker.alive = False
        pool.workers.remove(worker)
        instance = pool.instance
        instance.reserved -= pool.law.cpus
        if worker.serving is not None:
            instance.held -= pool.law.cpus
            worker.serving = None
        self._note(pool)
        for other in instance.pools:
            if other.pending:
                self.later(0.0, self._reconcile, other)

    def _note(self, pool: PoolWorld) -> None:
        """Keep the books of replica-seconds; called before and after every change."""
        now = self.env.now
        begin, end = self._measure
        since = self._changed_at[pool.name]
        span = min(now, end) - max(since, begin)
        if span > 0.0:
            pool.seconds += span * len(pool.workers)
        self._changed_at[pool.name] = now
        entry = (now, pool.count('ready'), pool.count('starting') + pool.pending)
        if pool.log and pool.log[-1][0] == now:
            pool.log[-1] = entry
        elif not pool.log or pool.log[-1][1:] != entry[1:]:
            pool.log.append(entry)

    # ----- frames

    def send(self, call: Call) -> None:
        """Let a frame go to a worker."""
        worker = call.worker
        worker.open[call.frame] = call
        if worker.pool.cut:
            self.watch(call)
        else:
            self.later(call.half, self._reach, call)

    def watch(self, call: Call) -> None:
        """See to it that a call is given up at its deadline, if it may last so long."""
        if not call.timed and call.deadline < math.inf:
            call.timed = True
            self.later(call.deadline - self.env.now, self._time_out, call)

    def _time_out(self, event: Any) -> None:
        call: Call = event.value
        if call.wanted:
            self.on_late(call)

    def _reach(self, event: Any) -> None:
        call: Call = event.value
        worker = call.worker
        if worker.pool.cut:
            self.watch(call)
            return
        if not worker.alive:
            self.later(call.half, self._refused, call)
            return
        call.reached = self.env.now
        if worker.serving is None:
            self._begin(worker, call)
        else:
            worker.queue.append(call)
            self.watch(call)

    def _refused(self, event: Any) -> None:
        call: Call = event.value
        if call.wanted:
            self.on_failed(call)

    def _begin(self, worker: Worker, call: Call) -> None:
        pool = worker.pool
        now = self.env.now
        worker.serving = call
        pool.instance.held += pool.law.cpus
        call.began = now
        call.service = service = call.law.mean() * pool.slow_down * call.law.draw(call.normal)
        if now + service + call.half > call.deadline:
            self.watch(call)
        self.later(service, self._finish, call)

    def _finish(self, event: Any) -> None:
        call: Call = event.value
        worker = call.worker
        if worker.serving is not call:
            return  # It died.
        pool = worker.pool
        worker.serving = None
        pool.instance.held -= pool.law.cpus
        if call.wanted:
            if pool.cut:
                self.watch(call)
            else:
                self.later(call.half, self._arrive, call)
        queue = worker.queue
        while queue:
            following = queue.popleft()
            if following.wanted:
                self._begin(worker, following)
                break
        if worker.state == 'draining':
            self.settle(worker)

    def _arrive(self, event: Any) -> None:
        call: Call = event.value
        if not call.wanted:
            return
        if call.worker.pool.cut:
            self.watch(call)
            return
        self.on_answer(call)

    @staticmethod
    def forget(call: Call) -> None:
        """Wait for no answer any more."""
        call.wanted = False
        call.worker.open.pop(call.frame, None)

    # ----- faults

    def kill(self, pool: str, which: float) -> None:
        """
        Let a serving worker die; its connection breaks half a round trip later.

        :param which: 0 to 1.
        """
        world = self.pools[pool]
        ready = [w for w in world.workers if w.state == 'ready']
        if not ready:
            return
        worker = ready[min(len(ready) - 1, int(which * len(ready)))]
        self._remove(worker)
        self.later(0.5 * world.law.network.mean, self._broken, worker)
        self.later(self._scenario.actuation, self._reconcile, world)

    def _broken(self, event: Any) -> None:
        worker: Worker = event.value
        self._lost(worker)
        self.on_changed(worker.pool)

    def _lost(self, worker: Worker) -> None:
        """Tell that a worker cannot be reached: of its open calls, then of itself."""
        for call in list(worker.open.values()):
            if call.wanted:
                self.on_failed(call)
        if worker.known:
            worker.known = False
            self.on_gone(worker)

    def cut(self, pool: str, duration: float, detect: float) -> None:
        """Let nothing pass to and from a pool for a while."""
        world = self.pools[pool]
        world.cut = True
        if detect < duration:
            self.later(detect, self._noticed, world)
        self.later(duration, self._mended, world)

    def _noticed(self, event: Any) -> None:
        pool: PoolWorld = event.value
        for worker in list(pool.workers):
            self._lost(worker)
            self.settle(worker)

    def _mended(self, event: Any) -> None:
        pool: PoolWorld = event.value
        pool.cut = False
        for worker in list(pool.workers):
            # What was on the way is lost for good.
            if worker.state == 'ready' and not worker.known:
                worker.known = True
                self.on_ready(worker)
