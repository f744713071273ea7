"""``discipline``: one queue or a queue a replica, by formula, simulation and dispatcher (R7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
import math
from statistics import fmean, median
from typing import Any

from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.queues import DISCIPLINES, unit_services, waits
from laimr_ros.evaluation.runs import key_of, Row, Run
from laimr_ros.latency.decay import Discipline
from laimr_ros.latency.queueing import mean_wait, wait_quantile
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import crossed
from laimr_ros.simulation.result import nearest_rank
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario
from laimr_ros.simulation.workload import Draws, lognormal_law, workload_of
import numpy as np

REPLICAS = (2, 4, 8, 16)
LOADS = (0.5, 0.7, 0.8, 0.9)
#: Coefficient of variation of service times: of M/M/c, and of a detector.
CVS = {'exponential': 1.0, 'lognormal': 0.15}
#: The dispatcher's ways: routing, frames a replica may have at a time, SLO in seconds.
DISPATCHED = {
    'overflow': ('overflow', 1, 600.0), 'laimr': ('laimr', 1, 600.0),
    'laimr, 2 in flight': ('laimr', 2, 600.0), 'laimr, SLO 1.8 s': ('laimr', 1, 1.8),
    'round_robin': ('round_robin', 1, 600.0)}
DISPATCHED_REPLICAS = (4, 8)
DISPATCHED_LOADS = (0.7, 0.9)
# Of a run, more where there are many queues, so that each sees enough of them.
_FRAMES, _FRAMES_EACH = 100_000, 10_000
_SERVICE = 0.73
_MEASURED = 1200.0
# How far off a formula, or the dispatcher on the very same frames, may be: a part of wait and
# mean service.
_NEAR, _SAME = 0.10, 0.02
# The formulas' names for what is simulated; least_predicted comes to nearly one queue.
_FORMULAS = {
    'pooled': Discipline.POOLED, 'round_robin': Discipline.ROUND_ROBIN,
    'random': Discipline.RANDOM, 'least_predicted': Discipline.POOLED}


@dataclass(frozen=True)
class Queue:
    """
    One run of equal servers with Poisson arrivals, times in mean service times.

    :param load: utilisation, 0 to 1 exclusive.
    :param law: of service times, a key of :data:`CVS`.
    """

    discipline: str
    law: str
    replicas: int
    load: float
    seed: int
    frames: int

    def key(self) -> str:
        """Return what tells this run from any other."""
        return key_of(self)

    def weight(self) -> float:
        """Return about what it takes; looking at every queue takes the longest."""
        return self.frames * (self.replicas if self.discipline == 'least_predicted' else 1.0)

    def run(self) -> Row:
        """Simulate; arrivals and services of a seed are common to all disciplines."""
        random = np.random.default_rng([self.seed, 1])
        gaps = random.exponential(1.0 / (self.load * self.replicas), self.frames)
        services = unit_services(self.law, CVS[self.law])(random, self.frames)
        found = waits(self.discipline, np.cumsum(gaps), services, self.replicas,
                      np.random.default_rng([self.seed, 2]))[self.frames // 10:]
        return {'key': self.key(), 'way': self.discipline, 'law': self.law,
                'replicas': self.replicas, 'load': self.load, 'seed': self.seed,
                'frames': float(len(found)), 'mean_wait': float(np.mean(found)),
                'p99_wait': nearest_rank(found, 0.99)}


@dataclass(frozen=True)
class Dispatched:
    """One run of the real controller over fixed replicas that nothing slows down."""

    way: str
    replicas: int
    load: float
    seed: int
    measured: float

    def key(self) -> str:
        """Return what tells this run from any other."""
        return key_of(self, self.scenario())

    def weight(self) -> float:
        """Return its frames, more where deciding takes long."""
        dear = 10.0 if self.way.startswith('laimr') else 2.0
        return self.replicas * self.load / _SERVICE * self.measured * dear

    def scenario(self) -> Scenario:
        """Return the world: one pool, no network, services of one law whatever the load."""
        bounds = ('min_replicas', 'max_replicas', 'initial_replicas')
        cv = CVS['lognormal']
        _, in_flight, slo = DISPATCHED[self.way]
        return load_scenario('paper', {
            'rate': self.load * self.replicas / _SERVICE, 'measured': self.measured,
            'arrivals': {'process': 'poisson'},
            'models': {'yolov5m': {'idle': _SERVICE, 'cv': cv}},
            'instances': {'edge': {'capacity': math.inf}},
            'lanes': {'balanced': {'pools': ['edge'], 'slo': slo}},
            'pools': {
                'edge': {
                    **dict.fromkeys(bounds, self.replicas), 'network': {'mean': 0.0, 'cv': 0.0},
                    'max_in_flight': in_flight,
                    'models': {'yolov5m': {'alpha': _SERVICE, 'beta': 0.0, 'cv': cv}}},
                'cloud': dict.fromkeys(bounds, 0)}})

    def run(self) -> Row:
        """
        Simulate; waits are what is left of latency without the service, which is known.

        Beside them, what the very same frames would wait without a dispatcher.
        """
        scenario = self.scenario()
        result = simulate(scenario, crossed(DISPATCHED[self.way][0], 'fixed'), self.seed)
        work, draws = workload_of(scenario, self.seed), Draws(self.seed)
        law = lognormal_law(1.0, CVS['lognormal'])
        services = np.array([law(draws.service(robot, count)) for robot, count in zip(
            work.robot.tolist(), work.count.tolist())])
        chosen = (work.time >= scenario.warm_up) & (work.time < scenario.end)
        # Without a network and hedging, clocks add up to rounding errors.
        found = np.maximum(0.0, result.latency / _SERVICE - services[chosen])
        alike = waits(like(self.way), work.time / _SERVICE, services, self.replicas,
                      np.random.default_rng())[chosen]
        return {'key': self.key(), 'way': f'dispatcher: {self.way}', 'law': 'lognormal',
                'replicas': self.replicas, 'load': self.load, 'seed': self.seed,
                'frames': float(len(found)), 'mean_wait': float(np.mean(found)),
                'p99_wait': nearest_rank(found, 0.99), 'on_time': result.on_time(),
                'alike_mean': float(np.mean(alike)), 'alike_p99': nearest_rank(alike, 0.99)}


def like(way: str) -> str:
    """Return the discipline that a way of the dispatcher is expected to come to."""
    return 'round_robin' if way == 'round_robin' else 'pooled'


def tasks(seeds: Sequence[int], measured: float | None) -> list[Run]:
    """Return the runs; seconds to measure are of the dispatcher's, others count frames."""
    made: list[Run] = [
        Queue(discipline, law, replicas, load, seed, max(_FRAMES, _FRAMES_EACH * replicas))
        for law in CVS for replicas in REPLICAS for load in LOADS
        for discipline in DISCIPLINES for seed in seeds]
    made += [Dispatched(way, replicas, load, seed, _MEASURED if measured is None else measured)
             for way in DISPATCHED for replicas in DISPATCHED_REPLICAS
             for load in DISPATCHED_LOADS for seed in seeds]
    return made


@dataclass(frozen=True)
class Cell:
    """
    Means over seeds of one way of queueing, and what formulas say, in mean service times.

    :param formula_mean: by the formula of this way; so is ``formula_p99``.
    :param pooled_mean: by M/G/c, whatever the way; so is ``pooled_p99``.
    """

    way: str
    law: str
    replicas: int
    load: float
    mean: float
    p99: float
    formula_mean: float = 0.0
    formula_p99: float = 0.0
    pooled_mean: float = 0.0
    pooled_p99: float = 0.0


def cells_of(rows: Sequence[Row]) -> list[Cell]:
    """Return one cell for each way, law, number of replicas and load, in the order of rows."""
    kept: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        kept.setdefault(
            (row['way'], row['law'], row['replicas'], row['load']), []).append(row)
    cells = []
    for (way, law, replicas, load), own in kept.items():
        name = way.removeprefix('dispatcher: ')
        cell = Cell(way, law, replicas, load, fmean(row['mean_wait'] for row in own),
                    fmean(row['p99_wait'] for row in own))
        mine, pooled = (
            (mean_wait(load * replicas, 1.0, replicas, cs2=CVS[law] ** 2, discipline=discipline),
             wait_quantile(0.99, load * replicas, 1.0, replicas, cs2=CVS[law] ** 2,
                           discipline=discipline))
            for discipline in (_FORMULAS.get(name, Discipline.POOLED), Discipline.POOLED))
        cells.append(replace(
            cell, formula_mean=mine[0], formula_p99=mine[1], pooled_mean=pooled[0],
            pooled_p99=pooled[1]))
    return cells


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    cells = cells_of(rows)
    numbers = [f'{what}, {law}' for law in CVS for what in ('mean wait', 'P99 wait')]
    table = []
    for cell in cells:
        blank = [math.nan] * len(numbers)
        place = list(CVS).index(cell.law) * 2
        blank[place:place + 2] = [cell.mean, cell.p99]
        table.append([f'c={cell.replicas} {cell.way}', cell.load, *blank, cell.formula_mean,
                      cell.formula_p99, cell.pooled_mean, cell.pooled_p99])
    return Findings(
        [*_formulas(cells), *_pooled_for_split(cells), *_dispatcher(rows)],
        ['series', 'load', *numbers, 'formula, mean', 'formula, P99', 'M/G/c, mean',
         'M/G/c, P99'], table,
        {f'{number} over utilisation': ('load', number) for number in numbers},
        ['Poisson arrivals, service times exponential or log-normal with a coefficient of '
         f'variation of {CVS["lognormal"]}; waits in mean service times, means over '
         f'{len({row["seed"] for row in rows})} seeds of {_FRAMES} frames or more, a tenth left '
         'out.',
         'least_predicted: pushed to the replica whose work would end first if every service '
         'took its mean. With true service times it would be one queue exactly.',
         'dispatcher: the controller itself over fixed replicas that load does not slow down, '
         'without network. It is held against the same frames in a queue without a dispatcher. '
         'With one frame a replica at a time, frames wait in the dispatcher: one queue. With an '
         'SLO that not all can keep, LA-IMR serves late frames last: the mean stays, P99 does '
         'not.',
         'Errors are parts of the wait plus one mean service, so that a wait of nearly nothing '
         'cannot make them large.'])


def _error(says: float, true: float) -> float:
    """Return by which part of wait and mean service one is off."""
    return (says - true) / (true + 1.0)


def _formulas(cells: Sequence[Cell]) -> list[Claim]:
    claims = []
    for discipline in DISCIPLINES:
        own = [cell for cell in cells if cell.way == discipline]
        mean = max((_error(cell.formula_mean, cell.mean) for cell in own), key=abs)
        tail = max((_error(cell.formula_p99, cell.p99) for cell in own), key=abs)
        by = 'one queue' if discipline == 'least_predicted' else 'its own'
        claims.append(Claim(
            f'{discipline}: mean and P99 by the formula, {by}, within {_NEAR:.0%}', 'not told',
            f'at worst {mean:+.1%} and {tail:+.1%} of {len(own)} cells',
            judged(max(abs(mean), abs(tail)) <= _NEAR, mean, tail)))
    return claims


def _pooled_for_split(cells: Sequence[Cell]) -> list[Claim]:
    """Judge what the paper does: one queue in the formula, a queue a replica in practice."""
    claims = []
    for discipline in ('round_robin', 'random'):
        own = [cell for cell in cells if cell.way == discipline]
        errors = [_error(cell.pooled_p99, cell.p99) for cell in own]
        times = sorted(cell.mean / cell.pooled_mean for cell in own if cell.pooled_mean > 0.0)
        worst = max(errors, key=abs)
        claims.append(Claim(
            f'{discipline}: the formula of one queue says the P99 within {_NEAR:.0%}',
            'taken for granted (M/M/c with a queue a replica)',
            f'at worst {worst:+.1%}; the true mean wait is {times[0]:.1f} to {times[-1]:.0f} '
            f'times the one told, {median(times):.1f} in the middle',
            judged(max(abs(error) for error in errors) <= _NEAR, *errors)))
    return claims


def _dispatcher(rows: Sequence[Row]) -> list[Claim]:
    claims = []
    for way in DISPATCHED:
        own = [row for row in rows if row['way'] == f'dispatcher: {way}']
        mean = max((_error(row['mean_wait'], row['alike_mean']) for row in own), key=abs)
        tail = max((_error(row['p99_wait'], row['alike_p99']) for row in own), key=abs)
        text = 'one queue' if like(way) == 'pooled' else 'a queue a replica in turns'
        claims.append(Claim(
            f'The dispatcher ({way}) lets the same frames wait as {text} does: mean and P99 '
            f'within {_SAME:.0%}', 'not told',
            f'at worst {mean:+.1%} and {tail:+.1%} of {len(own)} runs'
            + ' (infinite: frames not answered)' * math.isinf(mean),
            judged(max(abs(mean), abs(tail)) <= _SAME, mean, tail)))
    return claims
