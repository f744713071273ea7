"""The search takes the cheapest settings that keep the SLO, and never a comparison's seeds."""

from __future__ import annotations

from laimr_ros.evaluation import table6, tuning


def test_every_policy_gets_the_same_effort():
    assert {len(tuning.settings_of(grid)) for grid in tuning.GRIDS.values()} == {10}


def test_seeds_are_not_those_of_the_comparison():
    seeds = range(1, 11)
    assert not ({task.seed for task in tuning.tasks(seeds, None)}
                & {task.seed for task in table6.tasks(seeds, None)})


def _rows(numbers):
    rows = []
    for policy, grid in tuning.GRIDS.items():
        for place, settings in enumerate(tuning.settings_of(grid)):
            p99, cost = numbers(policy, place)
            rows += [{'policy': policy, 'settings': dict(settings), 'rate': rate, 'seed': 101,
                      'p99_s': p99, 'replica_seconds': cost} for rate in tuning.RATES]
    return rows


def test_the_cheapest_within_the_slo_is_chosen():
    chosen = tuning.best(_rows(lambda policy, k: (1.9 if k > 6 else 1.0, 100.0 - k)))
    for policy, grid in tuning.GRIDS.items():
        assert chosen[policy] == dict(tuning.settings_of(grid)[6])


def test_the_least_p99_is_chosen_where_none_keeps_the_slo():
    chosen = tuning.best(_rows(lambda policy, k: (9.0 - k if k < 5 else 20.0, 1.0 + k)))
    assert chosen['cpu_hpa'] == dict(tuning.settings_of(tuning.GRIDS['cpu_hpa'])[4])
