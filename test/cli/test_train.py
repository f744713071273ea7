"""``laimr train``: what it writes, and what it says of wrong arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laimr_ros.cli import train
from laimr_ros.cli.main import main
from laimr_ros.detectors.base import DetectorSpec
from laimr_ros.detectors.factory import create_detector
from laimr_ros.detectors.files import find_file
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
    for word in ('AGPL-3.0', 'laimr train yolov5n --share 0.0001 --frames 8 --out', 'mAP50-95',
                 'seed 1', 'held-out seeds', '16 at 416 px', 'seconds on 1 thread of',
                 'of no use'):
        assert word in card
    # A second time nothing is left to learn, nor to judge.
    before = weights.stat().st_mtime_ns
    assert main(command) == 0
    out = capsys.readouterr().out
    assert out.startswith('yolov5n: already trained: ') and str(weights) in out
    assert weights.stat().st_mtime_ns == before
    assert not list(tmp_path.glob('.*')), 'nothing of the way there is left'


def test_weights_that_find_nothing_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Status 0, for it did what it was told, but nobody should use them."""
    def nothing(*_: object) -> dict[str, float]:
        return {'mAP50': 0.0, 'mAP50-95': 0.0}
    monkeypatch.setattr(train, '_judge', nothing)
    monkeypatch.setattr(train, '_show', lambda name, session, total: session.keep())
    assert main(['train', 'yolov5n', '--share', '0.0001', '--out', str(tmp_path)]) == 0
    assert 'WARNING: yolov5n finds next to nothing after 48' in capsys.readouterr().err
    assert 'is of no use' in (tmp_path / 'cell_yolov5n.md').read_text()


@pytest.mark.parametrize('learned, says', [(0, 'nothing was saved'), (16, 'goes on from there')])
def test_ctrl_c_is_told_the_truth(
    learned: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was kept is kept, and only then is it said."""
    def stop(name: str, session: Any, total: int) -> None:
        session._images = learned
        raise KeyboardInterrupt
    monkeypatch.setattr(train, '_show', stop)
    assert main(['train', 'yolov5n', '--share', '0.0001', '--out', str(tmp_path)]) == 130
    error = capsys.readouterr().err
    assert f'stopped after {learned} of 48 pictures' in error and says in error


@pytest.mark.parametrize('place', ['file', 'file/below', 'directory'])
def test_where_nothing_can_be_written_nothing_is_trained(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found out before the first picture."""
    monkeypatch.setattr(train, '_train', None)
    (tmp_path / 'file').write_text('mine')
    (tmp_path / 'directory' / 'cell_yolov5n.md').mkdir(parents=True)
    assert main(['train', 'yolov5n', '--out', str(tmp_path / place)]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / place) in error and error.count('\n') == 1


def test_wrong_weights_to_start_from_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """The shipped EfficientDet is no YOLO."""
    lite = find_file('package://laimr_ros/weights/cell_efficientdet_lite0.safetensors')
    command = ['train', 'yolov5n', '--start', str(lite), '--out', str(tmp_path)]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert 'is a file of safetensors' in error and error.count('\n') == 1


@pytest.mark.parametrize('arguments, says', [
    (['yolov9'], "unknown model 'yolov9'; use efficientdet_lite0, yolov5n, yolov5n_512"),
    (['yolov5n', '--share', '0'], '--share 0; give a part over 0'),
    (['yolov5n', '--threads', '-1'], '--threads -1'),
    (['yolov5n', '--threads', '100000'], '--threads 100000; give 0 to '),
    (['yolov5n', '--frames', '9' * 20], f'--frames {"9" * 20}; give 1 to 1000000'),
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
