"""Finished runs are kept whole, or what is damaged is told and left out."""

from __future__ import annotations

import json
import math

from laimr_ros.evaluation.kept import InUseError, Kept, plain
import pytest

ROWS = [{'key': 'one', 'p99_s': 1.5, 'measured': None, 'settings': {'target': 0.5}},
        {'key': 'two', 'p99_s': math.inf, 'measured': 20.0, 'settings': {}}]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / 'made' / 'runs.jsonl'
    with Kept(path) as kept:
        kept.name('spread')
        for row in ROWS:
            kept.add(row, 2.0)
    return path


def _change(path, number, how):
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = how(lines[number - 1])
    path.write_bytes(b''.join(lines))


def test_what_was_kept_comes_back(path):
    with Kept(path) as kept:
        assert list(kept.rows.values()) == ROWS
        assert (kept.experiment, kept.damaged) == ('spread', {})
        assert kept.took(['one', 'two']) == 4.0


@pytest.mark.parametrize('how', [
    lambda line: line.replace(b'1.5', b'1.4'), lambda line: line.replace(b'1.5', b'"abc"'),
    lambda line: line.replace(b'1.5', b'NaN'), lambda line: line.replace(b'"p99_s": 1.5, ', b''),
    lambda line: b'\xff\xfe\xfa' + line, lambda line: line[:20] + b'\n', lambda line: b'7\n',
    lambda line: b'{"key": "one", "p99_s": 1.5}\n', lambda line: b'[' * 100_000 + b'\n'])
def test_a_damaged_line_is_told_and_left_out(path, how):
    _change(path, 2, how)
    with Kept(path) as kept:
        assert list(kept.rows) == ['two']
        assert list(kept.damaged) == [2]
        kept.add(ROWS[0], 1.0)
    with Kept(path) as kept:
        assert kept.rows == {row['key']: row for row in ROWS}


def test_a_last_line_cut_short_is_told_once(path):
    path.write_bytes(path.read_bytes()[:-10])
    with Kept(path) as kept:
        assert list(kept.damaged) == [3]
        kept.add(ROWS[1], 1.0)
    with Kept(path) as kept:
        assert list(kept.rows.values()) == ROWS
        assert not kept.damaged


def test_a_last_line_without_its_end_is_whole(path):
    path.write_bytes(path.read_bytes().rstrip())
    with Kept(path) as kept:
        kept.add({'key': 'three'}, 1.0)
    with Kept(path) as kept:
        assert list(kept.rows) == ['one', 'two', 'three']


def test_lines_of_older_versions_are_taken_and_their_time_is_not_known(tmp_path):
    path = tmp_path / 'runs.jsonl'
    path.write_text(''.join(json.dumps(plain(row)) + '\n' for row in ROWS))
    with Kept(path) as kept:
        assert kept.experiment is None
        kept.name('spread')
    with Kept(path) as kept:
        assert list(kept.rows.values()) == ROWS
        assert (kept.experiment, kept.damaged) == ('spread', {})
        assert math.isnan(kept.took(['one']))


def test_nobody_else_appends(path):
    with Kept(path), pytest.raises(InUseError, match=str(path)):
        Kept(path)
    Kept(path).close()
