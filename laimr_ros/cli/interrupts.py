"""Ctrl-C: at once where there is nothing to bring to an end, else as an exception."""

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


class Stopped(KeyboardInterrupt):
    """
    SIGINT or SIGTERM arrived.

    :param status: that the process shall end with, as shells have it.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number


@contextlib.contextmanager
def raise_at_stop() -> Iterator[None]:
    """
    Have SIGINT and SIGTERM raise :class:`Stopped` in the main thread; a second one ends at once.

    Without it SIGTERM ends the process where it is, and nobody ends its children. Does nothing
    outside the main thread; a signal that is ignored stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    caught = [number for number, how in previous.items() if how not in (signal.SIG_IGN, None)]
    for number in caught:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, previous[number])


def _raise(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(each) is _raise:
            signal.signal(each, _leave)
    raise Stopped(number)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
