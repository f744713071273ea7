"""The thread that reads a source when frames are due, and is never waited for."""

from __future__ import annotations

from collections.abc import Callable
import threading
import time

from laimr_ros.cameras.arrivals import Arrivals, ArrivalSpec
from laimr_ros.cameras.sources.base import CameraError, Capture, Clock, Source, SourceEnded

# A frame that is later than this is left out: the next one is fresher.
_LATE_S = 0.25
_FIRST_RETRY_S = 0.25
_LONGEST_RETRY_S = 10.0
# The same trouble is told again after so long, another one sooner.
_REPEAT_S = 60.0
_OTHER_S = 5.0
# Beyond these, the clock was set: arrivals are not made up for.
_JUMP_S = 3600.0
_JUMP_BACK_S = 1.0
# How long a simulated clock may stand still before it is looked at again.
_SIMULATED_WAIT_S = 0.01

Deliver = Callable[[Capture], None]
Report = Callable[[str, bool], None]


class Reader:
    """
    Reads a source at the times of an arrival process, in a thread of its own.

    Frames that the source was too slow for are left out, not queued. Trouble is reported once when
    it begins and once when it is over, and the source is tried again with growing pauses.

    :param source: what is read; closed at the end.
    :param arrivals: when.
    :param deliver: gets each frame, in the reader's thread.
    :param report: gets a line for people, and whether it is about trouble.
    :param clock: the time of stamps and arrivals, in seconds.
    :param start_s: the time of the first frame on that clock; 0 for now.
    :param simulated: the clock may run faster or slower than real time, or stand still.
    """

    def __init__(
        self,
        source: Source,
        arrivals: Arrivals,
        deliver: Deliver,
        report: Report,
        clock: Clock = time.time,
        start_s: float = 0.0,
        simulated: bool = False,
    ) -> None:
        self._source, self._arrivals = source, arrivals
        self._deliver, self._report = deliver, report
        self._clock, self._start_s, self._simulated = clock, start_s, simulated
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._changed: ArrivalSpec | None = None
        self._trouble = _Trouble(report)
        self._seen_s = 0.0
        self._begin_s = 0.0
        self.delivered = 0
        self.left_out = 0
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name='camera reader', daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """
        Stop reading and close the source; nothing is delivered after this returns.

        :param timeout_s: how long to wait for a read that hangs; it is then left behind.
        """
        self._stop.set()
        self._hurry.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s / 2)
            if self._thread.is_alive():
                self._source.close()
                self._thread.join(timeout_s / 2)
        self._source.close()

    def change(self, spec: ArrivalSpec) -> None:
        """Change the arrival process from now on."""
        self._changed = spec
        self._hurry.set()

    def _run(self) -> None:
        try:
            while self._simulated and self._clock() == 0 and not self._stop.is_set():
                self._stop.wait(_SIMULATED_WAIT_S)  # Nobody has published /clock yet.
            self._seen_s = self._clock()
            self._begin_s = self._start_s or self._seen_s
            while not self._stop.is_set():
                arrival_s = self._arrivals.next()
                if self._now() - (self._begin_s + arrival_s) > _LATE_S:
                    self.left_out += 1
                elif not self._wait(arrival_s) or not self._read():
                    return
        finally:
            self.ended.set()

    def _now(self) -> float:
        """Return the clock's time; when it jumps, the arrival process jumps along."""
        now_s = self._clock()
        if not -_JUMP_BACK_S < now_s - self._seen_s < _JUMP_S:
            self._begin_s += now_s - self._seen_s
        self._seen_s = now_s
        return now_s

    def _wait(self, arrival_s: float) -> bool:
        """Wait until a frame is due; return false when stopped."""
        while not self._stop.is_set():
            now_s = self._now()
            changed, self._changed = self._changed, None
            if changed is not None:
                # The interval of an old, low rate may be far too long: begin a new one.
                began = now_s > self._begin_s
                self._arrivals.change(changed, now_s - self._begin_s if began else 0.0)
                if began:
                    arrival_s = self._arrivals.next()
            left_s = self._begin_s + arrival_s - now_s
            if left_s <= 0:
                return True
            if self._hurry.wait(_SIMULATED_WAIT_S if self._simulated else min(left_s, 5.0)):
                self._hurry.clear()
        return False

    def _read(self) -> bool:
        """Read one frame and hand it on; return false when there will be no more."""
        try:
            capture = self._source.read()
            if self._stop.is_set():
                return False
            self._trouble.over()
            if capture is not None:
                self._deliver(capture)
                self.delivered += 1
        except SourceEnded as error:
            self._report(str(error), False)
            return False
        except CameraError as error:
            self._stop.wait(self._trouble.add(str(error)))
        except Exception as error:  # a driver may raise anything: go on
            if not self._stop.is_set():
                self._stop.wait(self._trouble.add(f'{type(error).__name__}: {error}'))
        return True


class _Trouble:
    """Failures in a row: what is said about them, and how long to pause."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._count = 0
        self._begun_at = 0.0
        self._told = False
        self._last_text = ''
        self._told_at = -float('inf')

    def add(self, text: str) -> float:
        """Note a failure; return how long to pause, in seconds."""
        now = time.monotonic()
        if not self._count:
            self._begun_at = now
        self._count += 1
        since = now - self._told_at
        if since > (_OTHER_S if text != self._last_text else _REPEAT_S):
            self._report(text, True)
            self._told, self._told_at, self._last_text = True, now, text
        return min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(self._count - 1, 16))

    def over(self) -> None:
        """Note a success."""
        if self._told:
            lasted = time.monotonic() - self._begun_at
            self._report(
                f'frames again, after {self._count} failed tries in {lasted:.1f} s', False)
        self._count, self._told = 0, False
