"""Tests of `laimr_ros.detectors.instance`."""

from __future__ import annotations

import os
from pathlib import Path
import subprocess
import sys
import threading
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from laimr_ros.detectors.base import DetectorError
from laimr_ros.detectors.instance import find_instance, Instance, SharedCores, SLOTS
import numpy as np
import pytest


def table() -> np.ndarray:
    return np.zeros(8 + 2 * SLOTS)


def reference(cores: float, jobs: list[tuple[float, float]]) -> list[float]:
    """Compute when jobs (start, work) end, by stepping from one event to the next."""
    left = {index: work for index, (_, work) in enumerate(jobs)}
    ends = [0.0] * len(jobs)
    now = 0.0
    while left:
        running = [index for index in left if jobs[index][0] <= now]
        later = [jobs[index][0] for index in left if jobs[index][0] > now]
        speed = min(1.0, cores / len(running)) if running else 0.0
        step = min(later) - now if later else float('inf')
        if running:
            step = min(step, min(left[index] for index in running) / speed)
        now += step
        for index in running:
            left[index] -= step * speed
            if left[index] <= 1e-12:
                ends[index] = now
                del left[index]
    return ends


@settings(max_examples=100, deadline=None)
@given(
    cores=st.sampled_from([0.5, 1.0, 2.0, 3.0, 8.0]),
    gaps_ms=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 1000)), min_size=1,
                     max_size=12),
)
def test_processor_sharing_is_exact(cores: float, gaps_ms: list[tuple[int, int]]) -> None:
    jobs, moment = [], 0.0
    for gap, work in gaps_ms:
        moment += gap / 1000.0
        jobs.append((moment, work / 1000.0))
    shared = SharedCores(table(), cores, 0.0)
    finishes = [shared.start(work, start) for start, work in jobs]
    # With all started, the prediction must hold from any moment before the end.
    ends = reference(cores, jobs)
    predicted = [shared.finish_at(finish, moment) for finish in finishes]
    for end, prediction in zip(ends, predicted):
        assert prediction == pytest.approx(end, abs=1e-9) or end <= moment >= prediction - 1e-9


def test_running_is_counted() -> None:
    shared = SharedCores(table(), 1.0, 0.0)
    shared.start(1.0, 0.0)
    shared.start(1.0, 0.0)
    shared.start_timed(5.0, 0.0)
    assert shared.running(1.9) == 3
    assert shared.running(2.1) == 1
    assert shared.running(5.1) == 0


def test_who_is_killed_blocks_nobody_for_long() -> None:
    memory = table()
    SharedCores(memory, 1.0, 0.0).start(10.0, 0.0)  # and is never heard of again
    survivor = SharedCores(memory, 1.0, 1.0)
    finish = survivor.start(1.0, 1.0)
    assert survivor.finish_at(finish, 1.0) == pytest.approx(3.0)
    assert survivor.running(20.0) == 0


def test_table_of_before_a_restart_is_cleared() -> None:
    memory = table()
    SharedCores(memory, 1.0, 5000.0).start(100.0, 5000.0)
    assert SharedCores(memory, 1.0, 3.0).running(3.0) == 0


def test_too_many_at_once_is_refused() -> None:
    shared = SharedCores(table(), 1.0, 0.0)
    for _ in range(SLOTS):
        shared.start(1.0, 0.0)
    with pytest.raises(DetectorError, match=str(SLOTS)):
        shared.start(1.0, 0.0)


def test_four_on_two_cores_take_twice_the_time() -> None:
    instance = find_instance('four-on-two', 2.0)
    gate = threading.Barrier(4)
    ends: list[float] = []

    def run() -> None:
        gate.wait(10)
        instance.occupy(0.2)
        ends.append(time.monotonic())

    begin = time.monotonic()
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    # However late some thread started: 0.8 s of work took two cores 0.4 s.
    assert len(ends) == 4
    assert max(ends) - begin >= 0.4 - 1e-3


def test_alone_it_takes_its_own_time_exactly() -> None:
    now = [100.0]

    def sleep(duration_s: float) -> None:
        now[0] += duration_s

    instance = Instance(2.0, clock=lambda: now[0], sleep=sleep)
    assert instance.occupy(0.2) == pytest.approx(0.2)
    assert Instance(0.5, clock=lambda: now[0], sleep=sleep).occupy(0.2) == pytest.approx(0.4)
    assert instance.occupy_by_law(lambda load: 1.0 + load) == pytest.approx(1.5)
    assert instance.running() == 0


def test_names_are_shared_in_a_process() -> None:
    instance = find_instance('named', 2.0)
    assert find_instance('named', 2.0) is instance
    assert find_instance('other', 2.0) is not instance
    assert find_instance('', 2.0) is not find_instance('', 2.0)
    with pytest.raises(DetectorError, match='named'):
        find_instance('named', 3.0)


def test_file_is_shared_by_processes(tmp_path: Path) -> None:
    load_file = tmp_path / 'load'
    instance = find_instance('', 1.0, str(load_file))
    script = (
        'import sys\n'
        'from laimr_ros.detectors.instance import Instance\n'
        'instance = Instance(1.0, sys.argv[1])\n'
        'print("started", flush=True)\n'
        'print(instance.occupy(30.0), flush=True)\n'
    )
    other = subprocess.Popen(
        [sys.executable, '-c', script, str(load_file)], stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2])
    try:
        assert other.stdout is not None and other.stdout.readline() == b'started\n'
        deadline = time.monotonic() + 10.0
        while instance.running() != 1 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert instance.occupy(0.1) >= 0.2 - 1e-3
    finally:
        other.kill()
        other.wait(10)
        other.stdout.close()  # type: ignore[union-attr]


def test_one_file_is_one_instance_under_two_paths(tmp_path: Path) -> None:
    os.symlink(tmp_path / 'load', tmp_path / 'link')
    first = find_instance('a', 1.0, str(tmp_path / 'load'))
    assert find_instance('b', 1.0, str(tmp_path / 'link')) is first


def test_another_kind_of_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / 'notes.txt'
    file.write_text('precious')
    with pytest.raises(DetectorError, match='notes.txt'):
        find_instance('', 1.0, str(file))
    assert file.read_text() == 'precious'
