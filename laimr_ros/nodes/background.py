"""An executor in a thread of its own, while the main thread waits for the signal to stop."""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType, TracebackType

from laimr_ros.nodes.executor import spin
from rclpy.executors import Executor


class BackgroundSpin:
    """
    Spin an executor beside the main thread, so that a node can end in good order.

    rclpy's own signal handlers shut the context down at once, after which a node can neither
    publish nor call. So call ``rclpy.init`` with ``SignalHandlerOptions.NO``, then::

        with BackgroundSpin(executor) as spinning:
            spinning.wait_for_signal()
            ...  # still spinning: say goodbye

    Further signals are ignored, so the goodbye must be bounded. Must be made in the main thread.

    :param executor: the executor to run, with its nodes added; it is shut down at the end.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._error: BaseException | None = None
        self._ending = False
        self._over = False
        # A pipe, and not a threading.Event: setting an event in a signal handler can deadlock with
        # the very wait it interrupts.
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        # Python runs handlers between its own steps. A signal that comes after the last one before
        # the wait would wait for another signal: the interpreter itself must end the wait.
        self._previous_wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._spin, name='executor', daemon=True)
        self._previous = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGINT, signal.SIGTERM)
        }

    def __enter__(self) -> BackgroundSpin:
        """Start to spin."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop to spin. :raises: what a callback raised, if one did."""
        self._ending = True
        self._executor.shutdown(timeout_sec=1.0)
        self._thread.join(timeout=1.0)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_wakeup)
        if not self._thread.is_alive():
            os.close(self._wake_read)
            os.close(self._wake_write)
        if self._error is not None and error is None:
            raise self._error

    def wait_for_signal(self, timeout_s: float | None = None) -> bool:
        """
        Return at SIGINT or SIGTERM, or when the executor has ended by itself.

        :param timeout_s: longest wait in seconds, from the last signal on; for ever if left out.
        :return: False if only the time is up.
        """
        while not self._over:
            # Ends at any signal that somebody handles, and is restarted after any other.
            ready, _, _ = select.select([self._wake_read], [], [], timeout_s)
            if not ready:
                return False
            os.read(self._wake_read, 64)
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._ending = True
        self._over = True

    def _spin(self) -> None:
        try:
            spin(self._executor, lambda: self._ending)
        except BaseException as error:
            self._error = error
        finally:
            self._over = True
            try:
                os.write(self._wake_write, b'.')
            except BlockingIOError:
                pass  # as many signals as a pipe holds: one is enough
