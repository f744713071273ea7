"""``table6-p99``: the tail of latency at every arrival rate, by policy (the paper's Table VI)."""

from __future__ import annotations

from collections.abc import Sequence
import math
from statistics import median

from laimr_ros.evaluation import comparison
from laimr_ros.evaluation.findings import Claim, Findings, judged
from laimr_ros.evaluation.runs import Row, Task

#: What the order of pools is worth alone, `crossed` and `spread` tell.
POLICIES = {name: policy for name, policy in comparison.POLICIES.items()
            if name != 'reactive_cheapest'}
RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
SLO = 1.8
# P99 of LA-IMR as the paper has it, at the lowest and the highest rate, in seconds.
_PAPER = {1.0: 1.989, 6.0: 5.435}


def tasks(seeds: Sequence[int], measured: float | None) -> list[Task]:
    """Return the runs."""
    return [Task('paper', rate, policy, seed, measured)
            for rate in RATES for policy in POLICIES for seed in seeds]


def findings(rows: Sequence[Row]) -> Findings:
    """Return what the runs say."""
    def middle(policy: str, rate: float, what: str) -> float:
        return float(median(row[what] for row in rows
                            if row['policy'] == policy and row['rate'] == rate))

    p99 = {policy: {rate: middle(policy, rate, 'p99_s') for rate in RATES}
           for policy in POLICIES}
    cost = {policy: {rate: middle(policy, rate, 'replica_seconds') for rate in RATES}
            for policy in POLICIES}
    table = [[policy, rate, p99[policy][rate], middle(policy, rate, 'p95_s'),
              middle(policy, rate, 'p50_s'), middle(policy, rate, 'on_time'),
              cost[policy][rate], middle(policy, rate, 'offload_share'),
              middle(policy, rate, 'dropped')]
             for rate in RATES for policy in POLICIES]
    claims = [Claim(
        f'LA-IMR, median P99 at {rate:g}/s, within the {SLO} s asked for',
        f'{_PAPER[rate]} s (missed)' if rate in _PAPER else 'missed',
        f'{p99["laimr"][rate]:.3f} s', judged(p99['laimr'][rate] <= SLO, p99['laimr'][rate]))
        for rate in RATES]
    gain = _less(p99['laimr'][6.0], p99['reactive_latency'][6.0])
    spent = cost['laimr'][6.0] / cost['reactive_latency'][6.0]
    claims.append(Claim(
        'LA-IMR at 6/s: P99 at least 50 % under reactive_latency, for at most 1.10 x its '
        'replica-seconds', '-20.7 % (cost not told)', f'{-gain:+.1%} at {spent:.2f} x',
        judged(gain >= 0.5 and spent <= 1.10, gain, spent)))
    ratios = [p99['laimr'][rate] / p99['clairvoyant'][rate] for rate in RATES]
    worst = max(RATES, key=lambda rate: p99['laimr'][rate] / p99['clairvoyant'][rate])
    dearest = max(RATES, key=lambda rate: cost['laimr'][rate] / cost['clairvoyant'][rate])
    times = p99['laimr'][worst] / p99['clairvoyant'][worst]
    price = cost['laimr'][dearest] / cost['clairvoyant'][dearest]
    claims.append(Claim(
        'LA-IMR at every rate: P99 at most 1.15 x that of clairvoyant, for at most 1.25 x its '
        'replica-seconds', 'not told',
        f'at worst {times:.2f} x ({worst:g}/s), at dearest {price:.2f} x ({dearest:g}/s)',
        judged(times <= 1.15 and price <= 1.25, *ratios, price)))
    first = _less(p99['laimr_paper'][6.0], p99['reactive_latency'][6.0])
    claims.append(Claim(
        "The paper's algorithm at 6/s: P99 under reactive_latency by the paper's order "
        '(10 to 40 %)', '-20.7 %',
        f'{-first:+.1%} at {cost["laimr_paper"][6.0] / cost["reactive_latency"][6.0]:.2f} x '
        'replica-seconds', judged(0.1 <= first <= 0.4, first)))
    mean = sum(_less(p99['laimr_paper'][rate], p99['reactive_latency'][rate])
               for rate in RATES) / len(RATES)
    claims.append(Claim(
        "The paper's algorithm, mean over rates: P99 under reactive_latency", '-9 %',
        f'{-mean:+.1%}', judged(mean > 0.0, mean)))
    return Findings(
        claims,
        ['policy', 'rate', 'P99 s', 'P95 s', 'P50 s', 'on time', 'replica-seconds',
         'offloaded', 'not answered'],
        table,
        {'P99 over arrival rate': ('rate', 'P99 s'),
         'P99 against cost': ('replica-seconds', 'P99 s')},
        ['Medians over seeds. Quantiles are over every frame received in the measured window; '
         'one not answered counts as later than any answer.',
         'Settings of every policy, found by the same search on other seeds: ' + '; '.join(
             f'{name} {dict(policy.settings) or dict(policy.limits)}'
             for name, policy in POLICIES.items())])


def _less(ours: float, theirs: float) -> float:
    """Return by what share one is under the other."""
    return math.nan if math.isinf(theirs) else 1.0 - ours / theirs
