"""Which pool's model grew stale, and which frame may go there to renew it."""

from __future__ import annotations

from collections.abc import Iterable
import math


class Explorer:
    """
    Sends one frame in so many to a feasible pool that is not the best.

    A pool that is never used keeps a model of long ago. Deterministic: the decision depends on
    the calls alone. At most one exploration is saved up, and none is made while the burst alarm
    is up: a burst is no time for experiments.

    :param share: share of frames, 0 (never) to 1.
    :param stale_after: a pool used within so many seconds needs no exploration.
    :raises ValueError: for a share out of its range.
    """

    __slots__ = ('_credit', '_share', '_stale_after', '_used', 'explored', 'frames')

    def __init__(self, share: float, stale_after: float = 10.0) -> None:
        """Start with every pool stale."""
        if not 0.0 <= share <= 1.0:
            raise ValueError(f'exploration share is {share}: give a number from 0 to 1')
        self._share = share
        self._stale_after = stale_after
        self._credit = 0.0
        self._used: dict[str, float] = {}
        self.frames = 0
        self.explored = 0

    def used(self, pool: str, now: float) -> None:
        """Note that a pool's model learned from a frame at time ``now`` in seconds."""
        self._used[pool] = now

    def age(self, pool: str, now: float) -> float:
        """Return for how many seconds a pool has taught nothing; infinite if it never did."""
        return now - self._used.get(pool, -math.inf)

    def due(self, *, burst: bool) -> bool:
        """
        Count one frame; return whether it may explore. Then :meth:`choose` says where.

        Kept apart so that the other pools' feasibility is looked at only for the few frames
        that may explore.
        """
        self.frames += 1
        self._credit = min(1.0, self._credit + self._share)
        # Sums of a small share fall just short of 1.
        return self._credit >= 1.0 - 1e-9 and not burst

    def choose(self, now: float, best: str, feasible: Iterable[str]) -> str | None:
        """
        Return the stalest feasible pool other than the best, or None if none is stale.

        :param best: the pool the frame would go to.
        :param feasible: pools that are predicted on time for it; ties go to the first.
        """
        chosen, oldest = None, self._stale_after
        for pool in feasible:
            age = self.age(pool, now)
            if pool != best and age > oldest:
                chosen, oldest = pool, age
        if chosen is not None:
            self._credit = 0.0
            self.explored += 1
        return chosen

    def forget(self, pool: str) -> None:
        """Forget a pool that is gone, or whose model was replaced."""
        self._used.pop(pool, None)
