"""``decision-time``: how long deciding takes, routing and scaling apart (R9)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import Row
from laimr_ros.evaluation.timed_run import CLOCKS, TimedRun

SCENARIOS = ('paper', 'mixed')
RATE = 6.0
#: Simulated seconds of a run, unless told otherwise: some thousand decisions.
MEASURED = 120.0
_MILLISECOND = 1000.0
# A decision that takes a smaller share of the service it is about does not matter.
_SMALL = 0.01
_PAPER = 'millisecond-scale, routing and scaling together'


def tasks(seeds: Sequence[int], measured: float | None) -> list[TimedRun]:
    """Return the runs."""
    overrides = {'rate': RATE, 'measured': measured or MEASURED}
    return [TimedRun(scenario, policy, seed, overrides, clock)
            for scenario in SCENARIOS for seed in seeds for policy in POLICIES for clock in CLOCKS]


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    def middle(scenario: str, policy: str, what: str, clock: str = 'wall') -> float:
        return float(median(
            row[what] for row in rows
            if (row['scenario'], row['policy'], row['clock']) == (scenario, policy, clock)))

    table = [[f'{scenario} {policy}', *(
        middle(scenario, policy, f'{part}_{what}_us', clock)
        for part in ('routing', 'scaling')
        for what, clock in (('p50', 'wall'), ('p99', 'wall'), ('p99', 'cpu'))),
        middle(scenario, policy, 'core_share', 'cpu')]
        for scenario in SCENARIOS for policy in POLICIES]
    claims = []
    for policy, called in (('laimr', 'LA-IMR'), ('laimr_paper', "The paper's algorithm")):
        for part in ('routing', 'scaling'):
            worst, worked = (
                max(middle(scenario, policy, f'{part}_p99_us', clock) for scenario in SCENARIOS)
                for clock in ('wall', 'cpu'))
            claims.append(Claim(
                f'{called}: a {part} decision takes at most a millisecond (P99, worst scenario)',
                _PAPER, f'{worst / _MILLISECOND:.3f} ms ({worked / _MILLISECOND:.3f} ms of CPU)',
                judged(worst <= _MILLISECOND, worst)))
    shares = {scenario: middle(scenario, 'laimr', 'routing_p99_us') * 1e-6
              / middle(scenario, 'laimr', 'service_s') for scenario in SCENARIOS}
    worst = max(shares.values())
    claims.append(Claim(
        f'LA-IMR: P99 of a routing decision at most {_SMALL:.0%} of the quickest service',
        'not told', f'{worst:.3%}', judged(worst <= _SMALL, *shares.values())))
    ratio = max(middle(scenario, 'laimr', 'scaling_p50_us')
                / middle(scenario, 'laimr', 'routing_p50_us') for scenario in SCENARIOS)
    claims.append(Claim(
        'LA-IMR: routing and scaling take about the same (medians within a factor of 2), so that '
        'one number tells both', 'told as one', f'scaling {ratio:.1f} x routing',
        judged(0.5 <= ratio <= 2.0, ratio)))
    return Findings(
        claims,
        ['scenario and policy', 'routing P50 us', 'routing P99 us', 'routing P99 us of CPU',
         'scaling P50 us', 'scaling P99 us', 'scaling P99 us of CPU', 'share of a core'],
        table, {},
        [f'Wall time in microseconds at {RATE:g} frames/s, {MEASURED:g} s a run unless told '
         'otherwise, one run at a time; medians over seeds of quantiles within a run. Where the '
         'same in CPU time is much less, others had the core meanwhile.',
         'Routing: one call of the controller for a frame that arrives, or for an answer, which '
         'may send the next frame. Scaling: one plan for all pools; LA-IMR plans twice a second, '
         'the others at their own beat. Share of a core: CPU of all calls over simulated time.',
         'Not in it: ROS, sockets, collecting garbage (which costs what the simulated world is '
         'large), and the time until a replica asked for is there.'])
