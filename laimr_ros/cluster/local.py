"""Replicas as worker processes on this host."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
import logging
import os
from pathlib import Path
import re
import threading
import time
from types import TracebackType

from laimr_ros.cluster.backoff import Backoff
from laimr_ros.cluster.base import PoolStatus, ReplicaState, ReplicaStatus
from laimr_ros.cluster.bounded_log import BoundedLog
from laimr_ros.cluster.local_pool import LocalPool
from laimr_ros.cluster.priority import may_restore, set_nice
from laimr_ros.cluster.runtime_directory import default_base, RuntimeDirectory
from laimr_ros.cluster.worker_process import WorkerProcess

__all__ = ['LocalPool', 'LocalReplicas']

_logger = logging.getLogger(__name__)

# A Unix socket's path is a 108-byte field of the kernel, zero included.
_SOCKET_PATH_BYTES = 107
# "_" and a number: no host starts more than ten million workers before its holder is restarted.
_NUMBER_BYTES = 8
# Start-up times kept a pool.
_RECENT = 50
# A worker ends with it when its configuration is at fault, as `laimr worker` does.
_BAD_CONFIGURATION = 2


class _Replica:
    """One worker, from being wanted to being gone."""

    def __init__(self, name: str, slot: int, wanted_at: float) -> None:
        self.name = name
        self.slot = slot
        self.wanted_at = wanted_at
        self.state = ReplicaState.STARTING
        self.reason = 'waiting to be started'
        self.endpoint = ''
        self.socket: Path | None = None
        self.log: BoundedLog | None = None
        self.process: WorkerProcess | None = None
        self.started_at = 0.0
        self.ready_at = 0.0
        self.stable = False
        # When to ask it to drain, and when to kill it; None while neither is wanted.
        self.drain_at: float | None = None
        self.kill_at: float | None = None

    def status(self) -> ReplicaStatus:
        return ReplicaStatus(self.name, self.endpoint, self.state, self.reason)


class _Pool:
    """What is wanted of one pool, and what there is."""

    def __init__(self, name: str, config: LocalPool) -> None:
        self.name = name
        self.config = config
        self.limits = (config.min_replicas, config.max_replicas)
        self.desired = config.min_replicas
        self.replicas: list[_Replica] = []
        self.backoff = Backoff(config.first_backoff_s, config.max_backoff_s)
        self.not_before = 0.0
        self.failure = ''
        self.started = 0
        self.start_up_s: deque[float] = deque(maxlen=_RECENT)

    def wanted(self) -> list[_Replica]:
        """Return the replicas that are to stay, in the order they were started."""
        return [r for r in self.replicas if r.state is not ReplicaState.DRAINING]

    def free_slot(self) -> int:
        """Return the lowest number no replica of the pool has: it names the log file."""
        taken = {r.slot for r in self.replicas}
        return next(n for n in range(len(taken) + 1) if n not in taken)


class LocalReplicas:
    """
    Start and drain worker processes until every pool has the number it was asked for.

    A ``ReplicaHolder``. One thread of its own does the work, level-triggered: at every event it
    compares what is wanted with what there is. A replica that goes is first taken off the ready
    list, then asked to drain, then killed. A replacement is always a new process under a new name
    and a new address, so nobody mistakes it for the one before. Failures hold back the whole pool,
    since its replicas are all alike: while it fails, one worker at a time tries again.

    :param pools: configuration by pool name.
    :param directory: where to make the private directory of sockets; a short path. The user's
        runtime directory or /tmp if left out.
    :param max_starting: at most so many workers start at once on this host, over all pools:
        loading a network takes whole cores away from the workers that serve.
    :param start_nice: nice level of a worker until it is ready, 0 to 19; ignored with a warning
        where this user may not set it back.
    :param on_change: called with a pool's name after its status changed, in this object's thread;
        must return quickly.
    :raises ValueError: if a pool's name or the directory cannot make a socket's path.
    """

    def __init__(
        self,
        pools: Mapping[str, LocalPool],
        *,
        directory: Path | None = None,
        max_starting: int = 2,
        patience_s: float = 10.0,
        start_nice: int = 0,
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        if max_starting < 1:
            raise ValueError(f'max_starting {max_starting}: need at least 1')
        self._pools = {name: _Pool(name, config) for name, config in pools.items()}
        if start_nice and not may_restore():
            _logger.warning(
                'start_nice %d is ignored: this user may not set it back once a worker serves; '
                'raise the "nice" limit (limits.conf: nice 0)', start_nice
            )
            start_nice = 0
        self._max_starting = max_starting
        self._patience_s = patience_s
        self._start_nice = start_nice
        self._on_change = on_change
        self._status = {name: PoolStatus() for name in pools}
        self._runtime = RuntimeDirectory(directory or default_base())
        try:
            for name in pools:
                self._check_name(name)
        except ValueError:
            self._runtime.close()
            raise
        self._closing = False
        self._idle = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._due = False
        self._close_lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name='local-replicas', daemon=True)
        self._thread.start()
        self._post(self._wake)

    def observe(self, pool: str) -> PoolStatus:
        """Return the pool's present status. :raises KeyError: for an unknown pool."""
        return self._status[pool]

    def desired(self, pool: str) -> int:
        """Return the number last asked for, clamped. :raises KeyError: for an unknown pool."""
        return self._pools[pool].desired

    def set_replicas(self, pool: str, count: int) -> None:
        """
        Ask for a number of replicas; it is clamped to the pool's limits. The last call counts.

        :raises KeyError: for an unknown pool.
        """
        low, high = self._pools[pool].limits
        self._pools[pool].desired = max(low, min(high, count))
        self._post(self._wake)

    def set_limits(self, pool: str, min_replicas: int, max_replicas: int) -> None:
        """
        Change a pool's limits; the number asked for is clamped to them.

        :raises KeyError: for an unknown pool.
        :raises ValueError: unless 0 <= min_replicas <= max_replicas.
        """
        # Made for its check only.
        replace(self._pools[pool].config, min_replicas=min_replicas, max_replicas=max_replicas)
        self._pools[pool].limits = (min_replicas, max_replicas)
        self.set_replicas(pool, self._pools[pool].desired)

    def close(self, timeout_s: float = 3.0) -> None:
        """
        Drain every worker, kill what has not ended in time, leave nothing behind.

        :param timeout_s: time to drain, in seconds. Safe to call twice.
        """
        with self._close_lock:
            if not self._thread.is_alive():
                return
            self._post(self._shut_down, timeout_s)
            # A killed process is gone in milliseconds; the margin is for one stuck in a driver.
            if not self._idle.wait(timeout_s + 1.0):
                _logger.error('a worker did not end even when killed; its lifeline is cut')
            self._post(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._runtime.close()

    def __enter__(self) -> LocalReplicas:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _check_name(self, pool: str) -> None:
        if not re.fullmatch(r'[A-Za-z0-9_.-]+', pool):
            raise ValueError(f'pool name {pool!r}: use letters, digits, "_", "-" and "."')
        longest = len(os.fsencode(self._socket(pool))) + _NUMBER_BYTES
        if longest > _SOCKET_PATH_BYTES and not self._pools[pool].config.listen:
            raise ValueError(
                f'pool {pool!r} in {self._runtime.path.parent}: the path of a socket would have '
                f'{longest} bytes of at most {_SOCKET_PATH_BYTES}; use a shorter directory or name'
            )

    def _socket(self, name: str) -> Path:
        return self._runtime.path / f'{name}.sock'

    # What follows runs in the thread of the loop.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # closed: nothing is wanted any more

    def _wake(self) -> None:
        """Reconcile soon, once for all that happens in one turn of the loop."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._reconcile)

    def _shut_down(self, timeout_s: float) -> None:
        self._closing = True
        now = time.monotonic()
        for pool in self._pools.values():
            pool.desired = 0
            for replica in pool.replicas:
                replica.state = ReplicaState.DRAINING
                replica.reason = 'closing'
                if replica.kill_at is None:
                    replica.drain_at = now
                replica.kill_at = min(replica.kill_at or now + timeout_s, now + timeout_s)
        self._wake()

    def _reconcile(self) -> None:
        self._due = False
        now = time.monotonic()
        for pool in self._pools.values():
            try:
                self._observe_processes(pool, now)
                self._match_count(pool, now)
                self._stop_due(pool, now)
            except Exception:  # one pool's trouble must not stop the others
                _logger.exception('pool %s', pool.name)
        self._start_waiting(now)
        for pool in self._pools.values():
            self._publish(pool, now)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        later = [t for pool in self._pools.values() for t in self._deadlines(pool) if t > now]
        if later:
            self._timer = self._loop.call_later(min(later) - now, self._wake)
        if self._closing and not any(pool.replicas for pool in self._pools.values()):
            self._idle.set()

    def _deadlines(self, pool: _Pool) -> Iterator[float]:
        """Yield when something is due even if nothing happens."""
        yield pool.not_before
        for replica in pool.replicas:
            if replica.drain_at is not None:
                yield replica.drain_at
            if replica.kill_at is not None:
                yield replica.kill_at
            if replica.process is None:
                yield self._patience_ends(pool, replica)
            if replica.state is ReplicaState.STARTING and replica.process is not None:
                yield replica.started_at + pool.config.start_timeout_s
            if replica.state is ReplicaState.READY and not replica.stable:
                yield replica.ready_at + pool.config.stable_s

    def _observe_processes(self, pool: _Pool, now: float) -> None:
        config = pool.config
        for replica in list(pool.replicas):
            process = replica.process
            if process is None:
                continue
            if process.exit_status is not None:
                self._remove(pool, replica)
                if replica.state is not ReplicaState.DRAINING:
                    self._count_failure(pool, replica, process, now)
            elif replica.state is ReplicaState.STARTING:
                if process.ready_endpoint is not None:
                    self._became_ready(pool, replica, process, now)
                elif now >= replica.started_at + config.start_timeout_s:
                    replica.state = ReplicaState.FAILED
                    replica.reason = f'not ready within {config.start_timeout_s:g} s'
                    process.kill()
            elif (
                replica.state is ReplicaState.READY
                and not replica.stable
                and now >= replica.ready_at + config.stable_s
            ):
                replica.stable = True
                pool.backoff.reset()
                pool.failure = ''
                pool.not_before = 0.0

    def _became_ready(
        self, pool: _Pool, replica: _Replica, process: WorkerProcess, now: float
    ) -> None:
        assert process.ready_endpoint is not None
        replica.state = ReplicaState.READY
        replica.reason = ''
        replica.endpoint = process.ready_endpoint
        replica.ready_at = now
        pool.start_up_s.append(now - replica.started_at)
        if self._start_nice:
            set_nice(process.pid, 0)
        _logger.info('%s ready after %.2f s', replica.name, now - replica.started_at)

    def _count_failure(
        self, pool: _Pool, replica: _Replica, process: WorkerProcess, now: float
    ) -> None:
        status = process.exit_status
        assert status is not None
        if replica.state is ReplicaState.FAILED:
            why = replica.reason
        elif status < 0:
            why = f'ended by signal {-status}'
        else:
            why = f'ended with status {status}'
        if process.last_error_line and (status >= 0 or replica.state is ReplicaState.FAILED):
            why += f': {process.last_error_line}'
        if replica.stable:
            # It served well for long: this is a first failure, whatever others do.
            pool.backoff.reset()
        delay = pool.backoff.failed()
        if status == _BAD_CONFIGURATION:
            delay = pool.backoff.max_s
        pool.not_before = max(pool.not_before, now + delay)
        pool.failure = f'{replica.name} {why}'
        _logger.warning('%s %s; next start in %.1f s', replica.name, why, delay)

    def _remove(self, pool: _Pool, replica: _Replica) -> None:
        pool.replicas.remove(replica)
        if replica.log is not None:
            replica.log.close()
        if replica.socket is not None:
            replica.socket.unlink(missing_ok=True)

    def _match_count(self, pool: _Pool, now: float) -> None:
        wanted = pool.wanted()
        if self._closing:
            return
        for _ in range(pool.desired - len(wanted)):
            pool.started += 1
            pool.replicas.append(_Replica(f'{pool.name}_{pool.started}', pool.free_slot(), now))
        surplus = len(wanted) - pool.desired
        if surplus > 0:
            # Those that serve nothing go first, then the newest: it has the least in its caches.
            def rank(index: int) -> tuple[bool, bool, int]:
                replica = wanted[index]
                return replica.state is ReplicaState.READY, replica.process is not None, -index

            for index in sorted(range(len(wanted)), key=rank)[:surplus]:
                self._drain(pool, wanted[index], now)

    def _drain(self, pool: _Pool, replica: _Replica, now: float) -> None:
        if replica.process is None:
            self._remove(pool, replica)
            return
        served = replica.state is ReplicaState.READY
        replica.state = ReplicaState.DRAINING
        replica.reason = 'no longer wanted'
        replica.drain_at = now + (pool.config.deregister_s if served else 0.0)

    def _stop_due(self, pool: _Pool, now: float) -> None:
        for replica in list(pool.replicas):
            if replica.process is None:
                if self._closing:
                    self._remove(pool, replica)
                continue
            if replica.drain_at is not None and now >= replica.drain_at:
                replica.drain_at = None
                if replica.kill_at is None:
                    replica.kill_at = now + pool.config.drain_grace_s
                replica.process.terminate()
            if replica.kill_at is not None and now >= replica.kill_at:
                replica.kill_at = None
                _logger.warning('%s did not drain in time: killed', replica.name)
                replica.process.kill()

    def _start_waiting(self, now: float) -> None:
        starting = {
            name: sum(
                r.state is ReplicaState.STARTING and r.process is not None for r in pool.replicas
            )
            for name, pool in self._pools.items()
        }
        while True:
            full = sum(starting.values()) >= self._max_starting
            startable = [
                (starting[pool.name], pool, replica)
                for pool in self._pools.values()
                for replica in pool.replicas
                if replica.process is None
                and now >= (self._patience_ends(pool, replica) if full else pool.not_before)
                and not (starting[pool.name] and (full or pool.failure))
            ]
            if not startable:
                return
            # The pool with the fewest under way is next: one that wants many holds up no other.
            _, pool, replica = min(startable, key=lambda entry: entry[0])
            if self._start(pool, replica, now):
                starting[pool.name] += 1

    def _patience_ends(self, pool: _Pool, replica: _Replica) -> float:
        return max(replica.wanted_at, pool.not_before) + self._patience_s

    def _start(self, pool: _Pool, replica: _Replica, now: float) -> bool:
        config = pool.config
        listen = config.listen
        if not listen:
            replica.socket = self._socket(replica.name)
            listen = f'unix:{replica.socket}'
        path = None
        if config.log_directory is not None:
            path = config.log_directory / f'{pool.name}_{replica.slot}.log'
        replica.log = BoundedLog(path, config.log_max_bytes)
        replica.state = ReplicaState.STARTING
        replica.reason = 'starting'
        replica.started_at = now
        try:
            replica.process = WorkerProcess(
                [argument.replace('{listen}', listen) for argument in config.command],
                {**os.environ, 'PYTHONUNBUFFERED': '1', **config.environment},
                replica.log,
                self._wake,
            )
        except OSError as error:
            self._remove(pool, replica)
            pool.not_before = now + pool.backoff.max_s
            pool.failure = f'{replica.name} cannot be started: {error}'
            pool.backoff.failed()
            _logger.error('%s', pool.failure)
            self._wake()
            return False
        if self._start_nice:
            set_nice(replica.process.pid, self._start_nice)
        return True

    def _publish(self, pool: _Pool, now: float) -> None:
        for replica in pool.replicas:
            if replica.process is None:
                held = bool(pool.failure) and now < pool.not_before
                replica.state = ReplicaState.FAILED if held else ReplicaState.STARTING
                replica.reason = pool.failure if held else 'waiting to be started'
        status = PoolStatus(
            tuple(replica.status() for replica in pool.replicas), tuple(pool.start_up_s)
        )
        if status != self._status[pool.name]:
            self._status[pool.name] = status
            if self._on_change is not None:
                try:
                    self._on_change(pool.name)
                except Exception:  # the listener's trouble is not the replicas'
                    _logger.exception('listener of pool %s', pool.name)
