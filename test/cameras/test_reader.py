"""The reader's thread: pacing, trouble, ends, jumps of the clock."""

from __future__ import annotations

from collections.abc import Callable
import threading
import time

from laimr_ros.cameras.arrivals import Arrivals, ArrivalSpec
from laimr_ros.cameras.reader import Reader
from laimr_ros.cameras.sources.base import CameraError, Capture, SourceEnded
import pytest


class Scripted:
    """A source that does what each step says, over and over the last one."""

    def __init__(self, *steps: Exception | float | None) -> None:
        self.steps = list(steps)
        self.reads = 0
        self.closed = threading.Event()

    def read(self) -> Capture | None:
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        self.reads += 1
        if isinstance(step, Exception):
            raise step
        if step is None:
            return None
        if step:
            self.closed.wait(step)
        return Capture(b'x', 'jpeg', time.time())

    def close(self) -> None:
        self.closed.set()


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, 'waited in vain'
        time.sleep(0.005)


def make(
    source: Scripted, rate_hz: float = 50.0, **options: object
) -> tuple[Reader, list[Capture], list[tuple[str, bool]]]:
    """Return a reader, what it delivers and what it reports."""
    captures: list[Capture] = []
    lines: list[tuple[str, bool]] = []
    reader = Reader(
        source, Arrivals(ArrivalSpec('periodic', rate_hz)), captures.append,
        lambda text, trouble: lines.append((text, trouble)), **options)  # type: ignore[arg-type]
    return reader, captures, lines


def test_delivers_at_the_rate() -> None:
    reader, captures, lines = make(Scripted(0.0), 50.0)
    reader.start()
    until(lambda: len(captures) >= 26)
    reader.stop()
    # Never early; a busy machine may make it late.
    assert captures[25].stamp_s - captures[0].stamp_s >= 25 / 50.0 - 0.26
    assert lines == []


def test_nothing_is_delivered_after_stop() -> None:
    source = Scripted(0.0)
    reader, captures, _ = make(source, 500.0)
    reader.start()
    until(lambda: len(captures) > 3)
    reader.stop()
    count = len(captures)
    assert source.closed.is_set() and reader.ended.is_set()
    time.sleep(0.05)
    assert len(captures) == count


def test_a_slow_source_loses_frames_and_does_not_queue_them() -> None:
    reader, captures, _ = make(Scripted(0.4), 50.0)
    reader.start()
    until(lambda: len(captures) >= 4)
    reader.stop()
    # About 20 frames fall due while one is read, and few of them are young enough to be taken.
    assert reader.left_out > 0
    assert reader.left_out + reader.delivered > 20


def test_a_read_that_hangs_does_not_hold_up_the_end() -> None:
    reader, _, _ = make(Scripted(60.0))
    reader.start()
    began = time.monotonic()
    reader.stop(1.0)
    assert time.monotonic() - began < 5.0


def test_trouble_is_told_once_and_again_when_over() -> None:
    trouble = CameraError('the camera is unplugged; plug it in')
    source = Scripted(trouble, trouble, trouble, 0.0)
    reader, captures, lines = make(source, 200.0)
    reader.start()
    until(lambda: len(captures) > 2)
    reader.stop()
    assert [trouble for _, trouble in lines] == [True, False]
    assert lines[0][0] == str(trouble)
    assert '3 failed tries' in lines[1][0]


def test_failures_that_come_and_go_are_not_told_each_time() -> None:
    steps: list[Exception | float | None] = []
    for _ in range(4):
        steps += [CameraError('HTTP 404'), 0.0]
    reader, captures, lines = make(Scripted(*steps), 200.0)
    reader.start()
    until(lambda: len(captures) > 6)
    reader.stop()
    assert [text for text, trouble in lines if trouble] == ['HTTP 404']
    assert len(lines) == 2


def test_pauses_grow_while_it_fails() -> None:
    source = Scripted(CameraError('no'))
    reader, _, _ = make(source, 1000.0)
    reader.start()
    until(lambda: source.reads >= 1)
    time.sleep(1.0)
    reader.stop()
    assert source.reads <= 4  # after 0, 0.25 and 0.75 s


def test_unforeseen_exceptions_do_not_end_it() -> None:
    reader, captures, lines = make(Scripted(ZeroDivisionError('driver'), 0.0), 100.0)
    reader.start()
    until(lambda: len(captures) > 1)
    reader.stop()
    assert 'ZeroDivisionError: driver' in lines[0][0]


def test_no_new_frame_is_no_trouble() -> None:
    source = Scripted(None)
    reader, captures, lines = make(source, 200.0)
    reader.start()
    until(lambda: source.reads > 5)
    reader.stop()
    assert captures == [] and lines == []


def test_the_end_of_the_source_is_the_end() -> None:
    reader, captures, lines = make(Scripted(0.0, 0.0, SourceEnded('all was shown')), 100.0)
    reader.start()
    assert reader.ended.wait(10.0)
    assert len(captures) == 2 and lines == [('all was shown', False)]
    reader.stop()


def test_a_higher_rate_counts_at_once() -> None:
    reader, captures, _ = make(Scripted(0.0), 0.01)
    reader.start()
    until(lambda: len(captures) == 1)
    reader.change(ArrivalSpec('periodic', 100.0))
    until(lambda: len(captures) > 10, 10.0)  # and not after the hundred seconds of the old one
    reader.stop()


def test_waits_for_the_start() -> None:
    start_s = time.time() + 0.3
    reader, captures, _ = make(Scripted(0.0), 100.0, start_s=start_s)
    reader.start()
    until(lambda: len(captures) > 0)
    reader.stop()
    assert captures[0].stamp_s >= start_s


@pytest.mark.parametrize('jump_s', [1e9, -5000.0])
def test_a_clock_that_is_set_neither_floods_nor_stalls(jump_s: float) -> None:
    offset = [0.0]
    reader, captures, _ = make(Scripted(0.0), 100.0, clock=lambda: time.time() + offset[0])
    reader.start()
    until(lambda: len(captures) > 2)
    offset[0] = jump_s
    count = len(captures)
    until(lambda: len(captures) > count + 5)
    reader.stop()
    assert reader.left_out < 1000


def test_simulated_time_paces() -> None:
    now = [0.0]
    reader, captures, _ = make(Scripted(0.0), 10.0, clock=lambda: now[0], simulated=True)
    reader.start()
    time.sleep(0.1)
    assert captures == []  # no clock yet
    now[0] = 100.0
    until(lambda: len(captures) == 1)
    time.sleep(0.15)
    assert len(captures) == 1  # it stands still
    now[0] = 100.1001
    until(lambda: len(captures) == 2)
    reader.stop()
