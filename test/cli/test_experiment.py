"""``laimr experiment`` from arguments to files."""

from __future__ import annotations

import json

from laimr_ros.cli import main as cli
import pytest


def test_list(capsys):
    assert cli.main(['experiment', '--list']) == 0
    assert 'table6-p99' in capsys.readouterr().out


@pytest.mark.parametrize(('arguments', 'told'), [
    (['nothing', '--out', 'x'], 'nothing'), (['table6-p99'], '--out'),
    (['table6-p99', '--out', 'x', '--seeds', '0'], '--seeds 0'),
    (['table6-p99', '--out', 'x', '--workers', '0'], '--workers 0'),
    (['table6-p99', '--out', 'x', '--measured', '-1'], '--measured -1')])
def test_bad_arguments_are_named(arguments, told, capsys):
    assert cli.main(['experiment', *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count('\n') == 1


def test_result_lists_what_was_asked_for(tmp_path):
    assert cli.main(['experiment', 'table6-p99', '--out', str(tmp_path), '--seeds', '1',
                     '--measured', '2', '--workers', '1']) == 0
    runs = json.loads((tmp_path / 'result.json').read_text())['runs']
    wanted = {'rate', 'policy', 'seed', 'p50_s', 'p95_s', 'p99_s', 'max_s', 'iqr_s', 'on_time',
              'replica_seconds', 'offload_share', 'dropped', 'answered_p99_s'}
    assert all(wanted <= set(run) for run in runs)
    assert {run['rate'] for run in runs} == {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
