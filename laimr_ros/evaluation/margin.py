"""``margin``: whether the numbers that the paper tuned by hand matter (R6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from laimr_ros.control.nouns import Limits
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import Row, Task

WORLDS = (('paper', 4.0), ('paper', 6.0), ('surge', 4.0))
#: Changed one at a time, the others as tuned.
SETTINGS: Mapping[str, Sequence[float]] = {
    'slo_margin': (0.7, 0.8, 0.9, 1.0),
    'fast_window': (1.0, 2.0, 4.0),
    'slow_window': (15.0, 30.0, 60.0),
}
#: Simulated seconds of a run, unless told otherwise.
MEASURED = 300.0
# A setting matters if over its whole range more frames than this are late, or costs differ more.
_FRAMES = 0.01
_COST = 0.1


def tasks(seeds: Sequence[int], measured: float | None) -> list[Task]:
    """Return the runs."""
    return [Task(scenario, rate, 'laimr', seed, measured or MEASURED, ((name, value),))
            for scenario, rate in WORLDS for name, values in SETTINGS.items()
            for value in values for seed in seeds]


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    claims, table = [], []
    for name, values in SETTINGS.items():
        for scenario, rate in WORLDS:
            on_time, cost = [], []
            for value in values:
                mine = [row for row in rows if (row['scenario'], row['rate']) == (scenario, rate)
                        and row['settings'] == {name: value}]
                on_time.append(fmean(row['on_time'] for row in mine))
                cost.append(fmean(row['replica_seconds'] for row in mine))
                table.append([f'{scenario} {rate:g}/s {name}', value, on_time[-1],
                              median(row['p99_s'] for row in mine), cost[-1]])
            frames, spent = max(on_time) - min(on_time), max(cost) / min(cost) - 1.0
            claims.append(Claim(
                f'{scenario} at {rate:g}/s: {name} from {values[0]:g} to {values[-1]:g} does not '
                f'matter (on time within {_FRAMES:.0%} of frames, cost within {_COST:.0%})',
                'tuned by hand, its effect not told',
                f'on time {min(on_time):.2%} to {max(on_time):.2%}, cost within {spent:.1%}',
                judged(frames <= _FRAMES and spent <= _COST, frames, spent)))
    return Findings(
        claims, ['series', 'value', 'on time', 'P99 s', 'replica-seconds'], table,
        {'Share on time against cost': ('replica-seconds', 'on time')},
        [f'LA-IMR with one setting changed, the others as tuned: {_tuned()}. Means over seeds '
         f'(P99: medians), {MEASURED:g} s a run unless told otherwise, the same frames for all.',
         'The SLO margin stands for the x of the paper, the windows for the weight of its moving '
         'average; its utilisation floor has no counterpart: a replica goes when one less is '
         'predicted to be enough.'])


def _tuned() -> str:
    limits = {**{name: getattr(Limits(), name) for name in SETTINGS}, **POLICIES['laimr'].limits}
    return ', '.join(f'{name} {value:g}' for name, value in limits.items())
