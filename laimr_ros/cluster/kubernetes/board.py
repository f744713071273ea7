"""The numbers of replicas wanted, for those who come and ask."""

from __future__ import annotations

import asyncio
import time


class Board:
    """
    Numbers by pool, each with the time at which somebody last stood by it.

    To be used in one event loop.

    :param max_age_s: a number that nobody has stood by for so long is withheld, in seconds.
    """

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._numbers: dict[str, tuple[int, float]] = {}
        self._changed = asyncio.Event()

    def put(self, pool: str, count: int) -> None:
        """Stand by a number, from now on for its age limit."""
        before = self._numbers.get(pool)
        self._numbers[pool] = (count, time.monotonic())
        if before is None or before[0] != count:
            self._changed.set()
            self._changed = asyncio.Event()

    def get(self, pool: str) -> int | None:
        """Return a number; None if there is none, or it is too old."""
        found = self._numbers.get(pool)
        if found is None or time.monotonic() > found[1] + self._max_age_s:
            return None
        return found[0]

    def why_not(self, pool: str) -> str:
        """Return why there is no number, for people."""
        found = self._numbers.get(pool)
        if found is None:
            return f'nobody has said yet how many replicas pool {pool} needs'
        age_s = time.monotonic() - found[1]
        return (
            f'the number of replicas of pool {pool} is {age_s:.0f} s old, and older than '
            f'{self._max_age_s:g} s is withheld: is the dispatcher there?')

    def news(self) -> asyncio.Event:
        """Return what will be set at the next change; take it before you look at a number."""
        return self._changed
