"""Test that commands are quiet at an early Ctrl-C, and clear about where results cannot go."""

from __future__ import annotations

from pathlib import Path
import signal
import subprocess
import sys
import threading

from laimr_ros.cli import main as cli
from laimr_ros.cli.interrupts import leave_at_interrupt, raise_at_stop, Stopped
import pytest

ROOT = Path(__file__).parents[2]
# Says that it is there, then hangs as an import of many seconds would.
SLOW = """
import sys, time
sys.argv = ['laimr', 'demo']
import laimr_ros.cli.main as cli
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            print('importing', flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Finder())
sys.exit(cli.main())
"""


@pytest.mark.parametrize('name', ['laimr_ros.cli.demo', 'rclpy', 'laimr_ros.demo.run'])
def test_ctrl_c_while_modules_are_imported_is_quiet(name: str) -> None:
    process = subprocess.Popen(
        [sys.executable, '-c', SLOW.format(name=name)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == 'importing\n'
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, output, errors) == (130, '', '')


def test_ctrl_c_in_a_command_without_handlers_is_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from laimr_ros.cli import doctor

    def interrupted(args: object) -> int:
        raise KeyboardInterrupt
    monkeypatch.setattr(doctor, 'run', interrupted)
    assert cli.main(['doctor']) == 130
    assert capsys.readouterr() == ('', '')


def test_what_was_set_for_ctrl_c_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with leave_at_interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with leave_at_interrupt():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_leave_signals_alone() -> None:
    entered = []

    def enter() -> None:
        with leave_at_interrupt():
            entered.append(True)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(10)
    assert entered


@pytest.mark.parametrize('out', ['/dev/null', '/proc/laimr'])
def test_results_that_cannot_be_put_anywhere_are_told_in_one_line(
    out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip('rclpy', reason='no rclpy here: run `make setup`')
    before = signal.getsignal(signal.SIGINT)
    assert cli.main(['demo', '--out', out]) == 1
    error = capsys.readouterr().err
    assert error.startswith('laimr demo: ') and out in error and '--out' in error
    assert error.count('\n') == 1
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(('number', 'status'), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_is_raised_once_and_what_was_set_comes_back(
    number: signal.Signals, status: int
) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Stopped) as caught, raise_at_stop():
        signal.raise_signal(number)
    assert caught.value.status == status
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_stop_ends_at_once() -> None:
    code = ('import signal\n'
            'from laimr_ros.cli.interrupts import raise_at_stop\n'
            'with raise_at_stop():\n'
            '    try:\n'
            '        signal.raise_signal(signal.SIGINT)\n'
            '    finally:\n'
            '        signal.raise_signal(signal.SIGTERM)\n')
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, text=True, timeout=60,
                          capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, '', '')
