"""Scores of detections against the truth files that cameras write."""

from __future__ import annotations

import json
from pathlib import Path

from laimr_ros.demo.scores import Scores
from laimr_ros.demo.summary import add_scores, as_text, summarise
from laimr_ros.training.matching import Tally

BOX = [10.0, 10.0, 50.0, 50.0]


def write(path: Path, second: int, *labels: str, end: str = '\n') -> None:
    """Append what a camera writes for one picture."""
    with path.open('a') as file:
        file.write(json.dumps({
            'stamp': {'sec': second, 'nanosec': 500_000_000},
            'boxes': [{'label': one, 'box': BOX, 'visible_fraction': 1.0} for one in labels],
        }) + end)


def record(robot: str, second: int, lane: str, on_time: bool = True) -> dict[str, object]:
    """Return a record as the dispatcher writes it."""
    return {'robot': robot, 'stamp': second + 0.5, 'lane': lane, 'on_time': on_time}


def found(label: str) -> list[tuple[str, float, tuple[float, float, float, float]]]:
    """Return one detection."""
    return [(label, 0.9, (10.0, 10.0, 50.0, 50.0))]


def test_each_picture_is_scored_by_its_stamp(tmp_path: Path) -> None:
    """As the file grows; late pictures do not count for the lane."""
    file = tmp_path / 'a.jsonl'
    scores = Scores({'a': file, 'b': tmp_path / 'b.jsonl'})
    scores.score('a', 1.5, found('square'))  # The file is not there yet.
    write(file, 1, 'square')
    write(file, 2, 'square')
    scores.score('a', 2.5, found('square'))
    write(file, 3, 'square', 'gripper')
    scores.score('a', 3.5, found('square'))
    write(file, 4, 'circle')
    scores.score('a', 4.5, found('square'))
    scores.score('b', 4.5, found('square'))  # No truth is ever written for it.
    assert scores.total == Tally(found=2, missed=2, wrong=1)
    lanes = scores.by_lane([
        record('a', 2, 'fast'), record('a', 3, 'careful'), record('a', 4, 'fast', False),
        record('b', 4, 'fast')])
    assert lanes == {'fast': Tally(found=1), 'careful': Tally(found=1, missed=1)}
    scores.close()


def test_a_line_that_is_cut_is_waited_for_or_passed_over(tmp_path: Path) -> None:
    """The rest of a line may come later; a broken one costs its picture only."""
    file = tmp_path / 'a.jsonl'
    scores = Scores({'a': file})
    write(file, 1, 'square', end='')
    scores.score('a', 1.5, found('square'))
    assert scores.total == Tally()
    with file.open('a') as out:
        out.write('\n{"stamp": {"sec": 2\n')
    write(file, 3, 'square')
    for second in (1, 2, 3):
        scores.score('a', second + 0.5, found('square'))
    assert scores.total == Tally(found=2)
    scores.close()


def test_the_summary_shows_them() -> None:
    """A lane with random weights, or with no truth, has none."""
    status = {'counters': {}, 'pools': {}, 'lanes': {
        'fast': {'model': 'good', 'slo_s': 1.0}, 'blind': {'model': 'none', 'slo_s': 1.0},
        'weak': {'model': 'poor', 'slo_s': 1.0}}}
    summary = summarise([], [status], None, 0.0)
    add_scores(summary, {
        'fast': Tally(9, 1, 1), 'blind': Tally(0, 9, 9), 'weak': Tally(1, 3, 0)}, ['none'])
    assert summary['lanes']['fast']['recall'] == 0.9
    assert summary['lanes']['fast']['objects'] == 10
    assert summary['lanes']['blind']['recall'] is None
    text = as_text(summary)
    assert '90.0%' in text
    assert 'lane weak finds little: 25.0% of 4 objects' in text
    assert 'lane blind' not in text
