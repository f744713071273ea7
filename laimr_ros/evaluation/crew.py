"""Processes that do runs, and end with whoever started them, however that one ends."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
import multiprocessing
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
import os
import signal
import threading
import time
from typing import Any, cast, Generic, Protocol, TypeVar

T_co = TypeVar('T_co', covariant=True)
T = TypeVar('T')


class Job(Protocol[T_co]):
    """What is done in another process; it must be possible to pickle, and so its result."""

    def run(self) -> T_co:
        """Do it."""


class CrewError(RuntimeError):
    """A process died over its work."""


def results(jobs: Sequence[Job[T]], workers: int) -> Generator[tuple[T, float], None, None]:
    """
    Do jobs; yield what came out of each, and the seconds it took, in the order of their ends.

    Whatever ends the iteration ends the processes at once.

    :param jobs: begun in this order.
    :raises CrewError: if a process dies.
    :raises Exception: what a job raises.
    """
    if workers <= 1:
        yield from map(_timed, jobs)
        return
    crew = _Crew[T](min(workers, len(jobs)))
    try:
        yield from crew.results(jobs)
    finally:
        crew.end()


class _Crew(Generic[T]):
    """Processes, each with a pipe to it."""

    def __init__(self, size: int) -> None:
        self._context = multiprocessing.get_context('spawn')
        self._processes: dict[Connection, multiprocessing.process.BaseProcess] = {}
        self._size = size

    def results(self, jobs: Sequence[Job[T]]) -> Iterator[tuple[T, float]]:
        waiting = iter(jobs)
        self._start()
        busy = 0
        for pipe in self._processes:
            self._send(pipe, next(waiting))
            busy += 1
        while busy:
            for pipe in cast('list[Connection]', wait(list(self._processes))):
                result, seconds = self._receive(pipe)
                # Given its next before anything is done with this one: it shall not wait.
                job = next(waiting, None)
                busy -= job is None
                if job is not None:
                    self._send(pipe, job)
                yield result, seconds

    def _start(self) -> None:
        # It would else be started below, and undo the mask.
        resource_tracker.ensure_running()
        # Ctrl-C in a terminal reaches every process of it. Who is to end is told by this one; the
        # mask is handed down, and so holds from the first instruction.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            for _ in range(self._size):
                ours, theirs = self._context.Pipe()
                process = self._context.Process(target=_work, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                self._processes[ours] = process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)

    def _send(self, pipe: Connection, job: Job[T]) -> None:
        try:
            pipe.send(job)
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(pipe) from None

    def _receive(self, pipe: Connection) -> tuple[T, float]:
        try:
            result, seconds, error = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._death(pipe) from None
        if error is not None:
            raise error
        return result, seconds

    def _death(self, pipe: Connection) -> CrewError:
        process = self._processes[pipe]
        process.join(1.0)
        return CrewError(f'a worker process died (status {process.exitcode}), perhaps for want of '
                         'memory; try again with fewer --workers')

    def end(self) -> None:
        """End all processes, whatever they are at: what they have not sent back is lost."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.join()


def _work(pipe: Connection) -> None:
    """Do what comes over a pipe, until this process is ended."""
    threading.Thread(target=_end_with_parent, name='parent', daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        except Exception as error:  # What cannot be unpickled.
            pipe.send((None, 0.0, error))
            continue
        try:
            done: tuple[Any, ...] = (*_timed(job), None)
        except Exception as error:  # Raised again in the parent.
            done = (None, 0.0, error)
        try:
            pipe.send(done)
        except Exception as error:  # What cannot be pickled.
            pipe.send((None, 0.0, RuntimeError(f'{type(error).__name__}: {error}')))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _timed(job: Job[T]) -> tuple[T, float]:
    began = time.perf_counter()
    return job.run(), time.perf_counter() - began
