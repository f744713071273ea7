"""The queue and its one thread."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import time
import weakref

from laimr_ros.serving.inference_thread import DeadlinePassed, InferenceThread, QueueFull
import pytest

pytestmark = pytest.mark.asyncio


@pytest.fixture
def thread():
    thread = InferenceThread(2)
    yield thread
    thread.close()


async def test_results_and_errors_come_back(thread):
    assert await thread.submit(lambda job: 7, math.inf).future == 7

    def fail(job):
        raise KeyError('x')
    with pytest.raises(KeyError):
        await thread.submit(fail, math.inf).future
    assert thread.jobs == 0


async def test_in_order_and_one_at_a_time(thread):
    running, order = [], []

    def work(index):
        def run(job):
            running.append(index)
            assert len(running) == 1
            time.sleep(0.01)
            order.append(running.pop())
            return threading.get_ident()
        return run

    idents = await asyncio.gather(*(thread.submit(work(i), math.inf).future for i in range(3)))
    assert order == [0, 1, 2] and len(set(idents)) == 1
    assert idents[0] != threading.get_ident()


async def test_the_bound_counts_who_waits_and_not_who_left(thread):
    gate, started = threading.Event(), threading.Event()

    def hold(job):
        started.set()
        assert gate.wait(10)
        return 'held'

    first = thread.submit(hold, math.inf)
    assert await asyncio.to_thread(started.wait, 10)
    ran = []
    waiting = [thread.submit(lambda job, i=i: ran.append(i), math.inf) for i in range(2)]
    with pytest.raises(QueueFull):
        thread.submit(lambda job: None, math.inf)
    waiting[0].cancel()
    waiting[0].cancel()
    third = thread.submit(lambda job: ran.append('third'), math.inf)
    with pytest.raises(QueueFull):
        thread.submit(lambda job: None, math.inf)
    gate.set()
    assert await first.future == 'held'
    await asyncio.gather(waiting[1].future, third.future)
    assert ran == [1, 'third'] and thread.jobs == 0


async def test_a_deadline_is_looked_at_when_the_turn_comes(thread):
    ran = []
    late = thread.submit(lambda job: ran.append(1), time.monotonic() - 1e-9)
    with pytest.raises(DeadlinePassed):
        await late.future
    assert not ran and thread.jobs == 0


async def test_work_in_steps_stops_when_nobody_waits(thread):
    started, gate, outcome = threading.Event(), threading.Event(), []

    def steps(job):
        started.set()
        assert gate.wait(10)
        try:
            job.check()
        except DeadlinePassed:
            outcome.append('stopped')
            raise
        outcome.append('went on')

    job = thread.submit(steps, math.inf)
    assert await asyncio.to_thread(started.wait, 10)
    job.cancel()
    gate.set()
    with pytest.raises(DeadlinePassed):
        await job.future
    assert outcome == ['stopped'] and thread.jobs == 0


async def test_a_cancelled_picture_is_freed_before_its_turn(thread):
    class Picture:
        pass

    gate, started = threading.Event(), threading.Event()

    def hold(job):
        started.set()
        assert gate.wait(10)

    first = thread.submit(hold, math.inf)
    assert await asyncio.to_thread(started.wait, 10)
    picture = Picture()
    gone = weakref.ref(picture)
    job = thread.submit(lambda job, picture=picture: None, math.inf)
    del picture
    job.cancel()
    gc.collect()
    assert gone() is None
    gate.set()
    await first.future


async def test_calls_are_not_jobs(thread):
    assert await asyncio.wrap_future(thread.call(lambda: 5)) == 5
    failed = thread.call(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wrap_future(failed)


async def test_it_ends(thread):
    other = InferenceThread(0)
    other.close()
    other._thread.join(5)
    assert not other._thread.is_alive()
