"""A wrong gamma is judged by what it does, against the true one in the same world."""

from __future__ import annotations

import math

from laimr_ros.evaluation.gamma import (
    findings,
    GAMMAS,
    Misled,
    models_told,
    PLACES,
    SEEDS,
    tasks,
    TRUE,
    USED,
    VARIANTS,
)
from laimr_ros.simulation.scenario_files import load_scenario
import pytest

PAIRS = [(policy, variant) for policy, variants in VARIANTS.items() for variant in variants]


def _rows(change=lambda task: {}):
    rows = []
    for task in tasks([1, 2], 60.0):
        row = {'policy': task.policy, 'variant': task.variant, 'gamma': task.gamma,
               'scenario': task.scenario, 'rate': task.rate, 'seed': task.seed, 'measured': 60.0,
               'alpha': 0.7, 'beta': 1.3, 'coverage': 0.95, 'told_coverage': 0.9, 'p99_s': 1.0,
               'replica_seconds': 100.0, 'on_time': 0.99}
        rows.append(row | change(task))
    return rows


def _broken(change):
    return [claim.claim for claim in findings(_rows(change)).claims if not claim.holds]


def test_every_run_is_another_and_seeds_are_few():
    made = tasks(list(range(1, 11)), None)
    assert len({task.key() for task in made}) == len(made)
    assert len(made) == len(PAIRS) * len(PLACES) * len(GAMMAS) * SEEDS
    assert TRUE in GAMMAS and USED in GAMMAS


def test_no_effect_is_none():
    assert _broken(lambda task: {}) == []
    assert _broken(lambda task: {'p99_s': math.inf}) == []


@pytest.mark.parametrize('changed', [
    {'p99_s': 1.11}, {'p99_s': 0.89}, {'replica_seconds': 111.0}, {'on_time': 0.979},
    {'p99_s': math.inf}])
def test_an_effect_is_said_to_be_one(changed):
    found = _broken(lambda task: changed if (
        task.policy, task.variant, task.scenario, task.gamma) == (
            'laimr', 'kept', 'edge_only', 2.0) else {})
    (claim,) = found
    assert claim.startswith('laimr, kept, edge_only: any gamma')


def test_the_gamma_that_was_used_is_told_apart():
    found = _broken(lambda task: {'replica_seconds': 80.0} if (
        task.policy, task.gamma, task.scenario) == ('laimr_paper', USED, 'paper') else {})
    assert len(found) == 4
    assert sum(f'gamma {USED:g} in place' in claim for claim in found) == 2


def test_kept_changes_gamma_alone():
    scenario = load_scenario('paper')
    for gamma in GAMMAS:
        for name, pool in scenario.pools.items():
            law, true = models_told('kept', gamma)[name]['yolov5m'], pool.models['yolov5m']
            assert (law.alpha, law.beta, law.gamma) == (true.alpha, true.beta, gamma)


def test_refitted_laws_agree_where_they_were_fitted():
    # At half of the edge's load: whatever gamma is, the fit goes through what was measured.
    means = [models_told('refitted', gamma)['edge']['yolov5m'].mean(3.0, 8)
             for gamma in (0.5, 1.49, 2.0)]
    assert max(means) < 1.1 * min(means)


def test_the_true_exact_form_is_that_of_the_world():
    law = models_told('exact', TRUE)['edge']['yolov5m']
    # Eight of eight replicas serve: U = 1.
    assert law.mean(100.0, 8) == pytest.approx(1.46)


def test_a_run_tells_what_the_edge_was_told():
    row = Misled('laimr_paper', 'kept', 0.9, 'paper', 2.0, 1, 20.0).run()
    assert (row['alpha'], row['beta']) == (0.73, 1.29)
    assert 0.0 <= row['on_time'] <= 1.0
    exact = Misled('laimr', 'exact', 0.9, 'edge_only', 2.0, 1, 20.0).run()
    assert math.isnan(exact['alpha'])
    assert exact['offload_share'] == 0.0
