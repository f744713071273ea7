"""
``live-table6``: the scenario `paper` with real nodes, beside the same simulated.

The same frames at the same times, once through a real dispatcher, bridge and emulated workers on
sockets, and simulated with as many draws of service times as there are seeds: no two runs of the
real thing have the same ones either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
import math
from pathlib import Path
from statistics import median
import tempfile
from typing import Any

from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.live_nodes import LiveResult, play
from laimr_ros.evaluation.runs import key_of, Row
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.result import nearest_rank, RunResult
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Lognormal, Scenario
from laimr_ros.simulation.workload import Workload, workload_of

RATES = (2.0, 4.0, 6.0)
WARM_UP = 15.0
#: Seconds of a run that count, unless told otherwise.
MEASURED = 120.0
#: Cameras that a robot's frames come from in turn. The dispatcher has no use for the answer to a
#: frame after that to a newer one of its camera, which in `paper` counts like any other.
CAMERAS = 8
#: Agreement asked for.
CLOSE = 0.15
_QUANTILES = {'p50': 0.5, 'p95': 0.95, 'p99': 0.99}


@dataclass(frozen=True)
class LiveRun:
    """
    One trace through real nodes, and simulated.

    :param seed: of the trace.
    :param draws: seeds of the simulated service times.
    """

    rate: float
    seed: int
    draws: tuple[int, ...]
    measured: float

    def key(self) -> str:
        """Return what tells this run from any other, the text of scenario and policy included."""
        scenario = self.scenario()
        return key_of(self, scenario, policy().configuration(scenario), CAMERAS)

    def weight(self) -> float:
        """Return the seconds it takes."""
        return WARM_UP + self.measured

    def scenario(self) -> Scenario:
        """Return `paper` as far as the dispatcher's parameters go."""
        return load_scenario('paper', {
            'rate': self.rate, 'warm_up': WARM_UP, 'measured': self.measured,
            'lanes': {'balanced': {'out_of_order': False, 'late_by': None}}})

    def run(self) -> Row:
        """Play and simulate. :raises LiveError: if there are no real nodes."""
        scenario = self.scenario()
        workload = spread(workload_of(scenario, self.seed), scenario.robots)
        with tempfile.TemporaryDirectory(prefix='laimr-live-') as directory:
            live = play(scenario, policy().configuration(scenario), workload, Path(directory))
        simulated = [simulate(as_started(scenario, live.start_up_s), policy(), seed,
                              workload=workload) for seed in self.draws]
        return {'key': self.key(), **{k: v for k, v in asdict(self).items() if k != 'draws'},
                'draws': len(self.draws), 'frames': len(live.latency),
                **_numbers(live, simulated, scenario)}


def policy() -> Policy:
    """Return LA-IMR at the tuned limits."""
    return POLICIES['laimr']


def spread(workload: Workload, robots: int) -> Workload:
    """Return the same frames, those of each robot from its cameras in turn."""
    return replace(
        workload, robot=(workload.robot + robots * (workload.count % CAMERAS)).astype('int32'),
        count=workload.count // CAMERAS)


def as_started(scenario: Scenario, start_up: float) -> Scenario:
    """Return the scenario with replicas that start as fast as real ones did, in seconds."""
    return replace(scenario, pools={
        name: replace(pool, start_up=Lognormal(start_up, pool.start_up.cv))
        for name, pool in scenario.pools.items()})


def tasks(seeds: Sequence[int], measured: float | None) -> list[LiveRun]:
    """Return the runs: real time passes in them, so one of each rate."""
    return [LiveRun(rate, seeds[0], tuple(seeds), measured or MEASURED) for rate in RATES]


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    claims, table = [], []
    for row in rows:
        for side in ('live', 'simulated'):
            table.append([side, row['rate'], *(row[f'{side}_{name}_s'] for name in _QUANTILES),
                          *(row[f'{side}_{name}'] for name in (
                              'unanswered', 'offload_share', 'replicas'))])
        off = deviation(row['live_p99_s'], row['simulated_p99_s'])
        why = '' if abs(off) <= CLOSE else f'; why: {"; ".join(reasons(row))}'
        claims.append(Claim(
            f'{row["rate"]:g} frames/s: live and simulated P99 agree within {CLOSE:.0%}',
            'no comparison told',
            f'{row["live_p99_s"]:.3f} s live, {row["simulated_p99_s"]:.3f} s simulated '
            f'({off:+.1%}; simulated draws {row["simulated_low_s"]:.3f} to '
            f'{row["simulated_high_s"]:.3f} s){why}', judged(abs(off) <= CLOSE, off)))
    return Findings(
        claims, ['side', 'rate', 'P50 s', 'P95 s', 'P99 s', 'not answered', 'offloaded',
                 'replicas'],
        table, {'P99, live and simulated': ('rate', 'P99 s'),
                'P50, live and simulated': ('rate', 'P50 s')},
        [f'One run of each rate with real nodes at full time scale, {WARM_UP:g} s of warm-up not '
         f'counted; simulated: medians over {rows[0]["draws"]} draws of service times, the '
         "frames' times the same. Latency is from reception by the dispatcher to the result, over "
         'every frame of the trace.',
         'Live: dispatcher node, local bridge and worker processes on Unix sockets, started and '
         'ended as the dispatcher asks. Their detectors are emulated and use no CPU: they wait '
         "by the scenario's law, and know how many of their instance are at work; networks are "
         'emulated in front of them.',
         'Different from `table6-p99`, on both sides: frames are given up one SLO after their '
         f"deadline; each robot's frames come from {CAMERAS} cameras in turn, so that none is "
         'given up for a newer one. Simulated replicas start as fast as the real ones did here ('
         + ', '.join(f'{row["start_up_s"]:.2f} s' for row in rows) + ').'])


def deviation(live: float, simulated: float) -> float:
    """Return by what share the live number is above the simulated one; 0 if both are infinite."""
    if math.isinf(live) and math.isinf(simulated):
        return 0.0
    return math.inf if math.isinf(live) else (
        -1.0 if math.isinf(simulated) else live / simulated - 1.0)


def reasons(row: Row) -> list[str]:
    """Return why live and simulated numbers differ, as far as they tell."""
    found = []
    if row['lost']:
        found.append(f'{row["lost"]} frames never reached the dispatcher')
    overhead = max(row['overhead_s'], 0.0)
    gap = row['live_p99_s'] - row['simulated_p99_s']
    if overhead > 0.25 * abs(gap):
        found.append(f'sockets and processes add {overhead * 1e3:.0f} ms to the median frame')
    if abs(deviation(row['live_p50_s'], row['simulated_p50_s'])) > CLOSE:
        found.append(
            f'the whole distribution differs (median {row["live_p50_s"]:.3f} s against '
            f'{row["simulated_p50_s"]:.3f} s), not its tail alone')
    if abs(deviation(row['live_replicas'], row['simulated_replicas'])) > CLOSE:
        found.append(
            f'{row["live_replicas"]:.1f} replicas live and {row["simulated_replicas"]:.1f} '
            'simulated: scaling went another way')
    if row['simulated_low_s'] <= row['live_p99_s'] <= row['simulated_high_s']:
        found.append(f'within what service times do to the same frames ({row["draws"]} draws)')
    if row['late_s'] > 0.1:
        found.append(f'the machine was busy: a frame was published {row["late_s"]:.2f} s late')
    return found or ['nothing measured here explains it']


def _numbers(
    live: LiveResult, simulated: Sequence[RunResult], scenario: Scenario
) -> dict[str, Any]:
    p99s = sorted(result.quantile(0.99) for result in simulated)
    excess = [live.network_s[pool] - scenario.pools[pool].network.mean for pool in live.network_s]
    return {
        **{f'live_{name}_s': nearest_rank(live.latency, p) for name, p in _QUANTILES.items()},
        **{f'simulated_{name}_s': median(result.quantile(p) for result in simulated)
           for name, p in _QUANTILES.items()},
        'simulated_low_s': p99s[0], 'simulated_high_s': p99s[-1],
        'live_unanswered': float(sum(map(math.isinf, live.latency.tolist()))),
        'simulated_unanswered': float(median(result.dropped for result in simulated)),
        'live_offload_share': live.offload_share,
        'simulated_offload_share': median(result.offload_share for result in simulated),
        'live_replicas': live.replicas,
        'simulated_replicas': median(result.cost / result.measured_s for result in simulated),
        'overhead_s': max(excess, default=0.0), 'start_up_s': live.start_up_s,
        'lost': live.lost, 'late_s': live.late_s}
