"""Tests of `laimr_ros.detectors.factory`."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys
from typing import Any

from laimr_ros.detectors.base import DetectorError, DetectorSpec
from laimr_ros.detectors.emulated import EmulatedDetector
from laimr_ros.detectors.factory import create_detector, KINDS
import pytest


def test_emulated() -> None:
    assert isinstance(create_detector(DetectorSpec('emulated')), EmulatedDetector)


def test_unknown_kind_names_the_known() -> None:
    with pytest.raises(DetectorError, match='detr.*yolo, efficientdet, emulated'):
        create_detector(DetectorSpec('detr'))


@pytest.mark.parametrize('fields, said', [
    ({'input_px': -1}, 'input_px'), ({'threads': -1}, 'threads'),
    ({'score_threshold': 1.5}, 'score_threshold'),
    ({'score_threshold': float('nan')}, 'score_threshold'),
    ({'max_detections': 0}, 'max_detections'),
])
@pytest.mark.parametrize('kind', KINDS)
def test_common_fields_are_checked(kind: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(DetectorError, match=said):
        create_detector(DetectorSpec(kind, **fields))


@pytest.mark.parametrize('kind, hidden, fix', [
    ('yolo', 'ultralytics', 'pip install ultralytics-opencv-headless'),
    ('yolo', 'torch', 'pip install torch'),
    ('efficientdet', 'effdet', 'pip install effdet'),
])
def test_missing_package_is_one_line_with_the_fix(kind: str, hidden: str, fix: str) -> None:
    script = (
        'import sys\n'
        f'sys.modules[{hidden!r}] = None\n'
        'from laimr_ros.detectors.base import DetectorError, DetectorSpec\n'
        'from laimr_ros.detectors.factory import create_detector\n'
        'try:\n'
        f'    create_detector(DetectorSpec({kind!r}, "x.yaml"))\n'
        'except DetectorError as error:\n'
        '    print(error)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', script], cwd=Path(__file__).parents[2], capture_output=True,
        text=True, timeout=120)
    assert fix in done.stdout, done.stderr
    assert done.stdout.count('\n') == 1


def test_emulated_does_not_import_torch() -> None:
    script = (
        'import sys\n'
        'from laimr_ros.detectors.base import DetectorSpec\n'
        'from laimr_ros.detectors.factory import create_detector\n'
        'create_detector(DetectorSpec("emulated"))\n'
        'print("torch" in sys.modules)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', script], cwd=Path(__file__).parents[2], capture_output=True,
        text=True, timeout=120, check=True)
    assert done.stdout == 'False\n'
