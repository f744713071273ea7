"""Test how lanes' rates are spread over pools."""

from __future__ import annotations

from collections.abc import Callable

from controller_harness import configure, Harness, make_lane, make_pool
from laimr_ros.control.events import ConfigurationChanged, PoolObserved
from laimr_ros.control.nouns import Configuration, PowerLaw
import pytest


def loaded(
    configuration: Configuration, rates: dict[str, float], seconds: float = 40.0,
    ready: dict[str, int] | None = None, serve: Callable[[str], float] = lambda pool: 0.1
) -> Harness:
    """
    Return a harness after steady arrivals.

    :param rates: frames per second by lane.
    :param ready: replicas by pool, which all answer after ``serve(pool)``.
    """
    h = Harness(configuration)
    for pool in configuration.pools:
        h.handle(PoolObserved(pool, 1, 0))
    for pool, count in (ready or {}).items():
        h.ready(*(f'{pool}{k}' for k in range(count)), pool=pool)
    due = dict.fromkeys(rates, 0.0)
    returns: list[tuple[float, int]] = []
    seen: set[int] = set()
    number = 0
    while True:
        lane = min(due, key=lambda name: due[name])
        back = min(returns, default=(float('inf'), -1))
        now = min(due[lane], back[0], h.wake)
        if now >= seconds:
            return h
        h.now = now
        if now == back[0]:
            returns.remove(back)
            if back[1] in h.open:
                h.done(back[1], serve(h.sends[back[1]][-1].pool))
        elif now == due[lane]:
            due[lane] += 1.0 / rates[lane]
            number += 1
            h.arrive(f'{lane}{number % 7}', lane)
        else:
            h.tick()
        for replica, frames in h.sent.items():
            for frame in frames:
                if frame not in seen:
                    seen.add(frame)
                    returns.append((now + serve(h.pool_of[replica]), frame))


def test_a_pool_gets_what_its_lanes_need() -> None:
    pool = make_pool('edge', 0.1, max_replicas=20)
    h = loaded(configure([make_lane('lane', 1.0, supersede=False)], [pool]), {'lane': 40.0},
               ready={'edge': 8})
    # Four erlangs: never fewer than five, and not wildly more.
    assert 5 <= h.desired['edge'] <= 8


def test_lanes_of_one_pool_add_up() -> None:
    lanes = [make_lane('a', 1.0, supersede=False), make_lane('b', 1.0, supersede=False)]
    pool = make_pool('edge', 0.1, max_replicas=20)
    both = loaded(configure(lanes, [pool]), {'a': 20.0, 'b': 20.0}, ready={'edge': 8})
    one = loaded(configure(lanes[:1], [pool]), {'a': 40.0}, ready={'edge': 8})
    assert abs(both.desired['edge'] - one.desired['edge']) <= 1


def test_what_the_edge_cannot_serve_is_planned_for_the_cloud() -> None:
    h = loaded(configure(
        [make_lane('lane', 1.0, 'edge', 'cloud', supersede=False)],
        [make_pool('edge', 0.1, max_replicas=2),
         make_pool('cloud', 0.1, network=0.05, max_replicas=20, max_in_flight=2)]),
        {'lane': 60.0}, ready={'edge': 2, 'cloud': 8})
    assert h.desired['edge'] == 2
    # Six erlangs, two of them at the edge at the very most.
    assert 4 <= h.desired['cloud'] <= 10


def test_the_cloud_stays_small_while_the_edge_can_grow() -> None:
    h = loaded(configure(
        [make_lane('lane', 1.0, 'edge', 'cloud', supersede=False)],
        [make_pool('edge', 0.1, max_replicas=20),
         make_pool('cloud', 0.1, network=0.05, max_replicas=20)]),
        {'lane': 40.0}, ready={'edge': 8, 'cloud': 1})
    assert 5 <= h.desired['edge'] <= 8
    assert h.desired['cloud'] == 1


def test_a_lane_too_slow_for_the_edge_does_not_push_its_neighbours_out() -> None:
    # The heavy lane can only be on time in the cloud; the light one fits the edge easily.
    models = {'m': PowerLaw(0.05, cv=0.0), 'n': PowerLaw(0.6, cv=0.0)}
    quick = {'m': PowerLaw(0.05, cv=0.0), 'n': PowerLaw(0.1, cv=0.0)}
    h = loaded(configure(
        [make_lane('light', 0.5, 'edge', 'cloud', supersede=False),
         make_lane('heavy', 0.5, 'edge', 'cloud', model='n', supersede=False)],
        [make_pool('edge', models=models, max_replicas=10),
         make_pool('cloud', models=quick, network=0.05, max_replicas=20)]),
        {'light': 40.0, 'heavy': 1.0}, ready={'edge': 5, 'cloud': 2},
        serve=lambda pool: 0.05)
    assert h.desired['edge'] >= 3
    # One frame/s of 0.1 s: one or two replicas, not the light lane's two erlangs on top.
    assert h.desired['cloud'] <= 2


def test_frames_that_wait_count_where_nothing_serves_yet() -> None:
    h = Harness(configure(
        [make_lane('lane', 60.0, supersede=False)], [make_pool('edge', 0.1, max_replicas=20)]))
    h.handle(PoolObserved('edge', 0, 0))
    for k in range(200):
        h.arrive(f'c{k}')
    h.run_until(1.0)
    # 20 s of work in 2 s.
    assert h.desired['edge'] >= 10


def test_replicas_that_start_are_not_asked_for_again() -> None:
    h = Harness(configure(
        [make_lane('lane', 1.0, supersede=False)], [make_pool('edge', 0.1, max_replicas=20)]))
    h.handle(PoolObserved('edge', 1, 0))
    asked = []
    for k in range(200):
        h.arrive(f'c{k}')
        h.run_until(h.now + 0.05)
        if k % 10 == 9:
            wanted = h.desired['edge']
            asked.append(wanted)
            # None of them is ready for ten seconds.
            h.handle(PoolObserved('edge', 1, wanted - 1))
    # Two erlangs and what piles up meanwhile; it does not double with every look.
    assert max(asked[4:]) <= 20
    assert max(asked[-5:]) <= asked[5] + 2


@pytest.mark.parametrize('order', [('edge', 'cloud'), ('cloud', 'edge')])
def test_the_order_of_pools_in_the_configuration_does_not_matter(order: tuple[str, str]) -> None:
    pools = {
        'edge': make_pool('edge', 0.1, max_replicas=2),
        'cloud': make_pool('cloud', 0.1, network=0.05, max_replicas=20, max_in_flight=2)}
    h = loaded(configure(
        [make_lane('lane', 1.0, 'edge', 'cloud', supersede=False)],
        [pools[name] for name in order]), {'lane': 60.0}, ready={'edge': 2, 'cloud': 8})
    assert 4 <= h.desired['cloud'] <= 10


def test_a_change_of_configuration_keeps_rates_and_wishes() -> None:
    lanes = [make_lane('lane', 1.0, supersede=False)]
    pool = make_pool('edge', 0.1, max_replicas=20)
    h = loaded(configure(lanes, [pool]), {'lane': 40.0}, ready={'edge': 8})
    before = h.desired['edge']
    h.handle(ConfigurationChanged(configure(
        [make_lane('lane', 1.1, supersede=False)], [pool])))
    h.run_until(h.now + 1.0)
    assert abs(h.desired['edge'] - before) <= 1


@pytest.mark.parametrize('names', [('edge', 'cloud'), ('cloud', 'edge')])
def test_lanes_with_two_pools_in_opposite_orders_both_overflow(names: tuple[str, str]) -> None:
    """Whichever is planned first, what its turn comes too late for is for the next plan."""
    pools = {'edge': make_pool('edge', 0.2, min_replicas=0, max_replicas=8),
             'cloud': make_pool('cloud', 0.2, min_replicas=1, max_replicas=1)}
    lanes = [make_lane('calm', 1.0, 'edge', 'cloud', supersede=False),
             make_lane('busy', 1.0, 'cloud', 'edge', supersede=False)]
    h = loaded(configure(lanes, [pools[name] for name in names]), {'calm': 0.1, 'busy': 20.0},
               ready={'cloud': 1}, serve=lambda pool: 0.2)
    # Of four erlangs one replica serves the less part.
    assert h.desired['edge'] >= 4
