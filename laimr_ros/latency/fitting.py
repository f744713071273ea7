"""Robust least squares of a curve to service times, with bootstrap confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import math

from laimr_ros.latency.curves import Curve, Floats
import numpy as np
import numpy.typing as npt

_REWEIGHTINGS = 3
# In standard deviations: beyond it a frame counts as an outlier, linearly, not by its square.
_OUTLIER = 4.0
_STEPS = 25


@dataclass(frozen=True)
class Observations:
    """
    Service times and the rates at which they were measured.

    :param rate: frames/s for each replica, shape (n,), >= 0.
    :param service: service time in seconds, shape (n,), > 0.
    :param block: which visit to a rate a frame belongs to, shape (n,). Frames of one visit may
        share a disturbance; without blocks every frame is taken to be independent of the others.
    :raises ValueError: for shapes that differ or values out of range.
    """

    rate: Floats
    service: Floats
    block: npt.NDArray[np.int64]

    def __init__(
        self, rate: npt.ArrayLike, service: npt.ArrayLike, block: npt.ArrayLike | None = None
    ) -> None:
        """Take arrays or lists."""
        rates, services = np.asarray(rate, np.float64), np.asarray(service, np.float64)
        blocks = (np.arange(len(rates)) if block is None
                  else np.unique(np.asarray(block), return_inverse=True)[1])
        if not rates.shape == services.shape == blocks.shape or rates.ndim != 1:
            raise ValueError(f'there are {rates.size} rates, {services.size} service times and '
                             f'{blocks.size} blocks: give one of each for every frame')
        for name, values, least in (('rate', rates, 0.0), ('service', services, 1e-12)):
            wrong = values[~(np.isfinite(values) & (values >= least))]
            if wrong.size:
                raise ValueError(f'a {name} is {wrong[0]}: leave frames without one out')
        object.__setattr__(self, 'rate', rates)
        object.__setattr__(self, 'service', services)
        object.__setattr__(self, 'block', blocks)

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.rate)

    def where(self, kept: npt.NDArray[np.bool_]) -> Observations:
        """Return some of the frames."""
        return Observations(self.rate[kept], self.service[kept], self.block[kept])


@dataclass(frozen=True)
class Estimate:
    """
    One parameter.

    :param value: the best one.
    :param low: lower end of its confidence interval.
    :param high: upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """
    A curve with its parameters.

    :param curve: the form.
    :param parameters: by name.
    :param scatter: robust standard deviation of a frame about the curve, relative to it.
    :param block_scatter: that of whole blocks beyond what their frames explain.
    """

    curve: Curve
    parameters: Mapping[str, Estimate]
    scatter: float
    block_scatter: float

    @property
    def values(self) -> Floats:
        """Return the parameters' values in the curve's order."""
        return np.array([self.parameters[name].value for name in self.curve.names])

    def mean(self, rate: npt.ArrayLike) -> Floats:
        """Return mean service times in seconds at some rates."""
        return self.curve.mean(self.values, np.atleast_1d(np.asarray(rate, np.float64)))


def fit(
    observations: Observations, curve: Curve, *, level: float = 0.95, replicates: int = 400,
    seed: int = 0,
) -> Fit:
    """
    Fit a curve to the *mean* service time, whose scatter is taken to grow with it.

    Least squares of ``(service - mean) / mean``, the mean underneath held while the one above is
    sought and both repeated (quasi-likelihood: dividing by a moving mean would favour large
    ones), with a loss that turns linear for outliers (soft L1). The intervals are of a bootstrap
    of the residuals of blocks, about the fitted curve, widened by Student's t for few blocks.

    :param level: of the confidence intervals.
    :param replicates: of the bootstrap.
    :param seed: of the bootstrap.
    :raises ValueError: with fewer frames, or blocks, than parameters and one more.
    """
    from scipy import stats
    needed = len(curve.names) + 1
    blocks = int(observations.block.max()) + 1 if len(observations) else 0
    if blocks < needed:
        raise ValueError(f'{blocks} independent blocks of frames are too few to fit '
                         f'{", ".join(curve.names)}: give at least {needed}')
    values, scatter = _estimate(observations, curve)
    rate, ratio, variance, block_scatter = _blocks(observations, curve, values, scatter)
    mean = curve.mean(values, rate)
    free = blocks - len(curve.names)
    standard = ratio / np.sqrt(variance)
    standard = (standard - standard.mean()) * math.sqrt(blocks / free)
    random = np.random.default_rng(seed)
    drawn = standard[random.integers(0, blocks, (replicates, blocks))]
    # A handful of residuals cannot be resampled into all they might have been.
    if blocks < 30:
        drawn = random.standard_normal((replicates, blocks)) * math.sqrt(
            float(np.mean(standard ** 2)))
    found = _refit(curve, values, *_by_rate(
        rate, mean * (1.0 + np.sqrt(variance) * drawn), mean * np.sqrt(variance)))
    tail = 0.5 * (1.0 - level)
    wider = float(stats.t.ppf(1.0 - tail, free) / stats.norm.ppf(1.0 - tail))
    low = values + wider * (np.quantile(found, tail, axis=0) - values)
    high = values + wider * (np.quantile(found, 1.0 - tail, axis=0) - values)
    return Fit(curve, {
        name: Estimate(float(v), float(a), float(b))
        for name, v, a, b in zip(curve.names, values, low, high)}, scatter, block_scatter)


def _estimate(observations: Observations, curve: Curve) -> tuple[Floats, float]:
    """Return the best parameters and the robust relative scatter about them."""
    from scipy import optimize
    rate, service = observations.rate, observations.service
    low, high = (np.asarray(bound, np.float64) for bound in curve.bounds)
    starts = [np.clip(start, low, high) for start in curve.starts(rate, service)]
    values, scatter = starts[0], 0.1
    for turn in range(_REWEIGHTINGS):
        best = math.inf
        chosen = values
        for start in starts:
            beneath = np.maximum(
                curve.mean(values, rate) if turn else curve.mean(start, rate), 1e-12)
            # At first each start has its own scale, so that all of them get a fair chance.
            scale = _OUTLIER * (scatter if turn else max(
                _spread(service / beneath - 1.0), 1e-6))

            def residuals(theta: Floats, beneath: Floats = beneath) -> Floats:
                return (service - curve.mean(theta, rate)) / beneath

            result = optimize.least_squares(
                residuals, start, bounds=(low, high), loss='soft_l1', f_scale=scale,
                x_scale=np.maximum(np.abs(start), 1e-6), max_nfev=200)
            off = _spread(service / np.maximum(curve.mean(result.x, rate), 1e-12) - 1.0)
            cost = off if not turn else float(result.cost)
            if cost < best:
                best, chosen = cost, result.x
        values = chosen
        scatter = max(
            _spread(service / np.maximum(curve.mean(values, rate), 1e-12) - 1.0), 1e-6)
        starts = [values]
    return values, scatter


def _spread(residuals: Floats) -> float:
    """Return the standard deviation with outliers pulled in."""
    middle = float(np.median(residuals))
    robust = 1.4826 * float(np.median(np.abs(residuals - middle)))
    if robust <= 0.0:
        return float(np.std(residuals))
    return float(np.std(np.clip(residuals, middle - 5.0 * robust, middle + 5.0 * robust)))


def _blocks(
    observations: Observations, curve: Curve, values: Floats, scatter: float
) -> tuple[Floats, Floats, Floats, float]:
    """Return each block's rate, mean relative residual and its variance, and the scatter."""
    residual = observations.service / np.maximum(
        curve.mean(values, observations.rate), 1e-12) - 1.0
    residual = np.clip(residual, -1.0, 2.0 * _OUTLIER * scatter)
    block = observations.block
    count = np.bincount(block).astype(np.float64)
    rate = np.bincount(block, observations.rate) / count
    mean = np.bincount(block, residual) / count
    within = scatter ** 2
    if np.all(count == 1.0):
        return rate, mean, np.full(len(rate), within), 0.0
    inner = residual - mean[block]
    free = len(residual) - len(count)
    if free > 0:
        within = float(np.sum(inner ** 2)) / free
    # Method of moments: what the means of blocks scatter more than their frames let expect.
    parameters = len(values)
    share = len(count) / max(1, len(count) - parameters)
    between = max(0.0, float(np.mean(mean ** 2)) * share - within * float(np.mean(1.0 / count)))
    return rate, mean, np.maximum(between + within / count, 1e-18), math.sqrt(between)


def _by_rate(rate: Floats, service: Floats, deviation: Floats) -> tuple[Floats, Floats, Floats]:
    """Put the points of one rate together: to least squares their weighted mean is as good."""
    rates, place = np.unique(rate, return_inverse=True)
    share = np.zeros((len(rate), len(rates)))
    share[np.arange(len(rate)), place] = deviation ** -2.0
    weight = share.sum(axis=0)
    return rates, service @ (share / weight), weight ** -0.5


def _refit(
    curve: Curve, values: Floats, rate: Floats, service: Floats, deviation: Floats
) -> Floats:
    """
    Fit many replicates at once by damped Gauss-Newton.

    :param service: shape (replicates, points).
    :param deviation: standard deviation of each point, shape (points,).
    :return: parameters, shape (replicates, parameters).
    """
    low, high = (np.asarray(bound, np.float64) for bound in curve.bounds)
    size = np.maximum(np.abs(values), 1e-6)
    now = np.tile(values, (len(service), 1))
    damping = np.full(len(service), 1e-3)

    def off(theta: Floats) -> Floats:
        result: Floats = (service - curve.mean(theta, rate)) / deviation
        return result

    residual = off(now)
    cost = np.sum(residual ** 2, axis=1)
    for _ in range(_STEPS):
        slopes = []
        for i in range(len(values)):
            step = np.zeros(len(values))
            step[i] = 1e-6 * size[i]
            slopes.append((curve.mean(np.clip(now + step, low, high), rate)
                           - curve.mean(np.clip(now - step, low, high), rate))
                          / (2e-6 * deviation))
        jacobian = np.stack(slopes, axis=2)
        square = np.einsum('bki,bkj->bij', jacobian, jacobian)
        gradient = np.einsum('bki,bk->bi', jacobian, residual)
        diagonal = np.einsum('bii->bi', square) + 1e-12
        damped = square + np.einsum('b,bi,ij->bij', damping, diagonal, np.eye(len(values)))
        change = np.linalg.solve(damped, gradient[:, :, None])[:, :, 0] * size
        trial = np.clip(now + change, low, high)
        trial_residual = off(trial)
        trial_cost = np.sum(trial_residual ** 2, axis=1)
        better = trial_cost < cost
        moved = float(np.max(np.abs(np.where(better[:, None], change, 0.0)) / size))
        now = np.where(better[:, None], trial, now)
        residual = np.where(better[:, None], trial_residual, residual)
        cost = np.where(better, trial_cost, cost)
        damping = np.clip(np.where(better, 0.2 * damping, 10.0 * damping), 1e-9, 1e9)
        if moved < 1e-5 and bool(np.all(better | (damping > 1e3))):
            break
    return now
