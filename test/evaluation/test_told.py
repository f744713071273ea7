"""A controller is told what it is to be told, and of the rest what the scenario says."""

from __future__ import annotations

from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.told import models_of, told
from laimr_ros.latency.model import PowerLaw
from laimr_ros.simulation.scenario_files import load_scenario

LAW = PowerLaw(0.5, 0.1, 2.0)


def test_only_named_models_are_told_otherwise():
    scenario = load_scenario('mixed')
    policy = POLICIES['laimr']
    before = models_of(policy, scenario)
    after = models_of(
        told(policy, {'cloud': {'yolov5m': LAW}, 'elsewhere': {'yolov5m': LAW}}), scenario)
    assert after['cloud']['yolov5m'] is LAW
    assert after['cloud']['efficientdet_lite0'] == before['cloud']['efficientdet_lite0']
    assert {name: laws for name, laws in after.items() if name != 'cloud'} == {
        name: laws for name, laws in before.items() if name != 'cloud'}


def test_everything_else_stays_as_it_was():
    scenario = load_scenario('paper')
    policy = POLICIES['laimr']
    same = told(policy, models_of(policy, scenario))
    assert same.configuration(scenario) == policy.configuration(scenario)
    assert same.tuned(slo_margin=0.75).models == same.models
    assert same.tuned(slo_margin=0.75).configuration(scenario).limits.slo_margin == 0.75
