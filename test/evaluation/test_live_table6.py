"""Live and simulated numbers agree or the report says why, as far as numbers can tell."""

from __future__ import annotations

import math
import pickle

from laimr_ros.evaluation.live_table6 import (
    as_started,
    CAMERAS,
    deviation,
    findings,
    LiveRun,
    RATES,
    reasons,
    spread,
    tasks,
)
from laimr_ros.simulation.workload import workload_of
import numpy as np
import pytest

ROW = {
    'rate': 4.0, 'seed': 1, 'measured': 120.0, 'draws': 10, 'frames': 480,
    'live_p50_s': 0.95, 'live_p95_s': 1.3, 'live_p99_s': 1.5,
    'simulated_p50_s': 0.96, 'simulated_p95_s': 1.3, 'simulated_p99_s': 1.45,
    'simulated_low_s': 1.3, 'simulated_high_s': 1.6, 'live_unanswered': 0.0,
    'simulated_unanswered': 0.0, 'live_offload_share': 0.0, 'simulated_offload_share': 0.0,
    'live_replicas': 12.0, 'simulated_replicas': 12.5, 'overhead_s': 0.01, 'start_up_s': 1.7,
    'lost': 0, 'late_s': 0.01}


def test_one_run_of_each_rate_and_all_draws():
    runs = tasks([3, 4, 5], None)
    assert [(run.rate, run.seed, run.draws) for run in runs] == [
        (rate, 3, (3, 4, 5)) for rate in RATES]
    # In eight minutes, with what starting and ending take.
    assert sum(run.weight() + 20.0 for run in runs) <= 480.0
    assert pickle.loads(pickle.dumps(runs[0])).key() == runs[0].key() != runs[1].key()


def test_cameras_change_neither_times_nor_order():
    scenario = LiveRun(6.0, 1, (1,), 60.0).scenario()
    plain = workload_of(scenario, 1)
    made = spread(plain, scenario.robots)
    assert np.array_equal(made.time, plain.time)
    assert len(set(zip(made.robot.tolist(), made.count.tolist()))) == len(made.time)
    assert set(made.robot.tolist()) == set(range(CAMERAS * scenario.robots))
    # Of each camera the frames are counted in their order.
    for camera in range(CAMERAS * scenario.robots):
        count = made.count[made.robot == camera].tolist()
        assert count == list(range(len(count)))


def test_replicas_start_as_fast_as_real_ones():
    scenario = as_started(LiveRun(6.0, 1, (1,), 60.0).scenario(), 0.7)
    assert {pool.start_up.mean for pool in scenario.pools.values()} == {0.7}


@pytest.mark.parametrize(('live', 'holds'), [
    (1.45 * 1.149, True), (1.45 * 1.151, False), (1.45 * 0.86, True), (1.45 * 0.84, False),
    (math.inf, False)])
def test_agreement_is_judged(live, holds):
    claim, = findings([{**ROW, 'live_p99_s': live}]).claims
    assert claim.holds is holds
    assert ('why: ' in claim.ours) is not holds


def test_deviation_of_what_is_not_answered():
    assert deviation(math.inf, math.inf) == 0.0
    assert deviation(1.0, math.inf) == -1.0
    assert deviation(math.inf, 1.0) == math.inf


@pytest.mark.parametrize(('more', 'told'), [
    ({'lost': 3}, '3 frames never reached'),
    ({'overhead_s': 0.1}, 'add 100 ms'),
    ({'live_p50_s': 1.2}, 'whole distribution'),
    ({'live_replicas': 15.0}, 'scaling went another way'),
    ({'simulated_high_s': 1.9}, 'within what service times do'),
    ({'late_s': 0.2}, '0.20 s late'),
])
def test_each_reason_is_found_by_its_number(more, told):
    row = {**ROW, 'live_p99_s': 1.8}
    assert reasons(row) == ['nothing measured here explains it']
    found = reasons({**row, **more})
    assert len(found) == 1 and told in found[0]
