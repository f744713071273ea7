"""What is kept of answers is what came out, and coverage counts frames that were given up."""

from __future__ import annotations

from laimr_ros.evaluation.answers import Answers, simulate_answers
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.scenario_files import load_scenario
import numpy as np
import pytest


def _scene(**values):
    return load_scenario('paper', {'rate': 3.0, 'measured': 40.0, 'warm_up': 20.0, **values})


def test_watching_changes_nothing():
    plain = simulate(_scene(), POLICIES['laimr'], 1)
    result, answers = simulate_answers(_scene(), POLICIES['laimr'], 1)
    assert result.summary() == plain.summary()
    assert len(answers.took) == len(plain.created)
    # What is not waited before sending is the time after it.
    assert np.all(np.sort(answers.created) == plain.created)
    order = np.argsort(answers.created)
    assert answers.latency[order] == pytest.approx(plain.latency)
    assert np.all(answers.took <= answers.latency + 1e-9)


def test_service_is_what_the_replica_needed():
    _, answers = simulate_answers(_scene(), POLICIES['capacity_rule'], 1)
    assert np.all(answers.service < answers.took)
    assert set(answers.pool) <= {'edge', 'cloud'}
    edge = answers.service[answers.pool == 'edge']
    assert 0.73 < edge.mean() < 1.46


def test_coverage_counts_what_was_given_up():
    answers = Answers(
        np.array(['edge'] * 4), np.arange(4.0), np.array([1.0, 1.0, 1.0, np.nan]),
        np.full(4, 3.0), np.array([1.0, 1.2, 2.0, np.inf]), np.full(4, 0.5),
        np.full(4, 1.5), np.full(4, 1.1))
    assert answers.coverage() == 0.5
    assert answers.told_coverage() == 0.25


def test_several_dispatchers_are_refused():
    with pytest.raises(ValueError, match='2 dispatchers'):
        simulate_answers(_scene(dispatchers=2), POLICIES['laimr'], 1)
