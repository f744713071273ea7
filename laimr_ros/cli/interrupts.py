"""Ctrl-C while there is nothing yet to bring to an end: the process just ends, without a word."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import os
import signal
import threading
from types import FrameType

#: Exit status of a command that Ctrl-C ended, as shells have it.
INTERRUPTED = 130


@contextlib.contextmanager
def leave_at_interrupt() -> Iterator[None]:
    """
    Let Ctrl-C end the process at once, with status 130, while modules are imported.

    A ``KeyboardInterrupt`` there would come out of the midst of some library, as a traceback or,
    where the library catches it, as an error about something else. Not for times in which there
    are child processes or files to take care of. Does nothing outside the main thread, nor where
    whoever started the process has it ignore Ctrl-C.
    """
    previous = signal.getsignal(signal.SIGINT)
    if (threading.current_thread() is not threading.main_thread()
            or previous in (signal.SIG_IGN, None)):
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
