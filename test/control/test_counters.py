"""Test that counters add up."""

from __future__ import annotations

from laimr_ros.control.counters import Counters, ReasonedCounters
from laimr_ros.control.nouns import Outcome
import pytest


def test_nothing_received_is_nothing_in_flight() -> None:
    assert set(Counters().as_dict().values()) == {0}


@pytest.mark.parametrize('counters', [Counters(), ReasonedCounters()])
def test_what_has_not_ended_is_in_flight(counters: Counters) -> None:
    counters.received = 10
    counters.ended[Outcome.ANSWERED] = 5
    counters.ended[Outcome.EXPIRED] = 2
    counters.late = 1
    assert counters.in_flight == 3
    assert counters.on_time == 4
    assert counters.as_dict() == {
        'received': 10, 'answered': 5, 'superseded': 0, 'expired': 2, 'rejected': 0,
        'failed': 0, 'in_flight': 3, 'on_time': 4}


def test_two_counters_share_nothing() -> None:
    one, other = ReasonedCounters(), ReasonedCounters()
    one.ended[Outcome.FAILED] += 1
    one.reasons['failed: worker error'] += 1
    assert other.ended[Outcome.FAILED] == 0
    assert not other.reasons
