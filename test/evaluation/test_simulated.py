"""A run of any policy in any world is told of as the engine has it."""

from __future__ import annotations

from dataclasses import replace
import pickle

from laimr_ros.evaluation.runs import run_all
from laimr_ros.evaluation.simulated import Simulated
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import crossed
from laimr_ros.simulation.scenario_files import load_scenario
import pytest

POLICY = crossed('overflow', 'fixed')
RUN = Simulated(
    {'layout': 'one'}, load_scenario('mixed', {'rate': 3.0, 'warm_up': 5.0, 'measured': 20.0}),
    POLICY, 7, robot=2)


def test_numbers_are_the_results_own(tmp_path):
    (row,) = run_all([RUN], tmp_path / 'runs.jsonl', 1)
    result = simulate(RUN.scenario, POLICY, 7)
    assert (row['layout'], row['rate'], row['seed'], row['measured']) == ('one', 3.0, 7, 20.0)
    assert row['mean_s'] == pytest.approx(result.latency.mean())
    assert row['fast:p99_s'] == pytest.approx(result.quantile(0.99, 'fast'))
    assert sum(row[f'{lane}:frames'] for lane in result.lanes) == row['frames']
    assert sum(row[f'{pool}:replica_seconds'] for pool in result.pools) == pytest.approx(
        row['replica_seconds'])
    own = result.latency[result.robot == 2]
    assert row['robot_mean_s'] == pytest.approx(own.mean())
    assert row['robot_p99_s'] == own.max()  # Of fewer than a hundred frames.


@pytest.mark.parametrize('other', [
    replace(RUN, seed=8), replace(RUN, policy=crossed('laimr', 'fixed')), replace(RUN, robot=1),
    replace(RUN, scenario=RUN.scenario.at_rate(3.5)), replace(RUN, labels={'layout': 'two'})])
def test_another_run_has_another_key(other):
    assert other.key() != RUN.key()


def test_runs_go_to_other_processes():
    assert pickle.loads(pickle.dumps(RUN)).key() == RUN.key()
