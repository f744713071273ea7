"""The fleet is taken in proportion, and growth is what the times say."""

from __future__ import annotations

import math

from laimr_ros.evaluation.scale import findings, fleet, growth, ROBOTS, sizes, tasks
from laimr_ros.simulation.scenario_files import load_scenario
import pytest


def test_the_whole_fleet_is_the_scenario():
    whole, part = load_scenario('fleet'), load_scenario('fleet', fleet(10_000, 8, None))
    assert (part.robots, part.rate, part.dispatchers) == (10_000, whole.rate, 8)
    assert part.pools == whole.pools
    assert part.instances == whole.instances


@pytest.mark.parametrize(('robots', 'dispatchers'), [(10, 1), (1000, 1), (3000, 2)])
def test_a_part_has_its_share(robots, dispatchers):
    whole, part = load_scenario('fleet'), load_scenario('fleet', fleet(robots, dispatchers, 5.0))
    assert part.rate / robots == pytest.approx(whole.rate / whole.robots)
    assert part.measured == 5.0
    for name, pool in part.pools.items():
        assert pool.max_replicas == max(2, whole.pools[name].max_replicas * robots // 10_000)
        # All fit on their instance, and no more.
        assert part.instances[pool.instance].capacity == pool.max_replicas * pool.cpus


def test_sizes():
    assert [sizes(robots) for robots in ROBOTS] == [(1,), (1,), (1,), (1, 2), (1, 8)]


def _rows(routing=0.0, scaling=0.0, share=0.1):
    return [{'policy': run.policy, 'robots': run.overrides['robots'], 'seed': run.seed,
             'dispatchers': run.overrides['dispatchers'], 'rate': 1.0, 'replicas': 1.0,
             'routing_p50_us': 10.0 * run.overrides['robots'] ** routing,
             'routing_p99_us': 20.0 * run.overrides['robots'] ** routing,
             'scaling_p50_us': 20.0 * run.overrides['robots'] ** scaling,
             'scaling_p99_us': 40.0 * run.overrides['robots'] ** scaling,
             'frame_us': 50.0, 'core_share': share / run.overrides['dispatchers']}
            for run in tasks([1, 2], None)]


@pytest.mark.parametrize(('numbers', 'broken'), [
    ({}, []),
    ({'routing': 0.45}, [0]),
    ({'scaling': 0.4}, [1]),
    ({'scaling': 0.55}, [1, 2, 4]),
    ({'routing': 0.6}, [0, 3]),
    ({'share': 3.0}, [5]),
    ({'share': 5.0}, [5, 6]),
])
def test_a_claim_is_judged_by_its_own_number(numbers, broken):
    claims = findings(_rows(**numbers)).claims
    assert [k for k, claim in enumerate(claims) if not claim.holds] == broken


def test_growth():
    assert growth({10: 3.0, 100: 3.0 * 10 ** 0.5, 1000: 30.0}) == pytest.approx(0.5)
    assert math.isnan(growth({10: 0.0, 100: 1.0}))


def test_a_small_run_end_to_end():
    rows = [run.run() for run in tasks([1], 2.0) if run.overrides['robots'] <= 1000]
    assert all(row['routing_p50_us'] > 0.0 and row['frames'] > 0 for row in rows)
    assert {row['replicas'] for row in rows} == {4.0, 10.0, 100.0}
