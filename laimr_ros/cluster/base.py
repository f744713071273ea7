"""The interface behind which replicas live: local processes or a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class ReplicaState(Enum):
    """Where a replica stands in its life."""

    STARTING = 'starting'
    READY = 'ready'
    DRAINING = 'draining'
    FAILED = 'failed'


@dataclass(frozen=True)
class ReplicaStatus:
    """
    One replica as its holder sees it.

    :param name: unique within the pool.
    :param endpoint: where it serves, ``host:port`` or ``unix:/path``.
    :param state: where it stands in its life.
    :param reason: why it is not ready, for people; empty when it is.
    """

    name: str
    endpoint: str
    state: ReplicaState
    reason: str = ''


@dataclass(frozen=True)
class PoolStatus:
    """
    One pool as its holder sees it.

    :param replicas: every replica, in the order they were started.
    :param start_up_s: measured start-up times of recent replicas in seconds, newest last.
    """

    replicas: tuple[ReplicaStatus, ...] = ()
    start_up_s: tuple[float, ...] = ()

    def endpoints(self) -> tuple[str, ...]:
        """Return the endpoints of the replicas that are ready."""
        return tuple(r.endpoint for r in self.replicas if r.state is ReplicaState.READY)

    def count(self, state: ReplicaState) -> int:
        """Return how many replicas are in a state."""
        return sum(r.state is state for r in self.replicas)


class ReplicaHolder(Protocol):
    """Observe replicas, set replicas. Methods return at once; work goes on behind them."""

    def observe(self, pool: str) -> PoolStatus:
        """Return the pool's present status. :raises KeyError: for an unknown pool."""

    def set_replicas(self, pool: str, count: int) -> None:
        """Ask for a number of replicas. Level-triggered: the last call counts."""
