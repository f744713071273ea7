"""Policies by name, tuned and crossed."""

from __future__ import annotations

from laimr_ros.control.planning import Planner
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import crossed, POLICIES, Policy, ROUTINGS, SCALINGS
from laimr_ros.simulation.scenario_files import load_scenario
import pytest

SHORT = load_scenario('paper', {'warm_up': 20.0, 'measured': 60.0})


def test_the_policies_of_the_issue_are_there() -> None:
    assert set(POLICIES) == {
        'laimr', 'laimr_paper', 'reactive_latency', 'cpu_hpa', 'queue_length', 'two_window',
        'capacity_rule', 'sqrt_staffing', 'clairvoyant', 'reactive_cheapest'}


@pytest.mark.parametrize('routing', ROUTINGS)
@pytest.mark.parametrize('scaling', SCALINGS)
def test_routing_and_scaling_can_be_crossed(routing: str, scaling: str) -> None:
    result = simulate(SHORT, crossed(routing, scaling), 1)
    assert result.policy == f'{routing}+{scaling}'
    assert result.ended['open'] == 0
    assert result.dropped == 0


def test_crossed_with_itself_a_policy_is_the_controllers_own() -> None:
    for name in ('laimr', 'laimr_paper'):
        own = simulate(SHORT, Policy(name, name, name), 1)
        again = simulate(SHORT, crossed(name, name), 1)
        assert again.ended['open'] == 0
        assert own.finished.tolist() == again.finished.tolist()


def test_settings_are_the_rules_and_limits_the_controllers() -> None:
    rule = POLICIES['capacity_rule'].tuned(utilisation=0.5)
    assert rule.settings == {'utilisation': 0.5} and not rule.limits
    laimr = POLICIES['laimr'].tuned(slo_margin=0.8)
    assert laimr.limits == {'routing_quantile': 0.99, 'slo_margin': 0.8}
    assert not laimr.settings
    assert laimr.configuration(SHORT).limits.slo_margin == 0.8
    assert simulate(SHORT, rule, 1).cost > simulate(SHORT, POLICIES['capacity_rule'], 1).cost


def test_who_pushes_is_given_no_bound_in_flight() -> None:
    assert POLICIES['laimr'].configuration(SHORT).pools['edge'].max_in_flight == 1
    assert POLICIES['laimr_paper'].configuration(SHORT).pools['edge'].max_in_flight > 1000


def test_who_knows_prices_prefers_where_a_frame_costs_least() -> None:
    """The cloud is 1.8 times as quick, and a replica-second costs the same everywhere."""
    order = {name: POLICIES[name].configuration(SHORT).lanes['balanced'].pools
             for name in POLICIES}
    assert {name for name, pools in order.items() if pools == ('cloud', 'edge')} == {
        'laimr', 'reactive_cheapest', 'clairvoyant'}
    assert set(order.values()) == {('cloud', 'edge'), ('edge', 'cloud')}


def test_offloaded_is_what_the_scenarios_first_pool_does_not_serve() -> None:
    """Whatever the policy prefers."""
    assert simulate(SHORT, POLICIES['laimr'], 1).summary()['offload_share'] > 0.9
    assert simulate(SHORT, POLICIES['capacity_rule'], 1).summary()['offload_share'] < 0.5


def test_unknown_names_and_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"routing 'best' is unknown; use one of"):
        Policy('mine', 'best', 'laimr')
    with pytest.raises(ValueError, match=r"scaling 'best' is unknown; use one of"):
        Policy('mine', 'laimr', 'best')
    with pytest.raises(ValueError, match=r"pool_order 'best' is unknown; use one of"):
        Policy('mine', 'laimr', 'laimr', pool_order='best')
    with pytest.raises(ValueError, match=r"policy cpu_hpa: .*'goal'"):
        simulate(SHORT, POLICIES['cpu_hpa'].tuned(goal=0.5), 1)


def test_the_controllers_own_planner_is_used_for_laimr() -> None:
    from laimr_ros.control.controller import Controller
    policy = POLICIES['laimr']
    controller = Controller(policy.configuration(SHORT), policy.maker(SHORT, {}))
    assert isinstance(controller._planner, Planner)
