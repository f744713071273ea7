"""``laimr evaluate``: a row a lane, and a plain word where there is nothing to judge."""

from __future__ import annotations

import json
from pathlib import Path

from laimr_ros.cli.main import main
import pytest

ROOT = Path(__file__).parents[2]
YOLO = ['--kind', 'yolo', '--weights', 'x.pt']
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
    (['--frames', '9' * 20], 'give 1 to 1000000'),
    (['--seed', '-1'], '--seed -1'),
    (['--input-px', '320'], '--input-px is for --weights'),
    ([*YOLO, '--input-px', '-1'], '--input-px -1; give 32 to 4096'),
    ([*YOLO, '--input-px', '100000'], '--input-px 100000; give 32 to 4096'),
    ([*YOLO, '--input-px', '33'], '--input-px 33 is no multiple of 32'),
    ([*YOLO[:1], 'efficientdet', *YOLO[2:], '--input-px', '64'], 'give 128 to 4096'),
    (['--weights', ''], "--weights '' names no file"),
    (['--json', '.'], "--json '.' is a directory"),
    (['--json', f'{__file__}/x.json'], 'is a file; give another file'),
    (['--json', __file__], 'is there already and not called .json'),
    (['--params-file', __file__, '--json', __file__], 'is what is to be read'),
    (['--params-file', '/dev/null'], '/dev/null is empty'),
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
    assert main(['evaluate', '--kind', 'yolo', '--weights', 'none.pt']) == 2
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


@pytest.mark.parametrize('content, says', [
    (b'', 'is empty'), (b'\xff\xfe\x00', 'is no YAML (it is not UTF-8 text)'),
    (b'hello', 'holds a str'), (b'worker: {ros__parameters: {max_queue: 1}}', 'no models'),
    (b'a: {ros__parameters: {}}', "has no section 'worker'"), (b'a: [', 'is no YAML'),
])
def test_wrong_parameter_files_are_named(
    content: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """With what they should hold."""
    file = tmp_path / 'robots.yaml'
    file.write_bytes(content)
    assert main(['evaluate', '--params-file', str(file)]) == 2
    error = capsys.readouterr().err
    assert str(file) in error and says in error and error.count('\n') == 1


def test_the_table_is_shown_whatever_becomes_of_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Minutes of work are not lost to a full disk; nor is it passed over."""
    command = ['evaluate', '--kind', 'efficientdet', '--weights',
               'package://laimr_ros/weights/cell_efficientdet_lite0.safetensors',
               '--frames', '1', '--json', '/dev/full']
    assert main(command) == 1
    shown = capsys.readouterr()
    assert '1 drawn scene of' in shown.out and 'mAP50-95' in shown.out
    assert shown.err == ("laimr evaluate: cannot write '/dev/full' (No space left on device); "
                         'the figures are above\n')
