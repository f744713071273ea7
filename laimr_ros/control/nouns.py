"""The nouns of control: frames, lanes, pools, instances, and how each is configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
import math

from laimr_ros.latency.model import Network, PowerLaw, ServiceModel

POLICIES = ('laimr', 'laimr_paper')
POOL_ORDERS = ('listed', 'cheapest')


class ConfigurationError(ValueError):
    """A configuration cannot be used; the message names the thing, the value and the fix."""


class Outcome(Enum):
    """How a frame ended. Every frame ends in exactly one of these."""

    ANSWERED = 'answered'
    SUPERSEDED = 'superseded'
    EXPIRED = 'expired'
    REJECTED = 'rejected'
    FAILED = 'failed'


@dataclass(slots=True, eq=False)
class Frame:
    """
    One camera frame, as far as control is concerned. Treated as immutable.

    :param id: unique among the frames of one controller.
    :param camera: who sent it; answers go back there.
    :param lane: the lane it is asked for in.
    :param captured: when it was captured, in seconds of the controller's clock.
    :param received: when it was received, in seconds of the controller's clock.
    """

    id: int
    camera: str
    lane: str
    captured: float
    received: float


@dataclass(frozen=True)
class Instance:
    """
    One hardware tier whose models share its utilisation ``U_i`` (arXiv 2505.07417).

    :param capacity: ``R_max``, in CPUs or any other unit of resource.
    :param background: load that is not ours, in the same unit.
    """

    name: str
    capacity: float = math.inf
    background: float = 0.0


@dataclass(frozen=True)
class Pool:
    """
    Replicas that are alike and serve the same models.

    :param name: name of the pool.
    :param instance: the :class:`Instance` it runs on.
    :param models: service-time model of each detection model it serves.
    :param network: round trip between dispatcher and replicas.
    :param min_replicas: never ask for fewer.
    :param max_replicas: never ask for more.
    :param max_in_flight: frames sent to one replica at a time. 1 keeps every waiting frame in
        the dispatcher; more hides the network of a distant pool.
    :param start_up: time from asking for a replica until it serves, in seconds, until measured.
    :param price: of a replica for a second, in any unit that all pools share.
    """

    name: str
    models: Mapping[str, ServiceModel]
    instance: str = ''
    network: Network = field(default_factory=Network)
    min_replicas: int = 1
    max_replicas: int = 1
    max_in_flight: int = 1
    start_up: float = 5.0
    price: float = 1.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0 <= self.min_replicas <= self.max_replicas:
            raise ConfigurationError(
                f'pool {self.name}: min_replicas {self.min_replicas} and max_replicas '
                f'{self.max_replicas} do not fit: give 0 <= min_replicas <= max_replicas')
        if self.max_in_flight < 1:
            raise ConfigurationError(
                f'pool {self.name}: max_in_flight is {self.max_in_flight}: give 1 or more')
        if not self.models:
            raise ConfigurationError(f'pool {self.name} serves no model: name at least one')
        if not (math.isfinite(self.start_up) and self.start_up >= 0.0):
            raise ConfigurationError(
                f'pool {self.name}: start_up is {self.start_up}: give seconds >= 0')
        if not (math.isfinite(self.price) and self.price >= 0.0):
            raise ConfigurationError(
                f'pool {self.name}: price is {self.price}: give a number >= 0')

    def cost(self, model: str) -> float:
        """
        Return what one frame costs here while little is to be done, in units of ``price``.

        A replica that takes one frame at a time is idle while the answer travels.
        """
        service = self.models[model].mean(0.0, 1)
        return self.price * max(service, (service + self.network.mean) / self.max_in_flight)


@dataclass(frozen=True)
class Lane:
    """
    One quality class: a model, a deadline, and where it may run.

    :param name: name of the lane.
    :param model: detection model its frames need.
    :param slo: time from capture within which a frame must be answered, in seconds.
    :param pools: pools that may serve it, the preferred first; later ones are offload targets.
    :param pool_order: ``listed``: ``pools`` are in order of preference; ``cheapest``: preferred is
        where a frame costs least, by the pool's price and the time that it takes there. In a
        configuration ``pools`` are then in that order.
    :param supersede: whether a camera's newest frame replaces its queued one.
    :param max_queue: frames that may wait; a further one is rejected.
    :param late_answers: whether a frame past its deadline is still worth an answer; if not it
        is cancelled.
    :param late_by: how long after its deadline such an answer is still wanted, in seconds; one
        more ``slo`` if left out.
    :param out_of_order: whether a frame is still worth an answer after a newer one of its camera
        was answered; if not it ends as superseded.
    """

    name: str
    model: str
    slo: float
    pools: tuple[str, ...]
    supersede: bool = True
    max_queue: int = 1000
    late_answers: bool = False
    late_by: float | None = None
    out_of_order: bool = False
    pool_order: str = 'listed'

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not (math.isfinite(self.slo) and self.slo > 0.0):
            raise ConfigurationError(f'lane {self.name}: slo is {self.slo}: give seconds > 0')
        if self.late_by is not None and not 0.0 <= self.late_by < math.inf:
            raise ConfigurationError(
                f'lane {self.name}: late_by is {self.late_by}: give seconds >= 0')
        if not self.pools:
            raise ConfigurationError(f'lane {self.name} has no pool: name at least one')
        if len(set(self.pools)) != len(self.pools):
            raise ConfigurationError(f'lane {self.name}: pools {list(self.pools)} repeat a name')
        if self.pool_order not in POOL_ORDERS:
            raise ConfigurationError(
                f'lane {self.name}: pool_order is {self.pool_order!r}: use one of '
                f'{list(POOL_ORDERS)}')
        if self.max_queue < 1:
            raise ConfigurationError(
                f'lane {self.name}: max_queue is {self.max_queue}: give 1 or more')

    @property
    def grace(self) -> float:
        """Return how long after its deadline an answer is still wanted, in seconds."""
        if not self.late_answers:
            return 0.0
        return self.slo if self.late_by is None else self.late_by


@dataclass(frozen=True)
class Limits:
    """
    The numbers behind control decisions.

    :param quantile: the quantile of completion that must meet the deadline, for scaling.
    :param routing_quantile: likewise for sending one frame (learned online, so not too deep).
    :param slo_margin: scale so that the predicted quantile stays under this share of the SLO.
    :param scale_in_margin: remove a replica only if one less keeps it under this share.
    :param scale_interval: time between scaling decisions, in seconds.
    :param stabilisation: how long one replica less must have been enough, in seconds.
    :param drain_time: time within which a backlog is to be worked off, in seconds.
    :param fast_window: fast arrival window, in seconds.
    :param slow_window: slow arrival window, in seconds.
    :param max_attempts: sends of one frame, the first included.
    :param probe_interval: a pool predicted to be too slow is tried again after so many seconds.
    :param suspend_after: consecutive failures after which a replica is left alone for a while.
    :param exploration: share of frames that may go to a pool not preferred, so that its model
        stays known; 0 for none. Together with all else that is late they must stay within what
        ``quantile`` leaves.
    :param hedge_share: share of frames of which a second copy may be sent; 0 for none.
    :param hedge_quantile: of a lane's completions, after which a second copy is due.
    :param rho_low: utilisation under which policy ``laimr_paper`` removes a replica.
    """

    quantile: float = 0.99
    routing_quantile: float = 0.95
    slo_margin: float = 0.9
    scale_in_margin: float = 0.8
    scale_interval: float = 0.5
    stabilisation: float = 30.0
    drain_time: float = 2.0
    fast_window: float = 2.0
    slow_window: float = 30.0
    max_attempts: int = 3
    probe_interval: float = 5.0
    suspend_after: int = 3
    exploration: float = 0.005
    hedge_share: float = 0.0
    hedge_quantile: float = 0.95
    rho_low: float = 0.3

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ('quantile', 'routing_quantile', 'slo_margin', 'scale_in_margin',
                     'hedge_quantile'):
            value = getattr(self, name)
            if not 0.0 < value < 1.0 and not (name == 'slo_margin' and value == 1.0):
                raise ConfigurationError(f'{name} is {value}: give a number between 0 and 1')
        for name in ('scale_interval', 'drain_time', 'fast_window', 'slow_window',
                     'probe_interval'):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigurationError(f'{name} is {value}: give seconds > 0')
        if not self.stabilisation >= 0.0:
            raise ConfigurationError(f'stabilisation is {self.stabilisation}: give seconds >= 0')
        for name in ('max_attempts', 'suspend_after'):
            if getattr(self, name) < 1:
                raise ConfigurationError(f'{name} is {getattr(self, name)}: give 1 or more')
        for name in ('exploration', 'hedge_share', 'rho_low'):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise ConfigurationError(f'{name} is {value}: give a number from 0 to below 1')


@dataclass(frozen=True)
class Configuration:
    """
    Everything the controller is told about the world; replaced as a whole when it changes.

    :param policy: who decides: ``laimr``, or ``laimr_paper`` for arXiv 2505.07417, Algorithm 1,
        as published.
    :raises ConfigurationError: if lanes, pools and instances do not fit together.
    """

    lanes: Mapping[str, Lane]
    pools: Mapping[str, Pool]
    instances: Mapping[str, Instance] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    policy: str = 'laimr'

    def preference(self) -> dict[str, int]:
        """Return the best place of each pool in any lane's order; unused pools come last."""
        return {
            name: min((lane.pools.index(name) for lane in self.lanes.values()
                       if name in lane.pools), default=len(self.pools))
            for name in self.pools}

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        if self.policy not in POLICIES:
            raise ConfigurationError(
                f'policy is {self.policy!r}: use one of {list(POLICIES)}')
        if not self.lanes:
            raise ConfigurationError('there is no lane: configure at least one')
        for kind, things in (('lane', self.lanes), ('pool', self.pools)):
            for key, thing in things.items():
                if key != thing.name:
                    raise ConfigurationError(
                        f'{kind} {thing.name!r} is filed as {key!r}: file it under its name')
        for lane in self.lanes.values():
            for name in lane.pools:
                pool = self.pools.get(name)
                if pool is None:
                    raise ConfigurationError(
                        f'lane {lane.name}: pool {name!r} is not configured; there are '
                        f'{sorted(self.pools)}')
                if lane.model not in pool.models:
                    raise ConfigurationError(
                        f'lane {lane.name}: pool {name} does not serve model {lane.model!r}; '
                        f'it serves {sorted(pool.models)}')
        for pool in self.pools.values():
            if pool.instance and pool.instance not in self.instances:
                raise ConfigurationError(
                    f'pool {pool.name}: instance {pool.instance!r} is not configured; there '
                    f'are {sorted(self.instances)}')
        # Frozen for those who use it.
        object.__setattr__(self, 'lanes', {
            name: self._in_order(lane) for name, lane in self.lanes.items()})

    def _in_order(self, lane: Lane) -> Lane:
        if lane.pool_order == 'listed':
            return lane
        return replace(lane, pools=tuple(sorted(
            lane.pools, key=lambda name: self.pools[name].cost(lane.model))))


__all__ = [
    'POLICIES',
    'POOL_ORDERS',
    'Configuration',
    'ConfigurationError',
    'Frame',
    'Instance',
    'Lane',
    'Limits',
    'Network',
    'Outcome',
    'Pool',
    'PowerLaw',
]
