"""What all benchmarks share: quantiles, a table for people, one flat object for machines."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
import json
import math
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option that every benchmark has."""
    parser.add_argument(
        '--json', metavar='FILE', type=Path,
        help='write the figures to this file too: one flat object, units in the names')


def quantile(values: Sequence[float], q: float) -> float:
    """
    Return a quantile, between neighbours by a straight line.

    :param values: at least one; their order does not matter.
    :param q: 0 to 1.
    """
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return quantile(values, 0.5)


def write(figures: Mapping[str, float], args: argparse.Namespace) -> None:
    """
    Print the figures as a table, and write them to the file that was asked for.

    :param figures: by name, with the unit in the name.
    :param args: parsed by a parser that ``add_arguments`` has seen.
    """
    width = max((len(name) for name in figures), default=0)
    for name, value in figures.items():
        print(f'{name:<{width}}  {value:>12.4g}' if isinstance(value, float)
              else f'{name:<{width}}  {value:>12}')
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(dict(figures), indent=2) + '\n', encoding='utf-8')
