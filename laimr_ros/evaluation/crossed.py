"""``crossed``: what each part of LA-IMR is worth: order of pools, routing and scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import math
from statistics import median

from laimr_ros.evaluation.bootstrap import interval
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import Row
from laimr_ros.evaluation.simulated import Simulated
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.scenario_files import load_scenario
import numpy as np
import numpy.typing as npt

RATES = (4.0, 6.0)
SCENARIOS = ('paper', 'surge')
_BASELINE = 'reactive_latency'
# What a part may add to replica-seconds where it is to be worth something.
_DEARER = 1.10
# More late frames than that, as a share of all, are not paid for by anything.
_NOT_LATER = 0.001
_MEASURED = 600.0
# What each is held against: the one that lacks what is to be judged.
_AGAINST = {'order': 'neither', 'routing': 'order', 'scaling': 'order', 'both': 'order'}
_TEXTS = {
    'neither': _BASELINE, 'order': f'{_BASELINE} and the order of pools',
    'routing': 'LA-IMR routing alone', 'scaling': 'LA-IMR scaling alone', 'both': 'LA-IMR'}
_NUMBERS = ('p99_s', 'late', 'replica_seconds')


def parts() -> Mapping[str, Policy]:
    """Return the policies, each part at the settings that tuning found for its own policy."""
    ours, theirs = POLICIES['laimr'], POLICIES[_BASELINE]
    return {
        'neither': theirs,
        'order': replace(theirs, pool_order=ours.pool_order),
        'routing': replace(ours, scaling=theirs.scaling, settings=theirs.settings),
        'scaling': replace(ours, routing=theirs.routing),
        'both': ours}


def tasks(seeds: Sequence[int], measured: float | None) -> list[Simulated]:
    """Return the runs."""
    made = []
    for scenario in SCENARIOS:
        for rate in RATES:
            world = load_scenario(scenario, {
                'rate': rate, 'measured': _MEASURED if measured is None else measured})
            made += [Simulated(
                {'scenario': scenario, 'ours': part}, world, policy, seed)
                for part, policy in parts().items() for seed in seeds]
    return made


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    seeds = sorted({row['seed'] for row in rows})
    cell = {(row['scenario'], row['rate'], row['ours'], row['seed']):
            {**row, 'late': 1.0 - row['on_time']} for row in rows}

    def of(scenario: str, rate: float, part: str) -> npt.NDArray[np.float64]:
        """Return P99, share of late frames and replica-seconds, shape (seeds, 3)."""
        return np.array([[cell[scenario, rate, part, seed][number] for number in _NUMBERS]
                         for seed in seeds])

    claims: list[Claim] = []
    table = []
    for scenario in SCENARIOS:
        for rate in RATES:
            for part in parts():
                own = of(scenario, rate, part)
                p99, late, cost = (float(value) for value in np.median(own, axis=0))
                table.append([
                    f'{scenario} {_TEXTS[part]}', rate, p99, late, cost,
                    float(median(cell[scenario, rate, part, seed]['offload_share']
                                 for seed in seeds))])
                if part in _AGAINST:
                    other = _AGAINST[part]
                    claims.append(_worth(
                        f'{scenario} at {rate:g}/s: {_TEXTS[part]} earns something against '
                        f'{_TEXTS[other]}', own, of(scenario, rate, other)))
    return Findings(
        claims, ['series', 'rate', 'P99 s', 'late', 'replica-seconds', 'offloaded'], table,
        {'P99 against cost': ('replica-seconds', 'P99 s'),
         'Late frames against cost': ('replica-seconds', 'late')},
        [f'Medians over {len(seeds)} seeds of {rows[0]["measured"]:g} s. {_BASELINE} sends a '
         'frame to the first pool with a free replica, in the order that the lane lists. That '
         'LA-IMR puts pools in an order of its own is a part by itself, which is given to the '
         'baseline before routing and scaling are judged. Settings are those that tuning found '
         'for LA-IMR and for the baseline as wholes, not for the mixtures.',
         'A part earns a number where the median over seeds of what it saves is above 0 and the '
         '95 % bootstrap interval leaves out 0; P99 and late frames only for at most '
         f'{_DEARER:.2f} x the cost, cost and P99 only for at most {_NOT_LATER:.1%} of the frames '
         'late that were not. It loses in a number where that interval is all below 0. Savings '
         'are of pairs: the same arrivals and service draws.'])


def _worth(
    what: str, own: npt.NDArray[np.float64], none: npt.NDArray[np.float64]
) -> Claim:
    """
    Judge a policy against one that lacks a part of it.

    :param own: P99, share of late frames, replica-seconds, shape (seeds, 3); so is ``none``.
    """
    def gain(place: int, share: bool) -> tuple[float, float, float]:
        """Return the median over seeds of what is saved of a number, and its interval."""
        with np.errstate(invalid='ignore', divide='ignore'):
            saved = none[:, place] - own[:, place]
            saved = saved / none[:, place] if share else saved
        return float(np.median(saved)), *interval(
            lambda samples: np.asarray(np.median(samples, axis=1)), saved)

    p99, late, cost = gain(0, True), gain(1, False), gain(2, True)
    affordable, timely = cost[0] >= 1.0 - _DEARER, late[0] >= -_NOT_LATER
    earned = [name for name, (middle, low, _), fair in (
        ('a lower P99', p99, affordable and timely), ('fewer late frames', late, affordable),
        ('lower cost', cost, timely))
        if fair and math.isfinite(middle) and min(middle, low) > 0.0]
    lost = [name for name, (_, _, high) in (
        ('P99', p99), ('late frames', late), ('cost', cost)) if high < 0.0]
    ends = [np.median(of, axis=0) for of in (none, own)]
    return Claim(
        what, 'not told (no ablation, R4)',
        f'earns {" and ".join(earned) or "nothing"}'
        + f', loses in {" and ".join(lost)}' * bool(lost)
        + f': P99 {ends[0][0]:.3f} to {ends[1][0]:.3f} s, late {ends[0][1]:.2%} to '
        f'{ends[1][1]:.2%}, cost {1.0 - cost[0]:.2f} x (95 %: {1.0 - cost[2]:.2f} to '
        f'{1.0 - cost[1]:.2f})',
        # One seed tells nothing of scatter, which this is judged by.
        judged(bool(earned), *own.flat, *none.flat) if len(own) > 1 else None)
