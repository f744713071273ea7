"""Claims on decision times are judged by the runs, routing and scaling apart."""

from __future__ import annotations

from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.decision_time import findings, tasks
import pytest


def _rows(**numbers):
    rows = []
    for run in tasks([1, 2, 3], None):
        row = {'scenario': run.scenario, 'policy': run.policy, 'clock': run.clock,
               'seed': run.seed, 'routing_p50_us': 20.0, 'routing_p99_us': 100.0,
               'scaling_p50_us': 30.0, 'scaling_p99_us': 300.0, 'core_share': 0.01,
               'service_s': 0.1}
        if (run.scenario, run.policy) == ('mixed', 'laimr'):
            row.update(numbers)
        rows.append(row)
    return rows


def test_everybody_is_timed_with_both_clocks():
    runs = tasks([1, 2], 30.0)
    assert len({run.key() for run in runs}) == len(runs) == 2 * len(POLICIES) * 2 * 2
    assert {run.overrides['measured'] for run in runs} == {30.0}


@pytest.mark.parametrize(('numbers', 'broken'), [
    ({}, []),
    ({'routing_p99_us': 1001.0, 'service_s': 1.0}, [0]),
    ({'scaling_p99_us': 1001.0}, [1]),
    ({'service_s': 0.0099}, [4]),
    ({'scaling_p50_us': 41.0}, [5]),
])
def test_a_claim_is_judged_by_its_own_number(numbers, broken):
    claims = findings(_rows(**numbers)).claims
    assert [k for k, claim in enumerate(claims) if not claim.holds] == broken


def test_one_slow_seed_decides_nothing():
    rows = _rows()
    for row in rows:
        if row['seed'] == 2:
            row['routing_p99_us'] = 1e6
    assert all(claim.holds for claim in findings(rows).claims)


def test_a_small_run_end_to_end():
    found = findings([run.run() for run in tasks([1], 5.0)])
    assert len(found.table) == 2 * len(POLICIES)
    assert all(0.0 < row[1] <= row[2] for row in found.table)
