"""Ctrl-C waits until it does no harm."""

from __future__ import annotations

import os
import signal

from laimr_ros.training.interruption import Interruption
import pytest


def press() -> None:
    """Press Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def test_it_is_held_back_and_let_through() -> None:
    """Not where something is half done, but where nothing is; and then as before."""
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as interruption:
        interruption.check()
        done = []
        press()
        done.append('all of it')
        with pytest.raises(KeyboardInterrupt):
            interruption.check()
        with pytest.raises(KeyboardInterrupt), interruption.let_through():
            done.append('never')
    assert done == ['all of it']
    assert signal.getsignal(signal.SIGINT) is before


def test_it_comes_through_at_once_where_it_may() -> None:
    """And only there."""
    done = []
    with Interruption() as interruption:
        with pytest.raises(KeyboardInterrupt), interruption.let_through():
            press()
            done.append('never')
        press()
        done.append('after')
    assert done == ['after']
