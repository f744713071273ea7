"""The watch on the controller tells routing from scaling, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
import pickle
import time

from laimr_ros.evaluation import timed_run
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.timed_run import least_service, TimedRun
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.scenario_files import load_scenario
import pytest

OVERRIDES = {'rate': 3.0, 'warm_up': 5.0, 'measured': 20.0}
RUN = TimedRun('paper', 'laimr', 1, OVERRIDES)


def test_calls_are_counted_apart():
    row = RUN.run()
    plain = simulate(load_scenario('paper', OVERRIDES), POLICIES['laimr'], 1,
                     clock=time.perf_counter)
    # The same frames, and answers to all of them; watched decisions are those without a watch.
    assert row['frames'] == plain.received
    assert row['routing_calls'] == len(plain.decision_s['routing']) == 2 * plain.received
    # Twice a second, fewer than the ticks, which frames that wait ask for as well.
    assert 50 <= row['scaling_calls'] <= 90
    assert 0.0 < row['routing_p50_us'] <= row['routing_p99_us'] <= row['routing_max_us']
    assert row['key'] == RUN.key()


def test_times_are_those_of_the_clock(monkeypatch):
    ticks = iter(range(10_000_000))
    monkeypatch.setattr(timed_run, 'CLOCKS', {'wall': lambda: next(ticks)})
    row = RUN.run()
    # A clock that moves by a second at every look: one in routing, and one in a plan.
    assert row['routing_p50_us'] == row['routing_max_us'] == row['scaling_max_us'] == 1e6
    # The tick around a plan has looked twice more.
    ticks_around = row['core_share'] * 25.0 - row['routing_calls']
    assert ticks_around >= 3 * row['scaling_calls']


def test_another_clock_or_fleet_has_another_key():
    assert pickle.loads(pickle.dumps(RUN)).key() == RUN.key()
    others = [replace(RUN, clock='cpu'), replace(RUN, overrides={**OVERRIDES, 'robots': 7}),
              replace(RUN, policy='laimr_paper')]
    assert len({run.key() for run in (RUN, *others)}) == 4


@pytest.mark.parametrize(('name', 'seconds'), [('paper', 0.73 / 1.8), ('edge_only', 0.73),
                                               ('mixed', 0.18 / 1.8)])
def test_least_service(name, seconds):
    assert least_service(load_scenario(name)) == pytest.approx(seconds)
