"""``laimr evaluate``: a row a lane, and a plain word where there is nothing to judge."""

from __future__ import annotations

import json
from pathlib import Path

from laimr_ros.cli.main import main
import pytest

ROOT = Path(__file__).parents[2]
PARAMETERS = """
dispatcher:
  ros__parameters:
    lane_names: [played, blind]
    lanes:
      played: {model: fake}
      blind: {model: untrained}
worker:
  ros__parameters:
    model_names: [fake, untrained]
    models:
      fake: {kind: emulated}
      untrained: {kind: yolo, weights: yolov5n.yaml, input_px: 64}
"""


def test_the_lanes_of_the_demonstration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """The weights that come with the package, on a few scenes."""
    file = tmp_path / 'new' / 'lanes.json'
    assert main(['evaluate', '--frames', '24', '--json', str(file)]) == 0
    rows = json.loads(file.read_text())
    assert [row['lane'] for row in rows] == ['low_latency', 'balanced', 'precise']
    for row in rows:
        assert row['map50'] > 0.75 and 0 < row['map50_95'] < row['map50']
        assert row['service_ms'] > 0 and row['input_px'] >= 320
    shown = capsys.readouterr().out
    assert 'mAP50-95' in shown and 'balanced' in shown


def test_what_cannot_be_judged_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """Emulated and untrained models get no figure."""
    file = tmp_path / 'robots.yaml'
    file.write_text(PARAMETERS)
    assert main(['evaluate', '--params-file', str(file), '--json', str(tmp_path / 'x')]) == 1
    error = capsys.readouterr().err
    assert 'lane played: model fake is emulated' in error
    assert 'lane blind: model untrained has random weights (yolov5n.yaml)' in error
    assert json.loads((tmp_path / 'x').read_text()) == []


@pytest.mark.parametrize('arguments, says', [
    (['--weights', 'x.pt'], '--weights needs --kind'),
    (['--kind', 'yolo'], '--kind is for --weights'),
    (['--kind', 'yolo', '--weights', 'x.pt', '--params-file', 'y'], 'not both'),
    (['--frames', '0'], '--frames 0'),
    (['--seed', '-1'], '--seed -1'),
    (['--input-px', '-1'], '--input-px -1'),
    (['--params-file', 'none.yaml'], 'cannot read none.yaml'),
])
def test_wrong_arguments_are_named(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str],
) -> None:
    """One line, status 2."""
    assert main(['evaluate', *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count('\n') == 1


def test_wrong_weights_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there."""
    assert main(['evaluate', '--kind', 'yolo', '--weights', 'none.pt']) == 1
    assert "no file of weights 'none.pt'" in capsys.readouterr().err


def test_lanes_that_the_worker_does_not_serve_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """Model and file."""
    file = tmp_path / 'robots.yaml'
    file.write_text(PARAMETERS.replace('{model: fake}', '{model: other}'))
    assert main(['evaluate', '--params-file', str(file)]) == 2
    assert 'lane played of' in (error := capsys.readouterr().err)
    assert "model 'other', which its worker does not serve; it serves fake, untrained" in error
