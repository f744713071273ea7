"""Too little to judge by is said, enough is not."""

from __future__ import annotations

from laimr_ros.evaluation.caution import cautions, no_frames


def test_enough_needs_no_word():
    assert cautions(3, [{'frames': 1000.0}, {'other': 1}]) == []


def test_few_seeds_and_few_frames_are_told():
    seeds, frames = cautions(1, [{'frames': 240.0}, {'frames': 5000.0}])
    assert seeds.startswith('1 seed:')
    assert '1 of 2 runs' in frames and '240' in frames


def test_no_frames_at_all():
    assert no_frames([{'frames': 0.0}, {'frames': 0.0}])
    assert not no_frames([{'frames': 0.0}, {'frames': 1.0}])
    assert not no_frames([{'other': 0.0}])
