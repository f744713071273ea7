"""``fig4-microservice``: a pool a model, or replicas that hold all models, on the same CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import Row
from laimr_ros.evaluation.simulated import Simulated
from laimr_ros.simulation.policies import crossed
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario

RATE = 4.0
#: Replicas of three CPUs that a layout's CPUs are worth.
SIZES = (6, 9, 12, 15, 18)
_CPUS = 3.0
# Less is no difference between costs.
_CHEAPER = 0.02
_CAPACITY = _CPUS * SIZES[-1]
#: Lanes, and the mean service time of the model of each on three idle CPUs, in seconds.
LANES = {'fast': ('efficientdet_lite0', 0.18), 'balanced': ('yolov5m', 0.73),
         'precise': ('yolov5x', 1.6)}
#: Layouts: how many replicas of three CPUs one replica is worth, and how much faster it is.
MONOLITHS = {'monolith': (3, 1.0), 'monolith 3 x faster': (3, 3.0), 'monolith of 3 CPUs': (1, 1.0)}
MICRO = 'microservice'
_TELLING = {
    'monolith': 'three times the CPUs, no faster',
    'monolith 3 x faster': 'three times the CPUs and the speed',
    'monolith of 3 CPUs': 'as many CPUs, all models in memory'}
# The paper's calibration of the model that takes 0.73 s; others run on another clock.
_ALPHA, _BETA, _GAMMA, _CV = 0.73, 1.29, 1.49, 0.15


def shares(size: int, rate: float = RATE) -> dict[str, int]:
    """Return each lane's replicas of a total: one each, the others where load is greatest."""
    scenario = load_scenario('mixed')
    total = sum(lane.share for lane in scenario.lanes.values())
    load = {name: rate * scenario.lanes[name].share / total * idle
            for name, (_, idle) in LANES.items()}
    given = dict.fromkeys(LANES, 1)
    for _ in range(size - len(LANES)):
        given[max(given, key=lambda name: load[name] / given[name])] += 1
    return given


def scenario_of(
    layout: str, size: int, measured: float | None, *, scaled: bool = False
) -> Scenario:
    """
    Return the world of one layout.

    :param size: replicas of three CPUs that all CPUs together are worth.
    :param scaled: whether that is the most there may be, rather than what there is.
    """
    none = dict.fromkeys(('min_replicas', 'max_replicas', 'initial_replicas'), 0)
    worth, speed = MONOLITHS.get(layout, (1, 1.0))
    pools: dict[str, Any] = dict.fromkeys(load_scenario('mixed').pools, none)
    if layout == MICRO:
        pools |= {name: _pool(count, 1, [name], 1.0, scaled, size)
                  for name, count in shares(size).items()}
    else:
        pools['monolith'] = _pool(size // worth, worth, list(LANES), speed, scaled, size)
    # A replica that is no faster for its CPUs keeps but three of them busy.
    idle_cpus = worth / speed
    overrides: dict[str, Any] = {
        'rate': RATE, 'pools': pools,
        'instances': {'edge': {'capacity': _CAPACITY * idle_cpus}},
        'models': {model: {'idle': idle / speed} for model, idle in LANES.values()},
        'lanes': {name: {'pools': [name if layout == MICRO else 'monolith']} for name in LANES}}
    if measured is not None:
        overrides['measured'] = measured
    return load_scenario('mixed', overrides)


def _pool(
    count: int, worth: int, lanes: Sequence[str], speed: float, scaled: bool, most: int
) -> dict[str, Any]:
    models = {}
    for name in lanes:
        model, idle = LANES[name]
        alpha = idle / speed
        models[model] = {
            'alpha': alpha, 'beta': _BETA * (alpha / _ALPHA) ** (1.0 + _GAMMA), 'gamma': _GAMMA,
            'cv': _CV}
    return {
        'instance': 'edge', 'cpus': _CPUS * worth, 'max_in_flight': 1, 'models': models,
        'min_replicas': 1 if scaled else count, 'initial_replicas': count,
        'max_replicas': most // worth if scaled else count,
        'network': {'mean': 0.004, 'cv': 0.3}, 'start_up': {'mean': 1.8, 'cv': 0.2}}


def tasks(seeds: Sequence[int], measured: float | None) -> list[Simulated]:
    """Return the runs: every size as it is, and the largest scaled by LA-IMR."""
    layouts = (MICRO, *MONOLITHS)
    made = [Simulated({'layout': layout, 'size': size, 'scaling': 'fixed'},
                      scenario_of(layout, size, measured), crossed('overflow', 'fixed'), seed)
            for layout in layouts for size in SIZES for seed in seeds]
    made += [Simulated({'layout': layout, 'size': SIZES[-1], 'scaling': 'laimr'},
                       scenario_of(layout, SIZES[-1], measured, scaled=True), POLICIES['laimr'],
                       seed)
             for layout in layouts for seed in seeds]
    return made


def cpu_seconds(row: Row) -> dict[str, float]:
    """
    Return what each lane cost in CPU-seconds.

    Of a pool of its own it is what the pool cost; of a shared one, the part that the lane's idle
    service times are of all.
    """
    if row['layout'] == MICRO:
        return {lane: _CPUS * row[f'{lane}:replica_seconds'] for lane in LANES}
    cost = _CPUS * MONOLITHS[row['layout']][0] * row['monolith:replica_seconds']
    work = {lane: row[f'{lane}:frames'] * idle for lane, (_, idle) in LANES.items()}
    total = sum(work.values())
    return {lane: cost * part / total if total else 0.0 for lane, part in work.items()}


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    cells: dict[tuple[str, str, int], dict[str, float]] = {}
    table = []
    for layout, scaling, size in dict.fromkeys(
            (row['layout'], row['scaling'], row['size']) for row in rows):
        own = [row for row in rows
               if (row['layout'], row['scaling'], row['size']) == (layout, scaling, size)]
        costs = [cpu_seconds(row) for row in own]
        cell = {'cost': median(sum(cost.values()) for cost in costs)}
        for number in ('mean_s', 'on_time', *(f'{lane}:p99_s' for lane in LANES)):
            cell[number] = float(median(row[number] for row in own))
        cells[layout, scaling, size] = cell
        # In charts by size a scaled run has no place.
        table.append([
            layout if scaling == 'fixed' else f'{layout}, scaled by LA-IMR',
            size if scaling == 'fixed' else float('nan'), cell['mean_s'], cell['on_time'],
            *(cell[f'{lane}:p99_s'] for lane in LANES), cell['cost'],
            *(median(cost[lane] for cost in costs) for lane in LANES)])
    tails = [f'P99 s, {lane}' for lane in LANES]
    return Findings(
        [*_fixed(cells), *_scaled(cells)],
        ['layout', 'size', 'mean s', 'on time', *tails, 'CPU-seconds',
         *(f'CPU-seconds, {lane}' for lane in LANES)], table,
        {'Mean latency over size': ('size', 'mean s'),
         **{f'{tail} over size': ('size', tail) for tail in tails}},
        [f'{RATE:g} frames/s of three lanes as in `mixed`, all on one instance of '
         f'{_CAPACITY:g} CPUs. Size: replicas of {_CPUS:g} CPUs that a layout has, or that the '
         f'CPUs of its larger ones are worth. Medians over {len({row["seed"] for row in rows})} '
         'seeds.',
         'The paper does not tell what its monolith does with its CPUs, so three are simulated: '
         + '; '.join(f'{name}: {text}' for name, text in _TELLING.items())
         + '. A replica serves one frame at a time. The first is the worst a monolith can be, '
         'the second the best; the third costs memory only, which is not counted.',
         'Microservices have one replica a lane, the others where the load is greatest. Frames '
         'are taken in the order of their deadlines. At one size every layout holds the same '
         'CPUs for the whole time; costs of lanes that share replicas are split by their work.'])


def _fixed(cells: Mapping[tuple[str, str, int], Mapping[str, float]]) -> list[Claim]:
    """Judge layouts at every size they have the same CPUs at."""
    claims = []
    for monolith in MONOLITHS:
        for number, text in (
                ('mean_s', 'mean latency'),
                *((f'{lane}:p99_s', f'P99 of lane {lane}') for lane in LANES)):
            pairs = [(cells[MICRO, 'fixed', size][number], cells[monolith, 'fixed', size][number])
                     for size in SIZES]
            claims.append(Claim(
                f'Microservices against {monolith} ({_TELLING[monolith]}), equal CPUs: {text} '
                'lower at every size', 'lower (Fig. 4)',
                ', '.join(f'{size}: {micro:.2f} to {other:.2f} s'
                          for size, (micro, other) in zip(SIZES, pairs)),
                judged(all(micro < other for micro, other in pairs),
                       *(value for pair in pairs for value in pair))))
    return claims


def _scaled(cells: Mapping[tuple[str, str, int], Mapping[str, float]]) -> list[Claim]:
    """Judge layouts whose replicas LA-IMR chooses: no later, and for less."""
    claims = []
    micro = cells[MICRO, 'laimr', SIZES[-1]]
    for monolith in MONOLITHS:
        other = cells[monolith, 'laimr', SIZES[-1]]
        claims.append(Claim(
            f'Scaled by LA-IMR, microservices have as many frames on time as {monolith} for at '
            f'least {_CHEAPER:.0%} fewer CPU-seconds', 'not told',
            f'{micro["on_time"]:.2%} to {other["on_time"]:.2%} on time, at '
            f'{micro["cost"] / other["cost"]:.2f} x its CPU-seconds',
            judged(micro['on_time'] >= other['on_time']
                   and micro['cost'] <= (1.0 - _CHEAPER) * other['cost'],
                   micro['on_time'], other['on_time'])))
    return claims
