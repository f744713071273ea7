"""Records: one line a frame, bounded, and never in the way."""

from __future__ import annotations

import json
import time

from laimr_ros.control.actions import Ended, Prediction
from laimr_ros.control.nouns import Frame, Outcome
from laimr_ros.nodes.records import Records


def ended(number, prediction=None):
    frame = Frame(number, 'robot19', 'balanced', captured=9.5, received=10.0)
    return Ended(
        frame, Outcome.ANSWERED, '', True, 'edge', 'unix:/w', False, prediction, latency=0.7,
        queued=0.1, network=0.01, worker_queue=0.0, service=0.09, attempts=1)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_record_holds_prediction_beside_actual(tmp_path):
    path = tmp_path / 'new' / 'records.jsonl'
    records = Records(str(path), 10.0, print)
    records.add(ended(1, Prediction(0.01, 0.002, 0.1, 0.15)), 1_700_000_000_123_456_789, 1.5, 3,
                True)
    records.add(ended(2), 5, 1.5, 0, False)
    records.close()
    first, second = lines(path)
    assert first['stamp_ns'] == 1_700_000_000_123_456_789
    assert (first['robot'], first['lane'], first['pool']) == ('robot19', 'balanced', 'edge')
    assert (first['outcome'], first['on_time'], first['offloaded']) == ('answered', True, False)
    assert first['predicted'] == {
        'wait_s': 0.01, 'network_s': 0.002, 'service_s': 0.1, 'completion_s': 0.15}
    assert (first['service_s'], first['latency_s'], first['age_s']) == (0.09, 0.7, 0.5)
    assert second['predicted'] is None and second['clock_agrees'] is False


def test_lines_are_there_before_the_end(tmp_path):
    path = tmp_path / 'records.jsonl'
    records = Records(str(path), 10.0, print)
    records.add(ended(1), 5, 1.5, 0, True)
    deadline = time.monotonic() + 5.0
    while not path.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(lines(path)) == 1
    records.close()


def test_space_is_bounded_and_the_newest_are_kept(tmp_path):
    path = tmp_path / 'records.jsonl'
    records = Records(str(path), 0.2, print)
    for number in range(5_000):
        records.add(ended(number), number, 1.5, 0, True)
    records.close(10.0)
    older = tmp_path / 'records.jsonl.1'
    sizes = path.stat().st_size + older.stat().st_size
    # Half a portion too much at most: a file is closed when it is found to be too long.
    assert sizes < 0.2e6 + 200 * 600
    stamps = [r['stamp_ns'] for r in lines(older) + lines(path)]
    assert stamps == list(range(stamps[0], 5_000))
    assert records.lost == 0


def test_an_existing_file_is_continued(tmp_path):
    path = tmp_path / 'records.jsonl'
    for number in (1, 2):
        records = Records(str(path), 10.0, print)
        records.add(ended(number), number, 1.5, 0, True)
        records.close()
    assert [r['stamp_ns'] for r in lines(path)] == [1, 2]


def test_a_line_cut_off_by_a_crash_spoils_no_other(tmp_path):
    path = tmp_path / 'records.jsonl'
    path.write_text('{"robot": "rob')
    records = Records(str(path), 10.0, print)
    records.add(ended(1), 7, 1.5, 0, True)
    records.close()
    assert json.loads(path.read_text().splitlines()[1])['stamp_ns'] == 7


def test_a_full_disk_is_said_once_and_survived(tmp_path):
    said = []
    # Writes to it fail like those to a full disk.
    records = Records('/dev/full', 10.0, said.append)
    for number in range(500):
        records.add(ended(number), number, 1.5, 0, True)
    records.close()
    assert records.lost == 500
    assert len(said) == 1 and '/dev/full' in said[0]


def written(path):
    """Return the numbers of the frames in a file, or nothing while it is not there."""
    return [line['stamp_ns'] for line in lines(path)] if path.exists() else []


def wait_until(condition):
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_file_that_is_moved_away_or_removed_is_begun_anew(tmp_path):
    path = tmp_path / 'deep' / 'records.jsonl'
    said = []
    records = Records(str(path), 10.0, said.append)
    records.add(ended(1), 1, 1.5, 0, True)
    wait_until(lambda: written(path) == [1])
    path.rename(tmp_path / 'moved.jsonl')
    records.add(ended(2), 2, 1.5, 0, True)
    wait_until(lambda: written(path) == [2])
    path.unlink()
    path.parent.rmdir()
    records.add(ended(3), 3, 1.5, 0, True)
    wait_until(lambda: written(path) == [3])
    records.close()
    assert written(tmp_path / 'moved.jsonl') == [1]
    assert records.lost == 0 and not said
