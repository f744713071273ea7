"""Parts are judged seed by seed, and only at about the same cost."""

from __future__ import annotations

from dataclasses import replace

from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.crossed import findings, parts, RATES, SCENARIOS, tasks
from laimr_ros.evaluation.report import write_report
from laimr_ros.evaluation.runs import run_all
import pytest


def test_each_part_is_the_wholes_own():
    made = parts()
    assert (made['both'], made['neither']) == (POLICIES['laimr'], POLICIES['reactive_latency'])
    ours, theirs = made['both'], made['neither']
    assert made['order'] == replace(theirs, pool_order=ours.pool_order)
    assert (made['routing'].routing, made['routing'].scaling) == (ours.routing, theirs.scaling)
    assert made['routing'].settings == theirs.settings
    assert (made['scaling'].routing, made['scaling'].scaling) == (theirs.routing, ours.scaling)
    assert made['scaling'].limits == ours.limits
    assert {policy.pool_order for name, policy in made.items() if name != 'neither'} == {
        ours.pool_order}


def _rows(p99=1.0, late=0.02, cost=100.0, noise=0.0):
    """Return rows in which LA-IMR's routing has other numbers than all others."""
    rows = []
    for task in tasks(range(1, 7), None):
        own = task.labels['ours'] == 'routing'
        luck = noise * (-1) ** task.seed if own else 0.0
        rows.append({
            **task.labels, 'rate': task.scenario.rate, 'seed': task.seed, 'measured': 600.0,
            'p99_s': (p99 if own else 1.0) + luck + 0.1 * task.seed,
            'on_time': 1.0 - (late if own else 0.02),
            'replica_seconds': cost if own else 100.0, 'offload_share': 0.0})
    return rows


def _told(rows):
    """Return what is told of each part but the one that is unlike, and of that."""
    claims = findings(rows).claims
    assert len(claims) == len(SCENARIOS) * len(RATES) * 4
    own = [c for c in claims if 'routing alone' in c.claim]
    assert not any(claim.holds for claim in claims if claim not in own)
    return {claim.holds for claim in own}, {claim.ours.split(': P99')[0] for claim in own}


@pytest.mark.parametrize(('numbers', 'holds', 'told'), [
    ({}, False, 'earns nothing'),
    ({'p99': 0.9}, True, 'earns a lower P99'),
    ({'late': 0.01}, True, 'earns fewer late frames'),
    ({'cost': 80.0}, True, 'earns lower cost'),
    ({'p99': 0.9, 'late': 0.01, 'cost': 80.0}, True,
     'earns a lower P99 and fewer late frames and lower cost'),
    # Neither may be bought at any price.
    ({'p99': 0.9, 'late': 0.01, 'cost': 111.0}, False, 'earns nothing, loses in cost'),
    ({'p99': 0.9, 'late': 0.03, 'cost': 80.0}, False, 'earns nothing, loses in late frames'),
    ({'p99': 1.1, 'late': 0.03}, False, 'earns nothing, loses in P99 and late frames'),
    # Now better, now worse: chance.
    ({'p99': 0.95, 'noise': 0.3}, False, 'earns nothing')])
def test_claims_follow_the_runs(numbers, holds, told):
    assert _told(_rows(**numbers)) == ({holds}, {told})


def test_where_nobody_is_late_nobody_is_on_time_more_often():
    rows = _rows(late=0.0)
    for row in rows:
        row['on_time'] = 1.0
    assert _told(rows) == ({False}, {'earns nothing'})


def test_real_runs_are_told_of(tmp_path):
    rows = run_all(tasks([1], 10.0), tmp_path / 'runs.jsonl', 1)
    write_report(tmp_path, 'crossed', 'Crossed', {}, rows, findings(rows))
    assert (tmp_path / 'p99_against_cost.png').exists()
    assert len({row['key'] for row in rows}) == len(rows) == 20
