"""Test that a configuration that cannot work is refused by name."""

from __future__ import annotations

from controller_harness import configure, make_lane, make_pool
from laimr_ros.control.nouns import Configuration, ConfigurationError
import pytest


@pytest.mark.parametrize(('lanes', 'pools', 'names'), [
    ([], [make_pool()], 'lane'),
    ([make_lane('lane', 1.0, 'moon')], [make_pool()], 'moon'),
    ([make_lane('lane', 1.0, model='n')], [make_pool()], "'n'"),
    ([make_lane('lane')], [make_pool(instance='rack')], 'rack'),
])
def test_a_configuration_that_does_not_fit_is_refused(
    lanes: list[object], pools: list[object], names: str
) -> None:
    with pytest.raises(ConfigurationError, match=names):
        configure(lanes, pools)


def test_things_are_filed_under_their_names() -> None:
    with pytest.raises(ConfigurationError, match="'lane' is filed as 'other'"):
        Configuration({'other': make_lane('lane')}, {'edge': make_pool()})


@pytest.mark.parametrize(('make', 'names'), [
    (lambda: make_lane('lane', 0.0), 'slo is 0.0'),
    (lambda: make_lane('lane', float('nan')), 'slo is nan'),
    (lambda: make_lane('lane', 1.0, 'edge', 'edge'), 'repeat'),
    (lambda: make_lane('lane', 1.0, max_queue=0), 'max_queue is 0'),
    (lambda: make_pool(min_replicas=3, max_replicas=2), 'min_replicas 3'),
    (lambda: make_pool(max_in_flight=0), 'max_in_flight is 0'),
    (lambda: make_pool(start_up=-1.0), 'start_up is -1.0'),
    (lambda: make_pool(price=-1.0), 'price is -1.0'),
    (lambda: make_pool(price=float('inf')), 'price is inf'),
    (lambda: make_lane(pool_order='fastest'), "pool_order is 'fastest': use one of"),
    (lambda: configure([make_lane()], [make_pool()], quantile=1.0), 'quantile is 1.0'),
    (lambda: configure([make_lane()], [make_pool()], scale_interval=0.0), 'scale_interval is 0'),
    (lambda: configure([make_lane()], [make_pool()], stabilisation=-1.0), 'stabilisation is -1'),
    (lambda: configure([make_lane()], [make_pool()], max_attempts=0), 'max_attempts is 0'),
])
def test_a_bad_number_is_named(make: object, names: str) -> None:
    with pytest.raises(ConfigurationError, match=names):
        make()  # type: ignore[operator]


def order_of(order: str, *, price: float = 1.0, network: float = 0.0, batch: int = 1) -> object:
    """Return a lane's pools where the cloud is twice as quick, and has the rest."""
    return configure(
        [make_lane('lane', 1.0, 'edge', 'cloud', pool_order=order)],
        [make_pool('edge', 0.2), make_pool(
            'cloud', 0.1, price=price, network=network, max_in_flight=batch)],
    ).lanes['lane'].pools


@pytest.mark.parametrize(('cloud', 'first'), [
    ({}, 'cloud'),
    ({'price': 1.9}, 'cloud'),
    ({'price': 2.1}, 'edge'),
    # A replica that waits for the network is paid for all the same.
    ({'network': 0.09}, 'cloud'),
    ({'network': 0.11}, 'edge'),
    ({'network': 0.11, 'batch': 2}, 'cloud'),
])
def test_cheapest_prefers_where_a_frame_costs_least(cloud: dict[str, float], first: str) -> None:
    assert order_of('cheapest', **cloud)[0] == first
    assert order_of('listed', **cloud) == ('edge', 'cloud')


def test_where_costs_are_equal_the_listed_order_stands() -> None:
    lane = make_lane('lane', 1.0, 'edge', 'cloud', pool_order='cheapest')
    assert configure([lane], [make_pool('edge'), make_pool('cloud')]).lanes['lane'] == lane
