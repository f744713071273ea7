"""Who routes and who scales, by name: the policies that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from laimr_ros.control.baseline_planner import BaselinePlanner, OverflowRouter, RoundRobinRouter
from laimr_ros.control.baselines import Clairvoyant, Foreseen, Rule, RULES
from laimr_ros.control.jobs import Job
from laimr_ros.control.nouns import Configuration, Lane, POOL_ORDERS
from laimr_ros.control.paper import PaperPlanner, PaperRouter, Traffic
from laimr_ros.control.planning import Planner
from laimr_ros.control.policies import PolicyMaker, RoutingPolicy, ScalingPolicy
from laimr_ros.control.pools import PoolState
from laimr_ros.control.routing import Router
from laimr_ros.simulation.scenarios import Scenario

#: Who says where a frame goes. ``overflow``: the first pool of the lane with a free replica, else
#: the frame waits in one queue; ``round_robin``: pushed to the first pool's replicas in turn.
ROUTINGS = ('laimr', 'laimr_paper', 'overflow', 'round_robin')
# Routings that push: each replica has a queue of its own, and nothing waits in the dispatcher.
_PUSHES = frozenset({'laimr_paper', 'round_robin'})
_NO_BOUND = 1_000_000
#: Who says how many replicas there are to be. ``fixed`` leaves the initial ones.
SCALINGS = (
    'laimr', 'laimr_paper', 'reactive_latency', 'cpu_hpa', 'queue_length', 'two_window',
    'capacity_rule', 'sqrt_staffing', 'clairvoyant', 'fixed')


@dataclass(frozen=True)
class Policy:
    """
    One policy.

    :param routing: one of :data:`ROUTINGS`.
    :param scaling: one of :data:`SCALINGS`.
    :param settings: of the scaling rule, those that differ from its defaults.
    :param limits: of the controller, those that differ from
        :class:`laimr_ros.control.nouns.Limits`' defaults.
    :param pool_order: which of a lane's pools is preferred, one of
        :data:`~laimr_ros.control.nouns.POOL_ORDERS`.
    """

    name: str
    routing: str
    scaling: str
    settings: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    pool_order: str = 'listed'

    def __post_init__(self) -> None:
        """Refuse what is unknown."""
        if self.routing not in ROUTINGS:
            raise ValueError(f'routing {self.routing!r} is unknown; use one of {list(ROUTINGS)}')
        if self.scaling not in SCALINGS:
            raise ValueError(f'scaling {self.scaling!r} is unknown; use one of {list(SCALINGS)}')
        if self.pool_order not in POOL_ORDERS:
            raise ValueError(
                f'pool_order {self.pool_order!r} is unknown; use one of {list(POOL_ORDERS)}')

    def configuration(self, scenario: Scenario) -> Configuration:
        """Return what the controller is told."""
        configuration = scenario.configuration(
            limits=self.limits, pool_order=self.pool_order)
        if self.routing in _PUSHES:
            configuration = replace(configuration, pools={
                name: replace(pool, max_in_flight=_NO_BOUND)
                for name, pool in configuration.pools.items()})
        return configuration

    def maker(
        self, scenario: Scenario, arrivals: Mapping[str, Sequence[float]]
    ) -> PolicyMaker:
        """
        Return what makes this policy for a controller.

        :param arrivals: times of all frames by lane, ascending, for who may know the future.
        """
        def make(
            configuration: Configuration, pools: Mapping[str, PoolState],
            lanes: Mapping[str, Any],
            previous: tuple[RoutingPolicy, ScalingPolicy] | None = None
        ) -> tuple[RoutingPolicy, ScalingPolicy]:
            del previous  # A configuration does not change in a run.
            limits = configuration.limits
            queues = {name: lane.queue for name, lane in lanes.items()}
            traffic = Traffic(configuration.lanes, limits.fast_window)
            router: RoutingPolicy
            if self.routing == 'laimr':
                router = Router(
                    pools, queues, limits.probe_interval, exploration=limits.exploration)
            elif self.routing == 'laimr_paper':
                router = PaperRouter(pools, queues, traffic)
            elif self.routing == 'round_robin':
                router = RoundRobinRouter(pools, queues, configuration)
            else:
                router = OverflowRouter(pools, queues)
            if self.scaling == 'laimr':
                return router, Planner(configuration, pools, lanes)
            if self.scaling == 'laimr_paper':
                if self.routing != 'laimr_paper':
                    router = _Telling(router, traffic)
                return router, PaperPlanner(configuration, pools, traffic)
            return router, BaselinePlanner(
                configuration, pools, lanes,
                lambda pool: self._rule(pool, scenario, configuration.lanes, arrivals))
        return make

    def _rule(
        self, pool: str, scenario: Scenario, lanes: Mapping[str, Lane],
        arrivals: Mapping[str, Sequence[float]]
    ) -> Rule:
        """Return the rule of one pool. :raises ValueError: for an unknown setting."""
        try:
            if self.scaling != 'clairvoyant':
                return RULES[self.scaling](**self.settings)
            return _clairvoyant(pool, scenario, lanes, arrivals, **self.settings)
        except TypeError as error:
            raise ValueError(f'policy {self.name}: {error}') from None

    def tuned(self, **values: float) -> Policy:
        """Return the policy with other settings of its rule, or, if it is not one, limits."""
        if self.scaling in ('laimr', 'laimr_paper'):
            return replace(self, limits={**self.limits, **values})
        return replace(self, settings={**self.settings, **values})


class _Telling:
    """A router that also tells the paper's planner of frames."""

    def __init__(self, router: RoutingPolicy, traffic: Traffic) -> None:
        self._router = router
        self._traffic = traffic
        self.decide = router.decide
        self.explore = router.explore
        self.second = router.second
        self.probe = router.probe
        self.learned = router.learned
        self.refresh = router.refresh

    @property
    def explored(self) -> int:
        return self._router.explored

    def arrived(self, now: float, lane: str) -> None:
        self._traffic.arrived(now, lane)
        self._router.arrived(now, lane)

    def sent(self, now: float, job: Job, pool: PoolState) -> None:
        self._traffic.sent(now, job.lane.name, pool.config.name)
        self._router.sent(now, job, pool)


def _clairvoyant(
    pool: str, scenario: Scenario, lanes: Mapping[str, Lane],
    arrivals: Mapping[str, Sequence[float]], *,
    load: float = 0.5, hold: float = 5.0, slack: float = 1.0
) -> Clairvoyant:
    """
    Return the rule that knows all frames of the lanes that a pool may serve.

    A pool that is not a lane's first is there for what the pools before it have no room for.

    :param load: utilisation of the instances at which service times are taken.
    """
    foreseen = []
    for name, lane in lanes.items():
        if pool not in lane.pools:
            continue
        model = scenario.models[lane.model]
        first, here = (
            model.idle * (1.0 + load ** model.gamma) / scenario.instances[law.instance].speed_up
            + law.network.mean / law.max_in_flight
            for law in (scenario.pools[lane.pools[0]], scenario.pools[pool]))
        before = sum(
            scenario.pools[p].max_replicas for p in lane.pools[:lane.pools.index(pool)])
        foreseen.append(Foreseen(arrivals.get(name, ()), first, before, here / first))
    return Clairvoyant(foreseen, scenario.pools[pool].start_up.mean, hold=hold, slack=slack)


def crossed(routing: str, scaling: str, **settings: float) -> Policy:
    """Return a policy of any routing and any scaling."""
    return Policy(f'{routing}+{scaling}', routing, scaling).tuned(**settings)


#: The policies that are compared, by name. Rules without a latency model have no notion of where a
#: frame is cheap: they use pools in the order that the lane lists them. The one that is told of it
#: all the same, and the limit, show what the order alone is worth.
POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in (
    # Each frame held against the quantile that is promised.
    Policy('laimr', 'laimr', 'laimr', limits={'routing_quantile': 0.99}, pool_order='cheapest'),
    # Published with a metric that the autoscaler reads every 5 s.
    Policy('laimr_paper', 'laimr_paper', 'laimr_paper', limits={'scale_interval': 5.0}),
    *(Policy(name, 'overflow', name) for name in SCALINGS
      if name not in ('laimr', 'laimr_paper', 'clairvoyant', 'fixed')),
    Policy('reactive_cheapest', 'overflow', 'reactive_latency', pool_order='cheapest'),
    Policy('clairvoyant', 'overflow', 'clairvoyant', pool_order='cheapest'),
)}
