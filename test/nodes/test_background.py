"""Test the wait for a signal beside a spinning executor."""

from __future__ import annotations

from collections.abc import Iterator
import ctypes
from functools import partial
from operator import methodcaller
import os
import select
import signal
from typing import Any

import pytest

rclpy = pytest.importorskip('rclpy', reason='needs rclpy: run `make setup`, or source ROS 2')

from laimr_ros.nodes import background  # noqa: E402
from laimr_ros.nodes.background import BackgroundSpin  # noqa: E402
from laimr_ros.nodes.executor import make_executor  # noqa: E402
from rclpy.context import Context  # noqa: E402


@pytest.fixture
def spinning() -> Iterator[BackgroundSpin]:
    """Return one at work."""
    context = Context()
    context.init()
    try:
        with BackgroundSpin(make_executor(context)) as spinning:
            yield spinning
    finally:
        context.try_shutdown()


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait(spinning: BackgroundSpin, number: int):
    """Whether it came before or comes in it."""
    os.kill(os.getpid(), number)
    assert spinning.wait_for_signal(30.0)
    assert spinning.wait_for_signal(30.0), 'and every later wait'


def test_time_ends_the_wait(spinning: BackgroundSpin):
    """A wait without a signal is told from one with."""
    assert not spinning.wait_for_signal(0.01)


def test_a_signal_between_the_last_step_of_python_and_the_wait_is_not_lost(
        spinning: BackgroundSpin, monkeypatch: pytest.MonkeyPatch):
    """The interpreter has no turn to run the handler before the system call."""
    send = partial(ctypes.CDLL(None)['raise'], int(signal.SIGINT))

    class Select:
        @staticmethod
        def select(*arguments: Any) -> Any:
            # One step of Python for both calls: `map` goes from one to the other in C.
            _, ready = map(methodcaller('__call__'), (send, partial(select.select, *arguments)))
            return ready

    monkeypatch.setattr(background, 'select', Select)
    assert spinning.wait_for_signal(5.0)


def test_a_signal_of_others_does_not_end_the_wait(spinning: BackgroundSpin):
    """One with a handler wakes it only."""
    previous = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert not spinning.wait_for_signal(0.01)
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_an_executor_that_ends_by_itself_ends_the_wait(spinning: BackgroundSpin):
    """Nothing would come any more."""
    spinning._executor.shutdown()
    assert spinning.wait_for_signal(30.0)


def test_handlers_are_as_they_were_afterwards():
    """Of the signals, and of the interpreter."""
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    context = Context()
    context.init()
    with BackgroundSpin(make_executor(context)):
        pass
    context.try_shutdown()
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1
