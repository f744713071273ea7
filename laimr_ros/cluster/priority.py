"""The nice level of another process, all its threads included."""

from __future__ import annotations

import os
import resource


def may_restore() -> bool:
    """Return whether this user may raise a priority back to normal after lowering it."""
    if os.geteuid() == 0:
        return True
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_NICE)
    except (AttributeError, OSError, ValueError):
        return False
    return soft == resource.RLIM_INFINITY or soft >= 20  # 20 stands for nice level 0


def set_nice(pid: int, nice: int) -> None:
    """
    Set the nice level of every thread of a process; a process that has ended is left alone.

    :param pid: process id of a child not yet reaped.
    :param nice: 0 (normal) to 19 (last).
    """
    # On Linux a nice level belongs to a thread. Threads made later inherit it, those already
    # running do not follow.
    try:
        threads = [int(name) for name in os.listdir(f'/proc/{pid}/task')]
    except OSError:
        threads = [pid]
    for thread in threads:
        try:
            os.setpriority(os.PRIO_PROCESS, thread, nice)
        except OSError:
            pass  # the thread has ended, or the limit was changed meanwhile
