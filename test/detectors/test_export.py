"""Exported networks find what the networks they were made of find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
import subprocess
import sys

from laimr_ros.cameras.scene import Frame, Scene
from laimr_ros.cli.main import main
from laimr_ros.detectors.base import DetectorError, DetectorSpec
from laimr_ros.detectors.export import export
from laimr_ros.detectors.factory import create_detector
from laimr_ros.training.matching import iou
import numpy as np
import pytest
import torch

SPECS = {
    'yolo': DetectorSpec('yolo', 'package://laimr_ros/weights/cell_yolov5n.pt', device='cpu'),
    'efficientdet': DetectorSpec(
        'efficientdet', 'package://laimr_ros/weights/cell_efficientdet_lite0.safetensors',
        device='cpu'),
}


@pytest.fixture(scope='module', params=list(SPECS))
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
) -> tuple[DetectorSpec, Path]:
    """Return a specification, and its network exported."""
    spec = SPECS[request.param]
    path = tmp_path_factory.mktemp('engines') / 'new' / f'{spec.kind}.xml'
    export(spec, path)
    return spec, path


def pictures() -> list[Frame]:
    """Return pictures of several shapes."""
    return [Scene(seed, *size).draw(30.0 * seed) for seed, size in enumerate(
        [(640, 480), (640, 480), (1280, 720), (300, 700)])]


def test_finds_the_same(exported: tuple[DetectorSpec, Path]) -> None:
    """Boxes within a few pixels, at any aspect ratio; names and input size go with it."""
    spec, path = exported
    before, after = create_detector(spec), create_detector(replace(spec, weights=str(path)))
    assert after.class_names == before.class_names
    assert not after.random_weights
    assert after.input_size == before.input_size  # type: ignore[attr-defined]
    for frame in pictures():
        one, other = before.detect(frame.image), after.detect(frame.image)
        sure = one.scores > 0.5
        assert sure.any()
        for box, kind, score in zip(
                one.boxes[sure], one.class_ids[sure], one.scores[sure]):
            same = other.class_ids == kind
            overlaps = [iou(tuple(box), tuple(b)) for b in other.boxes[same]]
            best = int(np.argmax(overlaps))
            assert overlaps[best] > 0.85
            assert other.scores[same][best] == pytest.approx(score, abs=0.1)
    after.close()
    with pytest.raises(DetectorError, match='closed'):
        after.detect(np.zeros((48, 64, 3), np.uint8))


def test_weights_are_stored_in_half(exported: tuple[DetectorSpec, Path]) -> None:
    """Small enough to be sent to an edge."""
    _, path = exported
    assert path.with_suffix('.bin').stat().st_size < 15e6


def test_threads_are_kept_to(exported: tuple[DetectorSpec, Path]) -> None:
    """The runtime says how many it uses."""
    from laimr_ros.detectors.engine import Engine
    spec, path = exported
    for threads in (1, 2):
        engine = Engine(path, spec.kind, threads)
        compiled = engine._request.get_compiled_model()
        assert compiled.get_property('INFERENCE_NUM_THREADS') == threads


def test_engines_that_go_leave_signals_alone(exported: tuple[DetectorSpec, Path]) -> None:
    """A process with a handler, and with a stack for it as debuggers of crashes set up."""
    spec, path = exported
    program = (
        'import faulthandler, gc, os, signal, sys; from pathlib import Path;'
        'from laimr_ros.detectors.engine import Engine;'
        'faulthandler.enable();'
        'first, second = (Engine(Path(sys.argv[1]), sys.argv[2], 1) for _ in range(2));'
        'del first; gc.collect(); third = Engine(Path(sys.argv[1]), sys.argv[2], 1);'
        'del second, third; gc.collect();'
        'came = []; signal.signal(signal.SIGTERM, lambda *_: came.append(1));'
        '[(bytearray(1 << 20), os.kill(os.getpid(), signal.SIGTERM)) for _ in range(20)];'
        'print(len(came))')
    done = subprocess.run(
        [sys.executable, '-c', program, str(path), spec.kind], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, '20\n'), done.stderr


def test_nothing_is_told_to_the_makers_of_openvino() -> None:
    """Its telemetry is never loaded."""
    code = (
        'import sys; from laimr_ros.detectors.engine import require_openvino;'
        'require_openvino();'
        'print([m for m in sys.modules if "telemetry" in m and sys.modules[m] is not None'
        ' and not m.startswith("openvino.tools")])')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == '[]', done


def test_what_is_exported_already_is_refused(
    exported: tuple[DetectorSpec, Path], tmp_path: Path,
) -> None:
    """It has lost what another export needs."""
    spec, path = exported
    with pytest.raises(DetectorError, match='exported already'):
        export(replace(spec, weights=str(path)), tmp_path / 'again.xml')


def test_wrong_engines_are_named(exported: tuple[DetectorSpec, Path], tmp_path: Path) -> None:
    """Another kind's, another size, without its weights, no engine at all."""
    spec, path = exported
    other = next(kind for kind in SPECS if kind != spec.kind)
    with pytest.raises(DetectorError, match=f"exported for kind '{spec.kind}', not '{other}'"):
        create_detector(DetectorSpec(other, str(path), device='cpu'))
    if spec.kind == 'efficientdet':
        with pytest.raises(DetectorError, match='was exported for 320 and input_px is 256'):
            create_detector(replace(spec, weights=str(path), input_px=256))
    alone = tmp_path / 'alone.xml'
    alone.write_bytes(path.read_bytes())
    with pytest.raises(DetectorError, match="lacks its weights, 'alone.bin'"):
        create_detector(replace(spec, weights=str(alone)))
    alone.with_suffix('.bin').write_bytes(b'x')
    alone.write_text(path.read_text())
    with pytest.raises(DetectorError, match=r"alone\.xml': it is damaged, does not belong") as no:
        create_detector(replace(spec, weights=str(alone)))
    assert 'src/' not in str(no.value)
    alone.write_text('no engine')
    with pytest.raises(DetectorError, match=r"cannot load '.*alone\.xml': .*laimr export") as no:
        create_detector(replace(spec, weights=str(alone)))
    assert '\n' not in str(no.value)


@pytest.mark.parametrize('spec, name, says', [
    (DetectorSpec('emulated'), 'x.xml', "kind 'emulated' cannot be exported"),
    (DetectorSpec('yolo', 'yolov5n.yaml', device='cpu'), 'x.xml', 'random weights'),
    (SPECS['yolo'], 'x.onnx', "an engine is a file *.xml, not 'x.onnx'"),
    (DetectorSpec('yolo', 'none.pt', device='cpu'), 'x.xml', "no file of weights 'none.pt'"),
])
def test_what_cannot_be_exported_is_named(
    spec: DetectorSpec, name: str, says: str, tmp_path: Path,
) -> None:
    """And nothing is written."""
    with pytest.raises(DetectorError) as caught:
        export(spec, tmp_path / name)
    assert says in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line with the path and both times; a wrong file is one line too."""
    out = tmp_path / 'n.xml'
    weights = SPECS['yolo'].weights
    assert main(['export', '--kind', 'yolo', '--weights', weights, '--out', str(out)]) == 0
    line = capsys.readouterr().out
    assert line.startswith(str(out)) and 'times faster' in line and line.count('\n') == 1
    assert main(['export', '--kind', 'yolo', '--weights', 'none', '--out', str(out)]) == 2
    assert capsys.readouterr().err.count('\n') == 1
    torch.set_num_threads(1)
