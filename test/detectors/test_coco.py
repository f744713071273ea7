"""Tests of `laimr_ros.detectors.coco`."""

from __future__ import annotations

from pathlib import Path

from laimr_ros.detectors.coco import COCO_80, COCO_90, default_names
import pytest


def test_names_are_those_that_ultralytics_trains_with() -> None:
    ultralytics = pytest.importorskip(
        'ultralytics', reason='pip install ultralytics-opencv-headless')
    yaml = pytest.importorskip('yaml', reason='pip install pyyaml')
    path = Path(ultralytics.__file__).parent / 'cfg' / 'datasets' / 'coco.yaml'
    names = yaml.safe_load(path.read_text(encoding='utf-8'))['names']
    assert tuple(names[index] for index in range(80)) == COCO_80


def test_places_of_the_original_numbering() -> None:
    # From the data set's own annotation files, which count from 1.
    for number, name in ((1, 'person'), (13, 'stop sign'), (27, 'backpack'), (44, 'bottle'),
                         (62, 'chair'), (77, 'cell phone'), (90, 'toothbrush')):
        assert COCO_90[number - 1] == name
    assert len(COCO_90) == len(set(COCO_90)) == 90


def test_other_counts_get_numbers() -> None:
    assert default_names(2) == ('class0', 'class1')
    assert default_names(80) == COCO_80 and default_names(90) == COCO_90
