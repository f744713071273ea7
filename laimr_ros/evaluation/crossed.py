"""``crossed``: what each half of LA-IMR is worth, its routing and its scaling apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
import math
from statistics import median

from laimr_ros.evaluation.bootstrap import interval
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings
from laimr_ros.evaluation.runs import Row
from laimr_ros.evaluation.simulated import Simulated
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.scenario_files import load_scenario
import numpy as np
import numpy.typing as npt

RATES = (4.0, 6.0)
SCENARIOS = ('paper', 'surge')
_BASELINE = 'reactive_latency'
# What a half may add to replica-seconds where it is to be worth something.
_DEARER = 1.10
_MEASURED = 600.0
_NUMBERS = ('p99_s', 'late', 'replica_seconds')


def halves() -> Mapping[str, Policy]:
    """Return the four policies, each half at the settings that tuning found for its own policy."""
    ours, theirs = POLICIES['laimr'], POLICIES[_BASELINE]
    return {
        'neither': theirs,
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
                {'scenario': scenario, 'ours': half}, world, policy, seed)
                for half, policy in halves().items() for seed in seeds]
    return made


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    seeds = sorted({row['seed'] for row in rows})
    cell = {(row['scenario'], row['rate'], row['ours'], row['seed']):
            {**row, 'late': 1.0 - row['on_time']} for row in rows}

    def of(scenario: str, rate: float, half: str) -> npt.NDArray[np.float64]:
        """Return P99, share of late frames and replica-seconds, shape (seeds, 3)."""
        return np.array([[cell[scenario, rate, half, seed][number] for number in _NUMBERS]
                         for seed in seeds])

    claims: list[Claim] = []
    table = []
    for scenario in SCENARIOS:
        for rate in RATES:
            none = of(scenario, rate, 'neither')
            for half in halves():
                own = of(scenario, rate, half)
                p99, late, cost = (float(value) for value in np.median(own, axis=0))
                table.append([
                    f'{scenario} {_text(half)}', rate, p99, late, cost,
                    float(median(cell[scenario, rate, half, seed]['offload_share']
                                 for seed in seeds))])
                if half != 'neither':
                    claims += _worth(scenario, rate, half, own, none)
    return Findings(
        claims, ['series', 'rate', 'P99 s', 'late', 'replica-seconds', 'offloaded'], table,
        {'P99 against cost': ('replica-seconds', 'P99 s'),
         'Late frames against cost': ('replica-seconds', 'late')},
        [f'Medians over {len(seeds)} seeds of {rows[0]["measured"]:g} s. Neither: {_BASELINE} '
         'scales, and a frame goes to the first pool with a free replica (overflow). Settings '
         'are those that tuning found for LA-IMR and for the baseline as wholes, not for the '
         'mixtures.',
         'A half earns something where the median over seeds of its gain is above 0, the 95 % '
         f'bootstrap interval of it leaves out 0, and it costs at most {_DEARER:.2f} x the '
         'replica-seconds. Gains are of pairs: the same arrivals and '
         'service draws.'])


def _text(half: str) -> str:
    return f'LA-IMR {half}' if half in ('routing', 'scaling') else half


def _worth(
    scenario: str, rate: float, half: str, own: npt.NDArray[np.float64],
    none: npt.NDArray[np.float64]
) -> Iterator[Claim]:
    """Judge one half, or both, against neither; shape (seeds, 3) each."""
    spent = float(np.median(own[:, 2]) / np.median(none[:, 2]))
    for place, what in ((0, 'a lower P99'), (1, 'fewer late frames')):
        with np.errstate(invalid='ignore', divide='ignore'):
            gain = 1.0 - own[:, place] / none[:, place]
        middle = float(np.median(gain))
        low, high = interval(lambda samples: np.asarray(np.median(samples, axis=1)), gain)
        ends = [float(np.median(of[:, place])) for of in (none, own)]
        told = '{:.3f} to {:.3f} s' if place == 0 else '{:.2%} to {:.2%}'
        yield Claim(
            f'{scenario} at {rate:g}/s: {_text(half)} earns {what} at no more than '
            f'{_DEARER:.2f} x the cost', 'not told (no ablation, R4)',
            f'{told.format(*ends)}, {-middle:+.1%} (95 %: {-high:+.1%} to {-low:+.1%}) at '
            f'{spent:.2f} x',
            math.isfinite(middle) and middle > 0.0 and low > 0.0 and spent <= _DEARER)
