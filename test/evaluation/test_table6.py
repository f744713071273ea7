"""Claims of Table VI are judged by the medians of the runs."""

from __future__ import annotations

import math

from laimr_ros.evaluation.table6 import findings, POLICIES, RATES, tasks
import pytest


def _rows(p99, cost):
    return [{'policy': policy, 'rate': rate, 'seed': seed, 'p99_s': p99.get(policy, 1.0) + off,
             'p95_s': 0.9, 'p50_s': 0.7, 'on_time': 1.0,
             'replica_seconds': cost.get(policy, 100.0), 'offload_share': 0.0, 'dropped': 0.0}
            for rate in RATES for policy in POLICIES for seed, off in ((1, -0.1), (2, 0), (3, 9))]


def _verdicts(p99, cost):
    claims = findings(_rows(p99, cost)).claims
    return [claim.holds for claim in claims]


def test_every_rate_policy_and_seed_is_run_once():
    made = tasks([1, 2], 5.0)
    assert len(made) == len(set(made)) == 6 * len(POLICIES) * 2


def test_all_claims_hold_where_they_should():
    p99 = {'laimr': 1.0, 'reactive_latency': 2.0, 'laimr_paper': 1.6, 'clairvoyant': 0.9}
    assert all(_verdicts(p99, {'laimr': 110.0}))


@pytest.mark.parametrize(('p99', 'cost', 'broken'), [
    ({'laimr': 1.81, 'reactive_latency': 4.0, 'clairvoyant': 1.7}, {}, range(6)),
    ({'laimr': 1.01, 'reactive_latency': 2.0}, {}, [6]),
    ({'reactive_latency': 2.0}, {'laimr': 111.0}, [6]),
    ({'reactive_latency': 2.0, 'clairvoyant': 0.8}, {}, [7]),
    ({'reactive_latency': 2.0}, {'clairvoyant': 70.0}, [7]),
])
def test_a_claim_that_is_missed_is_said_to_be(p99, cost, broken):
    verdicts = _verdicts({'laimr_paper': 0.8 * p99['reactive_latency'], **p99}, cost)
    assert [k for k, holds in enumerate(verdicts) if not holds] == list(broken)


def test_an_infinite_baseline_wins_no_claim():
    # A baseline that lost frames has no P99 to be a share of.
    verdicts = _verdicts({'reactive_latency': math.inf}, {})
    assert not verdicts[6]
