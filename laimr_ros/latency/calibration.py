"""
From measured frames to the parameters of the latency model, or to reasons why not.

Service time is fitted, never the whole time: else the queue would be counted twice. The error is
always that on frames which the fit has not seen. A parameter that the data cannot tell is refused
with the reason, and the next simpler form is taken: the power law, a straight line, a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import math

from laimr_ros.latency.curves import Constant, Curve, Floats, GAMMA_RANGE, Power, Utilisation
from laimr_ros.latency.fitting import Estimate, Fit, fit, Observations
from laimr_ros.latency.model import PowerLaw
import numpy as np
import numpy.typing as npt

_LEAST_FRAMES = 10
# Widest confidence intervals with which a parameter still says something.
_GAMMA_WIDTH = 1.5
_BACKGROUND_WIDTH = 0.5
_SERVICE_RATIO = 2.0
# From so many frames on the 0.99 quantile is seen and not only extrapolated.
_SEEN = 200
_Z99 = 2.3263478740408408


@dataclass(frozen=True)
class Refusal:
    """
    Why a parameter is not told.

    :param parameter: its name.
    :param reason: for people, with what to do about it.
    """

    parameter: str
    reason: str


@dataclass(frozen=True)
class HeldOut:
    """
    How well a fit predicts what it has not seen; all relative to what was measured.

    :param rule: what was held out.
    :param frames: how many frames.
    :param mean_errors: by held-out rate: predicted over measured mean, minus 1.
    :param median_error: median of their absolute values.
    :param frame_error: median absolute error of single frames, their own scatter included.
    """

    rule: str
    frames: int
    mean_errors: tuple[tuple[float, float], ...]
    median_error: float
    frame_error: float


@dataclass(frozen=True)
class Spread:
    """
    Scatter of a time about its mean.

    :param cv: coefficient of variation, outliers pulled in.
    :param tail_cv: that of the log-normal law with the measured 0.99 quantile over its mean.
    :param frames: how many frames it is from.
    """

    cv: float
    tail_cv: float
    frames: int

    @property
    def careful(self) -> float:
        """Return the larger one: tails heavier than log-normal are not to be missed."""
        return max(self.cv, self.tail_cv)


@dataclass(frozen=True)
class Calibration:
    """
    What a sweep over rates says of the service time.

    :param fit: of all frames, in the form that the data can tell.
    :param training: the same form, fitted to the frames that were not held out.
    :param held_out: the error of ``training`` on the frames that were; None if none were.
    :param refused: parameters that the data cannot tell.
    :param spread: of the frames about the fit.
    """

    fit: Fit
    training: Fit
    held_out: HeldOut | None
    refused: tuple[Refusal, ...]
    spread: Spread

    def power_law(self) -> PowerLaw:
        """
        Return the service model for the dispatcher.

        :raises ValueError: for a fit of the utilisation form.
        """
        curve = self.fit.curve
        if isinstance(curve, Utilisation):
            raise ValueError('this is a fit of the utilisation form, not of a power law')
        values = {name: estimate.value for name, estimate in self.fit.parameters.items()}
        gamma = values.get('gamma', getattr(curve, 'gamma', None) or 1.0)
        return PowerLaw(
            values['alpha'], max(0.0, values.get('beta', 0.0)), gamma, self.spread.careful)


def spread(ratios: npt.ArrayLike) -> Spread:
    """
    Return the scatter of times given relative to what their mean should be.

    :param ratios: measured over expected mean, shape (n,).
    """
    values = np.asarray(ratios, np.float64)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return Spread(0.0, 0.0, len(values))
    mean = float(values.mean())
    capped = np.minimum(values, float(np.quantile(values, 0.995)))
    cv = float(capped.std(ddof=1)) / mean
    tail = 0.0
    if len(values) >= _SEEN:
        # ln q = z s - s^2 / 2 of a log-normal variable with mean 1, at most z^2 / 2.
        tail = _tail_cv(math.log(max(float(np.quantile(values, 0.99)) / mean, 1.0)))
    return Spread(cv, tail, len(values))


def _tail_cv(high: float) -> float:
    """Return the scatter of the log-normal law whose log of 0.99 quantile over mean is given."""
    sigma = _Z99 - math.sqrt(max(0.0, _Z99 ** 2 - 2.0 * high))
    return math.sqrt(math.expm1(sigma * sigma))


def _covering_spread(observations: Observations, mean: float) -> Spread:
    """Return a scatter about a constant whose 0.99 quantile holds at every rate."""
    found = spread(observations.service / mean)
    tail = found.tail_cv
    for rate in np.unique(observations.rate):
        ratios = observations.service[observations.rate == rate] / mean
        own, sigma = float(ratios.mean()), math.sqrt(math.log1p(spread(ratios).careful ** 2))
        tail = max(tail, _tail_cv(math.log(own) + _Z99 * sigma - sigma * sigma / 2.0))
    return Spread(found.cv, tail, found.frames)


def above_rate(observations: Observations, rate: float) -> npt.NDArray[np.bool_]:
    """Return which frames to hold out: those at rates above one (fit to 4/s, test 5 and 6)."""
    return observations.rate > rate


def highest_rates(observations: Observations, share: float = 1.0 / 3.0) -> float:
    """Return the rate above which to hold out the highest of the rates there are."""
    rates = np.unique(observations.rate)
    held = min(round(share * len(rates)), len(rates) - 3)
    return float(rates[-1 - held]) if held > 0 else float(rates[-1])


def latest(observations: Observations, share: float = 1.0 / 3.0) -> npt.NDArray[np.bool_]:
    """Return which frames to hold out: at each rate the last share of them, in the order given."""
    held = np.zeros(len(observations), np.bool_)
    for rate in np.unique(observations.rate):
        own = np.flatnonzero(observations.rate == rate)
        held[own[len(own) - round(share * len(own)):]] = True
    return held


def calibrate(
    observations: Observations, held_out: npt.NDArray[np.bool_] | None = None,
    rule: str = '', *, gamma: float | None = None, replicates: int = 400, seed: int = 0,
) -> Calibration:
    """
    Fit the power law, or as much of it as the data can tell.

    :param observations: frames with their service times.
    :param held_out: which of them only test, shape (n,); by default those at the highest third
        of the rates or, with fewer than five rates, the last third of the frames at each rate.
    :param rule: what was held out, for the report.
    :param gamma: to fix the exponent.
    :param replicates: of the bootstrap.
    :param seed: of the bootstrap.
    :raises ValueError: with fewer than 10 frames to fit to.
    """
    if held_out is None:
        if len(np.unique(observations.rate)) >= 5:
            limit = highest_rates(observations)
            held_out, rule = above_rate(observations, limit), f'rates above {limit:.3g}/s'
        else:
            held_out, rule = latest(observations), 'the last third of the frames'
    train = observations.where(~held_out)
    if len(train) < _LEAST_FRAMES:
        raise ValueError(f'{len(train)} frames to fit to are too few: give at least '
                         f'{_LEAST_FRAMES} that are not held out')
    forms: list[Curve] = [Power(gamma), Power(1.0), Constant()]
    training, refused = _told(train, forms, replicates, seed)
    # What holds on part of the data is fitted once more to all of it, to waste none.
    whole, _ = _told(observations, forms, replicates, seed)
    if len(whole.curve.names) != len(training.curve.names):
        whole = fit(observations, training.curve, replicates=replicates, seed=seed)
    mean = whole.mean(observations.rate)
    scatter = spread(observations.service / mean)
    if isinstance(whole.curve, Constant):
        scatter = _covering_spread(observations, float(mean[0]))
    return Calibration(
        whole, training, _test(training, observations.where(held_out), rule), refused, scatter)


def calibrate_utilisation(
    observations: Observations, curve: Utilisation, held_out: npt.NDArray[np.bool_] | None = None,
    rule: str = '', *, replicates: int = 400, seed: int = 0,
) -> Calibration:
    """
    Fit the exact form: service time alone, exponent and background.

    Nothing simpler is put in its place: what is refused is still in the fit, with its interval,
    and ``refused`` says not to use it.

    :param curve: the form; with the background given, it is not fitted.
    :raises ValueError: with fewer than 10 frames to fit to.
    """
    if held_out is None:
        limit = highest_rates(observations)
        held_out, rule = above_rate(observations, limit), f'rates above {limit:.3g}/s'
    train = observations.where(~held_out)
    if len(train) < _LEAST_FRAMES:
        raise ValueError(f'{len(train)} frames to fit to are too few: give at least '
                         f'{_LEAST_FRAMES} that are not held out')
    training = fit(train, curve, replicates=replicates, seed=seed)
    whole = fit(observations, curve, replicates=replicates, seed=seed)
    return Calibration(
        whole, training, _test(training, observations.where(held_out), rule),
        tuple(_doubts(whole, observations.rate)),
        spread(observations.service / whole.mean(observations.rate)))


def speed_up(calibration: Calibration, reference: float) -> Estimate:
    """
    Return ``S = L_m / (L_m / S)`` with its confidence interval.

    :param reference: ``L_m``, service time on idle reference hardware in seconds; the data of one
        instance cannot tell it.
    :raises ValueError: for a reference that is no time.
    """
    if not 0.0 < reference < math.inf:
        raise ValueError(f'reference is {reference}: give the service time in seconds, > 0')
    parameters = calibration.fit.parameters
    alone = parameters['service'] if 'service' in parameters else parameters['alpha']
    return Estimate(reference / alone.value, reference / max(alone.high, 1e-12),
                    reference / alone.low if alone.low > 0.0 else math.inf)


def _told(
    observations: Observations, forms: Sequence[Curve], replicates: int, seed: int
) -> tuple[Fit, tuple[Refusal, ...]]:
    """Return the first form of which the data tell every parameter, and what was refused."""
    refused: dict[str, Refusal] = {}
    falls = False
    for curve in forms:
        doubts = list(_doubts_before(curve, observations))
        found = None
        if falls and isinstance(curve, Constant):
            observations, reason = _busy(observations)
            refused['beta'] = Refusal('beta', reason)
        if not doubts:
            found = fit(observations, curve, replicates=replicates, seed=seed)
            doubts = list(_doubts(found, observations.rate))
            slope = found.parameters.get('beta')
            falls = falls or (slope is not None and slope.high < 0.0)
        for doubt in doubts:
            refused.setdefault(doubt.parameter, doubt)
        # Without `alpha` the form is still right where it was measured, a simpler one is not.
        if found is not None and all(doubt.parameter == 'alpha' for doubt in doubts):
            break
    else:
        # A constant can always be told: its only doubt would be that there are no frames.
        found, doubts = fit(observations, Constant(), replicates=replicates, seed=seed), []
    assert found is not None
    # What a richer form could not tell, the one that was taken may.
    told = set(found.curve.names) - {doubt.parameter for doubt in doubts}
    return found, tuple(r for name, r in refused.items() if name not in told)


def _busy(observations: Observations) -> tuple[Observations, str]:
    """
    Return the frames at the upper half of the rates, and why only these are taken.

    A processor that has slept between two frames is slower: clocks are down, caches cold. Such a
    service time falls with the rate to what it is when busy, and that is what queues come of.
    """
    rates = np.unique(observations.rate)
    least = float(rates[len(rates) // 2])
    means = [float(observations.service[observations.rate == rate].mean())
             for rate in (rates[0], rates[-1])]
    return observations.where(observations.rate >= least), (
        f'the service time falls with the rate, from {1e3 * means[0]:.3g} ms at {rates[0]:.3g}/s '
        f'to {1e3 * means[1]:.3g} ms at {rates[-1]:.3g}/s, as where a processor sleeps between '
        f'frames; taken is what it is from {least:.3g}/s on, where queues form')


def _doubts_before(curve: Curve, observations: Observations) -> list[Refusal]:
    """Return what the rates alone make impossible."""
    rates = np.unique(observations.rate)
    blocks = int(observations.block.max()) + 1
    names = curve.names
    if blocks <= len(names):
        return [Refusal(names[-1], f'{blocks} independent blocks of frames are too few; visit '
                                   'more rates, or each of them more often')]
    if 'gamma' in names:
        if len(rates) < 3:
            return [Refusal('gamma', f'{len(rates)} rates do not show a curve; measure at 3 or '
                                     'more, at least one of them above 1/s for each replica')]
        if rates[-1] <= 1.0:
            return [Refusal(
                'gamma', f'rates are at most {rates[-1]:.3g}/s for each replica, where '
                'rate**gamma is between 0 and 1 whatever gamma is; measure above 1/s')]
    if 'beta' in names and len(rates) < 2:
        return [Refusal('beta', 'there is one rate only; measure at two or more')]
    return []


def _doubts(found: Fit, rates: Floats) -> list[Refusal]:
    """Return which parameters of a fit say nothing."""
    doubts = []
    parameters = found.parameters

    def interval(name: str) -> str:
        return f'[{parameters[name].low:.3g}, {parameters[name].high:.3g}]'

    idle = parameters.get('alpha')
    if idle is not None and not idle.low > 1e-3 * idle.high:
        doubts.append(Refusal(
            'alpha', f'its interval {interval("alpha")} holds 0: from {rates.min():.3g}/s on the '
            'service time of an idle replica cannot be told; measure at lower rates too'))
    slope = parameters.get('beta')
    if slope is not None and not slope.low > 0.0:
        doubts.append(Refusal(
            'beta', f'its interval {interval("beta")} is not above 0: between {rates.min():.3g} '
            f'and {rates.max():.3g}/s the service time does not visibly grow; measure at higher '
            'rates, or longer'))
    exponent = parameters.get('gamma')
    if exponent is not None:
        if slope is not None and not slope.low > 0.0:
            doubts.append(Refusal('gamma', 'without growth there is no exponent of it'))
        elif exponent.low <= GAMMA_RANGE[0] or exponent.high >= GAMMA_RANGE[1]:
            doubts.append(Refusal(
                'gamma', f'its interval {interval("gamma")} reaches the end of the range that is '
                'searched; measure at more rates, further apart'))
        elif exponent.high - exponent.low > _GAMMA_WIDTH:
            doubts.append(Refusal(
                'gamma', f'its interval {interval("gamma")} is wider than {_GAMMA_WIDTH:g}; '
                'measure at more rates, further apart, or longer'))
    background = parameters.get('background')
    if background is not None and isinstance(found.curve, Utilisation) and (
            background.high - background.low > _BACKGROUND_WIDTH * found.curve.capacity):
        doubts.append(Refusal(
            'background', f'its interval {interval("background")} is wider than '
            f'{_BACKGROUND_WIDTH:.0%} of the capacity; measure it on the instance itself, or '
            'measure at lower rates too'))
    alone = parameters.get('service')
    if alone is not None and not 0.0 < alone.high <= _SERVICE_RATIO * alone.low:
        doubts.append(Refusal(
            'service', f'its interval {interval("service")} is too wide to know the speed-up; '
            'measure at lower rates, or longer'))
    return doubts


def _test(training: Fit, held: Observations, rule: str) -> HeldOut | None:
    if not len(held):
        return None
    predicted = training.mean(held.rate)
    rates = np.unique(held.rate)
    errors = tuple(
        (float(rate), float(training.mean(rate)[0] / held.service[held.rate == rate].mean() - 1.0))
        for rate in rates)
    return HeldOut(
        rule, len(held), errors, float(np.median([abs(error) for _, error in errors])),
        float(np.median(np.abs(predicted / held.service - 1.0))))
