"""``laimr export``: what is wrong with the command is found before anything is loaded."""

from __future__ import annotations

from pathlib import Path

from laimr_ros.cli import export
from laimr_ros.cli.main import main
import pytest

WEIGHTS = 'package://laimr_ros/weights/cell_yolov5n.pt'


@pytest.mark.parametrize('out, more, says', [
    ('y', [], 'give one that ends in .xml'),
    ('d.xml', [], 'is a directory'),
    ('q.xml', [], "q.bin' is a directory"),
    ('file/x.xml', [], 'is a file; give another file'),
    ('x.xml', ['--threads', '100000'], '--threads 100000; give 0 to '),
    ('x.xml', ['--threads', '-1'], '--threads -1; give 0 to '),
    ('x.xml', ['--input-px', '3'], '--input-px 3; give 32 to 4096'),
    ('x.xml', ['--input-px', '-5'], '--input-px -5'),
    ('x.xml', ['--weights', 'none.pt'], "--weights 'none.pt': there is no such file"),
])
def test_wrong_arguments_are_named(
    out: str, more: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """One line, status 2, nothing written."""
    (tmp_path / 'd.xml').mkdir()
    (tmp_path / 'q.bin').mkdir()
    (tmp_path / 'file').write_text('mine')
    before = sorted(tmp_path.rglob('*'))
    command = ['export', '--kind', 'yolo', '--weights', WEIGHTS, '--out', str(tmp_path / out)]
    assert main([*command, *more]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count('\n') == 1
    assert sorted(tmp_path.rglob('*')) == before


def test_an_export_that_fails_leaves_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full disk is status 1, and costs no engine that is there."""
    import openvino

    def full(model: object, path: Path, **_: object) -> None:
        Path(path).with_suffix('.bin').write_bytes(b'half')
        raise RuntimeError('cannot write\nsrc/core.cpp:84')
    monkeypatch.setattr(openvino, 'save_model', full)
    out = tmp_path / 'a.xml'
    for suffix in ('.xml', '.bin'):
        out.with_suffix(suffix).write_text('the one before')
    monkeypatch.setattr(export, 'compare', None)
    assert main(['export', '--kind', 'yolo', '--weights', WEIGHTS, '--out', str(out),
                 '--input-px', '64']) == 1
    error = capsys.readouterr().err
    assert f"cannot write '{out}'" in error and error.count('\n') == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.bin', 'a.xml']
    assert out.read_text() == out.with_suffix('.bin').read_text() == 'the one before'
