"""Quality of service: what fits must agree with rclpy's own judgement."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip('rclpy', reason='no ROS here: run `make setup`')

from laimr_ros.nodes.qos_check import mismatch
from rclpy.duration import Duration
from rclpy.qos import (
    DurabilityPolicy,
    qos_check_compatible,
    QoSCompatibility,
    QoSProfile,
    ReliabilityPolicy,
)

DURATIONS = (Duration(), Duration(seconds=1), Duration(seconds=2))
PROFILES = [
    QoSProfile(depth=1, reliability=reliability, durability=durability, deadline=deadline,
               liveliness_lease_duration=lease)
    for reliability, durability, deadline, lease in itertools.product(
        (ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT),
        (DurabilityPolicy.VOLATILE, DurabilityPolicy.TRANSIENT_LOCAL),
        DURATIONS, (Duration(), Duration(seconds=3)))]


def test_agrees_with_rclpy():
    bad = 0
    for offered, requested in itertools.product(PROFILES, repeat=2):
        compatible, reason = qos_check_compatible(offered, requested)
        found = mismatch(offered, requested)
        assert (found is None) == (compatible != QoSCompatibility.ERROR), reason
        if found is not None:
            bad += 1
    assert bad > 100


def test_both_sides_are_named():
    offered = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    requested = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
    assert mismatch(offered, requested) == ('reliability', 'best_effort', 'reliable')
    offered = QoSProfile(depth=1, deadline=Duration(seconds=2))
    requested = QoSProfile(depth=1, deadline=Duration(seconds=1))
    assert mismatch(offered, requested) == ('deadline', '2 s', '1 s')


def test_for_ever_is_the_same_as_not_set():
    # What the graph tells of endpoints that set no deadline; rclpy's judgement takes it for one.
    unset, most = QoSProfile(depth=1), QoSProfile(
        depth=1, deadline=Duration(nanoseconds=2**63 - 1))
    assert mismatch(unset, most) is None
    assert mismatch(most, unset) is None
