"""Rules are compared at the cost of the method, read between their runs."""

from __future__ import annotations

import math

from laimr_ros.evaluation.ablation import at_cost, findings, RATES, SCENARIOS, SWEEPS, tasks
import pytest


@pytest.mark.parametrize(('cost', 'late', 'how'), [
    (150.0, 0.3, 'between'), (100.0, 0.4, 'between'), (400.0, 0.1, 'dearest'),
    (50.0, 0.4, 'cheapest')])
def test_late_share_at_a_cost(cost, late, how):
    found, told = at_cost([(300.0, 0.1), (100.0, 0.4), (200.0, 0.2)], cost)
    assert found == pytest.approx(late)
    assert how in told


def test_rules_differ_from_the_method_in_nothing_but_the_rule():
    """One of each setting, in every world and at every rate, in the same order of pools."""
    made = tasks([1, 2], 60.0)
    a_world = 1 + sum(len(values) for _, values in SWEEPS.values())
    assert len(made) == len({run.key() for run in made}) == (
        len(SCENARIOS) * len(RATES) * 2 * a_world)
    assert {run.policy.pool_order for run in made} == {'cheapest'}


def rows(late: float, theirs: float):
    """Return rows of the method at a cost of 200, and of rules at 100 to 300."""
    for scenario in SCENARIOS:
        for rate in RATES:
            told = {'scenario': scenario, 'rate': rate}
            yield {**told, 'policy': 'laimr', 'setting': '', 'on_time': 1.0 - late,
                   'replica_seconds': 200.0}
            for policy, (name, values) in SWEEPS.items():
                for k, value in enumerate(values):
                    yield {**told, 'policy': policy, 'setting': f'{name}={value:g}',
                           'on_time': 1.0 - theirs,
                           'replica_seconds': 100.0 + 200.0 * k / (len(values) - 1)}


@pytest.mark.parametrize(('late', 'theirs', 'holds', 'idle'), [
    (0.1, 0.3, True, False), (0.2, 0.3, False, False), (0.3, 0.3, False, True),
    (0.0, 0.0, None, True), (math.nan, 0.3, None, False)])
def test_what_the_model_earns_is_judged_from_the_numbers(late, theirs, holds, idle):
    found = findings(list(rows(late, theirs)))
    assert {claim.holds for claim in found.claims} == {holds}
    assert any('earns nothing' in note for note in found.notes) == idle


def test_a_small_run_end_to_end():
    made = [run for run in tasks([1], 20.0) if run.scenario.name == 'tight']
    found = [run.run() for run in made]
    assert {row['policy'] for row in found} == {'laimr', *SWEEPS}
    assert all(row['replica_seconds'] > 0.0 for row in found)
