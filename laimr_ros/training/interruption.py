"""Ctrl-C while something is under way that must not be left half done."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import signal
import threading
from types import FrameType
from typing import Any


class Interruption:
    """
    Holds Ctrl-C back except where it is let through, while entered.

    Does nothing outside the main thread, nor where whoever started the process has it ignore
    Ctrl-C. Processes that are started meanwhile by forking hold it back for good: whoever started
    them ends them.
    """

    def __init__(self) -> None:
        self._asked = self._open = False
        self._before: Any = None

    def __enter__(self) -> Interruption:
        """Begin to hold it back."""
        before = signal.getsignal(signal.SIGINT)
        if (threading.current_thread() is threading.main_thread()
                and before not in (signal.SIG_IGN, None)):
            self._before = before
            signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        """Let it do again what it did before."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if there was one."""
        if self._asked:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def let_through(self) -> Iterator[None]:
        """Let it interrupt what is done here, and what was held back before."""
        self._open = True
        try:
            self.check()
            yield
        finally:
            self._open = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        if self._open:
            self._open = False
            raise KeyboardInterrupt
