"""Forms of the service time fitted to a sweep, and what they predict of further frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laimr_ros.evaluation.sweep import Visit
from laimr_ros.latency.calibration import calibrate, spread
from laimr_ros.latency.correction import Correction
from laimr_ros.latency.curves import Curve, Floats, Power
from laimr_ros.latency.fitting import Fit, fit, Observations
from laimr_ros.latency.model import lognormal_quantile, ServiceModel
import numpy as np

#: ``told``: as much of the power law as `laimr calibrate` takes for told; ``power``: all of it,
#: whatever its intervals; ``exact``: the form in the utilisation; ``online``: as told, and
#: corrected by every frame after it was predicted, as the dispatcher does.
FORMS = ('told', 'power', 'exact', 'online')


@dataclass(frozen=True)
class FittedModel:
    """
    A fit as a service model, log-normal about its mean.

    :param found: in the rate of one replica.
    """

    found: Fit
    cv: float

    def mean(self, rate: float, replicas: int) -> float:
        """Return the mean service time in seconds."""
        return float(self.found.mean(rate / replicas)[0])

    def quantile(self, p: float, rate: float, replicas: int) -> float:
        """Return the ``p`` quantile of the service time in seconds."""
        return lognormal_quantile(self.mean(rate, replicas), self.cv, p)


def fitted(form: str, seen: Observations, exact: Curve | None, seed: int) -> ServiceModel:
    """
    Return a form fitted to all that was seen.

    :param form: one of :data:`FORMS`.
    :param exact: the curve of the form of that name.
    """
    if form in ('told', 'online'):
        return calibrate(seen, np.zeros(len(seen), bool), seed=seed).power_law()
    curve = Power() if form == 'power' else exact
    assert curve is not None
    found = fit(seen, curve, replicates=20, seed=seed)
    return FittedModel(found, spread(seen.service / found.mean(seen.rate)).careful)


def predicted(
    model: ServiceModel, visits: Sequence[Visit], p: float, *, online: bool = False
) -> tuple[list[Floats], list[Floats]]:
    """
    Return means and ``p`` quantiles predicted of each frame of each visit, in seconds.

    :param online: correct them by each frame once it was served, one visit after the other.
    """
    means, bounds = [], []
    ratio = model.quantile(p, 0.0, 1) / model.mean(0.0, 1)
    correction = Correction(p, ratio)
    for one in visits:
        base = model.mean(one.rate, one.replicas)
        mean = np.full(len(one.service), base)
        bound = np.full(len(one.service), base * ratio)
        if online:
            for k, service in enumerate(one.service.tolist()):
                mean[k] = base * correction.mean_ratio
                bound[k] = mean[k] * correction.tail_ratio
                correction.update(base, service)
        means.append(mean)
        bounds.append(bound)
    return means, bounds
