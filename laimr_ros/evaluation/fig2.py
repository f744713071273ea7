"""``fig2-calibration``: the power law fitted to measured service times (the paper's Fig. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import math
from statistics import fmean, median

from laimr_ros.evaluation.bootstrap import interval
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import key_of, Row, too_short
from laimr_ros.evaluation.sweep import MEASURED_S, observations, PAPER, visit, WORLDS
from laimr_ros.latency.calibration import calibrate
from laimr_ros.latency.curves import Power
from laimr_ros.latency.fitting import fit
from laimr_ros.latency.model import PowerLaw
import numpy as np

#: A fit is called one if it is nowhere further off than this.
CLOSE = 0.05
#: Of the seeds, so many must have a value within their interval of 95 %.
INSIDE = 0.8
_PARAMETERS = ('alpha', 'beta', 'gamma')
_FORMS = {0: 'a constant', 1: 'a straight line', 2: 'the power law'}


@dataclass(frozen=True)
class Series:
    """
    What is fitted.

    :param world: one of :data:`laimr_ros.evaluation.sweep.WORLDS`.
    :param replicas: their numbers.
    :param expected: parameters that the fit is held against.
    :param source: where they are from.
    """

    world: str
    replicas: tuple[int, ...]
    expected: Mapping[str, float]
    source: str


def _law(law: PowerLaw) -> dict[str, float]:
    return {name: getattr(law, name) for name in _PARAMETERS}


# The cloud runs 1.8 times as fast: time is scaled, and the rate with it.
_FASTER = PowerLaw(PAPER.alpha / 1.8, PAPER.beta / 1.8 ** (1.0 + PAPER.gamma), PAPER.gamma)
SERIES: Mapping[str, Series] = {
    "the paper's law": Series('law', (3,), _law(PAPER), "the paper's"),
    'replicas of their own': Series(
        'own', (5, 6, 10), {'gamma': PAPER.gamma}, 'that of the exact form'),
    'edge, 8 replicas': Series('edge', (8,), _law(PAPER), "the paper's"),
    'edge, 1 to 8 replicas': Series('edge', (1, 2, 4, 8), {}, ''),
    'cloud, 16 replicas': Series('cloud', (16,), _law(_FASTER), "the paper's (time / 1.8)"),
}


@dataclass(frozen=True)
class Sweep:
    """
    One calibration.

    :param series: one of :data:`SERIES`.
    :param measured: seconds at each rate.
    """

    series: str
    seed: int
    measured: float

    def key(self) -> str:
        """Return what tells this run from any other."""
        return key_of(self, SERIES[self.series], WORLDS[SERIES[self.series].world])

    def weight(self) -> float:
        """Return about how many visits it takes."""
        return float(len(SERIES[self.series].replicas))

    def run(self) -> Row:
        """Measure and fit; return parameters and errors, and in ``points`` what was measured."""
        series = SERIES[self.series]
        visits = [visit(series.world, count, rate, self.seed, self.measured)
                  for count, rate in WORLDS[series.world].visits() if count in series.replicas]
        seen = observations(visits)
        try:
            found = fit(seen, Power(), seed=self.seed)
            told = calibrate(seen, seed=self.seed)
        except ValueError as error:
            raise too_short(self.measured, error) from None
        points = [[float(v.replicas), v.rate, float(len(v.service)), float(v.service.mean()),
                   float(found.mean(v.rate / v.replicas)[0])] for v in visits]
        row: Row = {'key': self.key(), 'series': self.series, 'seed': self.seed,
                    'measured': self.measured}
        for name, estimate in found.parameters.items():
            row |= {name: estimate.value, f'{name}_low': estimate.low,
                    f'{name}_high': estimate.high}
        off = [abs(fitted / mean - 1.0) for *_, mean, fitted in points]
        assert told.held_out is not None
        return {**row, 'worst_error': max(off), 'mean_error': fmean(off),
                'told': len(told.fit.curve.names) - 1,
                'held_out_error': told.held_out.median_error, 'points': points}


def tasks(seeds: Sequence[int], measured: float | None) -> list[Sweep]:
    """Return the runs."""
    return [Sweep(series, seed, measured or MEASURED_S) for series in SERIES for seed in seeds]


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    claims, table, told = [], [], []
    for name, series in SERIES.items():
        own = [row for row in rows if row['series'] == name]
        for parameter, value in series.expected.items():
            claims.append(_parameter(name, parameter, value, series.source, own))
        worst, mean = (float(median(row[what] for row in own))
                       for what in ('worst_error', 'mean_error'))
        claims.append(Claim(
            f'{name}: one power law in the rate of a replica is within {CLOSE:.0%} of every '
            'measured mean', 'fits (error not told)',
            f'worst {worst:.1%}, mean {mean:.1%} (medians over seeds)',
            judged(worst <= CLOSE, worst)))
        if len(series.expected) == len(_PARAMETERS):
            claims.append(_as_it_is(name, series, own))
        table += _points(name, own)
        forms = [_FORMS[row['told']] for row in own]
        told.append(f'{name}: ' + ', '.join(
            f'{form} ({forms.count(form)} of {len(forms)} seeds)' for form in dict.fromkeys(forms))
            + f', held-out error {median(row["held_out_error"] for row in own):.1%}')
    full = (PAPER.alpha / PAPER.beta) ** (1.0 / PAPER.gamma)
    return Findings(
        claims,
        ['series', 'rate of a replica', 'service s', 'low', 'high', 'replicas', 'rate', 'frames'],
        table,
        {'Service time over the rate of a replica': (
            'rate of a replica', 'service s', 'low', 'high')},
        [f'{len({row["seed"] for row in rows})} seeds, {rows[0]["measured"]:g} s at each rate '
         'from 1 to 6/s (Poisson) at which the replicas keep up; noise of 15 %. '
         + '; '.join(f'{name}: {WORLDS[series.world].about}' for name, series in SERIES.items())
         + '.',
         'Fitted is the service time alone. Intervals of parameters are 95 % bootstrap intervals '
         'of one calibration, drawn by blocks of a minute; told are medians over seeds of value '
         f'and ends. A value is said to agree if it is within at least {INSIDE:.0%} of them, and '
         'they are no wider than the value itself. '
         'Intervals of points are over seeds.',
         'What `laimr calibrate` would tell of the same frames, which refuses what the data '
         'cannot tell (gamma, where no replica gets more than 1 frame/s): '
         + '; '.join(told) + '.',
         f"Read as the exact form, the paper's beta says that a replica is full (U = 1) at "
         f'{full:.2f} frames/s: its curve goes on beyond that.'],
        curves={f'{name}, fitted': name for name in SERIES})


def _parameter(
    series: str, name: str, value: float, source: str, rows: Sequence[Row]
) -> Claim:
    middle, low, high = (float(median(row[name + end] for row in rows))
                         for end in ('', '_low', '_high'))
    inside = fmean(row[f'{name}_low'] <= value <= row[f'{name}_high'] for row in rows)
    # An interval that is wider than the value itself agrees with anything.
    vague = median(row[f'{name}_high'] - row[f'{name}_low'] for row in rows) > value
    return Claim(
        f'{series}: fitted {name} agrees with {source} {value:.3g}', f'{getattr(PAPER, name):g}',
        f'{middle:.3g} ({low:.3g} to {high:.3g}), within the interval of {inside:.0%} of seeds'
        + ', which is too wide to tell' * vague,
        judged(inside >= INSIDE and not vague, middle, low, high))


def _as_it_is(name: str, series: Series, rows: Sequence[Row]) -> Claim:
    """Return whether the expected parameters need no fit at all."""
    law = PowerLaw(**series.expected)
    off = median(max(abs(law.mean(rate, int(count)) / mean - 1.0)
                     for count, rate, _, mean, _ in row['points']) for row in rows)
    return Claim(
        f'{name}: the law with {series.source} parameters is within {CLOSE:.0%} of every measured '
        'mean', 'not told', f'worst {off:.1%} (median over seeds)', judged(off <= CLOSE, off))


def _points(name: str, rows: Sequence[Row]) -> list[list[object]]:
    """Return a line for each point that was measured, and one of the fit beside it."""
    table: list[list[object]] = []
    fitted = []
    for same in zip(*(row['points'] for row in rows)):
        replicas, rate = same[0][:2]
        means = [point[3] for point in same]
        low, high = interval(lambda samples: np.asarray(samples.mean(axis=1)), means)
        load, frames = rate / replicas, fmean(point[2] for point in same)
        table.append([name, load, fmean(means), low, high, replicas, rate, frames])
        fit_of = fmean(point[4] for point in same)
        fitted.append(
            [f'{name}, fitted', load, fit_of, math.nan, math.nan, replicas, rate, frames])
    return table + fitted
