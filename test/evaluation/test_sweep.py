"""Sweeps measure what the law of their world says."""

from __future__ import annotations

from laimr_ros.evaluation.sweep import observations, visit, WORLDS
import numpy as np
import pytest


@pytest.mark.parametrize('name', WORLDS)
def test_a_world_has_visits_it_keeps_up_with(name):
    world = WORLDS[name]
    assert {replicas for replicas, _ in world.visits()} == set(world.replicas)


def test_saturated_replicas_are_not_visited():
    # Eight replicas on 24 CPUs: 1.46 s each when all serve, so 5.5 frames/s at most.
    assert [rate for count, rate in WORLDS['edge'].visits() if count == 8] == [1, 2, 3, 4, 5]
    assert WORLDS['edge'].busiest(8) == pytest.approx(1.46)


def test_one_replica_alone_serves_as_the_exact_form_says():
    # One of 24 CPUs' 3 in use: 0.73 (1 + (1/8) ** 1.49).
    seen = visit('edge', 1, 1.0, 1, 100.0).service
    assert seen.mean() == pytest.approx(0.73 * (1 + 0.125 ** 1.49), rel=0.05)
    assert seen.std() / seen.mean() == pytest.approx(0.15, rel=0.25)


def test_frames_of_a_law_scatter_about_it():
    one = visit('law', 3, 4.0, 1, 200.0)
    assert one.service.mean() == pytest.approx(WORLDS['law'].law.mean(4.0, 3), rel=0.03)
    assert len(one.service) == pytest.approx(800, abs=100)


def test_visits_are_repeatable_and_independent():
    visit.cache_clear()
    first = visit('edge', 2, 1.0, 1, 50.0)
    visit.cache_clear()
    assert np.array_equal(first.service, visit('edge', 2, 1.0, 1, 50.0).service)
    assert not np.array_equal(first.created, visit('edge', 4, 1.0, 1, 50.0).created)


def test_blocks_are_minutes_of_one_visit():
    seen = observations([visit('law', 3, 2.0, 1, 120.0), visit('law', 3, 4.0, 1, 120.0)])
    assert len(np.unique(seen.block)) == 4
    for block in np.unique(seen.block):
        assert len(np.unique(seen.rate[seen.block == block])) == 1


def test_other_lanes_of_a_scenario_are_left_out():
    scene = WORLDS['precise'].scene(10, 2.0, 10.0)
    assert list(scene.lanes) == ['precise']
    assert scene.pools['cloud_precise'].initial_replicas == 10
