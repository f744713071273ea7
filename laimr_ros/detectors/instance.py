"""Emulated cores that several emulated inferences share, in one process or in many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import fcntl
import math
import mmap
import os
import threading
import time
import weakref

from laimr_ros.detectors.base import DetectorError
import numpy as np
import numpy.typing as npt

# More inferences at once than this on one instance is a mistake of the caller.
SLOTS = 4096

# Layout of the table, in float64: a mark, virtual time, the moment it was reached, the cores,
# then one virtual finish and one moment of finish a slot.
_MARK = 20250507.0
_MARK_AT, _VIRTUAL_AT, _REACHED_AT, _CORES_AT, _HEADER = 0, 1, 2, 3, 8
_LENGTH = _HEADER + 2 * SLOTS


class SharedCores:
    """
    Processor sharing in virtual time: the bookkeeping, without a clock.

    With ``n`` inferences running on ``cores`` cores each proceeds at ``min(1, cores / n)`` of its
    own speed. Virtual time is the work that a running inference has received, so an inference is
    over when virtual time reaches what it read at its start plus its own work. Nothing needs to
    be taken out of the table at the end: whoever was killed meanwhile blocks nobody for longer
    than the work it had left.

    :param table: float64, shape (8 + 2 * ``SLOTS``,); all zero, or left by another user of it.
    :param cores: cores of the instance, greater than 0; the latest user of a table sets it.
    :param now: this moment, in seconds on the clock of every later call.
    """

    def __init__(self, table: npt.NDArray[np.float64], cores: float, now: float) -> None:
        self._table = table
        self._shared = table[_HEADER:_HEADER + SLOTS]
        self._timed = table[_HEADER + SLOTS:_HEADER + 2 * SLOTS]
        # A monotonic clock that reads earlier than the table means the machine was restarted.
        if table[_MARK_AT] != _MARK or table[_REACHED_AT] > now:
            table[:] = 0.0
            table[_MARK_AT] = _MARK
            table[_REACHED_AT] = now
            table[_CORES_AT] = cores
        self._advance(now)
        table[_CORES_AT] = cores

    @property
    def cores(self) -> float:
        """Return the number of cores."""
        return float(self._table[_CORES_AT])

    def running(self, now: float) -> int:
        """Return how many inferences are in progress at ``now``."""
        self._advance(now)
        shared = np.count_nonzero(self._shared > self._table[_VIRTUAL_AT])
        return int(shared + np.count_nonzero(self._timed > now))

    def start(self, work_s: float, now: float) -> float:
        """
        Start an inference that shares the cores.

        :param work_s: time it takes alone, in seconds, greater than 0.
        :param now: this moment, in seconds.
        :return: its virtual finish, for ``finish_at``.
        :raises DetectorError: if too many inferences are running.
        """
        self._advance(now)
        virtual = float(self._table[_VIRTUAL_AT])
        finish = virtual + work_s
        self._shared[self._free_slot(self._shared, virtual)] = finish
        return finish

    def start_timed(self, duration_s: float, now: float) -> float:
        """
        Start an inference whose duration is already known, whatever else will run.

        :return: the moment of its finish, in seconds.
        :raises DetectorError: if too many inferences are running.
        """
        self._timed[self._free_slot(self._timed, now)] = now + duration_s
        return now + duration_s

    def finish_at(self, virtual_finish: float, now: float) -> float:
        """
        Predict when an inference ends if no other one starts; a new one can only delay it.

        :param virtual_finish: what ``start`` returned.
        :param now: this moment, in seconds.
        :return: the moment, in seconds; not after ``now`` if the inference is over.
        """
        self._advance(now)
        moment, virtual = now, float(self._table[_VIRTUAL_AT])
        for finish, running in self._departures():
            if finish >= virtual_finish:
                return moment + max(0.0, virtual_finish - virtual) * self._slowdown(running)
            moment += (finish - virtual) * self._slowdown(running)
            virtual = finish
        return moment

    def _advance(self, now: float) -> None:
        """Bring virtual time to ``now``, through every departure on the way."""
        table = self._table
        left = now - float(table[_REACHED_AT])
        if left <= 0.0:
            return
        virtual = float(table[_VIRTUAL_AT])
        for finish, running in self._departures():
            slowdown = self._slowdown(running)
            if (finish - virtual) * slowdown > left:
                virtual += left / slowdown
                break
            left -= (finish - virtual) * slowdown
            virtual = finish
        table[_VIRTUAL_AT] = virtual
        table[_REACHED_AT] = now

    def _departures(self) -> Iterator[tuple[float, int]]:
        """Give each running inference's virtual finish, earliest first, and how many run then."""
        finishes = self._shared[self._shared > self._table[_VIRTUAL_AT]]
        finishes.sort()
        for index, finish in enumerate(finishes.tolist()):
            yield finish, len(finishes) - index

    def _slowdown(self, running: int) -> float:
        return max(1.0, running / float(self._table[_CORES_AT]))

    @staticmethod
    def _free_slot(column: npt.NDArray[np.float64], threshold: float) -> int:
        slot = int(np.argmin(column))
        if column[slot] > threshold:
            raise DetectorError(
                f'more than {SLOTS} emulated inferences at once on one instance; '
                'run fewer, or name more instances')
        return slot


class Instance:
    """
    A hardware instance whose cores emulated inferences share. It sleeps and uses no CPU.

    :param cores: number of cores, greater than 0; may be a fraction, as a container's limit.
    :param load_file: file through which processes share the instance (made when missing; best
        in memory, as under ``/dev/shm``); '' for this process alone.
    :param clock: monotonic clock in seconds, the same for all processes.
    :param sleep: function that sleeps for so many seconds.
    :raises DetectorError: if the file cannot be used.
    """

    def __init__(
        self,
        cores: float,
        load_file: str = '',
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._descriptor = -1
        if load_file:
            self._map = self._open(load_file)
            table = np.frombuffer(self._map, np.float64)
        else:
            table = np.zeros(_LENGTH)
        with self._exclusive():
            self._cores = SharedCores(table, cores, clock())
        weakref.finalize(self, _close, self._descriptor)

    @property
    def cores(self) -> float:
        """Return the number of cores."""
        return self._cores.cores

    def running(self) -> int:
        """Return how many inferences are in progress on this instance."""
        with self._exclusive():
            return self._cores.running(self._clock())

    def occupy(self, work_s: float) -> float:
        """
        Sleep as long as an inference takes that shares the cores with all others.

        :param work_s: time it would take alone, in seconds.
        :return: time it took, in seconds.
        """
        begin = self._clock()
        if work_s <= 0.0:
            return 0.0
        with self._exclusive():
            finish = self._cores.start(work_s, begin)
            moment = self._cores.finish_at(finish, begin)
        while True:
            left = moment - self._clock()
            if left > 0.0:
                self._sleep(left)
            now = self._clock()
            # Others may have started meanwhile; they can only have moved the end away.
            with self._exclusive():
                moment = self._cores.finish_at(finish, now)
            if moment - now < 1e-6:
                return now - begin

    def occupy_by_law(self, duration: Callable[[float], float]) -> float:
        """
        Sleep for a duration that is settled at the start from the load found there.

        :param duration: from inferences running for each core, this one included, to seconds.
        :return: time it took, in seconds.
        """
        begin = self._clock()
        with self._exclusive():
            load = (self._cores.running(begin) + 1) / self._cores.cores
            moment = self._cores.start_timed(duration(load), begin)
        while (left := moment - self._clock()) > 0.0:
            self._sleep(left)
        return self._clock() - begin

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._lock:
            if self._descriptor < 0:
                yield
                return
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _open(self, load_file: str) -> mmap.mmap:
        size = _LENGTH * 8
        try:
            self._descriptor = os.open(load_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                found = os.fstat(self._descriptor).st_size
                if found not in (0, size):
                    raise DetectorError(
                        f'load_file {load_file!r} is another kind of file ({found} bytes); '
                        'name a new one')
                os.ftruncate(self._descriptor, size)
                return mmap.mmap(self._descriptor, size)
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except OSError as error:
            raise DetectorError(
                f'load_file {load_file!r} cannot be used ({error.strerror}); '
                'name a file in a directory that exists and is writable') from error


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


_named: weakref.WeakValueDictionary[tuple[str, str], Instance] = weakref.WeakValueDictionary()
_named_lock = threading.Lock()


def find_instance(name: str, cores: float, load_file: str = '') -> Instance:
    """
    Return the instance of that name in this process, made when it is the first to ask.

    :param name: name of the instance; '' for one that nobody else shares.
    :param cores: number of cores, greater than 0.
    :param load_file: file through which processes share the instance; '' for none.
    :raises DetectorError: if the instance exists with another number of cores.
    """
    if not math.isfinite(cores) or cores <= 0.0:
        raise DetectorError(f'cores is {cores:g}; give a number greater than 0')
    if not name and not load_file:
        return Instance(cores)
    with _named_lock:
        # One file is one instance, whatever names its users have for it.
        key = ('', os.path.realpath(load_file)) if load_file else (name, '')
        instance = _named.get(key)
        if instance is None:
            instance = _named[key] = Instance(cores, load_file)
        elif instance.cores != cores:
            raise DetectorError(
                f'instance {name or load_file!r} has {instance.cores:g} cores and is asked for '
                f'with {cores:g}; give all its detectors the same number')
        return instance
