"""``frozen``: parameters made on one trace, run unchanged on all others (the paper's fault R6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import functools
from statistics import fmean

from laimr_ros.evaluation import tuning
from laimr_ros.evaluation.answers import simulate_answers
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import key_of, Row
from laimr_ros.evaluation.told import Models, models_of, Told, told
from laimr_ros.latency.calibration import calibrate
from laimr_ros.latency.fitting import Observations
from laimr_ros.latency.model import ServiceModel
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario
import numpy as np

#: Where everything that is frozen was made.
HOME = ('paper', 4.0)
PLACES = (
    HOME, ('paper', 1.0), ('paper', 2.0), ('paper', 6.0), ('edge_only', 3.0), ('surge', 4.0),
    ('periodic', 4.0), ('mmpp', 4.0), ('drift', 4.0), ('flaky', 4.0), ('tight', 4.0),
    ('mixed', 4.0))
#: ``frozen``: service times calibrated and settings tuned on one trace of :data:`HOME`;
#: ``shipped``: those that `paper` is told, and the settings of all experiments; ``tuned``: those
#: that the scenario is told, and settings tuned on one trace of it.
VARIANTS = ('frozen', 'shipped', 'tuned')
MEASURED_S, WARM_UP_S = 160.0, 60.0
TRACE_SEED = tuning.SEED_OFFSET + 1
_TRACE_S = 600.0
_SERVED_BY = ('capacity_rule', 'laimr')
_TUNED_S = 150.0
# A trace with fewer frames of a pool says too little of it.
_LEAST_FRAMES = 100
_BLOCK_S = 60.0
#: Late frames that a setting may have to be called good enough; those more that frozen parameters
#: may have than tuned ones, and how many times as dear they may be.
LATE, MORE, DEARER = 0.01, 0.01, 1.25
#: Coverage may fall short of what is asked for by so much.
SHORT = 0.01


@dataclass(frozen=True)
class Unchanged:
    """
    One simulated run of `laimr`.

    :param variant: one of :data:`VARIANTS`.
    """

    scenario: str
    rate: float
    variant: str
    seed: int
    measured: float

    def key(self) -> str:
        """Return what tells this run from any other, scenario, policy and grid included."""
        return key_of(self, self._scenario(), load_scenario(HOME[0]), POLICIES['laimr'],
                      grid(), [POLICIES[name] for name in _SERVED_BY])

    def weight(self) -> float:
        """Return the frames it has."""
        return self.rate

    def run(self) -> Row:
        """Simulate; return its numbers, coverage among them."""
        scenario = self._scenario()
        policy = self._policy()
        result, answers = simulate_answers(scenario, policy, self.seed)
        return {'key': self.key(), 'scenario': self.scenario, 'rate': self.rate,
                'variant': self.variant, 'seed': self.seed, 'measured': self.measured,
                'quantile': policy.configuration(scenario).limits.routing_quantile,
                'coverage': answers.coverage(), 'told_coverage': answers.told_coverage(),
                'settings_used': dict(policy.limits),
                'models_told': {f'{pool}, {model}': str(law) for pool, laws in
                                policy.models.items() for model, law in laws.items()},
                **result.summary()}

    def _scenario(self) -> Scenario:
        return _world(self.scenario, self.rate, self.measured)

    def _policy(self) -> Told:
        shipped = POLICIES['laimr']
        if self.variant == 'shipped':
            return told(shipped, models_of(shipped, load_scenario(HOME[0])))
        if self.variant == 'tuned':
            return told(shipped.tuned(**dict(tuned(self.scenario, self.rate))), {})
        return told(shipped.tuned(**dict(tuned(*HOME))), calibrated())


@functools.lru_cache(maxsize=1)
def calibrated() -> Models:
    """Return service times as the frames of one trace of :data:`HOME` tell them, by pool."""
    scenario = _world(*HOME, _TRACE_S)
    # Two that rather fill different pools.
    served = [simulate_answers(scenario, POLICIES[name], TRACE_SEED)[1] for name in _SERVED_BY]
    models: dict[str, dict[str, ServiceModel]] = {}
    for name, pool in scenario.pools.items():
        own = [(a.pool == name) & np.isfinite(a.service) for a in served]
        load, service, block = (np.concatenate(parts) for parts in zip(*(
            (a.load[o], a.service[o], k * _TRACE_S + a.created[o] // _BLOCK_S)
            for k, (a, o) in enumerate(zip(served, own)))))
        if len(load) >= _LEAST_FRAMES:
            seen = Observations(load, service, block)
            law = calibrate(seen, np.zeros(len(seen), bool)).power_law()
            models[name] = dict.fromkeys(pool.models, law)
    return models


@functools.lru_cache(maxsize=64)
def tuned(scenario: str, rate: float) -> tuple[tuple[str, float], ...]:
    """
    Return the settings of `laimr` that one trace of a scenario says are best.

    The cheapest with at most 1 % of the frames late; if none has, those with the fewest.
    """
    world = _world(scenario, rate, _TUNED_S)

    def rank(settings: tuple[tuple[str, float], ...]) -> tuple[float, float]:
        result = simulate(world, POLICIES['laimr'].tuned(**dict(settings)), TRACE_SEED)
        return max(LATE, 1.0 - result.on_time()), result.cost

    return min(grid(), key=rank)


def grid() -> list[tuple[tuple[str, float], ...]]:
    """Return the values of what matters most, as `tuning` has them; the rest as shipped."""
    name, values = next(iter(tuning.GRIDS['laimr'].items()))
    return [((name, value),) for value in values]


def _world(scenario: str, rate: float, measured: float) -> Scenario:
    return load_scenario(scenario, {'rate': rate, 'measured': measured, 'warm_up': WARM_UP_S})


def tasks(seeds: Sequence[int], measured: float | None) -> list[Unchanged]:
    """Return the runs."""
    return [Unchanged(scenario, rate, variant, seed, measured or MEASURED_S)
            for scenario, rate in PLACES for variant in VARIANTS for seed in seeds]


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    claims, table = [], []
    for scenario, rate in PLACES:
        name = f'{scenario} {rate:g}/s'
        means = {}
        for variant in VARIANTS:
            own = [row for row in rows if (row['scenario'], row['rate'], row['variant']) == (
                scenario, rate, variant)]
            mean = means[variant] = {what: fmean(row[what] for row in own) for what in (
                'on_time', 'p99_s', 'replica_seconds', 'coverage', 'told_coverage', 'quantile')}
            low = min(row['coverage'] for row in own)
            table.append([
                name, variant, mean['on_time'], mean['p99_s'], mean['replica_seconds'],
                mean['quantile'], mean['coverage'], low, mean['told_coverage'],
                ', '.join(f'{key}={value:g}' for key, value in own[0]['settings_used'].items())])
        frozen, best = means['frozen'], means['tuned']
        late, fewest = 1.0 - frozen['on_time'], 1.0 - best['on_time']
        times = frozen['replica_seconds'] / best['replica_seconds']
        claims.append(Claim(
            f'{name}: parameters frozen at {HOME[0]} {HOME[1]:g}/s have at most {MORE:.0%} of '
            f'all frames late more than those tuned here, at no more than {DEARER:g} x the cost',
            'other traces not shown', f'{late:.2%} against {fewest:.2%} at {times:.2f} x',
            judged(late <= fewest + MORE and times <= DEARER, late, fewest, times)))
        claims.append(Claim(
            f'{name}: with them at least {frozen["quantile"] - SHORT:.0%} of the frames keep to '
            f'the completion predicted at {frozen["quantile"]:g}', 'not told',
            f'{frozen["coverage"]:.2%}; by the calibration alone {frozen["told_coverage"]:.2%}',
            judged(frozen['coverage'] >= frozen['quantile'] - SHORT, frozen['coverage'])))
    laws = next(row['models_told'] for row in rows if row['variant'] == 'frozen')
    return Findings(
        claims,
        ['scenario', 'variant', 'on time', 'P99 s', 'replica-seconds', 'asked coverage',
         'coverage', 'coverage, worst seed', 'coverage of what was told alone', 'settings'],
        table, {},
        [f'Means over {len({row["seed"] for row in rows})} seeds, {rows[0]["measured"]:g} s each. '
         'frozen: service times calibrated (`laimr_ros.latency.calibration`) on one trace of '
         f'{HOME[0]} at {HOME[1]:g}/s under {" and ".join(_SERVED_BY)} ({_TRACE_S:g} s, seed '
         f'{TRACE_SEED}), settings tuned on the same seed; shipped: what `paper` is told of '
         'service times and the settings of all experiments; tuned: what each scenario is told '
         f'and the best of {len(grid())} values of {grid()[0][0][0]} on one trace of it '
         f'({_TUNED_S:g} s, seed {TRACE_SEED}): the cheapest with at most {LATE:.0%} late, else '
         'the fewest late. Calibrated: ' + '; '.join(
             f'{name}: {law}' for name, law in laws.items()) + '.',
         'Frozen are what is given beforehand. What the dispatcher learns from answers (ratio of '
         'the mean, quantile) it goes on learning; coverage of what was told alone is without '
         'that: service at the present load and network, no wait.',
         'mixed has pools that the home trace has not: of these the scenario tells, so only edge '
         'and cloud with YOLOv5m are frozen there. A frame given up after its predicted '
         'completion counts as not covered.'])
