"""Scenarios as shipped, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laimr_ros.simulation.scenario_files import load_scenario, scenario_names
from laimr_ros.simulation.scenarios import ScenarioError
import pytest


def test_paper_has_the_numbers_of_the_issue() -> None:
    paper = load_scenario()
    edge, cloud = paper.pools['edge'], paper.pools['cloud']
    assert (edge.max_replicas, edge.cpus, paper.instances['edge'].capacity) == (8, 3.0, 24.0)
    assert (cloud.max_replicas, paper.instances['cloud'].capacity) == (16, 48.0)
    assert paper.instances['cloud'].speed_up == 1.8
    model = paper.models['yolov5m']
    assert (model.idle, model.cv) == (0.73, 0.15)
    assert (edge.network.mean, cloud.network.mean, edge.network.cv) == (0.004, 0.060, 0.3)
    assert (edge.start_up.mean, edge.start_up.cv) == (1.8, 0.2)
    assert (paper.robots, paper.warm_up, paper.measured) == (6, 120.0, 1200.0)
    assert paper.lanes['balanced'].slo == 1.8
    assert not paper.lanes['balanced'].supersede and paper.lanes['balanced'].out_of_order


def test_every_variant_can_be_used() -> None:
    assert set(scenario_names()) == {
        'paper', 'tight', 'edge_only', 'surge', 'periodic', 'mmpp', 'drift', 'flaky', 'mixed',
        'fleet'}
    for name in scenario_names():
        scenario = load_scenario(name)
        assert scenario.description
        assert scenario.configuration().lanes
    assert sum(p.max_replicas for p in load_scenario('fleet').pools.values()) == 1000


def test_the_cloud_law_is_the_edge_law_in_quicker_time() -> None:
    paper = load_scenario()
    edge = paper.pools['edge'].models['yolov5m']
    cloud = paper.pools['cloud'].models['yolov5m']
    for rate in (0.0, 0.3, 0.9):
        assert cloud.mean(1.8 * rate, 1) == pytest.approx(edge.mean(rate, 1) / 1.8, rel=1e-4)


def test_overrides_are_merged_key_by_key(tmp_path: Path) -> None:
    scenario = load_scenario('tight', {'rate': 2, 'pools': {'edge': {'max_replicas': 3}}})
    assert scenario.rate == 2.0
    assert scenario.pools['edge'].max_replicas == 3
    assert scenario.pools['edge'].cpus == 3.0
    assert scenario.pools['cloud'].max_replicas == 3
    path = tmp_path / 'own.yaml'
    path.write_text('mine:\n  rate: 1.0\n')
    with pytest.raises(ScenarioError, match=r'scenario mine: no lane'):
        load_scenario('mine', file=path)


@pytest.mark.parametrize(('overrides', 'words'), [
    ({'pools': {'edge': {'cpu': 3}}}, r'paper\.pools\.edge\.cpu is unknown'),
    ({'rate': 'fast'}, r"paper\.rate is 'fast': give a value of type float"),
    ({'rate': 0.0}, r'rate is 0.0: give a number > 0'),
    ({'arrivals': {'process': 'weekly'}}, r"'weekly': use one of"),
    ({'pools': {'edge': {'instance': 'moon'}}}, r"instance 'moon' is not there"),
    ({'pools': {'edge': {'initial_replicas': 9}}}, r'initial_replicas is 9'),
    ({'faults': [{'kind': 'flood'}]}, r"fault 'flood'"),
    ({'faults': [{'kind': 'link_cut', 'pool': 'x'}]}, r"pool 'x' is not there"),
    ({'lanes': {'balanced': {'pools': ['x']}}}, r"pool 'x' is not configured"),
    ({'models': {'yolov5m': {'law': 'uniform'}}}, r"law 'uniform'"),
    ({'modulation': {'kind': 'mmpp', 'factors': [1.0]}}, r'1 factors and 0 sojourns'),
    ({'pools': 3}, r'paper\.pools is 3: give a mapping'),
])
def test_bad_values_are_named(overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        load_scenario('paper', overrides)


def test_an_unknown_scenario_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"scenario 'papers' is unknown; there are"):
        load_scenario('papers')
