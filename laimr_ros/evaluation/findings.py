"""What an experiment found: claims held against measurement, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import math
from typing import Any


@dataclass(frozen=True)
class Claim:
    """
    One claim.

    :param paper: the paper's number.
    :param ours: what was measured here.
    :param holds: whether the claim holds here; None if the measurement says nothing of it.
    """

    claim: str
    paper: str
    ours: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """Return in words whether it holds."""
        if self.holds is None:
            return 'undecided'
        return 'holds' if self.holds else 'does not hold'


def judged(holds: bool, *numbers: float) -> bool | None:
    """Return a verdict, or None if a number that it was made of is none (NaN)."""
    return None if any(math.isnan(number) for number in numbers) else bool(holds)


@dataclass(frozen=True)
class Findings:
    """
    What is told of an experiment.

    :param columns: of the table; the first is the series a row belongs to in charts.
    :param charts: title, and the columns of both axes; two more for the ends of an interval.
    :param notes: what a reader must know to judge the numbers.
    :param curves: series that are drawn as lines through the points of other series, by name.
    :param tuned: by policy, settings found; written to ``tuned.yaml``.
    """

    claims: Sequence[Claim]
    columns: Sequence[str]
    table: Sequence[Sequence[Any]]
    charts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    tuned: Mapping[str, Mapping[str, float]] | None = None
    curves: Mapping[str, str] = field(default_factory=dict)
