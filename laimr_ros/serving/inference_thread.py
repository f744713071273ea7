"""One thread that infers, and the bounded queue in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
import queue
import threading
import time
from typing import Any, Generic, TypeVar

T = TypeVar('T')


class QueueFull(Exception):
    """As many jobs are waiting as may."""


class DeadlinePassed(Exception):
    """The job's deadline passed before its turn came."""


class _State(Enum):
    WAITING = 0
    RUNNING = 1
    DONE = 2
    CANCELLED = 3


class Job(Generic[T]):
    """
    One piece of work and who waits for it.

    :param work: called in the thread with the job itself.
    :param deadline: latest sensible start, in seconds of ``time.monotonic``.
    """

    __slots__ = ('_thread', 'deadline', 'future', 'loop', 'queued_s', 'state', 'submitted', 'work')

    def __init__(
        self, thread: InferenceThread, work: Callable[[Job[T]], T], deadline: float,
    ) -> None:
        self._thread = thread
        self.work: Callable[[Job[T]], T] | None = work
        self.deadline = deadline
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self.state = _State.WAITING
        self.submitted = time.monotonic()
        self.queued_s = 0.0

    def cancel(self) -> None:
        """Take the job off the queue; if it runs already, let it know."""
        self._thread._cancel(self)

    def check(self) -> None:
        """
        Give up between two steps of the work, if nobody waits for it any more.

        :raises DeadlinePassed: if it should not go on.
        """
        if self.state is _State.CANCELLED or time.monotonic() >= self.deadline:
            raise DeadlinePassed


class InferenceThread:
    """
    Do one thing at a time, in one thread, in the order of arrival.

    A thread of its own keeps gRPC responsive; only one, because detectors are not thread-safe and
    because two inferences at once on the same cores take twice as long each. Everything that
    touches the detectors runs here: OpenMP's number of threads, for one, belongs to a thread.

    :param max_waiting: jobs that may wait while one runs.
    """

    def __init__(self, max_waiting: int) -> None:
        self._max_jobs = max_waiting + 1
        self._jobs = 0  # Waiting or running; cancelled ones have been taken off.
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name='inference', daemon=True)
        self._thread.start()

    @property
    def jobs(self) -> int:
        """Return how many jobs wait or run."""
        return self._jobs

    def submit(self, work: Callable[[Job[T]], T], deadline: float) -> Job[T]:
        """
        Queue a job. To be called in an event loop; its future is one of that loop.

        :raises QueueFull: if too many wait already.
        """
        with self._lock:
            if self._jobs >= self._max_jobs:
                raise QueueFull
            self._jobs += 1
        job = Job(self, work, deadline)
        self._queue.put(lambda: self._execute(job))
        return job

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Call a function in the thread, after what is queued; not counted as a job."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._queue.put(run)
        return future

    def close(self) -> None:
        """End the thread after what is queued. Does not wait for it."""
        self._queue.put(None)

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            task()
            del task  # Not to keep a picture until the next one comes.

    def _cancel(self, job: Job[Any]) -> None:
        with self._lock:
            if job.state is _State.WAITING:
                self._jobs -= 1
                job.work = None  # Frees the picture now, not when its turn comes.
            if job.state is not _State.DONE:
                job.state = _State.CANCELLED

    def _execute(self, job: Job[Any]) -> None:
        with self._lock:
            if job.state is _State.CANCELLED:
                return
            job.state = _State.RUNNING
        now = time.monotonic()
        job.queued_s = now - job.submitted
        result, error = None, None
        try:
            if now >= job.deadline:
                raise DeadlinePassed
            assert job.work is not None
            result = job.work(job)
        except BaseException as caught:
            error = caught
        job.work = None
        with self._lock:
            if job.state is _State.RUNNING:
                job.state = _State.DONE
            self._jobs -= 1
        try:
            job.loop.call_soon_threadsafe(_settle, job.future, result, error)
        except RuntimeError:
            pass  # The loop is closed: nobody waits for the result.


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
