"""A directory is of one experiment, and of one command at a time."""

from __future__ import annotations

from laimr_ros.evaluation.directory import DirectoryError, occupy
import pytest


def test_the_same_experiment_goes_on(tmp_path):
    occupy(tmp_path / 'out', 'spread').close()
    (tmp_path / 'out' / 'result.json').write_text('{"experiment": "spread"}')
    (tmp_path / 'out' / 'report.html').write_text('')
    occupy(tmp_path / 'out', 'spread').close()


def test_two_at_once_are_refused(tmp_path):
    with occupy(tmp_path, 'spread'), pytest.raises(DirectoryError, match='another command'):
        occupy(tmp_path, 'spread')


def test_stopped_runs_of_another_are_left_alone(tmp_path):
    occupy(tmp_path, 'spread').close()
    before = (tmp_path / 'runs.jsonl').read_bytes()
    with pytest.raises(DirectoryError, match='spread, not of margin'):
        occupy(tmp_path, 'margin')
    assert (tmp_path / 'runs.jsonl').read_bytes() == before
    occupy(tmp_path, 'spread').close()


@pytest.mark.parametrize(('name', 'text'), [
    ('result.json', '{"experiment": "margin"}'), ('result.json', '[]'), ('result.json', '\xff'),
    ('result.json', '{}'), ('report.html', 'mine'), ('runs.csv', 'mine')])
def test_files_of_others_are_left_alone(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding='latin-1')
    with pytest.raises(DirectoryError, match=name):
        occupy(tmp_path, 'spread')
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize('name', ['runs.jsonl', 'report.html', 'result.json'])
def test_directories_in_place_of_files_are_named(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(DirectoryError, match=name):
        occupy(tmp_path, 'spread')
