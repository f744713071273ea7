"""``tuning``: the settings of every policy, by the same search, on seeds no comparison uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import itertools
from statistics import median

from laimr_ros.evaluation.findings import Findings
from laimr_ros.evaluation.runs import Row, Task

RATES = (2.0, 4.0, 6.0)
SLO = 1.8
#: Added to every seed, so that tuning and comparison share none.
SEED_OFFSET = 100
#: Five values of what matters most and two of how fast it falls (or rises): ten for everyone.
GRIDS: Mapping[str, Mapping[str, Sequence[float]]] = {
    'laimr': {'slo_margin': (0.6, 0.7, 0.8, 0.9, 0.95), 'stabilisation': (10.0, 30.0)},
    'laimr_paper': {'rho_low': (0.2, 0.3, 0.4, 0.5, 0.6), 'stabilisation': (15.0, 30.0)},
    'reactive_latency': {'target': (0.4, 0.5, 0.6, 0.7, 0.8), 'stabilisation': (60.0, 300.0)},
    'reactive_cheapest': {
        'target': (0.4, 0.5, 0.6, 0.7, 0.8), 'stabilisation': (60.0, 300.0)},
    'cpu_hpa': {'target': (0.3, 0.4, 0.5, 0.65, 0.8), 'stabilisation': (60.0, 300.0)},
    'queue_length': {'target': (0.5, 0.75, 1.0, 1.5, 2.0), 'up_delay': (2.0, 30.0)},
    'two_window': {'target': (0.3, 0.4, 0.5, 0.6, 0.7), 'stable': (30.0, 60.0)},
    'capacity_rule': {'utilisation': (0.3, 0.4, 0.5, 0.6, 0.7), 'stabilisation': (30.0, 60.0)},
    'sqrt_staffing': {'waiting': (0.005, 0.01, 0.02, 0.05, 0.1), 'stabilisation': (30.0, 60.0)},
    'clairvoyant': {'slack': (1.0, 1.1, 1.25, 1.5, 2.0), 'hold': (5.0, 15.0)},
}


def tasks(seeds: Sequence[int], measured: float | None) -> list[Task]:
    """Return the runs."""
    return [Task('paper', rate, policy, SEED_OFFSET + seed, measured, settings)
            for policy, grid in GRIDS.items()
            for settings in settings_of(grid) for rate in RATES for seed in seeds]


def settings_of(grid: Mapping[str, Sequence[float]]) -> list[tuple[tuple[str, float], ...]]:
    """Return all points of a grid."""
    return [tuple(zip(grid, values)) for values in itertools.product(*grid.values())]


def best(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """
    Return the best settings of each policy.

    The cheapest whose median P99 is within the SLO at every rate; if none is, those whose P99 is
    the least at the rate where it is greatest.
    """
    return {policy: dict(min((_rank(rows, policy, dict(settings)), settings)
                             for settings in settings_of(grid))[1])
            for policy, grid in GRIDS.items()}


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    chosen = best(rows)
    table = []
    for policy, grid in GRIDS.items():
        for settings in settings_of(grid):
            table.append([policy, ', '.join(f'{name}={value:g}' for name, value in settings),
                          _worst(rows, policy, dict(settings)),
                          _cost(rows, policy, dict(settings)),
                          'chosen' if dict(settings) == chosen[policy] else ''])
    return Findings(
        (), ['policy', 'settings', 'P99 s, worst rate', 'replica-seconds', ''], table,
        {'P99 against cost, by settings': ('replica-seconds', 'P99 s, worst rate')},
        ['Chosen: the cheapest whose median P99 is within the SLO at every rate; where none is, '
         'the least P99 at the worst rate.'], chosen)


def _rank(
    rows: Sequence[Row], policy: str, settings: Mapping[str, float]
) -> tuple[bool, float, float]:
    worst, cost = _worst(rows, policy, settings), _cost(rows, policy, settings)
    return (worst > SLO, cost, worst) if worst <= SLO else (True, worst, cost)


def _of(
    rows: Sequence[Row], policy: str, settings: Mapping[str, float], rate: float, what: str
) -> float:
    return float(median(row[what] for row in rows if row['policy'] == policy
                        and row['rate'] == rate and row['settings'] == settings))


def _worst(rows: Sequence[Row], policy: str, settings: Mapping[str, float]) -> float:
    return max(_of(rows, policy, settings, rate, 'p99_s') for rate in RATES)


def _cost(rows: Sequence[Row], policy: str, settings: Mapping[str, float]) -> float:
    """Return replica-seconds of all rates together."""
    return sum(_of(rows, policy, settings, rate, 'replica_seconds') for rate in RATES)
