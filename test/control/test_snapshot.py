"""Test what diagnostics show."""

from __future__ import annotations

import json
import math
from typing import Any

from controller_harness import configure, Harness, make_lane, make_pool
from laimr_ros.control.events import Cause, PoolObserved
import pytest


def take(harness: Harness) -> dict[str, Any]:
    """Return the snapshot as it comes out of JSON."""
    snapshot = harness.controller.snapshot(harness.now)
    read = json.loads(json.dumps(snapshot, allow_nan=False))
    assert read == snapshot
    return dict(read)


@pytest.fixture
def harness() -> Harness:
    """Return a harness of one lane on two pools."""
    return Harness(configure(
        [make_lane('lane', 1.0, 'edge', 'cloud')],
        [make_pool('edge', 0.1), make_pool('cloud', 0.1, network=0.05)]))


def test_before_anything_happened_there_are_nulls(harness: Harness) -> None:
    shown = take(harness)
    assert shown['counters']['received'] == 0
    lane = shown['lanes']['lane']
    assert (lane['p50_s'], lane['p99_s'], lane['on_time_share']) == (None, None, None)
    edge = shown['pools']['edge']
    assert (edge['ready'], edge['desired'], edge['measured_p99_s']) == (0, None, None)
    harness.run_until(2.0)
    assert take(harness)['pools']['edge']['predicted_p99_s'] is None


def test_all_is_there_and_right(harness: Harness) -> None:
    h = harness
    h.handle(PoolObserved('edge', 1, 2, start_up=3.5))
    h.ready('e0')
    h.ready('c0', pool='cloud')
    on_time = h.arrive('cam', age=0.05)
    h.now = 0.1
    h.done(on_time, 0.1)
    failed = h.arrive('cam')
    h.fail(failed, Cause.BAD_FRAME)
    out, waiting = h.arrive('other'), h.arrive('third')
    h.tick()
    shown = take(h)
    assert shown['counters'] == {
        'received': 4, 'answered': 1, 'superseded': 0, 'expired': 0, 'rejected': 0, 'failed': 1,
        'in_flight': 2, 'on_time': 1}
    assert h.where(out) == 'e0'
    assert h.where(waiting) == 'queued'
    lane = shown['lanes']['lane']
    assert lane['model'] == 'm'
    assert lane['slo_s'] == 1.0
    assert lane['p50_s'] == pytest.approx(0.15)
    assert lane['on_time_share'] == 0.5
    assert lane['queued'] == 1
    assert lane['rate'] == pytest.approx(4.0)
    edge = shown['pools']['edge']
    assert (edge['ready'], edge['starting'], edge['desired'], edge['in_flight']) == (1, 2, 3, 1)
    assert edge['start_up_s'] == 3.5
    assert edge['measured_p99_s'] == pytest.approx(0.1)
    assert edge['predicted_p99_s'] > 0.1
    assert edge['models']['m']['service_s'] == pytest.approx(0.1, rel=0.1)
    cam = shown['cameras']['cam']
    assert cam['lane'] == 'lane'
    assert cam['age_s'] == pytest.approx(0.0)
    assert cam['reasons'] == {'failed: bad image': 1}
    assert cam['answered'] == 1


def test_a_camera_whose_frames_were_all_defective_has_no_age(harness: Harness) -> None:
    harness.arrive('cam', defect='empty')
    assert take(harness)['cameras']['cam']['age_s'] is None


def test_a_saturated_pool_predicts_nothing_finite(harness: Harness) -> None:
    h = harness
    h.ready('e0')
    h.ready('c0', pool='cloud')
    for k in range(200):
        frame = h.arrive(f'c{k}')
        if h.sends[frame]:
            h.done(frame, 0.1)
        h.now += 0.01
    h.tick()
    edge = take(h)['pools']['edge']
    assert edge['predicted_p99_s'] is None
    assert edge['rho'] > 1.0
    assert math.isfinite(edge['rate'])
