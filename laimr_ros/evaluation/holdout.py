"""``holdout``: what a calibration says of frames it has not seen (the paper's fault R5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
import math
from statistics import median

from laimr_ros.evaluation.bootstrap import median_interval
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.forms import fitted, FORMS, predicted
from laimr_ros.evaluation.runs import key_of, Row, too_short
from laimr_ros.evaluation.sweep import MEASURED_S, observations, RATES, Visit, visit, WORLDS
from laimr_ros.latency.curves import Floats
from laimr_ros.latency.end_to_end import LatencyModel
from laimr_ros.latency.model import Network, ServiceModel
import numpy as np

#: World, and how many replicas are there.
PLACES: Mapping[str, int] = {
    'law': 3, 'own': 5, 'edge': 8, 'cloud': 16, 'precise': 10, 'exponential': 8, 'drift': 8}
#: What is held out: the two highest rates, or the second half of the time at every rate.
SPLITS = ('rates', 'time')
HIGHEST_FITTED = 4.0
QUANTILES = (0.5, 0.9, 0.95, 0.99)
_ERROR, _COVERAGE = 0.1, 0.98


@dataclass(frozen=True)
class HoldOut:
    """
    One fit to a part, tested on the rest.

    :param world: one of :data:`PLACES`.
    :param measured: seconds at each rate.
    """

    world: str
    split: str
    form: str
    seed: int
    measured: float

    def key(self) -> str:
        """Return what tells this run from any other."""
        return key_of(self, WORLDS[self.world], PLACES[self.world])

    def weight(self) -> float:
        """Return the same for all, but those that are only drawn."""
        return 0.1 if WORLDS[self.world].law is not None else 1.0

    def run(self) -> Row:
        """Fit and test; return errors and coverage."""
        world, count = WORLDS[self.world], PLACES[self.world]
        visits = [visit(self.world, count, rate, self.seed, self.measured) for rate in RATES]
        kept = [world.keeps_up(count, rate) for rate in RATES]
        if self.split == 'rates':
            seen = [v for v, up in zip(visits, kept) if up and v.rate <= HIGHEST_FITTED]
            tested = [v for v, up in zip(visits, kept) if up and v.rate > HIGHEST_FITTED]
            full = [v for v, up in zip(visits, kept) if not up]
        else:
            half = 0.5 * self.measured
            seen = [_part(v, 0.0, half) for v, up in zip(visits, kept) if up]
            tested = [_part(v, half, math.inf) for v, up in zip(visits, kept) if up]
            full = []
        try:
            model = fitted(self.form, observations(seen), world.exact(count), self.seed)
        except ValueError as error:
            raise too_short(self.measured, error) from None
        row: Row = {'key': self.key(), 'world': self.world, 'split': self.split,
                    'form': self.form, 'seed': self.seed, 'measured': self.measured,
                    'frames_fitted': float(sum(len(v.service) for v in seen)),
                    'frames': float(sum(len(v.service) for v in tested))}
        online = self.form == 'online'
        means, _ = predicted(model, tested + full, 0.99, online=online)
        off = {v.rate: float(mean.mean() / v.service.mean()) - 1.0
               for v, mean in zip(tested + full, means)}
        row |= {f'error_{rate:g}': off.get(rate, math.nan) for rate in RATES}
        row['error'] = max((abs(off[v.rate]) for v in tested), default=math.nan)
        row['error_saturated'] = max((abs(off[v.rate]) for v in full), default=math.nan)
        for p in QUANTILES:
            # What is learned online is no median.
            row[f'coverage_{100 * p:g}'] = math.nan if online and p <= 0.5 else _coverage(
                tested, predicted(model, tested, p, online=online)[1])
            row[f'seen_{100 * p:g}'] = _coverage(seen, predicted(model, seen, p)[1])
        return {**row, **self._whole(model, count, tested)}

    def _whole(self, model: ServiceModel, count: int, tested: Sequence[Visit]) -> Row:
        """Return the same of the whole time from capture to answer, where there is a queue."""
        world = WORLDS[self.world]
        names = ('whole_sharp_99', 'whole_careful_99', 'whole_ratio')
        if world.law is not None or not tested or self.form == 'online':
            return dict.fromkeys(names, math.nan)
        law = world.scene(count, 1.0, self.measured).pools[world.pool].network
        told = LatencyModel(model, Network(law.mean, law.cv), independent=True)
        careful = replace(told, independent=False)
        last = tested[-1]
        measured = float(np.quantile(last.latency, 0.99))

        def under(bound: LatencyModel) -> float:
            return float(np.mean(np.concatenate([
                v.latency <= bound.quantile(0.99, v.rate, count) for v in tested])))

        return {names[0]: under(told), names[1]: under(careful),
                names[2]: careful.quantile(0.99, last.rate, count) / measured}


def tasks(seeds: Sequence[int], measured: float | None) -> list[HoldOut]:
    """Return the runs."""
    return [HoldOut(world, split, form, seed, measured or MEASURED_S)
            for world in PLACES for seed in seeds for split in SPLITS for form in FORMS
            if sensible(world, split, form)]


def sensible(world: str, split: str, form: str) -> bool:
    """Return whether there is anything to fit or to test."""
    place = WORLDS[world]
    if form == 'exact' and place.exact(PLACES[world]) is None:
        return False
    return split == 'time' or any(
        place.keeps_up(PLACES[world], rate) for rate in RATES if rate > HIGHEST_FITTED)


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    claims, table = [], []
    for world in PLACES:
        for split in SPLITS:
            for form in FORMS:
                own = [row for row in rows if (row['world'], row['split'], row['form']) == (
                    world, split, form)]
                if not own:
                    continue
                if form in ('told', 'online'):
                    claims += _claims(world, split, form, own)
                low, high = median_interval([row['coverage_99'] for row in own])
                table.append([
                    f'{world}, {split}', form, _middle(own, 'error'), _middle(own, 'error_5'),
                    _middle(own, 'error_6'), *(
                        _middle(own, f'coverage_{100 * p:g}') for p in QUANTILES), low, high,
                    _middle(own, 'seen_99'), _middle(own, 'whole_careful_99'),
                    _middle(own, 'whole_sharp_99'), _middle(own, 'whole_ratio'),
                    _middle(own, 'error_saturated'), _middle(own, 'frames')])
    return Findings(
        claims,
        ['world, held out', 'form', 'worst error of a mean', 'error at 5/s', 'error at 6/s',
         'under P50', 'under P90',
         'under P95', 'under P99', 'P99 low', 'P99 high', 'under P99, frames fitted to',
         'whole time under P99', 'whole time under sharp P99',
         'predicted over measured P99, highest rate', 'error where saturated', 'frames'],
        table, {},
        [f'{len({row["seed"] for row in rows})} seeds; medians over them, every seed and rate in '
         f'runs.csv; {rows[0]["measured"]:g} s at each of the rates 1 to 6/s. Held out: `rates`, '
         f'those above {HIGHEST_FITTED:g}/s; `time`, the second half at every rate. Rates with '
         'which the replicas do not keep up are not fitted to; error where saturated is of the '
         'service time there.',
         'Worlds: ' + '; '.join(
             f'{world} ({count} replicas): {WORLDS[world].about}'
             for world, count in PLACES.items()) + '.',
         'Forms: told, what `laimr calibrate` takes for told of the power law; power, all of the '
         'power law, whatever its intervals; exact, the form in the utilisation, the CPU time of '
         'a frame being known; online, as told, and corrected by each frame once it was served, '
         'as the dispatcher does. Only online learns anything of what is held out.',
         'Whole time: from capture to answer, P99 of the latency model with the fitted service '
         'time, Poisson arrivals and replicas as known, by the union bound that scaling goes by; '
         'sharp takes wait, service and network for independent. It is infinite where the model '
         'takes the replicas for saturated.'])


def _claims(world: str, split: str, form: str, rows: Sequence[Row]) -> list[Claim]:
    what = f'{world}, ' + ('rates above 4/s from those below' if split == 'rates'
                           else 'the second half from the first')
    share = f'at least {_COVERAGE:.0%} of'
    if form == 'online':
        return [_share(f'{what}, and corrected online: {share} service times under the predicted '
                       'P99', [row['coverage_99'] for row in rows])]
    errors = [row['error'] for row in rows]
    claims = [
        Claim(f'{what}: mean service times within {_ERROR:.0%}', 'not held out',
              f'worst rate {median(errors):.1%} (seeds {min(errors):.1%} to {max(errors):.1%})',
              judged(median(errors) <= _ERROR, *errors)),
        _share(f'{what}: {share} service times under the predicted P99',
               [row['coverage_99'] for row in rows])]
    whole = [row['whole_careful_99'] for row in rows]
    if not any(math.isnan(value) for value in whole):
        claims.append(_share(f'{what}: {share} whole times under the predicted P99', whole))
    return claims


def _share(claim: str, shares: Sequence[float]) -> Claim:
    return Claim(claim, 'not told',
                 f'{median(shares):.2%} (seeds {min(shares):.2%} to {max(shares):.2%})',
                 judged(median(shares) >= _COVERAGE, *shares))


def _middle(rows: Sequence[Row], what: str) -> float:
    return float(median(row[what] for row in rows))


def _part(one: Visit, begin: float, end: float) -> Visit:
    """Return the frames of a visit that were captured in a span of it."""
    chosen = (one.created >= begin) & (one.created < end)
    return Visit(one.replicas, one.rate, one.created[chosen], one.service[chosen],
                 one.latency[chosen])


def _coverage(visits: Sequence[Visit], bounds: Sequence[Floats]) -> float:
    """Return the share of all service times that are at most what is predicted of them."""
    under = [one.service <= bound for one, bound in zip(visits, bounds)]
    return float(np.mean(np.concatenate(under))) if under else math.nan
