"""One worker process: started, watched, asked to drain, killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
import os
import signal
import subprocess
from typing import IO

from laimr_ros import lifeline
from laimr_ros.cluster.bounded_log import BoundedLog

# A line longer than this is cut: a worker's output must not grow its holder.
_MAX_LINE_BYTES = 4096
# Without pidfd (Linux before 5.3) the exit is polled for.
_POLL_S = 0.05


class WorkerProcess:
    """
    A child that says on its standard output when it serves.

    Its readiness is one line, ``ready ENDPOINT SECONDS``. It lives in a session of its own, so
    that Ctrl-C in a terminal does not reach it before it is drained, and on a lifeline, so that it
    cannot outlive this process. Must be made and used in the loop's thread.

    :param argv: the command line.
    :param environment: the child's whole environment.
    :param log: where its output goes.
    :param on_event: called when it becomes ready and when it has ended.
    :raises OSError: if the command cannot be run.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        log: BoundedLog,
        on_event: Callable[[], None],
    ) -> None:
        self.ready_endpoint: str | None = None
        self.exit_status: int | None = None
        self.last_error_line = ''
        self._log = log
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._partial: dict[int, bytes] = {}
        self._popen = lifeline.spawn(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
        self.pid = self._popen.pid
        self._pipes: dict[int, IO[bytes]] = {}
        for pipe in (self._popen.stdout, self._popen.stderr):
            assert pipe is not None
            descriptor = pipe.fileno()
            os.set_blocking(descriptor, False)
            self._pipes[descriptor] = pipe
            self._partial[descriptor] = b''
            self._loop.add_reader(descriptor, self._read, descriptor)
        assert self._popen.stdout is not None
        self._stdout = self._popen.stdout.fileno()
        self._pidfd = -1
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._loop.call_later(_POLL_S, self._poll)
        else:
            self._loop.add_reader(self._pidfd, self._ended)

    def terminate(self) -> None:
        """Ask the worker to drain and end."""
        self._signal(signal.SIGTERM, group=False)

    def kill(self) -> None:
        """End the worker, and whatever it started, at once."""
        self._signal(signal.SIGKILL, group=True)

    def _signal(self, number: int, *, group: bool) -> None:
        # Not reaped yet, so neither the process id nor the group id can belong to anyone else.
        if self.exit_status is None:
            try:
                (os.killpg if group else os.kill)(self.pid, number)
            except ProcessLookupError:
                pass

    def _poll(self) -> None:
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            self._loop.call_later(_POLL_S, self._poll)
        else:
            self._ended()

    def _ended(self) -> None:
        if self.exit_status is not None:
            return
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        # What it started itself would keep memory, sockets and our pipes; its group id is still
        # ours as long as we have not reaped it.
        self._signal(signal.SIGKILL, group=True)
        for descriptor in list(self._pipes):
            self._read(descriptor)
            self._close(descriptor)
        self.exit_status = self._popen.wait()
        self._on_event()

    def _read(self, descriptor: int) -> None:
        # One burst a call: a worker that floods its output must not starve the others.
        for _ in range(16):
            try:
                data = os.read(descriptor, 65536)
            except BlockingIOError:
                return
            except OSError:
                data = b''
            if not data:
                self._close(descriptor)
                return
            self._log.write(data)
            *lines, rest = (self._partial[descriptor] + data).split(b'\n')
            self._partial[descriptor] = rest[-_MAX_LINE_BYTES:]
            for line in lines:
                self._line(descriptor, line)

    def _close(self, descriptor: int) -> None:
        pipe = self._pipes.pop(descriptor, None)
        if pipe is not None:
            self._loop.remove_reader(descriptor)
            pipe.close()
            rest = self._partial.pop(descriptor)
            if rest:
                self._line(descriptor, rest)

    def _line(self, descriptor: int, raw: bytes) -> None:
        line = raw[-_MAX_LINE_BYTES:].decode(errors='replace').strip()
        if not line:
            return
        if descriptor != self._stdout:
            self.last_error_line = line
        elif self.ready_endpoint is None and line.startswith('ready '):
            self.ready_endpoint = line.split(' ', 1)[1].rsplit(' ', 1)[0]
            self._on_event()
