"""Test the waiting frames of one lane."""

from __future__ import annotations

from controller_harness import make_lane
from hypothesis import given
from hypothesis import strategies as st
from laimr_ros.control.jobs import Job, Stage
from laimr_ros.control.lanes import LaneQueue
from laimr_ros.control.nouns import Frame, Lane
import pytest


class Queue:
    """A lane queue and the making of its jobs."""

    def __init__(self, **lane: object) -> None:
        self.lane: Lane = make_lane('lane', 1.0, **lane)
        self.queue = LaneQueue(self.lane)
        self.number = 0

    def job(self, camera: str, captured: float) -> Job:
        """Return a new job."""
        self.number += 1
        return Job(Frame(self.number, camera, 'lane', captured, captured), self.lane)

    def push(self, camera: str, captured: float) -> Job:
        """Push a new job that supersedes whatever it does."""
        job = self.job(camera, captured)
        self.queue.push(job)
        return job

    def pop(self) -> Job:
        """Take the head out."""
        job = self.queue.head()
        assert job is not None
        self.queue.discard(job)
        return job


@pytest.fixture(params=[True, False], ids=['supersede', 'keep all'])
def any_queue(request: pytest.FixtureRequest) -> Queue:
    """Return a queue that supersedes and one that does not."""
    return Queue(supersede=request.param)


def test_an_empty_queue_has_no_head(any_queue: Queue) -> None:
    assert any_queue.queue.head() is None
    assert len(any_queue.queue) == 0
    assert list(any_queue.queue) == []


def test_the_earliest_deadline_is_first(any_queue: Queue) -> None:
    jobs = [any_queue.push(f'c{i}', captured) for i, captured in enumerate([3.0, 1.0, 2.0])]
    assert len(any_queue.queue) == 3
    assert set(any_queue.queue) == set(jobs)
    assert [any_queue.pop().frame.captured for _ in range(3)] == [1.0, 2.0, 3.0]
    assert any_queue.queue.head() is None


def test_equal_deadlines_go_in_order_of_arrival(any_queue: Queue) -> None:
    jobs = [any_queue.push(f'c{i}', 1.0) for i in range(10)]
    assert [any_queue.pop() for _ in range(10)] == jobs


def test_the_newest_frame_takes_the_place_of_the_older() -> None:
    q = Queue()
    older, other = q.push('a', 1.0), q.push('b', 2.0)
    newer = q.job('a', 3.0)
    assert q.queue.push(newer) is older
    assert len(q.queue) == 2
    assert newer.urgency == older.urgency
    assert newer.deadline == 4.0
    assert [q.pop(), q.pop()] == [newer, other]


def test_an_older_frame_that_comes_back_gives_way() -> None:
    q = Queue()
    newer = q.push('a', 2.0)
    older = q.job('a', 1.0)
    assert q.queue.push(older) is older
    assert older.stage is Stage.QUEUED
    assert list(q.queue) == [newer]
    # To discard what does not wait here changes nothing.
    q.queue.discard(older)
    assert list(q.queue) == [newer]


def test_without_supersede_every_frame_waits() -> None:
    q = Queue(supersede=False)
    first = q.push('a', 1.0)
    second = q.job('a', 2.0)
    assert q.queue.push(second) is None
    assert [q.pop(), q.pop()] == [first, second]


def test_whose_frame_waits_is_known() -> None:
    q = Queue()
    job = q.push('a', 1.0)
    assert q.queue.holds('a')
    assert not q.queue.holds('b')
    q.queue.discard(job)
    assert not q.queue.holds('a')
    q.queue.discard(job)
    assert len(q.queue) == 0


def test_a_fast_camera_is_not_starved() -> None:
    # Ten cameras, each renews its frame before every service: all are served in turn.
    q = Queue()
    served: dict[str, int] = dict.fromkeys((f'c{i}' for i in range(10)), 0)
    now = 0.0
    for _ in range(200):
        for camera in served:
            # The fast camera's frames are always the newest, with the latest deadline.
            for _ in range(5 if camera == 'c0' else 1):
                now += 0.001
                q.push(camera, now)
        served[q.pop().frame.camera] += 1
    assert set(served.values()) == {20}


def test_a_frame_that_stands_back_leaves_the_head_to_others() -> None:
    q = Queue()
    first, second, third = (q.push(name, float(k)) for k, name in enumerate('abc'))
    q.queue.stand_back()
    q.queue.stand_back()
    assert q.queue.head() is third
    assert len(q.queue) == 3
    # The one with the most time left has the best chance.
    assert q.queue.last_resort() is second
    q.queue.discard(second)
    assert q.queue.last_resort() is first
    q.queue.discard(first)
    assert q.queue.last_resort() is None
    q.queue.discard(third)
    q.queue.stand_back()
    assert len(q.queue) == len(q.queue.late) == 0


def test_a_newer_frame_lines_up_again_in_its_cameras_old_place() -> None:
    q = Queue()
    older, other = q.push('a', 1.0), q.push('b', 2.0)
    q.queue.stand_back()
    assert q.queue.head() is other
    newer = q.job('a', 5.0)
    assert q.queue.push(newer) is older
    assert q.queue.last_resort() is None
    assert [q.pop(), q.pop()] == [newer, other]


def test_what_is_left_of_emptied_places_is_bounded() -> None:
    q = Queue()
    stays = q.push('stays', 0.0)
    for k in range(10_000):
        q.queue.discard(q.push(f'c{k % 7}', 1.0 + k))
        assert len(q.queue._heap) <= 2 * 2 + 65
        assert len(q.queue._by_camera) == len(q.queue._places) == 1
    assert q.pop() is stays


@given(
    supersede=st.booleans(),
    steps=st.lists(st.tuples(
        st.sampled_from(['push', 'push', 'pop', 'discard', 'stand back']), st.integers(0, 4),
        st.floats(0.0, 10.0)), max_size=80))
def test_it_agrees_with_a_plain_list(supersede: bool, steps: list[tuple[str, int, float]]) -> None:
    q = Queue(supersede=supersede)
    waiting: list[Job] = []
    for step, camera, captured in steps:
        if step == 'push':
            job = q.job(f'c{camera}', captured)
            ended = q.queue.push(job)
            older = [j for j in waiting if j.frame.camera == job.frame.camera] if supersede else []
            if older and older[0].frame.captured > captured:
                assert ended is job
            elif older:
                assert ended is older[0]
                waiting[waiting.index(older[0])] = job
            else:
                assert ended is None
                waiting.append(job)
        elif step == 'stand back':
            q.queue.stand_back()
        elif waiting and step == 'discard':
            q.queue.discard(waiting.pop(camera % len(waiting)))
        elif any(j.frame.id not in q.queue.late for j in waiting):
            head = q.pop()
            assert head.urgency == min(
                j.urgency for j in waiting if j.frame.id not in q.queue.late)
            waiting.remove(head)
        elif waiting:
            last = q.queue.last_resort()
            assert last in waiting
            q.queue.discard(last)
            waiting.remove(last)
        assert set(q.queue) == set(waiting)
        assert len(q.queue) == len(waiting)
        assert set(q.queue.late) <= {j.frame.id for j in waiting}
