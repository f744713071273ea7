"""Curves are compared at equal cost, and only where there are runs."""

from __future__ import annotations

from dataclasses import replace
import math

from laimr_ros.evaluation import curves
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.curves import (
    at_cost,
    CURVES,
    findings,
    RATES,
    share_below,
    SWEEPS,
    tasks,
    TUNED,
)
from laimr_ros.evaluation.report import write_report
from laimr_ros.evaluation.runs import run_all
import pytest


@pytest.mark.parametrize(('cost', 'p99', 'how'), [
    (150.0, 2.5, 'between'), (90.0, 3.0, 'cheapest run, at 1.11 x'),
    (400.0, 1.0, 'dearest run, at 0.75 x')])
def test_p99_at_a_cost(cost, p99, how):
    found, told = at_cost([(300.0, 1.0), (100.0, 3.0), (200.0, 2.0), (50.0, math.inf)], cost)
    assert found == pytest.approx(p99)
    assert how in told


def test_a_policy_that_answers_too_little_has_no_curve():
    found, told = at_cost([(100.0, math.inf)], 100.0)
    assert found == math.inf
    assert 'no run' in told
    assert math.isnan(share_below([(1.0, 1.0), (2.0, 1.0)], [(1.0, math.inf)]))


def test_curves_are_compared_where_both_have_runs():
    ours, theirs = [(0.0, 1.0), (100.0, 1.0)], [(50.0, 2.0), (150.0, 0.0)]
    # Between 50 and 100 theirs falls from 2 to 1.
    assert share_below(ours, theirs) == pytest.approx(1.0, abs=0.03)
    assert share_below(theirs, ours) == pytest.approx(0.0, abs=0.03)
    assert share_below([(0.0, 1.5), (100.0, 1.5)], theirs) == pytest.approx(0.5, abs=0.03)
    assert math.isnan(share_below([(0.0, 1.0), (10.0, 1.0)], theirs))


def test_every_policy_has_a_curve_and_laimr_its_place_on_it():
    assert set(SWEEPS) == set(CURVES) > set(POLICIES)
    for policy, (name, values) in SWEEPS.items():
        assert len(values) >= 5
        for value in values:
            CURVES[policy].tuned(**{name: value})
    assert TUNED in SWEEPS['laimr'][1]
    keys = [task.key() for task in tasks(range(1, 11), None)]
    assert len(keys) == len(set(keys)) == 5 * len(RATES) * sum(
        len(values) for _, values in SWEEPS.values())


def test_rules_get_the_order_of_pools_and_nothing_else():
    given = {name: policy for name, policy in CURVES.items() if name not in POLICIES}
    assert 'sqrt_staffing, cheapest' in given
    for name, policy in given.items():
        before = POLICIES[name.split(',')[0]]
        assert (before.pool_order, policy.pool_order) == ('listed', 'cheapest')
        assert replace(policy, pool_order='listed') == before
    # Those who scale by a rule all have a curve in that order.
    assert {p.scaling for p in CURVES.values() if p.pool_order == 'cheapest'} == {
        p.scaling for p in POLICIES.values()} - {'laimr_paper'}


def _rows(ours, theirs):
    return [{**task.labels, 'rate': task.scenario.rate, 'seed': 1, 'measured': 600.0,
             'on_time': 0.9, 'p99_s': ours if task.labels['policy'] == 'laimr' else theirs,
             'replica_seconds': 100.0 + place}
            for place, task in enumerate(tasks([1], None))]


@pytest.mark.parametrize(('ours', 'theirs', 'holds'), [
    (1.0, 1.1, True), (1.0, 1.0, False), (1.0, math.inf, True), (math.inf, math.inf, False)])
def test_claims_follow_the_runs(ours, theirs, holds):
    claims = [c for c in findings(_rows(ours, theirs)).claims if 'within' not in c.claim]
    assert len(claims) == len(RATES) * (len(CURVES) - 2)
    assert {claim.holds for claim in claims} == {holds}


@pytest.mark.parametrize(('ours', 'theirs', 'holds'), [
    (1.0, 1.0, True), (1.9, 1.9, False), (1.0, math.inf, True), (1.9, 1.0, False)])
def test_who_keeps_the_slo_for_least(ours, theirs, holds):
    # LA-IMR's runs come first in each rate, and costs rise with every run.
    claims = [c for c in findings(_rows(ours, theirs)).claims if 'within' in c.claim]
    assert [claim.holds for claim in claims] == [holds] * len(RATES)


def test_a_dearer_laimr_is_said_to_be():
    rows = _rows(1.0, 1.0)
    for row in rows:
        row['replica_seconds'] *= -1.0 if row['policy'] == 'cpu_hpa' else 1.0
    claim = next(c for c in findings(rows).claims if 'within' in c.claim)
    assert not claim.holds
    assert 'cpu_hpa' in claim.ours


def test_real_runs_are_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, 'RATES', (4.0,))
    rows = run_all(tasks([1], 5.0), tmp_path / 'runs.jsonl', 1)
    write_report(tmp_path, 'curves', 'Curves', {}, rows, findings(rows))
    assert (tmp_path / 'p99_against_cost_at_4_per_second.png').exists()
