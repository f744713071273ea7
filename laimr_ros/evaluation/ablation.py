"""``ablation``: what the latency model earns over rules without one, at equal cost (R4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import math
from statistics import fmean

from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import Row
from laimr_ros.evaluation.simulated import Simulated
from laimr_ros.simulation.scenario_files import load_scenario
import numpy as np

SCENARIOS = ('surge', 'drift', 'mixed', 'tight')
RATES = (4.0, 6.0)
#: Each rule is run at many costs: at what `laimr` spends it is read between them.
SWEEPS: Mapping[str, tuple[str, Sequence[float]]] = {
    'capacity_rule': ('utilisation', (0.3, 0.4, 0.5, 0.6, 0.8)),
    'sqrt_staffing': ('waiting', (0.0001, 0.001, 0.01, 0.1, 0.3)),
}
_MEASURED = 600.0


def tasks(seeds: Sequence[int], measured: float | None) -> list[Simulated]:
    """
    Return the runs.

    The rules get the order of pools that `laimr` has: what is judged is the latency model.
    """
    made = []
    for scenario in SCENARIOS:
        for rate in RATES:
            world = load_scenario(scenario, {
                'rate': rate, 'measured': _MEASURED if measured is None else measured})
            for seed in seeds:
                made.append(Simulated(
                    _labels(scenario, 'laimr', ''), world, POLICIES['laimr'], seed))
                for policy, (name, values) in SWEEPS.items():
                    rule = replace(POLICIES[policy], pool_order=POLICIES['laimr'].pool_order)
                    made += [Simulated(
                        _labels(scenario, policy, f'{name}={value:g}'), world,
                        rule.tuned(**{name: value}), seed) for value in values]
    return made


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    claims, table, idle = [], [], []
    for scenario in SCENARIOS:
        for rate in RATES:
            here = [r for r in rows if (r['scenario'], r['rate']) == (scenario, rate)]
            where = f'{scenario} at {rate:g}/s'
            cost, late = _means([r for r in here if r['policy'] == 'laimr'])
            table.append([f'{where} laimr', '', cost, late])
            earned = False
            for policy, (name, values) in SWEEPS.items():
                curve = []
                for value in values:
                    setting = f'{name}={value:g}'
                    point = _means([r for r in here if (r['policy'], r['setting']) == (
                        policy, setting)])
                    curve.append(point)
                    table.append([f'{where} {policy}', setting, *point])
                theirs, how = at_cost(curve, cost)
                # Where nobody is late nothing is shown.
                holds = None if theirs == late == 0.0 else judged(
                    theirs > 0.0 and late <= 0.5 * theirs, late, theirs)
                earned = earned or late < theirs
                claims.append(Claim(
                    f'{where}: LA-IMR has at most half the late frames of {policy} at equal cost',
                    'not told', f'{late:.2%} against {theirs:.2%} {how}', holds))
            if not earned and not math.isnan(late):
                idle.append(where)
    notes = ['Means over seeds. A frame not answered is late. The rules have the order of pools '
             'that LA-IMR has, one queue and the first free replica. Where a rule cannot spend '
             'what LA-IMR does, its nearest run stands, and the text says so.']
    if idle:
        notes.append('The latency model earns nothing, at equal cost, in: ' + ', '.join(idle)
                     + '. There a plain rule does as well or better.')
    return Findings(
        claims, ['series', 'setting', 'replica-seconds', 'late'], table,
        {'Late frames against cost': ('replica-seconds', 'late')}, notes)


def _labels(scenario: str, policy: str, setting: str) -> Mapping[str, str]:
    return {'scenario': scenario, 'policy': policy, 'setting': setting}


def at_cost(curve: Sequence[tuple[float, float]], cost: float) -> tuple[float, str]:
    """
    Return what a policy comes to at a cost, and how that was found.

    :param curve: cost in replica-seconds, and what is asked for, of each run of it.
    """
    points = sorted(curve)
    costs, values = zip(*points)
    found = float(np.interp(cost, costs, values))
    if cost > costs[-1]:
        return found, f'(its dearest run, at {costs[-1] / cost:.2f} x the cost)'
    if cost < costs[0]:
        return found, f'(its cheapest run, at {costs[0] / cost:.2f} x the cost)'
    return found, '(between its runs)'


def _means(rows: Sequence[Row]) -> tuple[float, float]:
    return (fmean(row['replica_seconds'] for row in rows),
            fmean(1.0 - row['on_time'] for row in rows))
