"""Test what is known of a pool: replicas, what they have in flight, costs."""

from __future__ import annotations

import math
import random

from controller_harness import make_lane, make_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from laimr_ros.control.jobs import Job
from laimr_ros.control.nouns import Frame, Limits, Pool, PowerLaw
from laimr_ros.control.pools import PoolState, Replica
from laimr_ros.latency.model import lognormal_quantile, Network
import pytest

LANE = make_lane('lane', 1.0)


class Bench:
    """A pool and the sending of frames to it."""

    def __init__(self, pool: Pool, *replicas: str) -> None:
        self.pool = PoolState(pool, Limits())
        self.costs = self.pool.costs['m']
        self.replicas = [self.pool.add(name) for name in replicas]
        self.number = 0

    def send(self, now: float, replica: Replica | None = None) -> Job:
        """Send a new frame to the best replica, or to a given one."""
        replica = replica or self.pool.best()
        assert replica is not None
        self.number += 1
        job = Job(Frame(self.number, 'cam', 'lane', now, now), LANE)
        job.replica = replica
        self.pool.send(replica, job, now, self.costs)
        return job

    def back(self, job: Job, now: float) -> None:
        """Let the answer come back."""
        assert job.replica is not None
        self.pool.take_back(job.replica, job, now, still_busy=False)


# ----- costs

def test_costs_start_from_the_model() -> None:
    models = {'m': PowerLaw(0.2, 0.1, 1.0, cv=0.3)}
    pool = PoolState(Pool('p', models, network=Network(0.06, 0.4)), Limits(routing_quantile=0.9))
    costs = pool.costs['m']
    assert costs.service == pytest.approx(0.2)
    assert costs.service_high == pytest.approx(lognormal_quantile(0.2, 0.3, 0.9))
    assert costs.network == pytest.approx(0.06)
    assert costs.network_high == pytest.approx(lognormal_quantile(0.06, 0.4, 0.9))
    assert 0.03 < costs.low < costs.service + costs.network


def test_costs_rise_with_the_load_of_each_replica() -> None:
    models = {'m': PowerLaw(0.2, 0.1, 1.0, cv=0.0)}
    bench = Bench(Pool('p', models), 'r0', 'r1')
    for k in range(40):
        bench.back(bench.send(0.1 * k), 0.1 * k)
    bench.pool.refresh_all(4.0)
    # Ten frames/s over two replicas.
    assert bench.costs.service == pytest.approx(0.2 + 0.1 * 5.0, rel=0.1)
    bench.pool.refresh_all(100.0)
    assert bench.costs.service == pytest.approx(0.2)


def test_costs_follow_what_answers_show() -> None:
    rng = random.Random(1)
    pool = PoolState(make_pool('p', 0.1, network=0.01), Limits())
    for _ in range(300):
        pool.learn('m', 0.25 * rng.lognormvariate(0.0, 0.1), 0.04)
    costs = pool.costs['m']
    assert costs.service == pytest.approx(0.25, rel=0.07)
    assert costs.network == pytest.approx(0.04, rel=0.02)
    assert costs.service < costs.service_high < 0.35
    pool.learn('unknown', 1.0, 1.0)
    assert set(pool.costs) == {'m'}


def test_the_network_is_shared_by_all_models() -> None:
    models = {'m': PowerLaw(0.1), 'n': PowerLaw(0.5)}
    pool = PoolState(Pool('p', models, network=Network(0.01, 0.0)), Limits())
    for _ in range(200):
        pool.learn('m', 0.1, 0.08)
    pool.refresh_all(0.0)
    assert pool.costs['n'].network == pytest.approx(0.08, rel=0.02)


def test_a_frame_given_up_teaches_only_that_it_took_longer() -> None:
    pool = PoolState(make_pool('p', 0.1), Limits())
    pool.learn_slower('m', 0.05)
    assert pool.costs['m'].service == pytest.approx(0.1)
    pool.learn_slower('m', 0.3)
    assert pool.costs['m'].service > 0.2
    pool.learn_slower('unknown', 9.0)


# ----- choice of a replica

def test_an_empty_pool_has_no_best_replica() -> None:
    bench = Bench(make_pool())
    assert bench.pool.best() is None
    assert bench.pool.next_return() == math.inf
    assert bench.pool.ready == 0


def test_idle_before_busy_and_soonest_free_before_later() -> None:
    bench = Bench(make_pool('p', 0.1, max_in_flight=2), 'r0', 'r1')
    first = bench.send(0.0)
    second = bench.send(0.04)
    assert first.replica is not second.replica
    # r0 is free at 0.1, r1 at 0.14.
    assert bench.pool.best() is first.replica
    assert bench.pool.wait(first.replica, 0.05, bench.costs) == pytest.approx(0.05, abs=1e-3)
    assert bench.pool.wait(second.replica, 0.05, bench.costs) == pytest.approx(0.09, abs=1e-3)


def test_a_full_pool_says_when_the_first_is_back() -> None:
    bench = Bench(make_pool('p', 0.1, network=0.04), 'r0', 'r1')
    jobs = [bench.send(0.0), bench.send(0.03)]
    assert bench.pool.best() is None
    assert bench.pool.next_return() == pytest.approx(0.14)
    bench.back(jobs[0], 0.14)
    assert bench.pool.best() is jobs[0].replica
    assert bench.pool.next_return() == pytest.approx(0.17)


def test_frames_behind_one_another_wait_for_all_before_them() -> None:
    bench = Bench(make_pool('p', 0.1, network=0.02, max_in_flight=3), 'r0')
    replica, = bench.replicas
    jobs = [bench.send(0.0) for _ in range(3)]
    # At the worker at 0.01, done at 0.11, 0.21, 0.31; a frame sent now is there at 0.01.
    assert bench.pool.wait(replica, 0.0, bench.costs) == pytest.approx(0.3)
    assert bench.pool.next_return() == pytest.approx(0.12)
    # The first is back late: the others shift.
    bench.back(jobs[0], 0.2)
    assert replica.free_at == pytest.approx(0.39)
    assert bench.pool.best() is replica


def test_an_overdue_frame_has_no_known_end() -> None:
    bench = Bench(make_pool('p', 0.1, max_in_flight=2), 'r0')
    bench.send(0.0)
    assert bench.pool.wait(bench.replicas[0], 5.0, bench.costs) == pytest.approx(0.025, abs=1e-3)


def test_what_is_not_in_flight_cannot_be_taken_back() -> None:
    bench = Bench(make_pool('p', 0.1), 'r0')
    job = bench.send(0.0)
    bench.back(job, 0.1)
    bench.back(job, 7.0)
    assert bench.replicas[0].last_done == 0.1


def test_draining_removed_and_suspended_replicas_are_not_chosen() -> None:
    bench = Bench(make_pool(), 'r0', 'r1', 'r2')
    r0, r1, r2 = bench.replicas
    bench.pool.drain(r0)
    bench.pool.remove(r1)
    assert bench.pool.best() is r2
    assert bench.pool.suspend(r2, 1.0) == 2.0
    assert bench.pool.best() is None
    assert bench.pool.ready == 0
    bench.pool.resume(r2)
    assert bench.pool.best() is r2
    assert bench.pool.ready == 1
    assert bench.pool.add('r0') is r0
    assert bench.pool.ready == 2


def test_suspensions_double_up_to_a_limit_and_an_answer_ends_that() -> None:
    bench = Bench(make_pool(), 'r0')
    replica, = bench.replicas
    lengths = []
    for _ in range(7):
        lengths.append(bench.pool.suspend(replica, 0.0))
        bench.pool.resume(replica)
    assert lengths == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    replica.answered()
    assert bench.pool.suspend(replica, 0.0) == 1.0


def test_a_short_pause_neither_shortens_a_suspension_nor_counts_as_one() -> None:
    bench = Bench(make_pool(), 'r0')
    replica, = bench.replicas
    assert bench.pool.suspend(replica, 0.0, 0.1) == 0.1
    assert not replica.accused
    assert bench.pool.suspend(replica, 0.0) == 1.0
    assert replica.accused
    assert bench.pool.suspend(replica, 0.5, 0.1) == 1.0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(
    st.sampled_from(['add', 'send', 'send', 'back', 'drain', 'remove', 'suspend', 'resume']),
    st.integers(0, 5), st.floats(0.0, 0.2)), max_size=80), st.integers(1, 3))
def test_the_choice_is_that_of_a_plain_search(
    steps: list[tuple[str, int, float]], max_in_flight: int
) -> None:
    bench = Bench(make_pool('p', 0.1, network=0.01, max_in_flight=max_in_flight))
    pool = bench.pool
    out: list[Job] = []
    now = 0.0
    for step, index, elapsed in steps:
        now += elapsed
        name = f'r{index}'
        replica = pool.replicas.get(name)
        if step == 'add':
            pool.add(name)
        elif step == 'send':
            if pool.best() is not None:
                out.append(bench.send(now))
        elif step == 'back' and out:
            bench.back(out.pop(index % len(out)), now)
        elif replica is not None and step in ('drain', 'remove', 'resume'):
            getattr(pool, step)(replica)
        elif replica is not None and step == 'suspend':
            pool.suspend(replica, now)
        usable = [
            r for r in pool.replicas.values() if not r.draining and r.suspended_until == 0.0]
        assert pool.ready == len(usable)
        room = [r for r in usable if len(r.in_flight) < max_in_flight]
        best = pool.best()
        if room:
            assert best in room
            assert (len(best.in_flight), best.free_at) == min(
                (len(r.in_flight), r.free_at) for r in room)
        else:
            assert best is None
        full = [r.next_return for r in usable if len(r.in_flight) >= max_in_flight]
        assert pool.next_return() == min(full, default=math.inf)


def test_heaps_stay_small() -> None:
    bench = Bench(make_pool('p', 0.1, max_in_flight=2), *(f'r{i}' for i in range(4)))
    for k in range(5000):
        jobs = [bench.send(float(k)) for _ in range(8)]
        for job in jobs:
            bench.back(job, k + 0.5)
        assert len(bench.pool._open) <= 4 * 4 + 257
        assert len(bench.pool._full) <= 4 * 4 + 257
