"""A setting matters if frames or costs say so, and only where they do."""

from __future__ import annotations

from laimr_ros.control.nouns import Limits
from laimr_ros.evaluation.margin import findings, MEASURED, SETTINGS, tasks, WORLDS
import pytest


def _rows(change):
    rows = []
    for task in tasks([1, 2], None):
        row = {'scenario': task.scenario, 'rate': task.rate, 'seed': task.seed,
               'settings': dict(task.settings), 'on_time': 0.98, 'p99_s': 1.7,
               'replica_seconds': 1000.0}
        row.update(change(row))
        rows.append(row)
    return rows


def test_one_setting_at_a_time_and_all_of_the_controllers():
    made = tasks([1, 2], None)
    assert len({task.key() for task in made}) == len(made) == 2 * len(WORLDS) * sum(
        map(len, SETTINGS.values()))
    assert {len(task.settings) for task in made} == {1}
    assert {task.measured for task in made} == {MEASURED}
    for name, values in SETTINGS.items():
        assert getattr(Limits(), name) in values


def _at(name, value, **numbers):
    return lambda row: numbers if (
        row['settings'] == {name: value} and row['scenario'] == 'surge') else {}


@pytest.mark.parametrize(('change', 'broken'), [
    (lambda row: {}, []),
    (_at('slo_margin', 1.0, on_time=0.971), []),
    (_at('slo_margin', 1.0, on_time=0.969), [('surge', 'slo_margin')]),
    (_at('fast_window', 1.0, replica_seconds=1101.0), [('surge', 'fast_window')]),
    (_at('slow_window', 30.0, replica_seconds=905.0), [('surge', 'slow_window')]),
])
def test_what_matters_is_said_where_it_does(change, broken):
    claims = findings(_rows(change)).claims
    assert len(claims) == len(WORLDS) * len(SETTINGS)
    failed = [claim for claim in claims if not claim.holds]
    assert len(failed) == len(broken)
    for claim, (scenario, name) in zip(failed, broken):
        assert claim.claim.startswith(scenario) and name in claim.claim


def test_a_small_run_end_to_end():
    found = findings([task.run() for task in tasks([1], 5.0)])
    assert len(found.table) == len(WORLDS) * sum(map(len, SETTINGS.values()))
