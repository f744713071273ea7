"""Places for results are tried before the work."""

from __future__ import annotations

import argparse
from pathlib import Path

from laimr_ros.cli.outputs import (
    named_path,
    problem_with_directory,
    problem_with_file,
    say_whole,
    write_whole,
)
import pytest


def test_places_that_do_and_leave_nothing_behind(tmp_path: Path) -> None:
    """Also where directories are still to be made."""
    assert problem_with_file('--json', tmp_path / 'a' / 'b' / 'c.json') == ''
    assert problem_with_directory('--out', tmp_path / 'a' / 'b') == ''
    assert problem_with_directory('--out', tmp_path) == ''
    assert problem_with_file('--json', Path('/dev/null')) == ''
    assert list(tmp_path.iterdir()) == []


def test_places_that_do_not(tmp_path: Path) -> None:
    """Option, value, reason and fix."""
    file = tmp_path / 'file'
    file.write_text('mine')
    for problem in (problem_with_file('--x', file / 'a' / 'b'),
                    problem_with_directory('--x', file),
                    problem_with_directory('--x', file / 'a')):
        assert problem.startswith(f"--x '{file}") and f"'{file}' is a file; give" in problem
    assert problem_with_file('--x', tmp_path) == (
        f"--x '{tmp_path}' is a directory; give the name of a file")
    assert 'is what is to be read' in problem_with_file('--x', file, [tmp_path, file])
    for problem in (problem_with_directory('--x', Path('/proc/none')),
                    problem_with_file('--x', Path('/proc/none.json')),
                    problem_with_file('--x', tmp_path / ('n' * 300) / 'a')):
        assert 'give another' in problem
    with pytest.raises(argparse.ArgumentTypeError, match='is no path'):
        named_path('')
    assert named_path('a') == Path('a')


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Also what a link points to; and what was there stays where it fails."""
    link = tmp_path / 'link'
    link.symlink_to(tmp_path / 'new')
    write_whole(link, 'text')
    assert link.is_symlink() and (tmp_path / 'new').read_text() == 'text'
    write_whole(tmp_path / 'made' / 'it', 'too')
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / 'new', 'half \ud800')
    assert (tmp_path / 'new').read_text() == 'text'
    assert {path.name for path in tmp_path.iterdir()} == {'link', 'new', 'made'}
    with pytest.raises(OSError, match='No space left'):
        write_whole(Path('/dev/full'), 'text')


def test_what_is_said_is_heard(capsys: pytest.CaptureFixture[str]) -> None:
    """Or it is known why not (see test_deploy_command for a full device)."""
    assert say_whole('text') == ''
    assert capsys.readouterr().out == 'text'
