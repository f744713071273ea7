"""``fig3-latency-growth``: latency over the arrival rate at fixed replicas, and its prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import math
from statistics import median
from typing import Any

from laimr_ros.control.paper import mean_wait_and_service
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import Row
from laimr_ros.evaluation.simulated import Simulated
from laimr_ros.evaluation.tuning import SEED_OFFSET
from laimr_ros.latency.burstiness import Burstiness, queue_time_scale
from laimr_ros.latency.end_to_end import LatencyModel
from laimr_ros.latency.model import Network, PowerLaw
from laimr_ros.latency.search import largest
from laimr_ros.simulation.policies import crossed
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario
from laimr_ros.simulation.service_model import shared_instance, SharedInstance
from laimr_ros.simulation.workload import make_workload
import numpy as np

PROCESSES = ('poisson', 'bounded_pareto')
REPLICAS = (2, 4, 6, 8)
RATES = tuple(0.5 * k for k in range(1, 13))
#: A rate that no number of replicas here keeps up with: what is answered then is the capacity.
OVERLOAD = 12.0
_MEASURED = 600.0
# Up to this share of the capacity a steady state is reached in the time there is.
_STABLE = 0.9
# What an error of a prediction may be.
_MEAN_ERROR, _TAIL_ERROR, _CAPACITY_ERROR = 0.10, 0.15, 0.05
_P = 0.99


def scenario_of(process: str, replicas: int, rate: float, measured: float | None) -> Scenario:
    """Return a world whose edge keeps its replicas and has no cloud beside it."""
    lane: dict[str, Any] = {'pools': ['edge']}
    if rate == OVERLOAD:
        lane['max_queue'] = 20  # What is answered is then all that counts.
    return load_scenario('paper', {
        'rate': rate, 'measured': _MEASURED if measured is None else measured,
        'arrivals': {'process': process}, 'lanes': {'balanced': lane},
        'pools': {
            'edge': dict.fromkeys(
                ('min_replicas', 'max_replicas', 'initial_replicas'), replicas),
            'cloud': dict.fromkeys(
                ('min_replicas', 'max_replicas', 'initial_replicas'), 0)}})


def tasks(seeds: Sequence[int], measured: float | None) -> list[Simulated]:
    """Return the runs; one seed is enough to see a capacity."""
    made = []
    for process in PROCESSES:
        for replicas in REPLICAS:
            for rate in (*RATES, OVERLOAD):
                made += [Simulated(
                    {'process': process, 'replicas': replicas},
                    scenario_of(process, replicas, rate, measured), crossed('overflow', 'fixed'),
                    seed, robot=0)
                    for seed in (seeds if rate != OVERLOAD else seeds[:1])]
    return made


@dataclass(frozen=True)
class Predicted:
    """
    What is predicted for one rate and number of replicas, in seconds.

    :param mean: by the exact form; so are the following.
    :param p99: wait, service and network taken as independent.
    :param bound: P99 by the union bound, which needs no independence.
    :param fit_mean: by the power law of the paper's calibration; so is the following.
    :param paper_mean: by the paper's M/M/c and the same power law.
    """

    mean: float
    p99: float
    bound: float
    fit_mean: float
    fit_p99: float
    paper_mean: float


def forms(scenario: Scenario) -> tuple[SharedInstance, PowerLaw]:
    """Return the service time of the edge: by the exact form, and as the paper fitted it."""
    return (shared_instance(scenario, 'edge', 'yolov5m'),
            scenario.pools['edge'].models['yolov5m'])


def predicted(scenario: Scenario, burstiness: Burstiness) -> Predicted:
    """
    Return what the product's formulas say of a world.

    :param burstiness: of arrivals like those of the world, measured elsewhere.
    """
    pool = scenario.pools['edge']
    rate, replicas = scenario.rate, pool.max_replicas
    network = Network(pool.network.mean, pool.network.cv)
    models = []
    for service in forms(scenario):
        scale = queue_time_scale(
            rate, service.mean(rate, replicas) + network.mean, replicas)
        ca2 = burstiness.ca2(scale if scale < math.inf else None)
        models.append((LatencyModel(service, network, ca2=ca2, independent=True),
                       LatencyModel(service, network, ca2=ca2)))
    (exact, bound), (fit, _) = models
    wait, alone = mean_wait_and_service(fit.service, rate, replicas)
    return Predicted(
        exact.mean(rate, replicas), exact.quantile(_P, rate, replicas),
        bound.quantile(_P, rate, replicas), fit.mean(rate, replicas),
        fit.quantile(_P, rate, replicas), wait + alone + network.mean)


def measured_burstiness(scenario: Scenario) -> Burstiness:
    """Return the burstiness of other arrivals of the same law, as the dispatcher measures it."""
    seen = Burstiness()
    times = make_workload(scenario, SEED_OFFSET + 1).time
    counts, _ = np.histogram(times, np.arange(0.0, scenario.end, seen.tick))
    for count in counts.tolist():
        seen.add(count)
    return seen


def saturation(scenario: Scenario, form: SharedInstance | PowerLaw) -> float:
    """Return the rate from which on a form says that the edge does not keep up, in frames/s."""
    replicas = scenario.pools['edge'].max_replicas
    model = LatencyModel(form, Network(scenario.pools['edge'].network.mean, 0.0))
    return largest(lambda rate: rate * model.occupancy(rate, replicas) < replicas,
                   replicas / form.mean(0.0, replicas))


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    cells: dict[tuple[str, int, float], list[Row]] = {}
    lines: dict[tuple[str, int, float], tuple[dict[str, float], Predicted]] = {}
    for row in rows:
        cells.setdefault((row['process'], row['replicas'], row['rate']), []).append(row)
    capacity = {
        (process, replicas): median(
            (row['frames'] - row['dropped']) / row['measured']
            for row in cells[process, replicas, OVERLOAD])
        for process in PROCESSES for replicas in REPLICAS}
    seen = {(process, rate): measured_burstiness(scenario_of(process, 1, rate, None))
            for process in PROCESSES for rate in RATES}
    stable = []
    for (process, replicas, rate), own in cells.items():
        if rate == OVERLOAD:
            continue
        told = predicted(scenario_of(process, replicas, rate, None), seen[process, rate])
        line = {name: float(median(row[name] for row in own)) for name in (
            'mean_s', 'p95_s', 'p99_s', 'robot_mean_s', 'robot_p95_s', 'robot_p99_s')}
        lines[process, replicas, rate] = line, told
        if rate <= _STABLE * capacity[process, replicas]:
            stable.append((process, replicas, rate, line, told))
    table = []
    for replicas in REPLICAS:
        for rate in RATES:
            both = [lines[process, replicas, rate] for process in PROCESSES]
            for what, values in (
                    ('simulated', [(n['mean_s'], n['p95_s'], n['p99_s']) for n, _ in both]),
                    ('predicted', [(t.mean, math.nan, t.p99) for _, t in both]),
                    ('union bound', [(math.nan, math.nan, t.bound) for _, t in both]),
                    ("paper's fit", [(t.fit_mean, math.nan, t.fit_p99) for _, t in both])):
                table.append([
                    f'N={replicas} {what}', rate, rate / capacity[PROCESSES[0], replicas],
                    *(value for three in values for value in three)])
    claims = [*_growth(stable), *_errors(stable), *_saturation(capacity)]
    numbers = [f'{number}, {process}' for process in PROCESSES
               for number in ('mean s', 'P95 s', 'P99 s')]
    return Findings(
        claims, ['series', 'rate', 'load', *numbers], table,
        {f'{number} over arrival rate': ('rate', number) for number in numbers
         if 'P95' not in number},
        ['One pool of fixed replicas on the edge instance of `paper`, no cloud, one queue. '
         f'Medians over {len({row["seed"] for row in rows})} seeds; '
         f'{rows[0]["measured"]:g} s measured after warm-up.',
         f'Load: rate over the capacity, which is what was answered per second at {OVERLOAD:g}/s '
         f'offered. Claims look at loads up to {_STABLE:g}; beyond, a run is too short for a '
         'steady state.',
         'The exact form is told the law by which the simulation slows services down, so its '
         'error is that of the queueing formulas, of taking wait and service for independent and '
         "of taking utilisation at its mean. The paper's fit is its power law in the rate of a "
         'replica with its own numbers; the world here follows the utilisation form of the same '
         'paper, so its error is that of taking one form for the other (R1).',
         'Burstiness of bounded-Pareto arrivals is measured as the dispatcher does, on a seed of '
         'tuning.'])


def _growth(
    stable: Sequence[tuple[str, int, float, Mapping[str, float], Predicted]]
) -> list[Claim]:
    """Judge whether latency lies under the straight line between the ends at the middle rate."""
    claims = []
    for name, what in (('mean', 'robot_mean_s'), ('P95', 'robot_p95_s'), ('P99', 'robot_p99_s')):
        told, convex, seen = [], [], []
        for replicas in REPLICAS:
            points = sorted((rate, line[what]) for process, own, rate, line, _ in stable
                            if (process, own) == ('bounded_pareto', replicas))
            share = _half_way(points)
            told.append(f'N={replicas} {share:.0%}')
            convex.append(share < 0.5)
            seen += [value for _, value in points] if len(points) > 2 else [math.nan]
        claims.append(Claim(
            f'One robot: {name} latency grows faster than linearly with the arrival rate '
            '(half-way in rate, less than half of the rise)', 'super-linear', ', '.join(told),
            judged(all(convex), *seen)))
    return claims


def _half_way(points: Sequence[tuple[float, float]]) -> float:
    """Return what part of the rise has come at the middle of the rates; NaN if there is none."""
    if len(points) < 3 or not points[-1][1] > points[0][1]:
        return math.nan
    rates, values = zip(*points)
    middle = float(np.interp(0.5 * (rates[0] + rates[-1]), rates, values))
    return (middle - float(values[0])) / float(values[-1] - values[0])


def _errors(
    stable: Sequence[tuple[str, int, float, Mapping[str, float], Predicted]]
) -> list[Claim]:
    """Judge predictions by their largest error."""
    claims = []
    for process in PROCESSES:
        own = [(line, told) for other, _, _, line, told in stable if other == process]
        for text, what, limit, errors in (
                ('mean by the exact form', 'mean', _MEAN_ERROR,
                 [told.mean / line['mean_s'] - 1.0 for line, told in own]),
                ('P99 by the exact form', 'P99', _TAIL_ERROR,
                 [told.p99 / line['p99_s'] - 1.0 for line, told in own]),
                ("mean by the paper's fit", 'mean', _MEAN_ERROR,
                 [told.fit_mean / line['mean_s'] - 1.0 for line, told in own]),
                ("mean by the paper's fit and its M/M/c", 'mean', _MEAN_ERROR,
                 [told.paper_mean / line['mean_s'] - 1.0 for line, told in own]),
                ("P99 by the paper's fit", 'P99', _TAIL_ERROR,
                 [told.fit_p99 / line['p99_s'] - 1.0 for line, told in own])):
            sizes = [abs(error) for error in errors]
            worst = max(errors, key=abs) if errors else math.nan
            claims.append(Claim(
                f'{process}: {text} within {limit:.0%} of the simulated {what}', 'not told',
                f'median error {median(sizes):.1%}, worst '
                + (f'{worst:+.1%}' if worst < math.inf else 'a saturation that is none')
                + f', of {len(own)} cells' if own else 'no cell',
                judged(max(sizes) <= limit, *sizes) if own else None))
        short = [told.bound / line['p99_s'] - 1.0 for line, told in own]
        claims.append(Claim(
            f'{process}: the union bound of P99 is nowhere below the simulated P99', 'not told',
            f'{min(short):+.1%} to {max(short):+.1%}' if short else 'no cell',
            judged(min(short) >= 0.0, *short) if short else None))
    return claims


def _saturation(capacity: Mapping[tuple[str, int], float]) -> list[Claim]:
    claims = []
    for text, form in (('the exact form', 0), ("the paper's fit", 1)):
        told, errors = [], []
        for replicas in REPLICAS:
            scenario = scenario_of('poisson', replicas, 1.0, None)
            says = saturation(scenario, forms(scenario)[form])
            true = capacity['poisson', replicas]
            told.append(f'N={replicas} {says:.2f} for {true:.2f}/s')
            errors.append(abs(says / true - 1.0) if true > 0.0 else math.inf)
        claims.append(Claim(
            f'Saturation by {text} within {_CAPACITY_ERROR:.0%} of the simulated capacity',
            'not told', ', '.join(told),
            judged(max(errors) <= _CAPACITY_ERROR, *errors)))
    return claims
