"""``spread``: how much the tail differs from run to run and from frame to frame, by policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import math

from laimr_ros.evaluation import table6
from laimr_ros.evaluation.bootstrap import interval, median_interval
from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import Row, Task
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RATES = table6.RATES
#: Who is held against whom; the last shows what is left if the baseline is told the pools' order.
PAIRS = (('laimr', 'reactive_latency'), ('laimr_paper', 'reactive_latency'),
         ('laimr', 'reactive_cheapest'))


def _iqr(samples: Floats) -> Floats:
    """Return the inter-quartile range along axis 1, quartiles as order statistics."""
    ordered = np.sort(samples, axis=1)
    last = samples.shape[1] - 1
    return np.asarray(ordered[:, math.ceil(0.75 * last)] - ordered[:, math.floor(0.25 * last)])


def _deviation(samples: Floats) -> Floats:
    return np.asarray(np.std(samples, axis=1, ddof=1))


#: What is claimed of the P99 of a run, or of the frames of all runs: a number of each run, what
#: is made of it over seeds (from shape (resamples, seeds, ...)), the paper's gain, and its text.
MEASURES: Mapping[str, tuple[str, Callable[[Floats], Floats], float, str]] = {
    'inter-quartile range of P99 over seeds': ('p99_s', _iqr, 0.27, '-27 %'),
    'worst P99 of any seed': (
        'p99_s', lambda s: np.asarray(s.max(axis=1)), 0.41, '-41 % (worst outlier)'),
    'standard deviation of P99 over seeds': ('p99_s', _deviation, 0.60, 'over -60 %'),
    'inter-quartile range of the frames': (
        'iqr_s', lambda s: np.asarray(np.median(s, axis=1)), 0.27, '-27 %'),
    'worst frame of any seed': (
        'max_s', lambda s: np.asarray(s.max(axis=1)), 0.41, '-41 % (worst outlier)'),
}


def tasks(seeds: Sequence[int], measured: float | None) -> list[Task]:
    """Return the runs, those of ``table6-p99`` among them."""
    return [Task('paper', rate, policy, seed, measured)
            for rate in RATES for policy in POLICIES for seed in seeds]


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    seeds = sorted({row['seed'] for row in rows})
    cell = {(row['policy'], row['rate'], row['seed']): row for row in rows}

    def of(policy: str, rates: Sequence[float], what: str) -> Floats:
        """Return a number of each run, shape (seeds, rates)."""
        return np.array([[cell[policy, rate, seed][what] for rate in rates] for seed in seeds])

    claims = []
    for policy, baseline in PAIRS:
        for measure, (what, statistic, gain, paper) in MEASURES.items():
            def less(samples: Floats, statistic: Callable[[Floats], Floats] = statistic) -> Floats:
                # Both policies of a seed are drawn together; what is averaged are the rates.
                parts = statistic(samples).mean(axis=1)
                return np.asarray(1.0 - parts[:, 0] / parts[:, 1])

            pairs = np.stack([of(policy, RATES, what), of(baseline, RATES, what)], axis=2)
            with np.errstate(invalid='ignore', divide='ignore'):
                ours = float(less(pairs[None])[0]) if len(seeds) > 1 else math.nan
                last = float(less(pairs[None, :, -1:])[0]) if len(seeds) > 1 else math.nan
            low, high = interval(less, pairs)
            claims.append(Claim(
                f'{policy}: {measure} under {baseline}, mean over 1 to 6/s', paper,
                f'{-ours:+.0%} (95 %: {-high:+.0%} to {-low:+.0%}); at 6/s {-last:+.0%}',
                judged(ours >= gain and low > 0.0, ours, low)))
    table = []
    for rate in RATES:
        for policy in POLICIES:
            p99 = of(policy, (rate,), 'p99_s')[:, 0]
            low, high = median_interval(p99.tolist())
            many = len(seeds) > 1
            with np.errstate(invalid='ignore'):
                table.append([
                    policy, rate, float(np.median(p99)), low, high,
                    float(_iqr(p99[None])[0]),
                    float(_deviation(p99[None])[0]) if many else math.nan, float(p99.max()),
                    *(float(np.median(of(policy, (rate,), what))) for what in (
                        'iqr_s', 'max_s', 'replica_seconds'))])
    return Findings(
        claims,
        ['policy', 'rate', 'P99 s', 'P99 low', 'P99 high', 'IQR of P99', 'std of P99',
         'worst P99', 'IQR of frames', 'worst frame', 'replica-seconds'], table,
        {'P99 over arrival rate with intervals of the median': (
            'rate', 'P99 s', 'P99 low', 'P99 high'),
         'Standard deviation of P99 over seeds': ('rate', 'std of P99'),
         'Worst P99 of any seed': ('rate', 'worst P99')},
        [f'{len(seeds)} seeds. Intervals: 95 %, percentile bootstrap over seeds, which '
         'are common to all policies and drawn as pairs. Of a maximum such an interval is only a '
         'hint: no resample exceeds the largest that was seen.',
         "A gain holds if it is at least the paper's and its interval leaves out no gain at all. "
         'The paper does not tell whether its ranges are of runs or of frames, nor at what cost; '
         'both readings stand here.',
         "Frames: IQR of the latency of a run's frames, its median over seeds; worst frame in "
         "the table: median over seeds of the run's longest latency."])
