"""
Entry points of the nodes: quiet at Ctrl-C at any moment, and gone as soon as they are done.

``python -m laimr_ros.nodes.entry NAME`` does the same without an installation.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from laimr_ros import lifeline

NODES = ('camera', 'dispatcher', 'worker', 'local_bridge', 'kubernetes_bridge')


def camera() -> NoReturn:
    """Run the node ``camera``."""
    run('camera')


def dispatcher() -> NoReturn:
    """Run the node ``dispatcher``."""
    run('dispatcher')


def worker() -> NoReturn:
    """Run the node ``worker``."""
    run('worker')


def local_bridge() -> NoReturn:
    """Run the node ``local_bridge``."""
    run('local_bridge')


def kubernetes_bridge() -> NoReturn:
    """Run the node ``kubernetes_bridge``."""
    run('kubernetes_bridge')


def run(name: str) -> NoReturn:
    """Run a node by name, and end the process with its exit status."""
    # While modules are imported (seconds on a busy machine) there is nothing to bring to an end,
    # and once a node is down there is nothing left: in both a signal just ends the process. In
    # between the node has handlers of its own.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_at_once)
    lifeline.attach()
    _leave(importlib.import_module(f'laimr_ros.nodes.{name}').main())


def _leave_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(0)


def _leave(status: int) -> NoReturn:
    # Without the interpreter's finalisation: it takes 0.3 s of CPU for the libraries of a node,
    # and aborts the process where a thread of theirs still runs.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == '__main__':
    if len(sys.argv) < 2 or sys.argv[1] not in NODES:
        sys.exit(f'usage: python -m laimr_ros.nodes.entry {{{",".join(NODES)}}} [--ros-args ...]')
    run(sys.argv.pop(1))
