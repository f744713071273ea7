"""``laimr train``: what it writes, and what it says of wrong arguments."""

from __future__ import annotations

from pathlib import Path

from laimr_ros.cli.main import main
from laimr_ros.detectors.base import DetectorSpec
from laimr_ros.detectors.factory import create_detector
import pytest


def test_a_short_training_writes_weights_and_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """One batch a stage; the weights find nothing yet, but load and are judged."""
    command = ['train', 'yolov5n', '--share', '0.0001', '--frames', '8', '--threads', '1',
               '--out', str(tmp_path)]
    assert main(command) == 0
    assert 'mAP50' in capsys.readouterr().out
    weights = tmp_path / 'cell_yolov5n.pt'
    detector = create_detector(DetectorSpec('yolo', str(weights), device='cpu'))
    assert detector.class_names == ('square', 'circle', 't_shape', 'gripper')
    card = (tmp_path / 'cell_yolov5n.md').read_text()
    for word in ('AGPL-3.0', 'laimr train yolov5n --share 0.0001', 'mAP50-95', 'seed 1',
                 'held-out seeds', '16 at 416 px'):
        assert word in card
    # A second time it goes on from the end: nothing is left to learn.
    assert main(command) == 0
    assert (tmp_path / 'cell_yolov5n.md').exists()


@pytest.mark.parametrize('arguments, says', [
    (['yolov9'], "unknown model 'yolov9'; use efficientdet_lite0, yolov5n, yolov5n_512"),
    (['yolov5n', '--share', '0'], '--share 0; give a part over 0'),
    (['yolov5n', '--threads', '-1'], '--threads -1'),
    (['yolov5n', '--frames', '0'], '--frames 0'),
    (['yolov5n', '--seed', '900'], '--seed 900; give 0 to 899'),
    (['--start', 'x.pt'], '--start is for one model, but 3'),
    (['yolov5n', '--start', 'x.pt'], "--start 'x.pt' is no file"),
])
def test_wrong_arguments_are_named(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything is made."""
    assert main(['train', *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count('\n') == 1
