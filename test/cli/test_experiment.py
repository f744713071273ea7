"""``laimr experiment`` from arguments to files."""

from __future__ import annotations

import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import time

from laimr_ros.cli import main as cli
import psutil
import pytest

ROOT = Path(__file__).parents[2]
SMALL = ['--seeds', '1', '--measured', '2', '--workers', '1']


def test_list(capsys):
    assert cli.main(['experiment', '--list']) == 0
    assert 'table6-p99' in capsys.readouterr().out


@pytest.mark.parametrize(('arguments', 'told'), [
    ([], 'NAME is missing'), (['nothing', '--out', 'x'], 'nothing'), (['table6-p99'], '--out'),
    (['table6-p99', '--out', ''], "--out ''"),
    (['table6-p99', '--list', '--out', 'x'], 'leave out table6-p99 and --out'),
    (['table6-p99', '--out', 'x', '--seeds', '0'], '--seeds 0'),
    (['table6-p99', '--out', 'x', '--seeds', '1001'], '--seeds 1001; give 1 to 1000'),
    (['table6-p99', '--out', 'x', '--workers', '0'], '--workers 0'),
    (['table6-p99', '--out', 'x', '--measured', 'nan'], '--measured nan'),
    (['table6-p99', '--out', 'x', '--measured', 'inf'], '--measured inf'),
    (['table6-p99', '--out', 'x', '--measured', '-1'], '--measured -1'),
    (['table6-p99', '--out', '/dev/full'], '/dev/full'),
    (['table6-p99', '--out', '/proc/x'], '/proc/x')])
def test_bad_arguments_are_named(arguments, told, capsys):
    assert cli.main(['experiment', *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count('\n') == 1


@pytest.mark.parametrize('name', ['runs.jsonl', 'report.html'])
def test_what_cannot_be_written_is_told_before_any_run(tmp_path, capsys, name):
    (tmp_path / name).mkdir()
    assert cli.main(['experiment', 'table6-p99', '--out', str(tmp_path), *SMALL]) == 2
    error = capsys.readouterr().err
    assert name in error and error.count('\n') == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.fixture(scope='module')
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp('done')
    assert cli.main(['experiment', 'table6-p99', '--out', str(out), *SMALL]) == 0
    return out


def test_result_lists_what_was_asked_for(done):
    runs = json.loads((done / 'result.json').read_text())['runs']
    wanted = {'rate', 'policy', 'seed', 'p50_s', 'p95_s', 'p99_s', 'max_s', 'iqr_s', 'on_time',
              'replica_seconds', 'offload_share', 'dropped', 'answered_p99_s'}
    assert all(wanted <= set(run) for run in runs)
    assert {run['rate'] for run in runs} == {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}


def test_taking_up_a_finished_one_changes_nothing(done):
    before = (done / 'result.json').read_text()
    assert json.loads(before)['run_s'] > 0.0
    assert cli.main(['experiment', 'table6-p99', '--out', str(done), *SMALL]) == 0
    assert (done / 'result.json').read_text() == before


def test_a_damaged_line_is_told_and_its_run_done_anew(done, capsys):
    kept = done / 'runs.jsonl'
    before = json.loads((done / 'result.json').read_text())['runs']
    lines = kept.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'p99_s', b'q99_s')
    kept.write_bytes(b''.join(lines))
    assert cli.main(['experiment', 'table6-p99', '--out', str(done), *SMALL]) == 0
    assert f'{kept}:4: altered' in capsys.readouterr().err.replace('\n', '')
    assert json.loads((done / 'result.json').read_text())['runs'] == before


def test_too_little_is_said_on_screen_and_in_the_report(done, capsys):
    cli.main(['experiment', 'table6-p99', '--out', str(done), *SMALL])
    notes = re.findall('^note: (.*)$', capsys.readouterr().out, re.MULTILINE)
    assert len(notes) == 2
    assert all(note in (done / 'report.html').read_text() for note in notes)


def test_another_experiment_is_refused(done, capsys):
    before = {path.name: path.read_bytes() for path in done.iterdir()}
    assert cli.main(['experiment', 'spread', '--out', str(done), *SMALL]) == 2
    assert 'table6-p99' in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in done.iterdir()} == before


def test_no_frames_decide_nothing(tmp_path, capsys):
    assert cli.main(['experiment', 'table6-p99', '--out', str(tmp_path), '--seeds', '1',
                     '--measured', '0.0000001', '--workers', '1']) == 2
    assert 'not decided: 0 frames' in capsys.readouterr().err
    assert not (tmp_path / 'report.html').exists()


def test_a_run_that_cannot_be_done_is_told_in_one_line(tmp_path, capsys):
    assert cli.main(['experiment', 'fig2-calibration', '--out', str(tmp_path), '--seeds', '1',
                     '--measured', '1', '--workers', '1']) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if 'laimr' in line]
    assert line.startswith('laimr experiment: not decided: in 1 s, ')


@pytest.mark.parametrize(('number', 'status'), [
    (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_whatever_stops_it_ends_its_workers(tmp_path, number, status):
    """The signal goes to the whole group, as Ctrl-C in a terminal does; SIGKILL to one process."""
    process = subprocess.Popen(
        [sys.executable, '-m', 'laimr_ros.cli.main', 'experiment', 'table6-p99', '--out',
         str(tmp_path), '--seeds', '2', '--measured', '10000', '--workers', '2'], cwd=ROOT,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    children = []
    try:
        deadline = time.monotonic() + 120.0
        # Two workers and what multiprocessing has beside them; a worker is at its long first run.
        while len(children) < 3 and process.poll() is None and time.monotonic() < deadline:
            children = psutil.Process(process.pid).children(recursive=True)
            time.sleep(0.01)
        assert len(children) == 3
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        # Returns only when nobody has the pipes any more, workers included.
        output, errors = process.communicate(timeout=30.0)
        assert not psutil.wait_procs(children, timeout=30.0)[1]
    finally:
        process.kill()
        for child in children:
            if child.is_running():
                child.kill()
    assert process.returncode == status
    assert 'Traceback' not in errors
    assert output == ''
    if number != signal.SIGKILL:
        assert re.search(r'stopped; \d+ of \d+ runs are kept in .*/runs\.jsonl; the same command '
                         'goes on', errors)
