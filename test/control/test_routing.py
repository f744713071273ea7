"""Test where a frame goes, in cases worked out by hand."""

from __future__ import annotations

from controller_harness import configure, make_lane, make_pool
from laimr_ros.control.jobs import Job
from laimr_ros.control.lanes import LaneQueue
from laimr_ros.control.nouns import Frame, Lane, Limits, Pool
from laimr_ros.control.pools import PoolState
from laimr_ros.control.routing import Router, Verdict
from laimr_ros.latency.arrivals import Arrivals
import pytest

# The least network time that is believed, 0.1 ms, is within this.
NEAR = 5e-4


class Place:
    """Pools, lane queues and their router, without the controller."""

    def __init__(self, lanes: list[Lane], pools: list[Pool], **replicas: int) -> None:
        configuration = configure(lanes, pools)
        self.pools = {p.name: PoolState(p, Limits()) for p in configuration.pools.values()}
        self.queues = {lane.name: LaneQueue(lane) for lane in configuration.lanes.values()}
        self.router = Router(self.pools, self.queues, probe_interval=5.0)
        for name, count in replicas.items():
            for k in range(count):
                self.pools[name].add(f'{name}{k}')
        self.number = 0

    def job(self, captured: float = 0.0, lane: str = 'lane', camera: str = 'cam') -> Job:
        """Return a new frame."""
        self.number += 1
        return Job(Frame(self.number, camera, lane, captured, captured), self.queues[lane].lane)

    def occupy(self, pool: str, *starts: float) -> None:
        """Send a frame to the best replica of a pool at each of the times."""
        for start in starts:
            state = self.pools[pool]
            replica = state.best()
            assert replica is not None
            state.send(replica, self.job(start), start, state.costs['m'])


def edge_and_cloud(
    slo: float, edge: float = 0.1, cloud: float = 0.05, *, network: float = 0.06,
    edges: int = 1, clouds: int = 1, late_answers: bool = False, **fields: int
) -> Place:
    """Return an edge pool that is preferred and a quicker cloud further away."""
    return Place(
        [make_lane('lane', slo, 'edge', 'cloud', late_answers=late_answers)],
        [make_pool('edge', edge, **fields), make_pool('cloud', cloud, network=network)],
        edge=edges, cloud=clouds)


def test_an_idle_edge_is_preferred_though_the_cloud_were_quicker() -> None:
    place = edge_and_cloud(0.5, edge=0.3, cloud=0.05)
    decision = place.router.decide(place.job(), 0.0)
    assert decision.verdict is Verdict.SEND
    assert decision.pool is place.pools['edge']
    prediction = decision.prediction()
    assert prediction.wait == 0.0
    assert prediction.service == pytest.approx(0.3)
    assert prediction.completion == pytest.approx(0.3, abs=NEAR)


def test_an_edge_predicted_late_gives_way_to_a_cloud_on_time() -> None:
    place = edge_and_cloud(0.2, edge=0.25, cloud=0.05)
    decision = place.router.decide(place.job(), 0.0)
    assert decision.verdict is Verdict.SEND
    assert decision.pool is place.pools['cloud']
    assert decision.prediction().completion == pytest.approx(0.11)


def test_age_on_arrival_counts() -> None:
    place = edge_and_cloud(0.5, edge=0.3, cloud=0.05)
    # 0.25 s are left: too few for the edge.
    decision = place.router.decide(place.job(captured=0.0), 0.25)
    assert decision.pool is place.pools['cloud']


def test_of_two_that_are_late_the_less_late_is_taken() -> None:
    # Both later than 0.2 s; late answers are wanted.
    place = edge_and_cloud(0.2, edge=0.3, cloud=0.25, network=0.02, late_answers=True)
    decision = place.router.decide(place.job(), 0.0)
    assert decision.verdict is Verdict.SEND
    assert decision.pool is place.pools['cloud']
    place = edge_and_cloud(0.2, edge=0.25, cloud=0.3, network=0.02, late_answers=True)
    assert place.router.decide(place.job(), 0.0).pool is place.pools['edge']


def test_a_busy_edge_that_is_back_in_time_is_waited_for() -> None:
    place = edge_and_cloud(0.5)
    place.occupy('edge', 0.0)
    decision = place.router.decide(place.job(0.02), 0.02)
    assert decision.verdict is Verdict.HOLD
    # The last moment at which the cloud still helps: 0.52 - 0.11.
    assert decision.review_at == pytest.approx(0.41, abs=NEAR)


def test_at_the_last_chance_the_cloud_is_taken() -> None:
    place = edge_and_cloud(0.5)
    place.occupy('edge', 0.0)
    job = place.job(0.02)
    review_at = place.router.decide(job, 0.02).review_at
    decision = place.router.decide(job, review_at, last_chance=True)
    assert decision.verdict is Verdict.SEND
    assert decision.pool is place.pools['cloud']


@pytest.mark.parametrize(('cheapest', 'begun', 'pool'), [
    # The edge, half as dear by the hour, answers in 0.6 s if waited for, the cloud in 0.41 s.
    (True, 0.2, 'cloud'),
    # In 0.4 s.
    (True, 0.0, None),
    (False, 0.2, None),
])
def test_in_the_order_of_cost_an_idle_replica_that_answers_sooner_is_not_left_idle(
    cheapest: bool, begun: float, pool: str | None
) -> None:
    place = Place(
        [make_lane('lane', 1.0, 'edge', 'cloud',
                   pool_order='cheapest' if cheapest else 'listed')],
        [make_pool('edge', 0.3, price=0.5),
         make_pool('cloud', 0.35, network=0.06)], edge=1, cloud=1)
    place.occupy('edge', begun)
    decision = place.router.decide(place.job(), 0.2)
    assert (decision.pool and decision.pool.config.name) == pool
    assert decision.verdict is (Verdict.HOLD if pool is None else Verdict.SEND)


@pytest.mark.parametrize(('order', 'slo', 'pool'), [
    # Behind another frame the edge answers in 0.8 s, the cloud in 0.36 s.
    ('cheapest', 1.0, 'cloud'),
    # There is time enough.
    ('cheapest', 2.0, 'edge'),
    ('listed', 1.0, 'edge'),
])
def test_in_the_order_of_cost_a_frame_does_not_stand_behind_others_for_long(
    order: str, slo: float, pool: str
) -> None:
    place = Place(
        [make_lane('lane', slo, 'edge', 'cloud', pool_order=order)],
        [make_pool('edge', 0.4, price=0.5, max_in_flight=2),
         make_pool('cloud', 0.3, network=0.06)], edge=1, cloud=1)
    place.occupy('edge', 0.0)
    decision = place.router.decide(place.job(), 0.0)
    assert decision.verdict is Verdict.SEND and decision.pool is place.pools[pool]
    assert decision.wait == pytest.approx(0.4 if pool == 'edge' else 0.0, abs=NEAR)


def test_a_busy_edge_that_is_back_too_late_is_not_waited_for() -> None:
    place = edge_and_cloud(0.25, edge=0.15)
    place.occupy('edge', 0.0)
    # Back at 0.15, then 0.15 more: 0.3 > 0.25. By the cloud: 0.11.
    decision = place.router.decide(place.job(), 0.0)
    assert decision.pool is place.pools['cloud']


def test_frames_that_wait_before_it_lengthen_the_wait() -> None:
    place = edge_and_cloud(0.5)
    place.occupy('edge', 0.0)
    for k in range(4):
        place.queues['lane'].push(place.job(0.0, camera=f'c{k}'))
    job = place.job()
    # 0.1 until the edge is back, four frames before it, its own service: 0.6 > 0.5.
    assert place.router.decide(job, 0.0).pool is place.pools['cloud']
    assert place.router.decide(job, 0.0, at_head=True).verdict is Verdict.HOLD


def test_frames_of_a_lane_with_more_time_do_not_stand_before_it() -> None:
    lanes = [make_lane('lane', 0.5, 'edge', 'cloud'), make_lane('slow', 5.0, 'edge')]
    pools = [make_pool('edge', 0.1), make_pool('cloud', 0.05, network=0.06)]
    place = Place(lanes, pools, edge=1, cloud=1)
    place.occupy('edge', 0.0)
    for k in range(4):
        place.queues['slow'].push(place.job(0.0, 'slow', f'c{k}'))
    assert place.router.decide(place.job(), 0.0).verdict is Verdict.HOLD
    # But those of the quick lane stand before a slow one's.
    for k in range(60):
        place.queues['lane'].push(place.job(0.0, 'lane', f'q{k}'))
    late = place.router.decide(place.job(0.0, 'slow'), 0.0)
    assert late.review_at > 4.0


def test_a_pool_that_takes_two_at_a_time_is_chosen_with_the_wait_it_has() -> None:
    place = edge_and_cloud(0.5, max_in_flight=2)
    place.occupy('edge', 0.0)
    decision = place.router.decide(place.job(0.02), 0.02)
    assert decision.pool is place.pools['edge']
    assert decision.wait == pytest.approx(0.08, abs=NEAR)
    assert decision.prediction().completion == pytest.approx(0.18, abs=2 * NEAR)


def test_without_any_replica_it_is_held_to_its_limit() -> None:
    place = edge_and_cloud(0.5, edges=0, clouds=0)
    job = place.job()
    decision = place.router.decide(job, 0.0)
    assert (decision.verdict, decision.review_at) == (Verdict.HOLD, 0.5)
    assert place.router.decide(job, 0.5, last_chance=True).verdict is Verdict.HOPELESS
    assert place.router.probe(job, 0.5) is None


def test_a_pool_without_replicas_is_passed_over() -> None:
    place = edge_and_cloud(0.5, edges=0)
    assert place.router.decide(place.job(), 0.0).pool is place.pools['cloud']


def test_when_all_are_busy_it_is_held_until_nothing_could_help() -> None:
    place = edge_and_cloud(0.15)
    place.occupy('edge', 0.0)
    place.occupy('cloud', 0.0)
    job = place.job(0.05)
    decision = place.router.decide(job, 0.05)
    assert decision.verdict is Verdict.HOLD
    # 0.2 is its limit; a lucky frame needs 0.08 in the cloud.
    assert decision.review_at == pytest.approx(0.12, abs=NEAR)
    assert place.router.decide(job, 0.121, last_chance=True).verdict is Verdict.HOPELESS


def test_a_frame_that_no_pool_can_make_is_hopeless_but_probes() -> None:
    place = edge_and_cloud(0.05)
    job = place.job()
    assert place.router.decide(job, 0.0).verdict is Verdict.HOPELESS
    probe = place.router.probe(job, 0.0)
    assert probe is not None and probe.pool is place.pools['edge']
    # Once tried, not again for the interval; the next pool is tried meanwhile.
    place.occupy('edge', 0.0)
    later = place.job(1.0)
    probe = place.router.probe(later, 1.0)
    assert probe is not None and probe.pool is place.pools['cloud']
    place.occupy('cloud', 1.0)
    assert place.router.probe(place.job(2.0), 2.0) is None
    place.pools['edge'].take_back(
        *((r, j) for r in place.pools['edge'].replicas.values()
          for j in r.in_flight.values()).__next__(), 2.5, still_busy=False)
    assert place.router.probe(place.job(4.9), 4.9) is None
    assert place.router.probe(place.job(5.0), 5.0) is not None


def test_a_lane_without_its_edge_uses_the_order_it_has() -> None:
    place = Place(
        [make_lane('lane', 1.0, 'cloud', 'edge')], [make_pool('edge'), make_pool('cloud')],
        edge=1, cloud=1)
    assert place.router.decide(place.job(), 0.0).pool is place.pools['cloud']


# ----- tokens for offloading

def test_an_offloaded_frame_takes_a_token_and_without_one_waits_for_the_next() -> None:
    # The edge takes 3 s: everything goes to the cloud, at 0.85 / 0.11 = 7.7 frames/s.
    place = edge_and_cloud(2.0, edge=3.0, cloud=0.05, clouds=1)
    place.pools['cloud'].reconfigure(
        make_pool('cloud', 0.05, network=0.06, max_in_flight=9), Limits(), 0.0)
    place.router.refresh(0.0)
    bucket = place.router.bucket('cloud')
    assert bucket is not None and bucket.rate == pytest.approx(0.85 / 0.05, rel=0.01)
    first = place.job()
    decision = place.router.decide(first, 0.0)
    assert decision.verdict is Verdict.SEND
    first.offloaded = True
    place.router.sent(0.0, first, place.pools['cloud'])
    assert bucket.taken == 1
    # One replica: one token at most was saved up.
    held = place.router.decide(place.job(), 0.0)
    assert held.verdict is Verdict.HOLD
    assert held.review_at == pytest.approx(0.05 / 0.85, rel=0.01)
    assert place.router.decide(place.job(), held.review_at + 1e-6).verdict is Verdict.SEND


def test_a_frame_with_no_time_to_spare_goes_without_a_token() -> None:
    place = edge_and_cloud(2.0, edge=3.0, cloud=0.05)
    place.router.refresh(0.0)
    bucket = place.router.bucket('cloud')
    assert bucket is not None
    while bucket.take(0.0):
        pass
    job = place.job()
    # On time by the cloud: 0.11; a service time more to spare: 0.16 s before its deadline.
    assert place.router.decide(job, 0.0).verdict is Verdict.HOLD
    assert place.router.decide(place.job(-1.839), 0.0).verdict is Verdict.HOLD
    late = place.router.decide(place.job(-1.841), 0.0)
    assert late.verdict is Verdict.SEND and not late.late


def test_a_pool_busy_with_its_own_lane_leaves_no_tokens_but_loses_no_frame() -> None:
    lanes = [make_lane('lane', 0.5, 'edge', 'cloud'), make_lane('own', 1.0, 'cloud')]
    place = Place(lanes, [make_pool('edge', 1.0), make_pool('cloud', 0.1)], edge=1, cloud=1)
    for k in range(45):
        place.pools['cloud'].sent.add(k / 9.0)
    place.router.refresh(5.0)
    bucket = place.router.bucket('cloud')
    # 9 frames/s of its own, of 0.85 * 10.
    assert bucket is not None and bucket.rate == 0.0
    assert place.router.decide(place.job(5.0), 5.0).review_at == pytest.approx(5.3, abs=NEAR)
    assert place.router.decide(place.job(5.0), 5.31).verdict is Verdict.SEND
    # Its own lane needs none.
    assert place.router.decide(place.job(5.0, 'own'), 5.0).verdict is Verdict.SEND


def test_a_third_pool_with_a_token_is_taken_before_one_waits() -> None:
    place = Place(
        [make_lane('lane', 0.5, 'edge', 'near', 'far')],
        [make_pool('edge', 1.0), make_pool('near', 0.1), make_pool('far', 0.1, network=0.1)],
        edge=1, near=1, far=1)
    place.router.refresh(0.0)
    assert place.router.decide(place.job(), 0.0).pool is place.pools['near']
    near = place.router.bucket('near')
    assert near is not None and near.take(0.0)
    assert place.router.decide(place.job(), 0.0).pool is place.pools['far']


def test_a_new_router_keeps_what_the_old_one_spent() -> None:
    place = edge_and_cloud(2.0, edge=3.0)
    place.router.refresh(0.0)
    bucket = place.router.bucket('cloud')
    assert bucket is not None and bucket.take(0.0)
    place.router = Router(place.pools, place.queues, 5.0, previous=place.router)
    assert place.router.decide(place.job(), 0.0).verdict is Verdict.HOLD


# ----- exploration

def explored(
    place: Place, frames: int, *, share: float = 0.01, arrivals: Arrivals | None = None
) -> list[str]:
    """Return the pools that frames, ten a second and each answered at once, went to."""
    place.router = Router(place.pools, place.queues, 5.0, exploration=share)
    went = []
    for k in range(frames):
        now = 100.0 + 0.1 * k
        job = place.job(now)
        best = place.router.decide(job, now)
        decision = place.router.explore(job, now, best, arrivals or Arrivals())
        assert decision.pool is not None and decision.verdict is Verdict.SEND
        assert now + decision.prediction().completion <= job.deadline
        went.append(decision.pool.config.name)
        place.router.learned(now, went[-1], 'm')
    return went


def test_a_frame_in_a_hundred_renews_a_stale_pool() -> None:
    went = explored(edge_and_cloud(0.5), 1000)
    # The cloud is stale once it was not used for 10 s, which is 100 frames here.
    assert 8 <= went.count('cloud') <= 10
    assert went.index('cloud') == 99


def test_no_frame_explores_where_it_would_be_late_or_when_it_is_turned_off() -> None:
    assert set(explored(edge_and_cloud(0.2, network=0.2), 500)) == {'edge'}
    assert set(explored(edge_and_cloud(0.5), 500, share=0.0)) == {'edge'}
    assert set(explored(edge_and_cloud(0.5, clouds=0), 500)) == {'edge'}


def test_no_frame_explores_in_a_burst() -> None:
    class Bursting(Arrivals):
        def bursting(self, now: float) -> bool:
            return True

    assert set(explored(edge_and_cloud(0.5), 500, arrivals=Bursting())) == {'edge'}


def test_a_frame_explores_only_with_a_token() -> None:
    place = edge_and_cloud(0.5)
    place.router = Router(place.pools, place.queues, 5.0, exploration=1.0)
    place.router.refresh(0.0)
    bucket = place.router.bucket('cloud')
    assert bucket is not None and bucket.take(0.0)
    job = place.job()
    best = place.router.decide(job, 0.0)
    assert place.router.explore(job, 0.0, best, Arrivals()) is best
    later = place.job(2.0)
    best = place.router.decide(later, 2.0)
    explores = place.router.explore(later, 2.0, best, Arrivals())
    assert explores.pool is place.pools['cloud']


def test_waiting_for_a_token_is_no_last_chance() -> None:
    # The edge is free and would be late; the cloud has no token, and then no room either.
    place = edge_and_cloud(1.0, edge=1.5, cloud=0.1, late_answers=True)
    place.router.refresh(0.0)
    bucket = place.router.bucket('cloud')
    assert bucket is not None and bucket.take(0.0)
    job = place.job()
    held = place.router.decide(job, 0.0)
    assert held.verdict is Verdict.HOLD and not held.last_chance
    place.occupy('cloud', 0.05)
    held = place.router.decide(job, held.review_at, last_chance=held.last_chance)
    # On time by waiting for the cloud; sent to the edge it would be late.
    assert held.verdict is Verdict.HOLD
