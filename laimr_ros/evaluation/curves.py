"""``cost-curves``: P99 against cost, a curve a policy along its main setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import math
from statistics import median

from laimr_ros.evaluation import ablation
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import Row
from laimr_ros.evaluation.simulated import Simulated
from laimr_ros.evaluation.tuning import GRIDS, SLO
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.scenario_files import load_scenario
import numpy as np

RATES = (4.0, 6.0)
_MEASURED = 600.0
_SEEDS = 5
# Beyond the grids of tuning, so that curves reach the costs of others.
_WIDER: Mapping[str, Sequence[float]] = {
    'laimr': (0.4, 0.55), 'laimr_paper': (0.1, 0.8), 'reactive_latency': (0.2, 0.3),
    'reactive_cheapest': (0.2, 0.3), 'cpu_hpa': (0.15, 0.95), 'queue_length': (0.25, 4.0),
    'two_window': (0.15, 0.9), 'capacity_rule': (0.15, 0.2), 'sqrt_staffing': (0.0001, 0.3),
    'clairvoyant': (3.0,)}
_ORDER = POLICIES['laimr'].pool_order
#: The policies that have a curve: those compared, and the rules given LA-IMR's order of pools too,
#: so that what is left is what scaling and routing do.
CURVES: Mapping[str, Policy] = {
    **POLICIES,
    **{f'{name}, {_ORDER}': replace(policy, pool_order=_ORDER)
       for name, policy in POLICIES.items()
       if policy.routing == 'overflow' and policy.pool_order != _ORDER
       and name != 'reactive_latency'}}  # That one is there as reactive_cheapest.
#: Each policy's main setting, its values, that of tuning included; other settings are as tuned.
SWEEPS = {
    curve: (name, tuple(sorted({
        *values, *_WIDER.get(own, ()),
        *(tuned for tuned in [{**policy.limits, **policy.settings}.get(name)]
          if tuned is not None)})))
    for curve, policy in CURVES.items() for own in [curve.split(',')[0]]
    for name, values in [next(iter(GRIDS[own].items()))]}
#: Where LA-IMR stands on its curve.
TUNED = POLICIES['laimr'].limits[SWEEPS['laimr'][0]]
# Places between both ends of common costs where curves are compared.
_PLACES = 50

#: A policy's runs at one rate: cost in replica-seconds, and P99 in seconds.
Curve = Sequence[tuple[float, float]]


def tasks(seeds: Sequence[int], measured: float | None) -> list[Simulated]:
    """Return the runs, of few seeds: there are many settings."""
    window = _MEASURED if measured is None else measured
    worlds = [load_scenario('paper', {'rate': rate, 'measured': window}) for rate in RATES]
    return [Simulated({'policy': curve, 'settings': {name: value}}, world,
                      CURVES[curve].tuned(**{name: value}), seed)
            for world in worlds for curve, (name, values) in SWEEPS.items()
            for value in values for seed in seeds[:_SEEDS]]


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    points: dict[tuple[str, float, float], list[Row]] = {}
    for row in rows:
        value = row['settings'][SWEEPS[row['policy']][0]]
        points.setdefault((row['policy'], row['rate'], value), []).append(row)
    middle = {key: tuple(float(median(row[number] for row in own))
                         for number in ('replica_seconds', 'p99_s', 'on_time'))
              for key, own in points.items()}
    curves: dict[tuple[str, float], list[tuple[float, float]]] = {}
    table = []
    for (policy, rate, value), (cost, p99, on_time) in middle.items():
        curves.setdefault((policy, rate), []).append((cost, p99))
        mark = ' (tuned)' if (policy, value) == ('laimr', TUNED) else ''
        for_rate = [p99 if rate == other else math.nan for other in RATES]
        table.append([policy, rate, f'{SWEEPS[policy][0]}={value:g}{mark}', cost, *for_rate,
                      1.0 - on_time])
    claims = []
    for rate in RATES:
        cost, ours, _ = middle['laimr', rate, TUNED]
        for policy in CURVES:
            if policy not in ('laimr', 'clairvoyant'):
                claims.append(_below(
                    rate, policy, cost, ours, curves['laimr', rate], curves[policy, rate]))
        claims.append(_cheapest(rate, {policy: curves[policy, rate] for policy in CURVES}))
    return Findings(
        claims,
        ['policy', 'rate', 'setting', 'replica-seconds',
         *(f'P99 s at {rate:g} per second' for rate in RATES), 'late'], table,
        {f'P99 against cost at {rate:g} per second': (
            'replica-seconds', f'P99 s at {rate:g} per second') for rate in RATES},
        [f'Medians over {len({row["seed"] for row in rows})} seeds (at most {_SEEDS} are run) of '
         f'{rows[0]["measured"]:g} s. One setting of each policy is swept, the first of its grid '
         'in `tuning` and somewhat beyond; the others are as tuned. LA-IMR prefers the pool where '
         f'a frame costs least; rules that are not told so stand here with that order ({_ORDER}) '
         'as well.',
         'A claim is judged where LA-IMR stands as tuned: its P99 against the line through the '
         "other policy's runs at the same cost. Where that policy cannot spend as much (or as "
         'little), its nearest run stands, and the text says so. Runs without a finite P99 are '
         'left out of a line. The share of costs compares both curves wherever both have runs.'])


def at_cost(curve: Curve, cost: float) -> tuple[float, str]:
    """
    Return a curve's P99 at a cost, and how it was found.

    :param curve: runs without a finite P99 are left out.
    :return: an infinite P99 where none is left.
    """
    finite = sorted(point for point in curve if math.isfinite(point[1]))
    if not finite:
        return math.inf, '(no run of it answers enough frames)'
    return ablation.at_cost(finite, cost)


def share_below(ours: Curve, theirs: Curve) -> float:
    """Return on which part of the costs that both have runs at ours is lower; NaN for none."""
    ends = [[cost for cost, value in curve if math.isfinite(value)] for curve in (ours, theirs)]
    if not all(ends):
        return math.nan
    low, high = max(map(min, ends)), min(map(max, ends))
    if not low < high:
        return math.nan
    places = np.linspace(low, high, _PLACES)
    return float(np.mean([at_cost(ours, cost)[0] < at_cost(theirs, cost)[0] for cost in places]))


def _cheapest(rate: float, curves: Mapping[str, Curve]) -> Claim:
    """Judge who keeps the SLO for the least cost; the clairvoyant is only told."""
    least = {policy: min((cost for cost, p99 in curve if p99 <= SLO), default=math.inf)
             for policy, curve in curves.items()}
    others = {policy: cost for policy, cost in least.items()
              if policy not in ('laimr', 'clairvoyant')}
    best = min(others, key=lambda policy: others[policy])
    return Claim(
        f'At {rate:g}/s no policy but the clairvoyant keeps P99 within {SLO} s for fewer '
        'replica-seconds than LA-IMR', 'not told',
        f'LA-IMR {least["laimr"]:.0f}, {best} {others[best]:.0f}, clairvoyant '
        f'{least["clairvoyant"]:.0f}',
        judged(least['laimr'] < math.inf and least['laimr'] <= others[best],
               *(p99 for _, p99 in curves['laimr'])))


def _below(
    rate: float, policy: str, cost: float, ours: float, our_curve: Curve, their_curve: Curve
) -> Claim:
    theirs, how = at_cost(their_curve, cost)
    share = share_below(our_curve, their_curve)
    along = 'no common costs' if math.isnan(share) else f'lower on {share:.0%} of common costs'
    return Claim(
        f'At {rate:g}/s and the cost of LA-IMR ({cost:.0f} replica-seconds), P99 of LA-IMR is '
        f'below the curve of {policy}', 'not told',
        f'{ours:.3f} s to {theirs:.3f} s {how}; {along}', judged(ours < theirs, ours))
