"""``gamma-sensitivity``: the exponent told wrong, in a world that keeps its own (fault R2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
import functools
import math
from statistics import fmean, median

from laimr_ros.evaluation.answers import simulate_answers
from laimr_ros.evaluation.bootstrap import median_interval
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import key_of, Row
from laimr_ros.evaluation.sweep import observations, visit, WORLDS
from laimr_ros.evaluation.told import Models, told
from laimr_ros.evaluation.tuning import SEED_OFFSET
from laimr_ros.latency.calibration import calibrate
from laimr_ros.latency.model import PowerLaw
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario
from laimr_ros.simulation.service_model import shared_instance
import numpy as np

#: What the controller is told; the paper calibrated 1.49 and then used 0.90.
GAMMAS = (0.5, 0.75, 0.9, 1.0, 1.25, 1.49, 1.75, 2.0)
TRUE, USED = 1.49, 0.9
#: Scenario and rate; without a cloud the edge has to be used to capacity, where gamma tells most.
PLACES = (('paper', 2.0), ('paper', 4.0), ('paper', 6.0), ('edge_only', 2.0), ('edge_only', 4.0))
#: More would take long: there are many gammas.
SEEDS = 6
#: ``refitted``: alpha and beta fitted anew given gamma, to a sweep of each pool; ``kept``: those
#: of 1.49, only gamma is another; ``exact``: the form in the utilisation, told another gamma.
VARIANTS = {'laimr': ('refitted', 'kept', 'exact'), 'laimr_paper': ('refitted', 'kept')}
MEASURED_S, WARM_UP_S = 120.0, 60.0
_SWEEP_S = 300.0
# Replicas with which each pool is swept: all that its instance has room for.
_SWEPT = {'edge': 8, 'cloud': 16}
#: An effect on P99 or cost is called one from here on, and one on late frames.
EFFECT, LATE = 0.1, 0.01


Place = tuple[str, float]


@dataclass(frozen=True)
class Misled:
    """
    One simulated run.

    :param policy: one of :data:`VARIANTS`.
    :param variant: what else changes with gamma, one of those of the policy.
    :param gamma: what the controller is told.
    """

    policy: str
    variant: str
    gamma: float
    scenario: str
    rate: float
    seed: int
    measured: float

    def key(self) -> str:
        """Return what tells this run from any other, scenario and policy included."""
        scenario, policy = self._scenario(), POLICIES[self.policy]
        return key_of(self, scenario, policy, policy.configuration(scenario))

    def weight(self) -> float:
        """Return the frames it has, more where deciding takes long."""
        return self.rate * (10.0 if self.policy == 'laimr' else 1.0)

    def run(self) -> Row:
        """Simulate; return its numbers, and what the edge pool was told."""
        scenario = self._scenario()
        models = models_told(self.variant, self.gamma)
        result, answers = simulate_answers(
            scenario, told(POLICIES[self.policy], models), self.seed)
        (law,) = models['edge'].values()
        alpha, beta = ((law.alpha, law.beta) if isinstance(law, PowerLaw)
                       else (math.nan, math.nan))
        return {'key': self.key(), 'policy': self.policy, 'variant': self.variant,
                'gamma': self.gamma, 'scenario': self.scenario, 'rate': self.rate,
                'seed': self.seed, 'measured': self.measured, 'alpha': alpha, 'beta': beta,
                'coverage': answers.coverage(), 'told_coverage': answers.told_coverage(),
                **result.summary()}

    def _scenario(self) -> Scenario:
        return load_scenario(self.scenario, {
            'rate': self.rate, 'measured': self.measured, 'warm_up': WARM_UP_S})


@functools.lru_cache(maxsize=64)
def models_told(variant: str, gamma: float) -> Models:
    """Return the service models of a variant, by pool and model."""
    scenario = load_scenario('paper')
    if variant == 'exact':
        return {name: {model: shared_instance(scenario, name, model, gamma)
                       for model in pool.models}
                for name, pool in scenario.pools.items()}
    if variant == 'kept':
        return {name: {model: replace(law, gamma=gamma) for model, law in pool.models.items()}
                for name, pool in scenario.pools.items()}
    return {name: dict.fromkeys(pool.models, _refitted(name, gamma))
            for name, pool in scenario.pools.items()}


def _refitted(pool: str, gamma: float) -> PowerLaw:
    """Return the power law of a gamma that a sweep of a pool gives."""
    count = _SWEPT[pool]
    seen = observations([
        visit(pool, count, rate, SEED_OFFSET + 1, _SWEEP_S)
        for replicas, rate in WORLDS[pool].visits() if replicas == count])
    return calibrate(seen, np.zeros(len(seen), bool), gamma=gamma).power_law()


def tasks(seeds: Sequence[int], measured: float | None) -> list[Misled]:
    """Return the runs."""
    return [Misled(policy, variant, gamma, scenario, rate, seed, measured or MEASURED_S)
            for policy, variants in VARIANTS.items() for variant in variants
            for scenario, rate in PLACES for gamma in GAMMAS for seed in seeds[:SEEDS]]


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    claims, table = [], []
    for policy, variants in VARIANTS.items():
        for variant in variants:
            points: dict[tuple[Place, float], tuple[float, float, float]] = {}
            for place in PLACES:
                for gamma in GAMMAS:
                    own = [row for row in rows if (
                        row['policy'], row['variant'], row['scenario'], row['rate'],
                        row['gamma']) == (policy, variant, *place, gamma)]
                    p99 = [row['p99_s'] for row in own]
                    mean = {what: fmean(row[what] for row in own) for what in (
                        'replica_seconds', 'on_time', 'coverage', 'told_coverage', 'alpha',
                        'beta')}
                    points[place, gamma] = (
                        median(p99), mean['replica_seconds'], mean['on_time'])
                    table.append([f'{policy}, {variant}, {_name(place)}', gamma, median(p99),
                                  *median_interval(p99), *mean.values()])
            claims += _claims(policy, variant, points)
    return Findings(
        claims,
        ['series', 'gamma told', 'P99 s', 'P99 low', 'P99 high', 'replica-seconds', 'on time',
         'coverage', 'coverage of what was told alone', 'alpha of edge', 'beta of edge'], table,
        {'P99 over the gamma told': ('gamma told', 'P99 s', 'P99 low', 'P99 high'),
         'Cost over the gamma told': ('gamma told', 'replica-seconds')},
        [f'{len({row["seed"] for row in rows})} seeds, {rows[0]["measured"]:g} s each; the gamma '
         f'of the world is {TRUE:g} throughout. P99: median over seeds; the rest: means. '
         f'Compared with what the same policy does when told {TRUE:g}.',
         'refitted: alpha and beta as `laimr calibrate` fits them for that gamma to a sweep of '
         f'each pool ({_SWEPT["edge"]} replicas on the edge, {_SWEPT["cloud"]} in the cloud, '
         f"{_SWEEP_S:g} s a rate, seed {SEED_OFFSET + 1}); kept: the paper's alpha and beta with "
         'another gamma; exact: the form in the utilisation of the instance, told another gamma. '
         'The settings of the policies are those of all experiments, not tuned anew; what `laimr` '
         'learns from answers it goes on learning, `laimr_paper` learns nothing.'])


def _name(place: Place) -> str:
    return f'{place[0]} {place[1]:g}/s'


def _claims(
    policy: str, variant: str, points: Mapping[tuple[Place, float], tuple[float, float, float]]
) -> list[Claim]:
    """Return claims from (P99, cost, on time) by place and gamma."""
    def effect(place: Place, gamma: float, k: int) -> float:
        ours, base = points[place, gamma][k], points[place, TRUE][k]
        if k == 2:
            return ours - base
        return 0.0 if ours == base else ours / base - 1.0

    def worst(k: int, scenario: str, gammas: Sequence[float]) -> tuple[float, str]:
        """Return the largest effect, and where it is."""
        # What cannot be told, as of two infinities, is taken for the largest.
        size, place, gamma = max(
            ((effect(place, gamma, k), place, gamma) for place in PLACES for gamma in gammas
             if place[0] == scenario),
            key=lambda found: abs(found[0]) if found[0] == found[0] else math.inf)
        return size, f'told {gamma:g}, {place[1]:g}/s'

    claims = []
    for scenario in dict.fromkeys(place[0] for place in PLACES):
        for gammas, what in ((GAMMAS, f'any gamma from {GAMMAS[0]:g} to {GAMMAS[-1]:g}'),
                             ((USED,), f'gamma {USED:g} in place of {TRUE:g}')):
            (slower, slow_at), (dearer, dear_at), (later, late_at) = (
                worst(k, scenario, gammas) for k in range(3))
            claims.append(Claim(
                f'{policy}, {variant}, {scenario}: {what} changes P99 and cost by no more than '
                f'{EFFECT:.0%}, on time by no more than {LATE:.0%}',
                f'{TRUE:g} fitted, {USED:g} used; effect not told',
                f'P99 {slower:+.1%} ({slow_at}), cost {dearer:+.1%} ({dear_at}), on time '
                f'{100.0 * later:+.2f} points ({late_at})',
                judged(abs(slower) <= EFFECT and abs(dearer) <= EFFECT and abs(later) <= LATE,
                       slower, dearer, later)))
    return claims
