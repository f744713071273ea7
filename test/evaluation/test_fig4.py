"""Layouts have the same CPUs, and are judged size by size."""

from __future__ import annotations

import math

from laimr_ros.evaluation import fig4
from laimr_ros.evaluation.fig4 import (
    cpu_seconds,
    findings,
    LANES,
    MICRO,
    MONOLITHS,
    scenario_of,
    shares,
    SIZES,
    tasks,
)
from laimr_ros.evaluation.report import write_report
from laimr_ros.evaluation.runs import run_all
import pytest


@pytest.mark.parametrize('size', SIZES)
def test_every_layout_has_the_same_cpus(size):
    for layout in (MICRO, *MONOLITHS):
        pools = scenario_of(layout, size, None).pools
        assert sum(pool.cpus * pool.max_replicas for pool in pools.values()) == 3.0 * size
        assert all(pool.min_replicas == pool.max_replicas for pool in pools.values())


def test_a_lane_alone_takes_as_long_in_every_layout_of_the_same_speed():
    # One serving replica keeps three CPUs busy, whatever it was given.
    micro, mono = (scenario_of(layout, 18, None) for layout in (MICRO, 'monolith'))
    for lane in LANES:
        assert micro.models[micro.lanes[lane].model] == mono.models[mono.lanes[lane].model]
    assert micro.pools['fast'].cpus / micro.instances['edge'].capacity == pytest.approx(
        mono.pools['monolith'].cpus / mono.instances['edge'].capacity)
    fast = scenario_of('monolith 3 x faster', 18, None)
    assert fast.models['yolov5x'].idle == pytest.approx(1.6 / 3.0)


def test_replicas_go_where_the_load_is():
    assert shares(3) == {'fast': 1, 'balanced': 1, 'precise': 1}
    # Loads are 0.36, 0.73 and 1.6.
    assert shares(6) == {'fast': 1, 'balanced': 2, 'precise': 3}
    assert all(sum(shares(size).values()) == size for size in SIZES)


def _rows(late, on_time, cost):
    """Return rows whose latencies are 1 for microservices and ``late`` for monoliths."""
    rows = []
    for task in tasks([1], None):
        micro = task.labels['layout'] == MICRO
        latency = 1.0 if micro else late
        pools = dict.fromkeys(LANES, 100.0) if micro else {
            'monolith': 300.0 * cost / MONOLITHS[task.labels['layout']][0]}
        rows.append({
            **task.labels, 'seed': 1, 'mean_s': latency, 'on_time': on_time if micro else 0.9,
            **{f'{lane}:p99_s': latency for lane in LANES},
            **{f'{lane}:frames': 100.0 for lane in LANES},
            **{f'{pool}:replica_seconds': spent for pool, spent in pools.items()}})
    return rows


@pytest.mark.parametrize(('late', 'on_time', 'cost', 'fixed', 'scaled'), [
    (2.0, 0.95, 1.5, True, True), (0.9, 0.95, 1.5, False, True), (2.0, 0.85, 1.5, True, False),
    (2.0, 0.95, 0.8, True, False), (math.inf, 0.95, 1.5, True, True)])
def test_claims_follow_the_runs(late, on_time, cost, fixed, scaled):
    claims = findings(_rows(late, on_time, cost)).claims
    assert {c.holds for c in claims if not c.claim.startswith('Scaled')} == {fixed}
    assert {c.holds for c in claims if c.claim.startswith('Scaled')} == {scaled}


def test_one_size_is_enough_to_break_a_claim():
    rows = _rows(2.0, 0.95, 1.5)
    for row in rows:
        if (row['layout'], row['size'], row['scaling']) == ('monolith', 12, 'fixed'):
            row['fast:p99_s'] = 0.5
    broken = [claim.claim for claim in findings(rows).claims if not claim.holds]
    assert len(broken) == 1
    assert 'against monolith (' in broken[0]
    assert 'lane fast' in broken[0]


def test_costs_of_a_shared_replica_are_split_by_work():
    row = {'layout': 'monolith', 'monolith:replica_seconds': 10.0, 'fast:frames': 10.0,
           'balanced:frames': 0.0, 'precise:frames': 10.0}
    costs = cpu_seconds(row)
    assert sum(costs.values()) == pytest.approx(90.0)
    assert costs['precise'] / costs['fast'] == pytest.approx(1.6 / 0.18)


def test_real_runs_are_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(fig4, 'SIZES', (12, 18))
    rows = run_all(tasks([1], 30.0), tmp_path / 'runs.jsonl', 1)
    found = findings(rows)
    write_report(tmp_path, 'fig4', 'Layouts', {}, rows, found)
    assert (tmp_path / 'mean_latency_over_size.png').exists()
    for line in found.table:
        if line[1] in SIZES:  # What is fixed costs the CPUs it has.
            assert line[found.columns.index('CPU-seconds')] == pytest.approx(3.0 * line[1] * 30.0)
