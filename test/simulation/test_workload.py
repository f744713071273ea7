"""Frames and their fates: rates, laws, and that they are the same for the same seed."""

from __future__ import annotations

import math
from pathlib import Path

from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario, ScenarioError
from laimr_ros.simulation.workload import (
    Draws,
    fault_times,
    lognormal_law,
    make_workload,
    read_trace,
    Workload,
    workload_of,
    write_trace,
)
import numpy as np
import pytest


def gaps(workload: Workload, robot: int) -> np.ndarray:
    """Return one robot's times between frames."""
    return np.diff(workload.time[workload.robot == robot])


def test_same_seed_same_frames_another_seed_others() -> None:
    scenario = load_scenario()
    one, two, other = (make_workload(scenario, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.time, two.time) and np.array_equal(one.robot, two.robot)
    assert len(one.time) != len(other.time) or not np.array_equal(one.time, other.time)


def test_frames_come_in_order_and_count_up_for_each_robot() -> None:
    workload = make_workload(load_scenario(), 3)
    assert np.all(np.diff(workload.time) >= 0.0)
    for robot in range(6):
        own = workload.count[workload.robot == robot]
        assert own.tolist() == list(range(len(own)))


@pytest.mark.parametrize('name', ['paper', 'periodic', 'mmpp', 'surge', 'mixed'])
def test_mean_rates_are_those_asked_for(name: str) -> None:
    scenario = load_scenario(name, {'measured': 20_000.0, 'rate': 3.0})
    workload = make_workload(scenario, 1)
    wanted = 3.0 * (1.0 + 3.0 / 6.0 if name == 'surge' else 1.0)
    # An MMPP's own rate over the run varies by some percent.
    assert len(workload.time) / scenario.end == pytest.approx(wanted, rel=0.05)
    shares = np.bincount(workload.robot) / len(workload.time)
    assert shares == pytest.approx(np.full(scenario.robots, 1.0 / scenario.robots), rel=0.1)


def test_the_rate_is_the_same_from_the_start() -> None:
    scenario = load_scenario('fleet', {'measured': 20.0, 'warm_up': 0.0})
    times = make_workload(scenario, 1).time
    counts = np.histogram(times, bins=4, range=(0.0, 20.0))[0] / 5.0
    assert counts == pytest.approx(np.full(4, scenario.rate), rel=0.06)


def test_intervals_are_bounded_pareto() -> None:
    scenario = load_scenario('paper', {'measured': 20_000.0, 'rate': 6.0})
    own = gaps(make_workload(scenario, 5), 0)
    assert own.max() / own.min() < 100.0 * (1.0 + 1e-6)
    lower = own.min()
    # Survival function of the bounded Pareto law with shape 1.5 at twice the lower bound.
    tail = 100.0 ** -1.5
    expected = (2.0 ** -1.5 - tail) / (1.0 - tail)
    assert np.mean(own > 2.0 * lower) == pytest.approx(expected, abs=0.02)


def test_a_steady_beat_jitters_within_its_part() -> None:
    scenario = load_scenario('periodic', {'rate': 6.0})
    own = gaps(make_workload(scenario, 1), 2)
    assert own.min() >= 0.8 - 1e-9 and own.max() <= 1.2 + 1e-9
    assert own.std() > 0.01


def test_a_surge_is_four_times_as_fast_for_ten_seconds_of_each_minute() -> None:
    scenario = load_scenario('surge', {'measured': 6000.0, 'arrivals': {'process': 'poisson'}})
    times = make_workload(scenario, 1).time
    within = (times % 60.0 >= 25.0) & (times % 60.0 < 35.0)
    fast = within.sum() / (scenario.end / 6.0)
    slow = (~within).sum() / (scenario.end * 5.0 / 6.0)
    assert fast / slow == pytest.approx(4.0, rel=0.05)


def test_lanes_have_their_shares_of_the_robots() -> None:
    scenario = load_scenario('mixed')
    workload = make_workload(scenario, 1)
    robots = {lane: len({r for r, own in zip(workload.robot.tolist(), workload.lane.tolist())
                         if own == k}) for k, lane in enumerate(workload.lanes)}
    assert robots == {'balanced': 3, 'fast': 6, 'precise': 3}


def test_traces_come_back_as_they_were(tmp_path: Path) -> None:
    scenario = load_scenario('mixed', {'measured': 60.0})
    workload = make_workload(scenario, 1)
    write_trace(workload, tmp_path / 'trace.csv')
    traced = load_scenario('mixed', {'measured': 60.0, 'arrivals': {
        'process': 'trace', 'trace': str(tmp_path / 'trace.csv')}})
    again = make_workload(traced, 99)
    assert np.array_equal(again.time, workload.time)
    assert np.array_equal(again.lane, workload.lane)


@pytest.mark.parametrize(('text', 'words'), [
    ('time_s,robot,lane\n1.0,a,nowhere\n', "line 2: lane 'nowhere' is unknown"),
    ('time_s,robot\n1.0,a\n', 'columns time_s, robot, lane'),
    ('time_s,robot,lane\nsoon,a,balanced\n', 'columns time_s, robot, lane'),
    ('time_s,robot,lane\n', 'has no frame'),
    ('time_s,robot,lane\n1,a,balanced\n2,a,fast\n', 'changes its lane'),
])
def test_bad_traces_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / 'trace.csv'
    path.write_text(text)
    with pytest.raises(ScenarioError, match=words):
        read_trace(path, load_scenario('mixed'))


def test_draws_do_not_depend_on_who_asks_in_what_order() -> None:
    forwards, backwards = Draws(7), Draws(7)
    wanted = [(robot, count, sending)
              for robot in range(3) for count in (0, 1, 255, 256, 700) for sending in (0, 1)]
    first = {key: (forwards.service(*key), forwards.network(*key)) for key in wanted}
    second = {key: (backwards.service(*key), backwards.network(*key))
              for key in reversed(wanted)}
    assert first == second
    # All different: service, network, sendings, robots.
    assert len({value for pair in first.values() for value in pair}) == 2 * len(wanted)
    assert Draws(7).start_up(0, 3) == forwards.start_up(0, 3) != Draws(8).start_up(0, 3)


def test_lognormal_times_have_their_mean_and_variation() -> None:
    law = lognormal_law(0.73, 0.15)
    values = np.array([law(z) for z in np.random.default_rng(1).standard_normal(100_000)])
    assert values.mean() == pytest.approx(0.73, rel=0.005)
    assert values.std() / values.mean() == pytest.approx(0.15, rel=0.02)
    assert lognormal_law(0.2, 0.0)(1.7) == 0.2


def test_deaths_come_at_their_rate() -> None:
    times = [at for at, _ in fault_times(1, 0, 60.0, 600_000.0)]
    assert len(times) == pytest.approx(10_000, rel=0.05)
    assert times == sorted(times)


def test_the_last_workloads_are_remembered_by_what_decides_them() -> None:
    scenario: Scenario = load_scenario('tight')
    assert workload_of(scenario, 1) is workload_of(load_scenario('tight'), 1)
    # The same robots, only other pools.
    assert workload_of(scenario, 1) is workload_of(load_scenario('paper'), 1)
    assert workload_of(scenario.at_rate(2.0), 1) is not workload_of(scenario, 1)
    assert math.isfinite(workload_of(scenario, 1).time[-1])
