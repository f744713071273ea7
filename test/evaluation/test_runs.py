"""Runs are kept, taken up again, and the same whoever runs them."""

from __future__ import annotations

import json
import math

from laimr_ros.evaluation import runs
from laimr_ros.evaluation.kept import plain
from laimr_ros.evaluation.runs import run_all, Task
import pytest

TASKS = [Task('paper', 2.0, policy, seed, 20.0)
         for policy in ('capacity_rule', 'reactive_latency') for seed in (1, 2)]


def test_numbers_do_not_depend_on_who_runs_them(tmp_path):
    alone = run_all(TASKS, tmp_path / 'alone.jsonl', 1)
    together = run_all(TASKS, tmp_path / 'together.jsonl', 2)
    assert alone == together
    assert [(row['policy'], row['seed']) for row in alone] == [
        (task.policy, task.seed) for task in TASKS]


def test_finished_runs_are_not_run_again(tmp_path, monkeypatch):
    kept = tmp_path / 'runs.jsonl'
    first = run_all(TASKS, kept, 1)

    def fail(*args, **kwargs):
        raise AssertionError('ran again')

    monkeypatch.setattr(runs, 'simulate', fail)
    assert run_all(TASKS, kept, 1) == first


def test_a_line_cut_short_is_run_again(tmp_path):
    kept = tmp_path / 'runs.jsonl'
    first = run_all(TASKS, kept, 1)
    kept.write_text(kept.read_text()[:-40])
    seen = []
    assert run_all(TASKS, kept, 1, lambda done, of: seen.append((done, of))) == first
    assert seen == [(3, 4), (4, 4)]
    assert run_all(TASKS, kept, 1) == first


@pytest.mark.parametrize('other', [
    Task('paper', 2.5, 'capacity_rule', 1, 20.0), Task('tight', 2.0, 'capacity_rule', 1, 20.0),
    Task('paper', 2.0, 'laimr', 1, 20.0), Task('paper', 2.0, 'capacity_rule', 3, 20.0),
    Task('paper', 2.0, 'capacity_rule', 1)])
def test_another_run_has_another_key(other):
    assert other.key() != TASKS[0].key()
    assert TASKS[0].key() == Task('paper', 2.0, 'capacity_rule', 1, 20.0).key()


def test_missing_frames_survive_being_kept(tmp_path, monkeypatch):
    # An infinite quantile is what tells a dropped frame; it must come back as one.
    row = {'key': TASKS[0].key(), 'measured': 20.0, 'p99_s': math.inf, 'answered_p99_s': math.nan}
    kept = tmp_path / 'runs.jsonl'
    kept.write_text(json.dumps(plain(row), allow_nan=False) + '\n')
    monkeypatch.setattr(runs, 'simulate', None)
    (back,) = run_all(TASKS[:1], kept, 1)
    assert back['p99_s'] == math.inf
    assert math.isnan(back['answered_p99_s'])
