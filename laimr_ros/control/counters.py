"""Counting how frames end, so that every one is accounted for."""

from __future__ import annotations

from collections import Counter

from laimr_ros.control.nouns import Outcome


class Counters:
    """
    How many frames were received and how they ended.

    ``received = answered + superseded + expired + rejected + failed + in_flight`` at all times.
    """

    __slots__ = ('ended', 'late', 'received')

    def __init__(self) -> None:
        """Start from nothing."""
        self.received = 0
        self.late = 0
        self.ended: dict[Outcome, int] = dict.fromkeys(Outcome, 0)

    @property
    def in_flight(self) -> int:
        """Return how many frames have not ended: waiting here or sent."""
        return self.received - sum(self.ended.values())

    @property
    def on_time(self) -> int:
        """Return how many frames were answered by their deadline."""
        return self.ended[Outcome.ANSWERED] - self.late

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        counts = {'received': self.received}
        counts.update((outcome.value, count) for outcome, count in self.ended.items())
        counts['in_flight'] = self.in_flight
        counts['on_time'] = self.on_time
        return counts


class ReasonedCounters(Counters):
    """Counters that also keep why frames were not answered."""

    __slots__ = ('reasons',)

    def __init__(self) -> None:
        """Start from nothing."""
        super().__init__()
        self.reasons: Counter[str] = Counter()
