"""Test that results which cannot be written cost only themselves."""

from __future__ import annotations

import errno
from pathlib import Path

from laimr_ros.demo.files import Results
import pytest


def fill(path: Path) -> None:
    """Write a part, as on a disk that becomes full."""
    path.write_text('{"half')
    raise OSError(errno.ENOSPC, 'No space left on device')


def test_all_that_can_be_written_is(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.write('summary.json', fill)
    results.write('status.jsonl', lambda path: path.write_text('x'))
    results.write('plot.png', fill)
    assert [path.name for path in tmp_path.iterdir()] == ['status.jsonl']
    assert results.missing == ['summary.json', 'plot.png']
    complaint = results.complaint()
    for part in ('summary.json, plot.png', str(tmp_path), 'No space left on device', '--out'):
        assert part in complaint
    assert '\n' not in complaint


def test_nothing_is_said_when_all_went_well(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.write('summary.json', lambda path: path.write_text('x'))
    assert results.complaint() == '' and not results.missing


def test_other_errors_are_not_hidden(tmp_path: Path) -> None:
    results = Results(tmp_path)

    def wrong(path: Path) -> None:
        raise KeyError('bug')
    with pytest.raises(KeyError):
        results.write('summary.json', wrong)
