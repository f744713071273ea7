"""``scale``: what the controller costs, from ten robots to ten thousand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import math
from statistics import median
from typing import Any

from laimr_ros.control.nouns import Limits
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import Row
from laimr_ros.evaluation.timed_run import TimedRun
from laimr_ros.simulation.scenario_files import load_scenario
import numpy as np

ROBOTS = (10, 100, 1000, 3000, 10_000)
POLICIES = ('laimr', 'laimr_paper', 'reactive_latency')
WARM_UP = 10.0
#: Frames measured in a run, about, unless its seconds are told.
FRAMES = 2000.0
# Fewer seconds would be a picture of the start only, more of the same again and again.
_LEAST, _MOST = 10.0, 600.0
#: So many seeds are enough for medians of times.
SEEDS = 3
_MILLISECOND = 1000.0
# Of the time between two scaling decisions; routing has to wait meanwhile.
_SHARE = 0.01
# Where one dispatcher has so much of a core to itself, the node around it has the rest.
_BUSY = 0.5


def tasks(seeds: Sequence[int], measured: float | None) -> list[TimedRun]:
    """Return the runs."""
    made = []
    for robots in ROBOTS:
        for dispatchers in sizes(robots):
            overrides = fleet(robots, dispatchers, measured)
            made += [TimedRun('fleet', policy, seed, overrides, 'cpu')
                     for seed in seeds[:SEEDS] for policy in POLICIES]
    return made


def sizes(robots: int) -> tuple[int, ...]:
    """Return for how many dispatchers so many robots are simulated: one, and as the fleet has."""
    whole = load_scenario('fleet')
    return tuple(dict.fromkeys((1, max(1, robots * whole.dispatchers // whole.robots))))


def fleet(robots: int, dispatchers: int, measured: float | None) -> dict[str, Any]:
    """Return what differs from the scenario for a part of its fleet: all in proportion."""
    whole = load_scenario('fleet')
    part = robots / whole.robots
    rate = whole.rate * part
    pools = {}
    for name, pool in whole.pools.items():
        most = max(2 * dispatchers, math.ceil(pool.max_replicas * part))
        pools[name] = {
            'min_replicas': dispatchers, 'max_replicas': most,
            'initial_replicas': max(dispatchers, round(pool.initial_replicas * part))}
    instances = {whole.pools[name].instance: {
        'capacity': whole.pools[name].cpus * counts['max_replicas']}
        for name, counts in pools.items()}
    return {'robots': robots, 'rate': rate, 'dispatchers': dispatchers, 'warm_up': WARM_UP,
            'measured': measured or min(_MOST, max(_LEAST, FRAMES / rate)), 'pools': pools,
            'instances': instances}


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    def middle(policy: str, robots: int, dispatchers: int, what: str) -> float:
        return float(median(
            row[what] for row in rows
            if (row['policy'], row['robots'], row['dispatchers']) == (
                policy, robots, dispatchers)))

    names = ('rate', 'replicas', 'routing_p50_us', 'routing_p99_us', 'scaling_p50_us',
             'scaling_p99_us', 'frame_us', 'core_share')
    table = []
    for policy in POLICIES:
        for robots in ROBOTS:
            for dispatchers in sizes(robots):
                series = policy if dispatchers == 1 else f'{policy}, {dispatchers} dispatchers'
                table.append([series, float(robots), *(
                    middle(policy, robots, dispatchers, name) for name in names)])
    most, many = ROBOTS[-1], sizes(ROBOTS[-1])[-1]

    def growth_of(policy: str, what: str) -> float:
        return growth({robots: middle(policy, robots, 1, what) for robots in ROBOTS})

    exponents = {policy: {what: growth_of(policy, what)
                          for what in ('routing_p50_us', 'scaling_p50_us')}
                 for policy in POLICIES}
    laimr = exponents['laimr']
    routing = middle('laimr', most, 1, 'routing_p99_us')
    scaling = middle('laimr', most, 1, 'scaling_p99_us')
    alone, shared = (middle('laimr', most, count, 'core_share') for count in (1, many))
    claims = [
        Claim(f'LA-IMR, {most:,} robots on one dispatcher: P99 of a routing decision at most 1 ms',
              'not told at this size', f'{routing / _MILLISECOND:.3f} ms',
              judged(routing <= _MILLISECOND, routing)),
        Claim(f'LA-IMR, {most:,} robots on one dispatcher: P99 of a scaling decision at most 1 ms',
              'not told at this size', f'{scaling / _MILLISECOND:.3f} ms',
              judged(scaling <= _MILLISECOND, scaling)),
        Claim(f'LA-IMR, {most:,} robots on one dispatcher: P99 of a scaling decision at most '
              f'{_SHARE:.0%} of the {Limits().scale_interval:g} s between two',
              'not told at this size', f'{scaling / _MILLISECOND:.3f} ms',
              judged(scaling * 1e-6 <= _SHARE * Limits().scale_interval, scaling)),
        *(Claim(f'LA-IMR: a {part} decision grows slower than the fleet (exponent at most 0.5)',
                'not told', f'robots ** {laimr[f"{part}_p50_us"]:.2f}',
                judged(laimr[f'{part}_p50_us'] <= 0.5, laimr[f'{part}_p50_us']))
          for part in ('routing', 'scaling')),
        Claim(f'LA-IMR, {most:,} robots: the controller leaves one dispatcher half a core',
              'not told', f'it takes {alone:.1%} of a core', judged(alone <= _BUSY, alone)),
        Claim(f'LA-IMR, {most:,} robots on {many} dispatchers: it leaves each half a core',
              'not told', f'it takes {shared:.1%} of a core each',
              judged(shared <= _BUSY, shared))]
    return Findings(
        claims,
        ['series', 'robots', 'frames/s', 'replicas at most', 'routing P50 us', 'routing P99 us',
         'scaling P50 us', 'scaling P99 us', 'controller us a frame', 'share of a core'],
        table,
        {'Routing decision over robots': ('robots', 'routing P50 us'),
         'Scaling decision over robots': ('robots', 'scaling P50 us'),
         'Controller per frame over robots': ('robots', 'controller us a frame')},
        ['CPU time of the controller alone in microseconds, no garbage collected meanwhile; ROS '
         'and sockets are in `python -m benchmarks.dispatch`. Medians over the first '
         f'{SEEDS} seeds of quantiles within a run.',
         'Scenario `fleet` in proportion, its rate and its replicas a robot the same at every '
         f'size; {WARM_UP:g} s of warm-up, then about {FRAMES:g} frames in {_LEAST:g} to '
         f'{_MOST:g} s. Share of a core: all calls over simulated time, of one dispatcher.',
         'Exponents of growth with one dispatcher, least squares of logarithms: ' + '; '.join(
             f'{policy} routing {values["routing_p50_us"]:.2f}, scaling '
             f'{values["scaling_p50_us"]:.2f}' for policy, values in exponents.items())])


def growth(costs: Mapping[int, float]) -> float:
    """Return the exponent of the power law that is nearest in logarithms; NaN without any cost."""
    if not all(0.0 < cost < math.inf for cost in costs.values()):
        return math.nan
    return float(np.polyfit(np.log(list(costs)), np.log(list(costs.values())), 1)[0])
