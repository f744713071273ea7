"""Tests of `laimr_ros.detectors.efficientdet`, against effdet's own prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any
import warnings

import cv2
from laimr_ros.detectors.base import DetectorError, DetectorSpec
import numpy as np
import pytest

torch = pytest.importorskip('torch')
with warnings.catch_warnings():
    warnings.simplefilter('ignore', FutureWarning)
    effdet = pytest.importorskip(
        'effdet', reason='detector kind efficientdet needs: pip install effdet')

from laimr_ros.detectors.efficientdet import EfficientDetDetector  # noqa: E402

ARCHITECTURE = 'tf_efficientdet_lite0'


@pytest.fixture(scope='module')
def bench() -> Any:
    """Return effdet's own detector, with random weights that find many boxes."""
    torch.set_num_threads(1)
    torch.manual_seed(2)
    bench = effdet.create_model(
        ARCHITECTURE, bench_task='predict', pretrained=False, pretrained_backbone=False)
    with torch.no_grad():
        for head, gain, bias in (('class_net', 60.0, -4.0), ('box_net', 30.0, 0.0)):
            predict = getattr(bench.model, head).predict
            predict.conv_pw.weight.mul_(gain)
            predict.conv_pw.bias.fill_(bias)
    return bench.eval()


@pytest.fixture(scope='module')
def weights(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp('effdet') / f'{ARCHITECTURE}-lively.pth'
    torch.save(bench.model.state_dict(), path)
    return path


def image_of(height: int, width: int) -> np.ndarray:
    """Draw noise with structure at many sizes."""
    random = np.random.default_rng(height * 1000 + width)
    image = np.zeros((height, width, 3), np.float32)
    for cells in (3, 7, 20):
        noise = random.uniform(0, 80, (cells, cells, 3)).astype(np.float32)
        image += cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(image, 0, 255).astype(np.uint8)


def expected_of(bench: Any, image: np.ndarray) -> np.ndarray:
    """Return rows of x1, y1, x2, y2, score and class from 0, as effdet predicts them."""
    height, width = image.shape[:2]
    scale = 320 / max(height, width)
    inner = (max(1, int(height * scale)), max(1, int(width * scale)))
    pixels = np.full((320, 320, 3), 128, np.float32)
    pixels[:inner[0], :inner[1]] = cv2.resize(image[..., ::-1], inner[::-1])
    tensor = torch.from_numpy((pixels / 255 - 0.5) / 0.5).permute(2, 0, 1)[None].float()
    with torch.no_grad():
        rows = bench(tensor, {
            'img_scale': torch.tensor([1 / scale]),
            'img_size': torch.tensor([[float(width), float(height)]]),
        })[0].numpy()
    rows[:, 5] -= 1
    return rows[rows[:, 4] > 0.05]


@pytest.mark.parametrize('height, width', [
    (320, 320), (1080, 810), (300, 700), (700, 300), (33, 47), (1, 1),
])
def test_boxes_are_those_of_effdet(
    bench: Any, weights: Path, height: int, width: int,
) -> None:
    image = image_of(height, width)
    found = EfficientDetDetector(DetectorSpec(
        'efficientdet', str(weights), device='cpu', threads=1, score_threshold=0.05,
        max_detections=100)).detect(image)
    expected = expected_of(bench, image)
    assert len(expected) > 5
    assert abs(len(found.scores) - len(expected)) <= 2
    assert (np.diff(found.scores) <= 0).all()
    # effdet has one scale for both sides though each was rounded: up to two pixels of the
    # network's input further off at the far edge.
    tolerance = 1.0 + 2.0 * max(height, width) / 320
    agreed = 0
    for box, score, class_id in zip(found.boxes, found.scores, found.class_ids):
        same = (expected[:, 5] == class_id) & (np.abs(expected[:, 4] - score) < 0.01)
        agreed += bool(np.abs(expected[same, :4] - box).max(1).min(initial=np.inf) < tolerance)
    assert agreed >= len(found.scores) - 2
    assert (found.boxes >= 0).all()
    assert (found.boxes[:, ::2] <= width).all() and (found.boxes[:, 1::2] <= height).all()


def test_the_same_image_at_another_size_has_its_boxes_there(weights: Path) -> None:
    detector = EfficientDetDetector(DetectorSpec(
        'efficientdet', str(weights), score_threshold=0.3))
    image = image_of(160, 320)
    small = detector.detect(image)
    large = detector.detect(np.repeat(np.repeat(image, 3, 0), 3, 1))
    # Resizing down again blurs a little: the best box must be there all the same.
    assert np.abs(large.boxes / 3 - small.boxes[0]).max(1).min() < 12


def test_architecture_has_random_weights_and_coco_names() -> None:
    spec = DetectorSpec('efficientdet', ARCHITECTURE, score_threshold=0.0, max_detections=10)
    first, second = EfficientDetDetector(spec), EfficientDetDetector(spec)
    assert first.random_weights and first.input_size == (320, 320)
    assert len(first.class_names) == 90 and first.class_names[89] == 'toothbrush'
    image = image_of(300, 700)
    one, two = first.detect(image), second.detect(image)
    assert one.boxes.shape == (10, 4) and np.array_equal(one.boxes, two.boxes)
    assert one.boxes.dtype == one.scores.dtype == np.float32
    assert one.class_ids.dtype == np.int64


def test_effdets_warning_is_silenced_and_no_other() -> None:
    import subprocess
    import sys
    done = subprocess.run(
        [sys.executable, '-W', 'always', '-c', 'import laimr_ros.detectors.efficientdet'],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert 'torch.jit.script' not in done.stderr


def test_safetensors_and_wrapped_checkpoints(bench: Any, weights: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip('safetensors.torch', reason='pip install safetensors')
    state = {key: value.contiguous() for key, value in bench.model.state_dict().items()}
    plain = tmp_path / 'plain.safetensors'
    safetensors.save_file(state, plain)
    wrapped = tmp_path / 'wrapped.pt'
    torch.save({'state_dict': {f'module.{key}': value for key, value in state.items()},
                'epoch': 3}, wrapped)
    trained = tmp_path / 'trained.pth'
    torch.save({f'model.{key}': value for key, value in state.items()}
               | {'anchors.boxes': torch.zeros(3, 4)}, trained)
    image = image_of(200, 300)
    expected = EfficientDetDetector(DetectorSpec('efficientdet', str(weights))).detect(image)
    for path in (plain, wrapped, trained):
        detector = EfficientDetDetector(DetectorSpec(
            'efficientdet', str(path), options={'architecture': ARCHITECTURE}))
        assert not detector.random_weights
        assert np.array_equal(detector.detect(image).boxes, expected.boxes)


def test_number_of_classes_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    model = effdet.create_model(
        ARCHITECTURE, num_classes=3, pretrained=False, pretrained_backbone=False)
    path = tmp_path / f'{ARCHITECTURE}_shapes.pth'
    torch.save(model.state_dict(), path)
    names = ('square', 'circle', 'tee')
    detector = EfficientDetDetector(DetectorSpec(
        'efficientdet', str(path), options={'class_names': names}))
    assert detector.class_names == names
    unnamed = EfficientDetDetector(DetectorSpec('efficientdet', str(path)))
    assert unnamed.class_names == ('class0', 'class1', 'class2')
    with pytest.raises(DetectorError, match='says 2 classes but .* has 3'):
        EfficientDetDetector(DetectorSpec(
            'efficientdet', str(path), options={'class_names': ('a', 'b')}))


def test_random_weights_with_own_classes_and_size() -> None:
    detector = EfficientDetDetector(DetectorSpec(
        'efficientdet', ARCHITECTURE, input_px=200, score_threshold=0.0, max_detections=5,
        options={'class_names': ('square', 'circle', 'tee')}))
    assert detector.input_size == (200, 200)
    found = detector.detect(image_of(123, 77))
    assert found.boxes.shape == (5, 4) and set(found.class_ids.tolist()) <= {0, 1, 2}


def test_threshold_and_limit_hold(weights: Path) -> None:
    image = image_of(240, 320)
    scores = EfficientDetDetector(DetectorSpec(
        'efficientdet', str(weights), score_threshold=0.0, max_detections=100,
    )).detect(image).scores
    assert len(scores) == 100
    some = EfficientDetDetector(DetectorSpec(
        'efficientdet', str(weights), score_threshold=float(scores[10]) - 1e-6,
        max_detections=5)).detect(image)
    assert np.allclose(some.scores, scores[:5])
    none = EfficientDetDetector(DetectorSpec(
        'efficientdet', str(weights), score_threshold=1.0)).detect(image)
    assert none.boxes.shape == (0, 4) and none.scores.shape == (0,)


def test_parts_of_the_time_warm_up_and_close() -> None:
    detector = EfficientDetDetector(DetectorSpec('efficientdet', ARCHITECTURE, input_px=128))
    assert 0.0 < detector.warm_up() < 10.0
    found = detector.detect(image_of(128, 96))
    assert min(found.preprocess_s, found.inference_s, found.postprocess_s) > 0.0
    detector.close()
    detector.close()
    with pytest.raises(DetectorError, match='closed'):
        detector.detect(image_of(10, 10))


@pytest.mark.parametrize('weights, options, said', [
    ('tf_efficientdet_lite99', {}, 'unknown EfficientDet'),
    ('', {}, 'unknown EfficientDet'),
    ('nowhere.pth', {}, 'nothing is downloaded'),
    (ARCHITECTURE, {'clases': 3}, 'clases'),
    (ARCHITECTURE, {'iou': -1}, 'iou'),
    (ARCHITECTURE, {'num_classes': 'many'}, 'many'),
    (ARCHITECTURE, {'class_names': 'dog'}, 'class_names'),
    (ARCHITECTURE, {'architecture': 'tf_efficientdet_d0'}, 'one of the two'),
    (ARCHITECTURE, {'class_names': ['a'], 'num_classes': 2}, 'class_names says 1'),
])
def test_wrong_specification(weights: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DetectorError, match=said):
        EfficientDetDetector(DetectorSpec('efficientdet', weights, options=options))


def test_too_small_an_input() -> None:
    with pytest.raises(DetectorError, match='at least 128'):
        EfficientDetDetector(DetectorSpec('efficientdet', ARCHITECTURE, input_px=64))


class Foreign:
    """An object that no file of weights should hold."""


def test_wrong_files(weights: Path, tmp_path: Path) -> None:
    damaged = tmp_path / f'{ARCHITECTURE}_damaged.pth'
    damaged.write_bytes(b'not weights')
    foreign = tmp_path / f'{ARCHITECTURE}_foreign.pth'
    torch.save({'state_dict': Foreign()}, foreign)
    empty = tmp_path / f'{ARCHITECTURE}_empty.pth'
    torch.save({'epoch': torch.zeros(1)}, empty)
    nameless = tmp_path / 'nameless.pth'
    torch.save({'epoch': torch.zeros(1)}, nameless)
    other = tmp_path / 'tf_efficientdet_d0.pth'
    torch.save(torch.load(weights), other)
    for path, said in ((damaged, 'cannot load'), (foreign, 'cannot load'),
                       (empty, 'no EfficientDet checkpoint'), (nameless, 'set option architect'),
                       (other, 'does not fit')):
        with pytest.raises(DetectorError, match=said) as caught:
            EfficientDetDetector(DetectorSpec('efficientdet', str(path)))
        assert '\n' not in str(caught.value)
