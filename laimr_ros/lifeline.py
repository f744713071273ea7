"""A child that cannot outlive its parent, however the parent dies."""

# Only the standard library, and nothing of laimr_ros: a child attaches its lifeline before it
# imports anything heavy.

from __future__ import annotations

from collections.abc import Sequence
import os
import signal
import subprocess
import threading
import time
from typing import Any

# Names the descriptor of the read end in the child's environment.
ENVIRONMENT_VARIABLE = 'LAIMR_LIFELINE_FD'
# From SIGTERM to the end of a child that has lost its parent, in seconds.
GRACE_S = 3.0


def attach(grace_s: float = GRACE_S) -> bool:
    """
    Watch the lifeline that the parent has handed down, if it has.

    When the parent is gone, this process gets SIGTERM, and is ended with status 1 if it is still
    there after the grace. Call it first, from any thread; a second call does nothing.

    The pipe is watched, not the parent's id: ``PR_SET_PDEATHSIG`` is bound to the parent's
    *thread* that started the child, and polling ``getppid`` misses a parent that dies in between.

    :param grace_s: seconds left to end well.
    :return: whether there is a lifeline.
    """
    # Taken out: a process that this one starts must not take the number for a lifeline of its own.
    text = os.environ.pop(ENVIRONMENT_VARIABLE, '')
    if not text:
        return False
    try:
        descriptor = int(text)
        os.set_inheritable(descriptor, False)
    except (ValueError, OSError):
        raise RuntimeError(
            f'{ENVIRONMENT_VARIABLE} is {text!r}, which is no open file descriptor; '
            'unset it to run without a parent'
        ) from None
    threading.Thread(
        target=_watch, args=(descriptor, grace_s), name='lifeline', daemon=True
    ).start()
    return True


def _watch(descriptor: int, grace_s: float) -> None:
    try:
        while os.read(descriptor, 1):
            pass  # Nobody writes; only the end matters.
    except OSError:
        pass
    deadline = time.monotonic() + grace_s
    os.kill(os.getpid(), signal.SIGTERM)
    # Not one long sleep: a clock that stood still (a suspended machine) must not add to it.
    while (left := deadline - time.monotonic()) > 0.0:
        time.sleep(min(left, 0.1))
    os._exit(1)


class Child(subprocess.Popen):  # type: ignore[type-arg]
    """
    A process on a lifeline; otherwise like any ``Popen``.

    The lifeline is cut when this object is collected, so keep it as long as the child shall live.
    """

    def __init__(self, argv: Sequence[str], **popen_kwargs: Any) -> None:
        environment = popen_kwargs.pop('env', None)
        environment = dict(os.environ if environment is None else environment)
        # Both ends are close-on-exec from the start, in one system call: a sibling started at the
        # same moment in another thread does not inherit the write end. (A `fork` without `exec`
        # does; this package does not fork.)
        read_end, write_end = os.pipe()
        self._lifeline = os.fdopen(write_end, 'wb', buffering=0)
        environment[ENVIRONMENT_VARIABLE] = str(read_end)
        # A session of its own is a process group of its own: Ctrl-C in a terminal reaches the
        # parent only, which then ends its children in order.
        popen_kwargs.setdefault('start_new_session', True)
        pass_fds = (*popen_kwargs.pop('pass_fds', ()), read_end)
        try:
            super().__init__(argv, env=environment, pass_fds=pass_fds, **popen_kwargs)
        except BaseException:
            self._lifeline.close()
            raise
        finally:
            os.close(read_end)

    def cut(self) -> None:
        """Let go of the child: it gets SIGTERM, and ends by force after its grace."""
        self._lifeline.close()

    def poll(self) -> int | None:
        """Return the exit status, or None while the child runs."""
        status = super().poll()
        if status is not None:
            self._lifeline.close()
        return status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the child's end; return its exit status."""
        status = super().wait(timeout)
        self._lifeline.close()
        return status


def spawn(argv: Sequence[str], **popen_kwargs: Any) -> Child:
    """
    Start a process that calls ``attach`` and so ends when this one does, even by SIGKILL.

    :param argv: the command line.
    :param popen_kwargs: as for ``subprocess.Popen``; ``env`` and ``pass_fds`` are added to. The
        child gets a session, and so a process group, of its own unless they say otherwise.
    :raises OSError: if the command cannot be run.
    """
    return Child(argv, **popen_kwargs)
