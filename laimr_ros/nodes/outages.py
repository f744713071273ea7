"""Tells when frames go unanswered because no replica serves, and when that is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Need:
    """
    A lane and what became of its frames.

    :param pools: which may serve it.
    :param unanswered: frames that ended without an answer, ever.
    """

    pools: Sequence[str]
    unanswered: int


@dataclass
class _Outage:
    began: float
    before: dict[str, int]
    told: bool = False


class Outages:
    """
    Two messages an outage: one at the first frame that suffers, one at the end.

    A lane suffers only if none of its pools serves; with another pool it goes on there.
    """

    def __init__(self) -> None:
        """Start with no outage known."""
        self._outages: dict[str, _Outage] = {}

    def update(
        self, now: float, lanes: Mapping[str, Need],
        replicas: Mapping[str, Mapping[str, str]],
    ) -> Iterator[tuple[str, bool]]:
        """
        Yield texts to log, with whether each is bad news.

        :param now: a monotonic clock in seconds.
        :param lanes: by name.
        :param replicas: of each pool, why each of its replicas does not serve; empty if it does.
        """
        down = {pool for pool, reasons in replicas.items() if all(reasons.values())}
        for pool in list(self._outages):
            if pool not in down:
                outage = self._outages.pop(pool)
                if outage.told:
                    yield (f'pool {pool} serves again after {now - outage.began:.0f} s; '
                           f'{self._lost(outage, pool, lanes)} frames went unanswered', False)
        for pool in down:
            if pool not in self._outages:
                self._outages[pool] = _Outage(
                    now, {name: need.unanswered for name, need in lanes.items()})
            outage = self._outages[pool]
            suffering = [
                name for name, need in lanes.items()
                if pool in need.pools and down.issuperset(need.pools)
                and need.unanswered > outage.before.get(name, 0)]
            if suffering and not outage.told:
                outage.told = True
                reasons = '; '.join(
                    f'{name}: {reason}' for name, reason in list(replicas[pool].items())[:5]
                ) or f'it has none: set pools.{pool}.endpoints, or start its bridge'
                yield (f'pool {pool} has no replica that serves, and frames of lane '
                       f'{", ".join(suffering)} go unanswered ({reasons})', True)

    @staticmethod
    def _lost(outage: _Outage, pool: str, lanes: Mapping[str, Need]) -> int:
        return sum(
            need.unanswered - outage.before.get(name, 0)
            for name, need in lanes.items() if pool in need.pools)
