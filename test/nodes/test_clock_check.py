"""Clock check against hand-worked ages."""

from __future__ import annotations

from hypothesis import given, strategies
from laimr_ros.nodes.clock_check import ClockCheck, WINDOW
import pytest

NOW_NS = 1_700_000_000_000_000_000


def feed(check, *ages, received=100.0):
    """Give frames of the ages; return the captured time of the last one, after reception."""
    captured = received
    for age in ages:
        captured = check.captured(NOW_NS - round(age * 1e9), NOW_NS, received)
    return captured - received


def test_stamp_is_believed_when_clocks_agree():
    check = ClockCheck(0.1, 5.0)
    assert feed(check, 0.05) == pytest.approx(-0.05)
    assert check.agrees and check.problem == ''
    assert check.offset == pytest.approx(0.05)


def test_one_late_frame_is_late_not_a_wrong_clock():
    check = ClockCheck(0.1, 5.0)
    assert feed(check, 0.02, 0.02, 30.0) == pytest.approx(-30.0)
    assert check.agrees


def test_clock_ahead_within_tolerance_counts_from_reception():
    check = ClockCheck(0.1, 5.0)
    assert feed(check, -0.08) == 0.0
    assert check.agrees


def test_clock_ahead_is_detected_and_measured():
    check = ClockCheck(0.1, 5.0)
    assert feed(check, -2.0) == 0.0
    assert not check.agrees
    assert check.offset == pytest.approx(-2.0)
    assert '2.000 s ahead' in check.problem
    # Even a frame delayed so long that its age looks right is not believed.
    assert feed(check, 0.1) == 0.0


def test_clock_behind_is_detected_and_measured():
    check = ClockCheck(0.1, 5.0)
    assert feed(check, 3600.0, 3600.2) == 0.0
    assert '3600.000 s behind' in check.problem


def test_clocks_that_agree_again_are_believed_again():
    check = ClockCheck(0.1, 5.0)
    feed(check, *[-2.0] * 100)
    feed(check, *[0.03] * (WINDOW - 1))
    assert not check.agrees
    assert feed(check, 0.03) == pytest.approx(-0.03)
    assert check.agrees


def test_no_stamp_counts_from_reception_and_says_so():
    check = ClockCheck(0.1, 5.0)
    assert check.captured(0, NOW_NS, 7.0) == 7.0
    assert not check.agrees and 'no stamp' in check.problem
    feed(check, 0.01)
    assert check.agrees


@given(strategies.lists(strategies.floats(-10.0, 10.0), min_size=1, max_size=80))
def test_offset_is_the_smallest_age_of_the_window(ages):
    check = ClockCheck(0.1, 5.0)
    captured = feed(check, *ages)
    assert check.offset == pytest.approx(min(ages[-WINDOW:]), abs=1e-6)
    assert len(check._ages) <= WINDOW
    assert captured <= 0.0, 'no frame is captured after it was received'
