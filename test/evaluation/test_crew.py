"""Work is done in other processes, which end when they should."""

from __future__ import annotations

import importlib
import os
import sys
import time

from laimr_ros.evaluation.crew import CrewError, results
import pytest

# Other processes can import this, unlike the module of a test.
JOBS = """
from dataclasses import dataclass
import os
import signal
import time


@dataclass(frozen=True)
class Add:
    a: int

    def run(self):
        return self.a + 1, os.getpid()


@dataclass(frozen=True)
class Fail:
    def run(self):
        raise ValueError('no good')


@dataclass(frozen=True)
class Die:
    def run(self):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Hang:
    file: str

    def run(self):
        with open(self.file, 'w') as file:
            file.write(str(os.getpid()))
        time.sleep(600.0)
"""


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    (tmp_path / 'jobs_of_a_crew.py').write_text(JOBS)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module('jobs_of_a_crew')
    del sys.modules['jobs_of_a_crew']


def test_all_is_done_elsewhere(jobs):
    found = list(results([jobs.Add(k) for k in range(5)], 2))
    assert sorted(number for (number, _), _ in found) == [1, 2, 3, 4, 5]
    assert os.getpid() not in {pid for (_, pid), _ in found}
    assert all(0.0 <= seconds < 60.0 for _, seconds in found)


def test_alone_is_done_here(jobs):
    assert [result for result, _ in results([jobs.Add(1)], 1)] == [(2, os.getpid())]


def test_what_is_raised_is_raised_here(jobs):
    with pytest.raises(ValueError, match='no good'):
        list(results([jobs.Fail()], 2))


def test_a_death_is_told(jobs):
    with pytest.raises(CrewError, match='died'):
        list(results([jobs.Die()], 2))


def test_who_stops_listening_ends_them(jobs, tmp_path):
    file = tmp_path / 'pid'
    file.touch()
    ended = results([jobs.Hang(str(file)), jobs.Add(1)], 2)
    next(ended)
    deadline = time.monotonic() + 60.0
    while not file.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    ended.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)
