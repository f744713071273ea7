"""Real processes whose parent dies, in every way a parent can."""

from __future__ import annotations

import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from laimr_ros import lifeline
import pytest

POLITE = """
import signal, sys, time
from laimr_ros import lifeline
lifeline.attach()
def ended(*_):
    open(sys.argv[1] + '.ended', 'w').close()
    sys.exit(0)
signal.signal(signal.SIGTERM, ended)
open(sys.argv[1], 'w').close()
while True:
    time.sleep(60)
"""

STUBBORN = """
import signal, sys
from laimr_ros import lifeline
lifeline.attach(grace_s=0.5)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], 'w').close()
while True:
    pass
"""

PARENT = """
import os, signal, subprocess, sys, time
from laimr_ros import lifeline
children = [lifeline.spawn([sys.executable, '-c', sys.argv[1], path]) for path in sys.argv[2:]]
# A sibling that would keep a lifeline alive, had it inherited one.
plain = subprocess.Popen(['sleep', '20'], close_fds=False, start_new_session=True)
while not all(os.path.exists(path) for path in sys.argv[2:]):
    time.sleep(0.01)
print(plain.pid, *(child.pid for child in children), flush=True)
time.sleep(60)
"""


def wait_until(condition, timeout_s=10.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, 'it did not happen in time'
        time.sleep(0.01)


def alive(pid):
    # An orphan is reaped by whoever adopts it, perhaps late: a zombie has ended.
    try:
        return Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def start_family(program, paths):
    parent = subprocess.Popen(
        [sys.executable, '-c', PARENT, program, *map(str, paths)],
        stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    plain, *children = map(int, parent.stdout.readline().split())
    return parent, plain, children


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_end_in_order_when_the_parent_dies(tmp_path, number):
    paths = [tmp_path / 'a', tmp_path / 'b']
    parent, plain, children = start_family(POLITE, paths)
    try:
        assert all(map(alive, children))
        parent.send_signal(number)
        parent.wait(5)
        wait_until(lambda: not any(map(alive, children)))
        assert all(path.with_name(path.name + '.ended').exists() for path in paths)
        assert alive(plain), 'the test needs a sibling that is still there'
    finally:
        os.kill(plain, signal.SIGKILL)
        parent.kill()
        parent.communicate()


def test_a_child_stuck_in_a_busy_loop_ends_by_force(tmp_path):
    parent, plain, children = start_family(STUBBORN, [tmp_path / 'a'])
    try:
        parent.kill()
        wait_until(lambda: not any(map(alive, children)))
    finally:
        os.kill(plain, signal.SIGKILL)
        parent.communicate()


def test_a_child_that_is_cut_off_gets_sigterm(tmp_path):
    path = tmp_path / 'a'
    child = lifeline.spawn([sys.executable, '-c', POLITE, str(path)])
    wait_until(path.exists)
    assert os.getpgid(child.pid) == child.pid, 'it needs a process group of its own'
    child.cut()
    assert child.wait(10) == 0
    assert path.with_name('a.ended').exists()


def test_a_stuck_child_that_is_cut_off_has_status_1(tmp_path):
    path = tmp_path / 'a'
    child = lifeline.spawn([sys.executable, '-c', STUBBORN, str(path)])
    wait_until(path.exists)
    child.cut()
    assert child.wait(10) == 1


def test_no_descriptor_is_left_behind():
    before = len(os.listdir('/proc/self/fd'))
    for _ in range(3):
        assert lifeline.spawn([sys.executable, '-c', '']).wait(10) == 0
    with pytest.raises(FileNotFoundError):
        lifeline.spawn(['/does/not/exist'])
    child = lifeline.spawn(['true'])
    wait_until(lambda: child.poll() is not None)
    assert len(os.listdir('/proc/self/fd')) == before


def test_the_given_environment_is_kept():
    child = lifeline.spawn(
        ['/bin/sh', '-c', 'echo $GIVEN $LAIMR_LIFELINE_FD'],
        env={'GIVEN': 'yes'}, stdout=subprocess.PIPE, text=True)
    words = child.communicate(timeout=10)[0].split()
    assert words[0] == 'yes' and int(words[1]) > 2


def test_without_a_parent_nothing_happens(monkeypatch):
    monkeypatch.delenv(lifeline.ENVIRONMENT_VARIABLE, raising=False)
    assert lifeline.attach() is False


@pytest.mark.parametrize('text', ['x', '-1', '9999'])
def test_a_wrong_descriptor_is_one_clear_error(monkeypatch, text):
    monkeypatch.setenv(lifeline.ENVIRONMENT_VARIABLE, text)
    with pytest.raises(RuntimeError, match='LAIMR_LIFELINE_FD'):
        lifeline.attach()


def test_it_imports_nothing_heavy():
    code = (
        'import sys; before = set(sys.modules); from laimr_ros import lifeline; '
        'print(*sorted({m.split(".")[0] for m in set(sys.modules) - before}))')
    out = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True, timeout=20)
    assert not {'numpy', 'grpc', 'torch', 'rclpy', 'yaml'} & set(out.stdout.split())
