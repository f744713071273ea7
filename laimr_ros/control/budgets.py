"""What may be spent: second copies of frames, and the cloud's spare capacity."""

from __future__ import annotations

import math


class HedgeBudget:
    """
    Second copies, at most a share of all frames (Dean and Barroso 2013, The Tail at Scale).

    Every frame earns its share of a copy; up to ``burst`` copies are saved up, so that a quiet
    hour does not pay for a minute of doubled load.

    :param share: copies over frames, 0 (never) to 1.
    :param burst: copies that may be made in a row, at least 1.
    :raises ValueError: for a value out of its range.
    """

    __slots__ = ('_burst', '_share', '_tokens', 'frames', 'hedged', 'refused')

    def __init__(self, share: float = 0.05, burst: float = 5.0) -> None:
        """Start without a token: copies are earned first."""
        if not 0.0 <= share <= 1.0:
            raise ValueError(f'hedging share is {share}: give a number from 0 to 1')
        if not burst >= 1.0:
            raise ValueError(f'hedging burst is {burst}: give 1 copy or more')
        self._share = share
        self._burst = burst
        self._tokens = 0.0
        self.frames = 0
        self.hedged = 0
        self.refused = 0

    def earn(self) -> None:
        """Count one frame that was sent for the first time."""
        self.frames += 1
        self._tokens = min(self._burst, self._tokens + self._share)

    def take(self) -> bool:
        """Return whether one more copy may be made now, and count it."""
        # Sums of a twentieth fall just short of 1.
        if self._tokens < 1.0 - 1e-9:
            self.refused += 1
            return False
        self._tokens = max(0.0, self._tokens - 1.0)
        self.hedged += 1
        return True

    def give_back(self) -> None:
        """Take back the copy just counted: it was not made after all."""
        self.hedged -= 1
        self._tokens = min(self._burst, self._tokens + 1.0)


class OffloadBucket:
    """
    Token bucket of frames that may be offloaded to a pool, refilled at its spare rate.

    ``c mu rho_max - lambda`` with ``lambda`` the rate of frames for which that pool is the first
    choice. Many lanes (or dispatchers) that all see the same idle cloud would otherwise send it
    everything at once. Start: no spare rate, so nothing is offloaded until :meth:`refill_at` was
    called; the first call fills the bucket.

    :param rho_max: utilisation up to which the pool may be filled, 0 to 1.
    :param depth: seconds of spare rate that may be saved up.
    :raises ValueError: for a value out of its range.
    """

    __slots__ = ('_depth', '_most', '_rho_max', '_servers', '_tokens', '_updated', 'rate',
                 'refused', 'taken')

    def __init__(self, rho_max: float = 0.85, depth: float = 1.0) -> None:
        """Start empty and without capacity."""
        if not 0.0 < rho_max <= 1.0:
            raise ValueError(f'offload rho_max is {rho_max}: give a number above 0, at most 1')
        if not (depth > 0.0 and math.isfinite(depth)):
            raise ValueError(f'offload depth is {depth}: give seconds above 0')
        self._rho_max = rho_max
        self._depth = depth
        self._servers = -1
        self._tokens = 0.0
        self._most = 0.0
        self._updated = -math.inf
        self.rate = 0.0
        self.taken = 0
        self.refused = 0

    def refill_at(self, now: float, servers: int, service_mean: float, own_rate: float) -> float:
        """
        Say what the pool can do now.

        :param servers: replicas that take frames.
        :param service_mean: mean time a frame occupies one, in seconds.
        :param own_rate: frames per second of the pool's own lanes, offloaded ones not counted.
        :return: the spare rate in frames per second, 0 or more.
        """
        self._refill(now)
        capacity = servers / service_mean if servers > 0 and service_mean > 0.0 else 0.0
        self.rate = max(0.0, self._rho_max * capacity - max(0.0, own_rate))
        # A slow pool must be able to save up one whole frame, a large one a frame a replica.
        self._most = 0.0 if self.rate == 0.0 else max(
            1.0, min(float(servers), self._depth * self.rate))
        if servers > self._servers:
            # New replicas are idle: a frame each is theirs at once.
            self._tokens += self._most if self._servers < 0 else servers - self._servers
        self._servers = servers
        self._tokens = min(self._most, self._tokens)
        return self.rate

    def _refill(self, now: float) -> None:
        if now > self._updated:
            if self._updated > -math.inf:
                self._tokens = min(
                    self._most, self._tokens + self.rate * (now - self._updated))
            self._updated = now

    def has(self, now: float) -> bool:
        """Return whether a frame may be offloaded at ``now``; nothing is taken."""
        self._refill(now)
        return self._tokens >= 1.0 - 1e-9

    def take(self, now: float) -> bool:
        """Return whether a frame may be offloaded at ``now``, and count it."""
        if not self.has(now):
            self.refused += 1
            return False
        self._tokens = max(0.0, self._tokens - 1.0)
        self.taken += 1
        return True

    def next_token(self, now: float) -> float:
        """Return when the next frame may be offloaded; infinite without spare rate."""
        if self.has(now):
            return now
        return now + (1.0 - self._tokens) / self.rate if self.rate > 0.0 else math.inf
