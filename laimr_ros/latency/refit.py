"""Fit the power law anew from served frames, as long as that predicts better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import math

from laimr_ros.latency.model import PowerLaw

# Residuals beyond so many deviations are drawn in (Huber 1964: 95 % efficient for Gaussian ones).
_HUBER = 1.345
# How far parameters are expected to stray from the calibration, as a part of it; it decides
# where the frames do not (a single load cannot tell alpha from beta).
_PRIOR_DEVIATION = 0.3
# Frames that are remembered.
_MEMORY = 1000.0
# Every so manieth frame is held back from the fit and judges it.
_HELD_BACK = 5
_JUDGED_MEMORY = 100.0
# A fit is used once this many held-back frames say that it is better by this much.
_JUDGES = 20
_BETTER = 0.97
_WORSE = 1.0
_FIT_EVERY = 20
_STATE_VERSION = 1
# What is believed of a saved state; sums are compared in units of the calibration.
_MOST_FRAMES, _MOST_DEVIATION, _MOST_SUM = 1e15, 64.0, 1e15


class PowerLawRefit:
    """
    ``alpha`` and ``beta`` of a power law, refitted online from served frames; ``gamma`` is kept.

    Recursive least squares in relative errors, with exponential forgetting and Huber weights,
    drawn to the calibration by a prior. Guards: outliers are clipped; each parameter stays
    within ``distance`` times the calibration's and its inverse; every fifth frame is held back
    and judges both models by absolute relative error, and only while the fit predicts better
    than the calibration it is used, else the calibration is, and the fit starts anew from it.

    :param calibration: the power law to start from and to fall back to.
    :param distance: how many times larger or smaller than calibrated a parameter may become.
    """

    __slots__ = ('_beta_scale', '_calibrated_loss', '_calibration', '_deviation', '_distance',
                 '_fit', '_fitted_loss', '_frames', '_judged', '_sums', 'active', 'damage')

    def __init__(self, calibration: PowerLaw, distance: float = 3.0) -> None:
        """Start from the calibration."""
        self._calibration = calibration
        self._distance = distance
        # Without a calibrated slope one of a tenth of alpha is the unit for the prior.
        self._beta_scale = calibration.beta or 0.1 * calibration.alpha
        self.active = False
        #: Why a saved state was not believed; empty unless it was damaged.
        self.damage = ''
        self._start()

    def _start(self) -> None:
        """Forget every frame."""
        self.active = False
        self._fit = self._calibration
        self._frames = 0
        self._judged = 0.0
        self._deviation = max(0.02, self._calibration.cv)
        self._fitted_loss = self._calibrated_loss = 0.0
        # Sums of w x0 x0, w x0 x1, w x1 x1, w x0 y, w x1 y; in relative units.
        self._sums = [0.0] * 5

    @property
    def model(self) -> PowerLaw:
        """Return the power law to predict with now."""
        return self._fit if self.active else self._calibration

    @property
    def frames(self) -> int:
        """Return on how many frames the fit rests since it started anew."""
        return self._frames

    @property
    def errors(self) -> tuple[float, float]:
        """Return the mean absolute relative errors on held-back frames: fit's, calibration's."""
        return self._fitted_loss, self._calibrated_loss

    def update(self, rate: float, replicas: int, actual: float) -> bool:
        """
        Learn from one served frame.

        :param rate: frames per second that the pool's replicas shared.
        :param replicas: how many they were.
        :param actual: measured service time in seconds.
        :return: whether :attr:`model` is another one now.
        """
        if not (replicas > 0 and 0.0 <= rate < math.inf and 0.0 < actual < math.inf):
            return False
        load = math.pow(rate / replicas, self._calibration.gamma) if rate > 0.0 else 0.0
        fit = self._fit
        predicted = fit.alpha + fit.beta * load
        self._frames += 1
        if self._frames % _HELD_BACK == 0:
            return self._judge(predicted, load, actual)
        self._learn(predicted, load, actual)
        if self._frames % _FIT_EVERY == 1:
            return self._solve() and self.active
        return False

    def _learn(self, predicted: float, load: float, actual: float) -> None:
        error = (actual - predicted) / predicted
        bound = _HUBER * self._deviation
        weight = 1.0 if abs(error) <= bound else bound / abs(error)
        clipped = min(3.0 * self._deviation, abs(error))
        # 1.25 makes a mean absolute error a standard deviation (Gaussian).
        self._deviation += 0.02 * (1.25 * clipped - self._deviation)
        self._deviation = max(0.02, self._deviation)
        x0, x1, y = 1.0 / predicted, load / predicted, actual / predicted
        sums, keep = self._sums, 1.0 - 1.0 / _MEMORY
        sums[0] = keep * sums[0] + weight * x0 * x0
        sums[1] = keep * sums[1] + weight * x0 * x1
        sums[2] = keep * sums[2] + weight * x1 * x1
        sums[3] = keep * sums[3] + weight * x0 * y
        sums[4] = keep * sums[4] + weight * x1 * y

    def _solve(self) -> bool:
        """Fit; return whether anything changed that is worth a new model."""
        calibration, scale, distance = self._calibration, self._beta_scale, self._distance
        alpha0, beta0 = calibration.alpha, calibration.beta
        s00, s01, s11, t0, t1 = self._sums
        prior = (self._deviation / _PRIOR_DEVIATION) ** 2
        prior0, prior1 = prior / (alpha0 * alpha0), prior / (scale * scale)
        a, b, c = s00 + prior0, s01, s11 + prior1
        d, e = t0 + prior0 * alpha0, t1 + prior1 * beta0
        lowest, highest = alpha0 / distance, alpha0 * distance
        # A slope that was calibrated as none may become one of a distance times the unit.
        least, most = beta0 / distance, scale * distance
        determinant = a * c - b * b
        alpha = (d * c - b * e) / determinant
        beta = (a * e - b * d) / determinant
        if not lowest <= alpha <= highest:
            alpha = min(highest, max(lowest, alpha))
            beta = (e - b * alpha) / c
        if not least <= beta <= most:
            beta = min(most, max(least, beta))
            alpha = min(highest, max(lowest, (d - b * beta) / a))
        changed = (abs(alpha - self._fit.alpha) > 1e-3 * alpha
                   or abs(beta - self._fit.beta) > 1e-3 * scale)
        if changed:
            self._fit = replace(calibration, alpha=alpha, beta=beta)
        return changed

    def _judge(self, predicted: float, load: float, actual: float) -> bool:
        """Let a held-back frame decide between fit and calibration."""
        calibration = self._calibration
        calibrated = calibration.alpha + calibration.beta * load
        # Logarithms, so that neither model gains by predicting too low; bounded, so that one
        # frame does not decide.
        fitted_error = min(1.0, abs(math.log(actual / predicted)))
        calibrated_error = min(1.0, abs(math.log(actual / calibrated)))
        self._judged = min(_JUDGED_MEMORY, self._judged + 1.0)
        weight = 1.0 / self._judged
        self._fitted_loss += weight * (fitted_error - self._fitted_loss)
        self._calibrated_loss += weight * (calibrated_error - self._calibrated_loss)
        if self._judged < _JUDGES:
            return False
        if self.active:
            if self._fitted_loss > _WORSE * self._calibrated_loss:
                self._start()
                return True
        elif self._fitted_loss < _BETTER * self._calibrated_loss:
            self.active = True
            return True
        return False

    def to_state(self) -> dict[str, object]:
        """Return what was learned as plain values, fit for JSON."""
        calibration = self._calibration
        return {
            'version': _STATE_VERSION,
            'calibration': [calibration.alpha, calibration.beta, calibration.gamma],
            'fit': [self._fit.alpha, self._fit.beta], 'active': self.active,
            'frames': self._frames, 'judged': self._judged, 'deviation': self._deviation,
            'errors': [self._fitted_loss, self._calibrated_loss], 'sums': list(self._sums)}

    @classmethod
    def from_state(
        cls, state: Mapping[str, object], age_s: float, calibration: PowerLaw, *,
        distance: float = 3.0, max_age_s: float = 3600.0
    ) -> PowerLawRefit:
        """
        Go on from a saved state if it is young, sound and of the same calibration.

        :param age_s: how long ago it was saved, in seconds.
        :return: else a refit that starts from the calibration.
        """
        resumed = cls(calibration, distance)
        if not (0.0 <= age_s <= max_age_s and state.get('version') == _STATE_VERSION):
            return resumed
        try:
            resumed._restore(state)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # A damaged file must not stop a start: the calibration is always there.
            fresh = cls(calibration, distance)
            fresh.damage = f'{type(error).__name__}: {error}'[:200]
            return fresh
        return resumed

    def _restore(self, state: Mapping[str, object]) -> None:
        calibration, distance, scale = self._calibration, self._distance, self._beta_scale
        if _numbers(state, 'calibration', [(-math.inf, math.inf)] * 3) != [
                calibration.alpha, calibration.beta, calibration.gamma]:
            return
        fit = _numbers(state, 'fit', [
            (calibration.alpha / distance, calibration.alpha * distance),
            (calibration.beta / distance, scale * distance)])
        most = _MOST_SUM / min(1.0, calibration.alpha) ** 2
        s00, s01, s11, t0, t1 = _numbers(state, 'sums', [(0.0, most)] * 5)
        if s01 * s01 > s00 * s11 * (1.0 + 1e-9):
            raise ValueError('sums are none of any frames')
        self._sums = [s00, s01, s11, t0, t1]
        self._fitted_loss, self._calibrated_loss = _numbers(state, 'errors', [(0.0, 1.0)] * 2)
        self._frames = int(_between('frames', state['frames'], 0.0, _MOST_FRAMES))
        self._judged = _between('judged', state['judged'], 0.0, _JUDGED_MEMORY)
        self._deviation = _between('deviation', state['deviation'], 0.0, _MOST_DEVIATION)
        self._deviation = max(0.02, self._deviation)
        self._fit = replace(calibration, alpha=fit[0], beta=fit[1])
        # It must be possible to go on from it.
        self._solve()
        self._fit = replace(calibration, alpha=fit[0], beta=fit[1])
        self.active = state.get('active') is True


def _numbers(
    state: Mapping[str, object], key: str, bounds: Sequence[tuple[float, float]],
) -> list[float]:
    values = state[key]
    if not isinstance(values, list) or len(values) != len(bounds):
        raise ValueError(f'{key} is not a list of {len(bounds)} numbers')
    return [_between(key, value, *bound) for value, bound in zip(values, bounds)]


def _between(name: str, value: object, least: float, most: float) -> float:
    # Compared before it is made a float: an integer may be too large for one. No NaN passes.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (
            not least <= value <= most):
        raise ValueError(f'{name} is not a number from {least:g} to {most:g}')
    return float(value)
