"""The engine against queueing theory, and what must hold whatever the policy."""

from __future__ import annotations

import heapq
import itertools
import math

from laimr_ros.latency.erlang import erlang_c
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import crossed, POLICIES, Policy
from laimr_ros.simulation.result import ANSWERED, ENDINGS, OPEN, RunResult
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario
from laimr_ros.simulation.workload import Draws, lognormal_law, make_workload
import numpy as np
import pytest
from simulation_harness import one_pool

FIXED = crossed('overflow', 'fixed')


def exponential(normal: float) -> float:
    """Return the unit exponential of the same probability as a standard normal number."""
    return -math.log(1.0 - 0.5 * math.erfc(-normal / math.sqrt(2.0)))


# ----- the pooled queue is M/M/c

@pytest.mark.parametrize(('servers', 'rho'), [(1, 0.6), (4, 0.7), (10, 0.8)])
def test_waits_with_fixed_replicas_are_those_of_erlang_c(servers: int, rho: float) -> None:
    service, runs = 0.1, 5
    rate = rho * servers / service
    theory = erlang_c(servers, rho * servers) / (servers / service - rate) + service
    means = []
    for seed in range(runs):
        scenario = one_pool(
            rate=rate, replicas=servers, service=service, law='exponential',
            measured=6000.0 / rate, warm_up=600.0 / rate, robots=7)
        result = simulate(scenario, FIXED, seed)
        assert result.dropped == 0
        means.append(float(result.latency.mean()))
    # 99 % confidence over independent runs: Student's t with 4 degrees of freedom is 4.6.
    half = 4.6 * np.std(means, ddof=1) / math.sqrt(runs)
    assert half < 0.5 * theory, 'too few runs to tell'
    assert abs(np.mean(means) - theory) <= half + 0.02 * theory, (means, theory)


def test_every_frame_is_answered_when_one_shared_queue_would() -> None:
    # Frame by frame the recursion of Kiefer and Wolfowitz, with the same draws.
    scenario = one_pool(rate=25.0, replicas=3, law='exponential', measured=60.0)
    result = simulate(scenario, FIXED, 4)
    workload, draws = make_workload(scenario, 4), Draws(4)
    free = [0.0] * 3
    for at, robot, count, finished in zip(
            workload.time.tolist(), workload.robot.tolist(), workload.count.tolist(),
            result.finished.tolist()):
        ends = max(at, free[0]) + 0.1 * exponential(draws.service(robot, count))
        heapq.heapreplace(free, ends)
        assert finished == pytest.approx(ends, abs=1e-6)


def test_pushed_in_turn_each_replica_has_a_queue_of_its_own() -> None:
    scenario = one_pool(rate=25.0, replicas=3, law='exponential', measured=60.0)
    result = simulate(scenario, crossed('round_robin', 'fixed'), 4)
    workload, draws = make_workload(scenario, 4), Draws(4)
    free = [0.0] * 3
    for k, (at, robot, count, finished) in enumerate(zip(
            workload.time.tolist(), workload.robot.tolist(), workload.count.tolist(),
            result.finished.tolist())):
        free[k % 3] = max(at, free[k % 3]) + 0.1 * exponential(draws.service(robot, count))
        assert finished == pytest.approx(free[k % 3], abs=1e-6)


def test_services_are_slowed_by_the_instance_as_the_law_says() -> None:
    # Each frame alone on the host: it holds 3 of 24 CPUs, others use 6.
    scenario = one_pool(
        robots=1, rate=0.5, replicas=2, service=0.5, cv=0.15, gamma=1.49, capacity=24.0,
        network=0.02, arrivals={'process': 'periodic'}, pool={'cpus': 3.0},
        instances={'host': {'capacity': 24.0, 'background': 6.0, 'speed_up': 2.0}})
    result = simulate(scenario, FIXED, 1)
    law, draws = lognormal_law(1.0, 0.15), Draws(1)
    mean = 0.5 / 2.0 * (1.0 + (9.0 / 24.0) ** 1.49)
    expected = [mean * law(draws.service(0, k)) + 0.02 for k in range(len(result.created))]
    assert result.latency == pytest.approx(expected, abs=1e-9)


def test_who_comes_second_is_slower() -> None:
    scenario = one_pool(
        robots=2, rate=1.0, replicas=2, service=0.5, gamma=2.0, capacity=4.0, measured=20.0,
        arrivals={'process': 'periodic'}, pool={'cpus': 1.0})
    workload = make_workload(scenario, 3)
    result = simulate(scenario, FIXED, 3, workload=workload)
    both = np.diff(workload.time) < 0.5
    for k in np.flatnonzero(both):
        assert result.latency[k + 1] >= 0.5 * (1.0 + 0.5 ** 2) - 1e-9
    assert result.latency[0] == pytest.approx(0.5 * (1.0 + 0.25 ** 2))


# ----- the same chance for every policy, the same run for the same seed

def test_a_run_is_the_same_again() -> None:
    scenario = load_scenario('flaky', {'measured': 200.0, 'warm_up': 20.0})
    for name in ('laimr', 'two_window'):
        one, two = (simulate(scenario, POLICIES[name], 5) for _ in range(2))
        assert np.array_equal(one.finished, two.finished, equal_nan=True)
        assert one.replica_seconds == two.replica_seconds
        other = simulate(scenario, POLICIES[name], 6)
        assert len(other.created) != len(one.created) or not np.array_equal(
            one.finished, other.finished, equal_nan=True)


def test_policies_meet_the_same_frames_and_the_same_chance() -> None:
    # Nothing waits and nothing slows down, so times are services and round trips alone.
    scenario = one_pool(
        robots=6, rate=5.0, replicas=40, service=0.1, cv=0.5, network=0.02, measured=60.0,
        lane={'slo': 5.0})
    results = [simulate(scenario, crossed(routing, 'fixed'), 2)
               for routing in ('laimr', 'laimr_paper', 'overflow', 'round_robin')]
    for result in results[1:]:
        assert np.array_equal(result.created, results[0].created)
        assert np.array_equal(result.robot, results[0].robot)
        assert result.finished == pytest.approx(results[0].finished, abs=1e-9)


# ----- nothing is lost

def conserved(result: RunResult) -> None:
    """Check the books of a run."""
    assert sum(result.ended.values()) == result.received
    assert result.ended[ENDINGS[OPEN]] == 0
    assert np.array_equal(np.isnan(result.finished), result.ending != ANSWERED)
    answered = result.ending == ANSWERED
    assert np.all(result.finished[answered] > result.created[answered])
    assert np.all(result.pool[answered] >= 0)
    assert result.dropped == len(result.created) - answered.sum()


@pytest.mark.parametrize('policy', [
    *POLICIES.values(), crossed('laimr', 'reactive_latency'), crossed('overflow', 'laimr'),
    crossed('overflow', 'laimr_paper'), crossed('laimr_paper', 'laimr'),
], ids=lambda policy: policy.name)
@pytest.mark.parametrize('name', ['flaky', 'tight', 'mixed', 'edge_only'])
def test_frames_are_conserved(name: str, policy: Policy) -> None:
    scenario = load_scenario(name, {'warm_up': 30.0, 'measured': 150.0})
    if name == 'tight':
        # Cameras that move on, deadlines that count, queues that overflow.
        scenario = load_scenario(name, {
            'warm_up': 30.0, 'measured': 150.0, 'rate': 8.0, 'lanes': {'balanced': {
                'supersede': True, 'out_of_order': False, 'late_answers': False,
                'max_queue': 3}}})
    conserved(simulate(scenario, policy, 1))


def test_frames_are_conserved_with_second_copies_and_many_dispatchers() -> None:
    scenario = load_scenario('fleet', {
        'robots': 400, 'rate': 200.0, 'warm_up': 5.0, 'measured': 20.0, 'faults': [
            {'kind': 'replica_death', 'pool': 'edge', 'every': 2.0},
            {'kind': 'link_cut', 'pool': 'cloud', 'duration': 8.0, 'detect': 2.0}]})
    result = simulate(scenario, POLICIES['laimr'].tuned(hedge_share=0.05), 1)
    conserved(result)
    assert result.received > 4000
    assert result.replica_seconds['edge'] > 200.0 * 20.0


# ----- cost

def test_replica_seconds_count_the_measured_window_and_those_that_start() -> None:
    scenario = one_pool(replicas=3, warm_up=10.0, measured=50.0)
    assert simulate(scenario, FIXED, 1).replica_seconds == {'edge': pytest.approx(150.0)}


def test_the_log_of_replicas_adds_up_to_their_cost() -> None:
    scenario = load_scenario('surge', {'measured': 300.0, 'faults': []})
    result = simulate(scenario, POLICIES['capacity_rule'], 1)
    assert set(result.replicas) == {'edge', 'cloud'}
    log = result.replicas['edge']
    total = 0.0
    for row, after in itertools.pairwise([*log.tolist(), [scenario.end, 0, 0]]):
        span = min(after[0], scenario.end) - max(row[0], scenario.warm_up)
        total += max(0.0, span) * (row[1] + row[2])
    # Draining ones are not in the log, but cost.
    assert total <= result.replica_seconds['edge'] <= 1.15 * total
    assert len(log) > 4


def test_pods_wait_for_room_on_their_instance() -> None:
    scenario = one_pool(
        rate=100.0, replicas=1, service=0.1, capacity=6.0, gamma=9.0, measured=30.0,
        pool={'cpus': 2.0, 'max_replicas': 10})
    result = simulate(scenario, crossed('overflow', 'capacity_rule'), 1)
    log = result.replicas['edge']
    assert log[:, 1].max() == 3.0
    assert log[np.argmax(log[:, 1]), 2] == 7.0
    assert result.replica_seconds['edge'] <= 3 * 30.0 + 1e-6


def test_decisions_are_timed_if_asked() -> None:
    ticks = itertools.count()
    scenario = one_pool(measured=10.0)
    result = simulate(scenario, POLICIES['laimr'], 1, clock=lambda: float(next(ticks)))
    assert set(result.decision_s) == {'routing', 'scaling'}
    assert np.all(result.decision_s['routing'] == 1.0)
    assert len(result.decision_s['routing']) == 2 * result.received
    assert not simulate(scenario, POLICIES['laimr'], 1).decision_s


# ----- faults

def plain(fault: dict[str, object], **values: object) -> Scenario:
    """Return a scenario of constant times and one fault."""
    return one_pool(
        robots=1, rate=5.0, replicas=2, measured=40.0, arrivals={'process': 'periodic'},
        faults=[fault], **values)  # type: ignore[arg-type]


def test_drift_makes_services_longer_from_half_way() -> None:
    result = simulate(plain({'kind': 'slow_down', 'at_share': 0.5, 'factor': 1.5}), FIXED, 1)
    early = result.created < 20.0
    assert result.latency[early] == pytest.approx(0.1)
    assert result.latency[~early] == pytest.approx(0.15)


def test_dead_replicas_are_replaced_and_their_frames_go_elsewhere() -> None:
    result = simulate(plain({'kind': 'replica_death', 'pool': 'edge', 'every': 3.0}), FIXED, 1)
    assert result.dropped == 0
    assert result.latency.max() < 2.0
    ready = result.replicas['edge'][:, 1]
    assert ready.min() < 2 and ready[-1] >= 1
    assert result.replicas['edge'][-1, 1:].sum() == 2


def test_a_cut_link_lets_nothing_pass_until_it_is_mended() -> None:
    result = simulate(plain(
        {'kind': 'link_cut', 'pool': 'edge', 'at_share': 0.25, 'duration': 10.0, 'detect': 2.0}),
        FIXED, 1)
    assert result.dropped == 0
    within = (result.created > 10.0) & (result.created < 20.0)
    assert np.all(result.finished[within] > 20.0)
    assert result.latency[result.created < 9.8] == pytest.approx(0.1)


def test_a_cut_that_nobody_notices_ends_frames_by_their_deadline() -> None:
    result = simulate(plain(
        {'kind': 'link_cut', 'pool': 'edge', 'at_share': 0.25, 'duration': 5.0},
        lane={'late_answers': False}), FIXED, 1)
    conserved(result)
    assert result.ended['expired'] >= 2
    assert result.latency[result.created > 20.0] == pytest.approx(0.1)
