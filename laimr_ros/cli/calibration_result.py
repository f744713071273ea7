"""What a sweep says: service, network and queue apart, and whether a prediction holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
import math
from typing import Any

from laimr_ros.cli.calibration_sweep import FrameRecord
from laimr_ros.latency.calibration import calibrate, Calibration, Spread, spread
from laimr_ros.latency.end_to_end import LatencyModel
from laimr_ros.latency.fitting import Observations
from laimr_ros.latency.model import Network, PowerLaw
import numpy as np

P = 0.99
# What a model must keep to be used.
MOST_ERROR, LEAST_COVERAGE = 0.10, 0.98
# A visit that loses more than this share of its frames is taken at the rate that got through.
_LOST = 0.02
# Frames are pushed into the worker's own queue, so that the network occupies nobody.
_PUSHED = 1_000_000


@dataclass(frozen=True)
class RateResult:
    """
    What one rate showed and what was predicted; all times in seconds.

    :param rate: frames per second.
    :param frames: sent.
    :param lost: without an answer.
    :param service: mean service time, with the half width of its 95 % interval over visits.
    :param predicted_service: by the model.
    :param wait: mean time in the worker's queue.
    :param predicted_wait: by the queueing formulas.
    :param latency: 0.99 quantile from sending to the reply.
    :param predicted_latency: by the whole model.
    :param covered: share of the frames sent that were answered within ``predicted_latency``.
    """

    rate: float
    frames: int
    lost: int
    service: float
    service_error: float
    predicted_service: float
    wait: float
    predicted_wait: float
    latency: float
    predicted_latency: float
    covered: float


@dataclass(frozen=True)
class Verdict:
    """
    How a model predicts a run.

    :param rates: one result a rate.
    :param median_error: median over rates of the absolute relative error of the mean service.
    :param coverage: share of frames answered within the predicted 0.99 quantile, all rates.
    :param coverage_low: lower end of its 95 % confidence interval (Wilson).
    :param coverage_high: upper end.
    :param coverage_independent: share within the tighter quantile that takes wait, service and
        network as independent.
    """

    rates: tuple[RateResult, ...]
    median_error: float
    coverage: float
    coverage_low: float
    coverage_high: float
    coverage_independent: float

    @property
    def holds(self) -> bool:
        """Return whether the mean is within 10 % and coverage between 98 and 100 %."""
        return self.median_error <= MOST_ERROR and self.coverage >= LEAST_COVERAGE


@dataclass(frozen=True)
class Result:
    """
    A calibration of one model on one worker.

    :param calibration: of the service time.
    :param network_mean: mean round trip in seconds.
    :param network: its scatter.
    :param verdict: on the same frames: how the parts fit together, no proof.
    """

    calibration: Calibration
    network_mean: float
    network: Spread
    verdict: Verdict

    def doubts(self) -> list[str]:
        """Return why the calibration should not be used, for people; nothing if it should."""
        found = []
        held = self.calibration.held_out
        if held is not None and held.median_error > MOST_ERROR:
            found.append(
                f'the mean service time at what was held out ({held.rule}) is off by '
                f'{held.median_error:.0%}; measure at more rates, or longer')
        between = self.calibration.fit.block_scatter
        if between > MOST_ERROR:
            found.append(
                f'visits to one rate differ by {between:.0%} more than their frames explain: '
                'something else uses the machine; measure while it is quiet')
        return found

    def model(self) -> LatencyModel:
        """Return the model that was found."""
        return latency_model(
            self.calibration.power_law(), Network(self.network_mean, self.network.careful))


def latency_model(service: PowerLaw, network: Network) -> LatencyModel:
    """Return the model of frames that are pushed into one worker's queue."""
    return LatencyModel(service, network, max_in_flight=_PUSHED)


def evaluate(records: Sequence[FrameRecord], *, seed: int) -> Result:
    """
    Calibrate service and network, and see whether the queue comes out right.

    :raises ValueError: if there are too few frames.
    """
    answered = [record for record in records if record.ok]
    rates = _effective_rates(records)
    calibration = calibrate(
        Observations([rates[r.block] for r in answered], [r.service_s for r in answered],
                     [r.block for r in answered]), seed=seed)
    trips = np.array([record.network_s for record in answered])
    # A stall of the client's host is no network; a hundredth of the frames cannot move the mean.
    mean = float(np.minimum(trips, np.quantile(trips, 0.99)).mean())
    network = spread(trips / mean) if mean > 0.0 else Spread(0.0, 0.0, len(trips))
    model = latency_model(calibration.power_law(), Network(mean, network.careful))
    return Result(calibration, mean, network, judge(records, model))


def judge(records: Sequence[FrameRecord], model: LatencyModel) -> Verdict:
    """Compare a run with what a model predicts."""
    effective = _effective_rates(records)
    results = []
    hits = hits_independent = 0
    tighter = replace(model, independent=True)
    for rate in sorted({record.rate for record in records}):
        mine = [record for record in records if record.rate == rate]
        ok = [record for record in mine if record.ok]
        at = float(np.mean([effective[block] for block in {record.block for record in mine}]))
        limit = model.quantile(P, at, 1)
        covered = sum(record.latency_s <= limit for record in ok)
        hits += covered
        tight = tighter.quantile(P, at, 1)
        hits_independent += sum(record.latency_s <= tight for record in ok)
        means = np.array([
            np.mean([r.service_s for r in ok if r.block == block])
            for block in sorted({r.block for r in ok})])
        results.append(RateResult(
            rate, len(mine), len(mine) - len(ok),
            float(np.mean([r.service_s for r in ok])) if ok else math.nan,
            _half_width(means), model.service.mean(at, 1),
            float(np.mean([r.queue_s for r in ok])) if ok else math.nan,
            model.mean(at, 1) - model.service.mean(at, 1) - model.network.mean,
            float(np.quantile([r.latency_s for r in ok], P)) if ok else math.nan, limit,
            covered / len(mine)))
    errors = [abs(r.predicted_service / r.service - 1.0) for r in results
              if math.isfinite(r.service)]
    total = len(records)
    low, high = _wilson(hits, total)
    return Verdict(tuple(results), float(np.median(errors)) if errors else math.inf,
                   hits / total if total else 0.0, low, high,
                   hits_independent / total if total else 0.0)


def _effective_rates(records: Sequence[FrameRecord]) -> dict[int, float]:
    """Return by visit the rate that the worker really served."""
    rates = {}
    for block in {record.block for record in records}:
        mine = [record for record in records if record.block == block]
        share = sum(record.ok for record in mine) / len(mine)
        rates[block] = mine[0].rate * (share if share < 1.0 - _LOST else 1.0)
    return rates


def _half_width(values: np.ndarray[Any, Any]) -> float:
    """Return half of the 95 % interval of a mean of few values."""
    if len(values) < 2:
        return math.nan
    from scipy import stats
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))


def _wilson(hits: int, total: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share (Wilson 1927)."""
    if not total:
        return 0.0, 1.0
    z = 1.96
    share = hits / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1.0 - share) / total + z * z / (4 * total * total))
    below = 1.0 + z * z / total
    return (min(share, max(0.0, (middle - half) / below)),
            max(share, min(1.0, (middle + half) / below)))


def as_json(result: Result) -> dict[str, Any]:
    """Return all of a calibration for a JSON file."""
    calibration = result.calibration
    law = calibration.power_law()
    return {
        'service': {'alpha': law.alpha, 'beta': law.beta, 'gamma': law.gamma, 'cv': law.cv},
        'intervals': {name: asdict(e) for name, e in calibration.fit.parameters.items()},
        'training': {name: asdict(e) for name, e in calibration.training.parameters.items()},
        'held_out': None if calibration.held_out is None else asdict(calibration.held_out),
        'refused': [asdict(refusal) for refusal in calibration.refused],
        'service_spread': asdict(calibration.spread),
        'block_scatter': calibration.fit.block_scatter,
        'network': {'mean': result.network_mean, **asdict(result.network)},
        'same_frames': asdict(result.verdict),
    }
