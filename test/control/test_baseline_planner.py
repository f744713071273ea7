"""Baselines in the controller: what goes to which pool, and where frames go without a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller_harness import configure, make_lane, make_pool, only
from laimr_ros.control.actions import Action, Scale, Send
from laimr_ros.control.baseline_planner import (
    BaselinePlanner,
    OverflowRouter,
    RoundRobinRouter,
    RuleMaker,
)
from laimr_ros.control.baselines import CapacityRule, Fixed, Reading
from laimr_ros.control.controller import Controller
from laimr_ros.control.events import FrameArrived, FrameDone, PoolObserved, ReplicaReady, Tick
from laimr_ros.control.nouns import Configuration, Frame
from laimr_ros.control.policies import RoutingPolicy, ScalingPolicy
from laimr_ros.control.pools import PoolState
import pytest


class Place:
    """A controller of a baseline, and its actions."""

    def __init__(
        self, configuration: Configuration, make_rule: RuleMaker, *, push: bool = False
    ) -> None:
        def make(
            configuration: Configuration, pools: Mapping[str, PoolState],
            lanes: Mapping[str, Any],
            previous: tuple[RoutingPolicy, ScalingPolicy] | None = None
        ) -> tuple[RoutingPolicy, ScalingPolicy]:
            queues = {name: lane.queue for name, lane in lanes.items()}
            router = (RoundRobinRouter(pools, queues, configuration) if push
                      else OverflowRouter(pools, queues))
            return router, BaselinePlanner(configuration, pools, lanes, make_rule)

        self.controller = Controller(configuration, make)
        self.actions: list[Action] = []
        self._frames = 0

    def hand(self, now: float, event: Any) -> None:
        self.actions = self.controller.handle(now, event)

    def arrive(self, now: float, lane: str = 'lane') -> list[str]:
        """Let a frame arrive; return to which replicas frames were sent."""
        self._frames += 1
        self.hand(now, FrameArrived(Frame(self._frames, f'cam{self._frames}', lane, now, now)))
        return [send.replica for send in only(self.actions, Send)]

    def scaled(self, now: float) -> dict[str, int]:
        self.hand(now, Tick())
        return {scale.pool: scale.replicas for scale in only(self.actions, Scale)}


def edge_and_cloud(make_rule: RuleMaker, *, push: bool = False, in_flight: int = 1) -> Place:
    """Return a place with two replicas on the edge and one in the cloud."""
    place = Place(
        configure(
            [make_lane('lane', 100.0, 'edge', 'cloud', supersede=False)],
            [make_pool('edge', 0.5, max_replicas=3, max_in_flight=in_flight),
             make_pool('cloud', 0.25, max_replicas=9, max_in_flight=in_flight)]),
        make_rule, push=push)
    for pool, names in (('edge', ('e1', 'e2')), ('cloud', ('c1',))):
        for name in names:
            place.hand(0.0, ReplicaReady(pool, name))
        place.hand(0.0, PoolObserved(pool, len(names), 0))
    return place


def test_without_a_model_frames_go_to_the_first_pool_with_room() -> None:
    place = edge_and_cloud(lambda pool: Fixed())
    assert sorted(place.arrive(0.0) + place.arrive(0.0)) == ['e1', 'e2']
    assert place.arrive(0.0) == ['c1']
    # Then they wait in one queue, the first come the first served.
    assert place.arrive(0.1) == [] and place.arrive(0.2) == []
    place.hand(0.5, FrameDone(1, 'e1', 0.0, 0.5))
    sends = only(place.actions, Send)
    assert [(send.frame.id, send.replica) for send in sends] == [(4, 'e1')]


def test_pushed_frames_go_round_the_first_pool_only() -> None:
    place = edge_and_cloud(lambda pool: Fixed(), push=True, in_flight=1000)
    assert [place.arrive(0.01 * k)[0] for k in range(6)] == ['e1', 'e2'] * 3


class Noting:
    """Wishes for a given number, and keeps what it was told."""

    def __init__(self, wish: int) -> None:
        self.number = wish
        self.readings: list[Reading] = []

    def wish(self, reading: Reading) -> int:
        self.readings.append(reading)
        return self.number


def test_what_a_pool_has_no_room_for_is_demand_of_the_next() -> None:
    rules = {'edge': Noting(12), 'cloud': Noting(4)}
    place = edge_and_cloud(rules.__getitem__)
    for k in range(8):
        place.arrive(0.1 * k)
    assert place.scaled(1.0) == {'edge': 3, 'cloud': 4}
    edge, cloud = (rules[name].readings[-1] for name in ('edge', 'cloud'))
    # Two on its replicas and five that wait; one is in the cloud.
    assert (edge.ready, edge.ongoing, edge.busy, edge.service) == (2, 7.0, 1.0, 0.5)
    assert edge.rate == pytest.approx(8.0)
    # 9 of the 12 that the edge wishes for have no room there.
    assert cloud.rate == pytest.approx(0.75 * edge.rate)
    assert cloud.ongoing == pytest.approx(1.0 + 0.75 * 7.0)
    assert cloud.service == 0.25
    # Said once, not again.
    assert place.scaled(2.0) == {}


def test_load_beyond_the_edge_is_staffed_in_the_cloud() -> None:
    place = edge_and_cloud(lambda pool: CapacityRule(0.5))
    for k in range(40):
        place.arrive(k / 10.0)
    # 10 / s x 0.5 s / 0.5 = 10 on the edge, which has 3: 7 / s are left for the cloud, 3.5.
    assert place.scaled(4.0) == {'edge': 3, 'cloud': 4}


def test_no_news_means_no_change() -> None:
    rule = Noting(5)
    place = Place(
        configure([make_lane('lane', 1.0, 'edge')], [make_pool('edge', 0.5)]), lambda pool: rule)
    assert place.scaled(1.0) == {}
    assert not rule.readings
    place.hand(1.5, PoolObserved('edge', 2, 0))
    assert [scale.replicas for scale in only(place.actions, Scale)] == [2]
    assert place.scaled(2.0) == {'edge': 5}
    rule.number = 0
    assert place.scaled(3.0) == {'edge': 1}


def test_latencies_are_the_pools_own() -> None:
    rules = {'edge': Noting(2), 'cloud': Noting(1)}
    place = edge_and_cloud(rules.__getitem__)
    for _ in range(3):
        place.arrive(0.0)
    place.hand(0.4, FrameDone(3, 'c1', 0.0, 0.4))
    place.hand(0.9, FrameDone(1, 'e1', 0.0, 0.9))
    place.scaled(1.0)
    assert rules['edge'].readings[-1].latencies(10.0) == [pytest.approx(0.9)]
    assert rules['cloud'].readings[-1].latencies(10.0) == [pytest.approx(0.4)]
    assert rules['cloud'].readings[-1].latencies(0.1) == []
