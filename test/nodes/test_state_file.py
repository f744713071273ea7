"""Test the file that keeps what was learned."""

from __future__ import annotations

import math
from pathlib import Path

from laimr_ros.nodes.state_file import StateFile
import pytest


def test_what_was_saved_comes_back_with_its_age(tmp_path: Path) -> None:
    """Directories are made; nothing but the file is left."""
    said: list[str] = []
    file = StateFile(str(tmp_path / 'deep' / 'state.json'), said.append)
    assert file.load() is None
    file.save({'a': [1, 2]})
    file.save({'a': [3]})
    saved = file.load()
    assert saved is not None
    assert saved[0] == {'a': [3]}
    assert 0.0 <= saved[1] < 60.0
    assert [p.name for p in (tmp_path / 'deep').iterdir()] == ['state.json']
    assert not said


@pytest.mark.parametrize('text', ['', '{', '[]', '{"state": {}}', '{"state": {}, "saved": "x"}',
                                  '{"state": [], "saved": 1}', '[' * 100_000,
                                  '{"state": {}, "saved": 1e999}', '{"state": {}, "saved": NaN}',
                                  f'{{"state": {{}}, "saved": 1{"0" * 400}}}',
                                  f'{{"state": {{}}, "saved": 1{"0" * 5000}}}'],
                         ids=range(11))
def test_a_damaged_file_is_told_and_left(tmp_path: Path, text: str) -> None:
    """One line that names it, and no exception."""
    said: list[str] = []
    path = tmp_path / 'state.json'
    path.write_text(text)
    assert StateFile(str(path), said.append).load() is None
    assert len(said) == 1 and str(path) in said[0] and len(said[0]) < 500


def test_bytes_that_are_no_text_or_without_end_are_told_and_left(tmp_path: Path) -> None:
    """Neither stops a start, nor fills the memory."""
    said: list[str] = []
    path = tmp_path / 'state.json'
    path.write_bytes(b'\xff\x00{')
    assert StateFile(str(path), said.append).load() is None
    assert StateFile('/dev/zero', said.append).load() is None
    assert len(said) == 2


def test_a_failure_to_write_is_told_once(tmp_path: Path) -> None:
    """The old content stays."""
    said: list[str] = []
    path = tmp_path / 'state.json'
    file = StateFile(str(path), said.append)
    file.save({'a': 1})
    for _ in range(3):
        file.save({'a': math.nan})
    assert len(said) == 1
    saved = file.load()
    assert saved is not None and saved[0] == {'a': 1}
