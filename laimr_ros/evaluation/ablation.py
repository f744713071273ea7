"""``ablation``: what the latency model earns over rules without one, at equal cost (R4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from laimr_ros.evaluation.findings import Claim, Findings
from laimr_ros.evaluation.runs import Row, Task
import numpy as np

SCENARIOS = ('surge', 'drift', 'mixed', 'tight')
RATE = 4.0
#: Each rule is run at many costs: at what `laimr` spends it is read between them.
SWEEPS: Mapping[str, tuple[str, Sequence[float]]] = {
    'capacity_rule': ('utilisation', (0.2, 0.3, 0.4, 0.5, 0.6, 0.8)),
    'sqrt_staffing': ('waiting', (0.0001, 0.001, 0.01, 0.05, 0.2, 0.5)),
}


def tasks(seeds: Sequence[int], measured: float | None) -> list[Task]:
    """Return the runs."""
    made = []
    for scenario in SCENARIOS:
        for seed in seeds:
            made.append(Task(scenario, RATE, 'laimr', seed, measured))
            made += [Task(scenario, RATE, policy, seed, measured, ((name, value),))
                     for policy, (name, values) in SWEEPS.items() for value in values]
    return made


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    claims, table = [], []
    for scenario in SCENARIOS:
        cost, late = _means([r for r in rows if (r['scenario'], r['policy']) == (
            scenario, 'laimr')])
        table.append([f'{scenario} laimr', '', cost, late])
        for policy, (name, values) in SWEEPS.items():
            curve = []
            for value in values:
                point = _means([r for r in rows if (r['scenario'], r['policy']) == (
                    scenario, policy) and r['settings'] == {name: value}])
                curve.append(point)
                table.append([f'{scenario} {policy}', f'{name}={value:g}', *point])
            theirs, how = at_cost(curve, cost)
            claims.append(Claim(
                f'{scenario}: LA-IMR has at most half the late frames of {policy} at equal cost',
                'not told', f'{late:.2%} against {theirs:.2%} {how}',
                # Where nobody is late nothing is shown.
                theirs > 0.0 and late <= 0.5 * theirs))
    return Findings(
        claims, ['series', 'setting', 'replica-seconds', 'late'], table,
        {'Late frames against cost': ('replica-seconds', 'late')},
        ['Means over seeds. A frame not answered is late. Where a rule cannot spend what LA-IMR '
         'does, its nearest run stands, and the text says so.'])


def at_cost(curve: Sequence[tuple[float, float]], cost: float) -> tuple[float, str]:
    """
    Return the late share of a rule at a cost, and how it was found.

    :param curve: cost in replica-seconds, and late share, of each run of it.
    """
    points = sorted(curve)
    costs, shares = zip(*points)
    late = float(np.interp(cost, costs, shares))
    if cost > costs[-1]:
        return late, f'(its dearest run, at {costs[-1] / cost:.2f} x the cost)'
    if cost < costs[0]:
        return late, f'(its cheapest run, at {costs[0] / cost:.2f} x the cost)'
    return late, '(between its runs)'


def _means(rows: Sequence[Row]) -> tuple[float, float]:
    return (fmean(row['replica_seconds'] for row in rows),
            fmean(1.0 - row['on_time'] for row in rows))
