"""Tests of `laimr_ros.detectors.yolo`, against what ultralytics' own ``predict()`` finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
from laimr_ros.detectors.base import DetectorError, DetectorSpec
import numpy as np
import pytest

ultralytics = pytest.importorskip(
    'ultralytics', reason='detector kind yolo needs: pip install ultralytics-opencv-headless')
torch = pytest.importorskip('torch')

from laimr_ros.detectors.yolo import YoloDetector  # noqa: E402
from ultralytics.data.augment import LetterBox  # noqa: E402

# ultralytics exports to TorchScript and reads it back: the one format without other packages.
pytestmark = [
    pytest.mark.filterwarnings('ignore:`torch.jit:FutureWarning'),
    pytest.mark.filterwarnings('ignore::torch.jit.TracerWarning'),
]

SIZES = [(1080, 810), (300, 700), (700, 300), (1, 1), (37, 501), (480, 640), (1, 200)]


def photo() -> np.ndarray:
    return cv2.imread(str(Path(ultralytics.__file__).parent / 'assets' / 'bus.jpg'))


def image_of(height: int, width: int) -> np.ndarray:
    return cv2.resize(photo(), (width, height), interpolation=cv2.INTER_AREA)


def lively_model(architecture: str) -> Any:
    """Return a network of random weights that finds many boxes of many scores and classes."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = ultralytics.YOLO(architecture)
    head = model.model.model[-1]
    layers = [(level[-1], bias) for name, bias in (('cv3', -9.0), ('cv2', 0.0))
              for level in getattr(head, name)]
    outputs: dict[Any, Any] = {}
    for layer, _ in layers:
        layer.register_forward_hook(lambda self, _, output: outputs.__setitem__(self, output))
    tensor = torch.from_numpy(np.stack([
        LetterBox((320, 320))(image=image_of(*size))[..., ::-1] for size in SIZES
    ])).permute(0, 3, 1, 2) / 255.0
    norms = [module for module in model.model.modules()
             if isinstance(module, torch.nn.BatchNorm2d)]
    with torch.no_grad():
        # Deep random networks fade out. Let normalisation learn these images, and spread each
        # output channel as a trained one's is.
        for norm in norms:
            norm.momentum = 1.0
        model.model.train()(tensor)
        model.model.eval()(tensor)
        for layer, bias in layers:
            channels = outputs[layer].transpose(0, 1).flatten(1)
            gain = 2.0 / channels.std(1)
            layer.bias.copy_(bias + gain * (layer.bias - channels.mean(1)))
            layer.weight.mul_(gain.view(-1, 1, 1, 1))
            layer._forward_hooks.clear()
    return model


@pytest.fixture(scope='module')
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp('yolo') / 'lively.pt'
    lively_model('yolov5n.yaml').save(str(path))
    return path


@pytest.fixture(scope='module')
def exported(weights: Path) -> Path:
    return Path(ultralytics.YOLO(weights).export(format='torchscript', imgsz=320))


def unmatched(some: Any, others: Any) -> int:
    """Count the boxes that the others do not have, to a pixel and with class and score."""
    boxes, scores, class_ids = others
    count = 0
    for box, score, class_id in zip(*some):
        same = (class_ids == class_id) & (np.abs(scores - score) < 1e-3)
        count += bool(np.abs(boxes[same] - box).max(1).min(initial=np.inf) >= 1.0)
    return count


def same_as_predict(weights: Path, image: np.ndarray, input_px: int, imgsz: Any) -> None:
    """Check that both find the same boxes, in the same order but for scores that are equal."""
    threshold = 0.05 if min(image.shape[:2]) > 1 else 1e-5
    detector = YoloDetector(DetectorSpec(
        'yolo', str(weights), input_px=input_px, device='cpu', threads=1,
        score_threshold=threshold, max_detections=3000))
    found = detector.detect(image)
    expected = ultralytics.YOLO(weights, task='detect').predict(
        image, imgsz=imgsz, conf=threshold, iou=0.7, max_det=3000, device='cpu', verbose=False,
    )[0].boxes
    assert len(expected) > 10
    theirs = expected.xyxy.numpy(), expected.conf.numpy(), expected.cls.numpy()
    ours = found.boxes, found.scores, found.class_ids
    # The same network sums in another order with another memory layout. Of hundreds of boxes, one
    # whose overlap with another is at the limit to the last digit may then be there or not.
    assert unmatched(ours, theirs) <= len(expected) // 50
    assert unmatched(theirs, ours) <= len(expected) // 50
    assert (np.diff(found.scores) <= 0).all()
    height, width = image.shape[:2]
    assert (found.boxes >= 0).all()
    assert (found.boxes[:, ::2] <= width).all() and (found.boxes[:, 1::2] <= height).all()


@pytest.mark.parametrize('height, width', SIZES)
def test_boxes_are_those_of_predict(weights: Path, height: int, width: int) -> None:
    same_as_predict(weights, image_of(height, width), 320, 320)


def test_the_check_above_sees_boxes(weights: Path) -> None:
    found = YoloDetector(DetectorSpec(
        'yolo', str(weights), score_threshold=0.05, max_detections=1000)).detect(photo())
    assert len(found.scores) > 20
    assert len(set(found.class_ids.tolist())) > 3
    assert found.boxes[:, 3].max() > 640  # beyond the network's input: source pixels


def test_own_input_size(weights: Path) -> None:
    same_as_predict(weights, image_of(270, 203), 0, 640)


@pytest.mark.parametrize('height, width', [(1080, 810), (300, 700), (1, 1)])
def test_exported_network_of_fixed_shape(exported: Path, height: int, width: int) -> None:
    same_as_predict(exported, image_of(height, width), 0, 320)


def test_exported_network_refuses_another_size(exported: Path) -> None:
    with pytest.raises(DetectorError, match='exported for 320x320 and input_px is 640'):
        YoloDetector(DetectorSpec('yolo', str(exported), input_px=640))


def test_end_to_end_network() -> None:
    # YOLOv10 gives final boxes itself; its output has another layout.
    detector = YoloDetector(DetectorSpec(
        'yolo', 'yolov10n.yaml', input_px=320, score_threshold=0.0, max_detections=7))
    found = detector.detect(photo())
    assert found.boxes.shape == (7, 4)
    assert (np.diff(found.scores) <= 0).all()


def test_architecture_has_random_weights_and_coco_names() -> None:
    spec = DetectorSpec('yolo', 'yolov5n.yaml', input_px=64, score_threshold=0.0)
    first, second = YoloDetector(spec), YoloDetector(spec)
    assert first.random_weights
    assert len(first.class_names) == 80 and first.class_names[:2] == ('person', 'bicycle')
    one, two = first.detect(photo()), second.detect(photo())
    assert np.array_equal(one.boxes, two.boxes)
    assert one.boxes.dtype == one.scores.dtype == np.float32
    assert one.class_ids.dtype == np.int64


def test_building_leaves_the_callers_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    YoloDetector(DetectorSpec('yolo', 'yolov5n.yaml'))
    assert torch.rand(1) == expected


def test_weights_keep_their_names_or_take_given_ones(weights: Path) -> None:
    detector = YoloDetector(DetectorSpec('yolo', str(weights)))
    assert not detector.random_weights and len(detector.class_names) == 80
    names = [f'thing {index}' for index in range(80)]
    given = YoloDetector(DetectorSpec('yolo', str(weights), options={'class_names': names}))
    assert given.class_names == tuple(names)
    with pytest.raises(DetectorError, match='2 names'):
        YoloDetector(DetectorSpec('yolo', str(weights), options={'class_names': ['a', 'b']}))


def test_input_size_is_rounded_up_to_the_stride() -> None:
    detector = YoloDetector(DetectorSpec('yolo', 'yolov5n.yaml', input_px=100))
    assert detector.input_size == (128, 128)


def test_threshold_and_limit_hold(weights: Path) -> None:
    everything = YoloDetector(DetectorSpec(
        'yolo', str(weights), input_px=320, score_threshold=0.0, max_detections=1000))
    scores = everything.detect(photo()).scores
    # Between two scores that lie well apart, so that rounding does not matter.
    place = 20 + int(np.argmax(-np.diff(scores[20:200])))
    threshold = float(scores[place] + scores[place + 1]) / 2
    for limit in (5, 1000):
        some = YoloDetector(DetectorSpec(
            'yolo', str(weights), input_px=320, score_threshold=threshold, max_detections=limit))
        expected = scores[:min(limit, place + 1)]
        assert np.allclose(some.detect(photo()).scores, expected, atol=1e-4)


def test_parts_of_the_time_and_warm_up() -> None:
    detector = YoloDetector(DetectorSpec('yolo', 'yolov5n.yaml', input_px=64))
    assert 0.0 < detector.warm_up() < 10.0
    found = detector.detect(photo())
    assert min(found.preprocess_s, found.inference_s, found.postprocess_s) > 0.0


def test_image_is_not_changed_and_may_be_read_only() -> None:
    image = photo()
    image.setflags(write=False)
    before = image.copy()
    YoloDetector(DetectorSpec('yolo', 'yolov5n.yaml', input_px=64)).detect(image)
    assert np.array_equal(image, before)


def test_threads_are_limited_where_detect_runs() -> None:
    before = torch.get_num_threads()
    try:
        detector = YoloDetector(DetectorSpec('yolo', 'yolov5n.yaml', input_px=64, threads=1))
        torch.set_num_threads(2)
        detector.detect(photo())
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_half_on_the_cpu_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    detector = YoloDetector(DetectorSpec(
        'yolo', 'yolov5n.yaml', input_px=64, half=True, device='cpu'))
    assert 'half precision needs a GPU' in caplog.text
    detector.detect(photo())


def test_close_twice_and_no_detection_after() -> None:
    detector = YoloDetector(DetectorSpec('yolo', 'yolov5n.yaml', input_px=64))
    detector.close()
    detector.close()
    with pytest.raises(DetectorError, match='closed'):
        detector.detect(photo())


def test_grey_image_is_refused() -> None:
    detector = YoloDetector(DetectorSpec('yolo', 'yolov5n.yaml', input_px=64))
    with pytest.raises(DetectorError, match='BGR'):
        detector.detect(photo()[..., 0])


class Foreign:
    """An object that no file of weights should hold."""


def test_only_trusted_files_may_hold_other_objects(weights: Path, tmp_path: Path) -> None:
    checkpoint = torch.load(weights, weights_only=False)
    checkpoint['note'] = Foreign()
    path = tmp_path / 'foreign.pt'
    torch.save(checkpoint, path)
    with pytest.raises(DetectorError, match='trusted: true'):
        YoloDetector(DetectorSpec('yolo', str(path)))
    YoloDetector(DetectorSpec('yolo', str(path), options={'trusted': True}))


@pytest.mark.parametrize('text', [b'', b'not weights', b'PK\x03\x04 cut short'])
def test_damaged_file(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / 'damaged.pt'
    path.write_bytes(text)
    with pytest.raises(DetectorError, match='damaged.pt') as caught:
        YoloDetector(DetectorSpec('yolo', str(path)))
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize('weights, said', [
    ('yolov5m.pt', 'nothing is downloaded'),
    ('https://example.com/yolov5m.pt', 'nothing is downloaded'),
    ('', 'no file of weights'),
    ('yolov99.yaml', 'no architecture'),
    ('yolov8n-seg.yaml', 'segment'),
    ('rtdetr-l.yaml', 'rtdetr-l.yaml'),
])
def test_wrong_weights(weights: str, said: str) -> None:
    with pytest.raises(DetectorError, match=said):
        YoloDetector(DetectorSpec('yolo', weights))


@pytest.mark.parametrize('fields, said', [
    ({'device': 'gpu'}, 'unknown device'),
    ({'device': 'cuda:x'}, 'unknown device'),
    ({'device': 'cuda:99'}, 'PyTorch sees'),
    ({'options': {'iuo': 1}}, 'iuo'),
    ({'options': {'iou': 2}}, 'iou'),
    ({'options': {'iou': 'much'}}, 'much'),
    ({'options': {'seed': 0.5}}, 'seed'),
])
def test_wrong_fields(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(DetectorError, match=said):
        YoloDetector(DetectorSpec('yolo', 'yolov5n.yaml', **fields))


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs an NVIDIA GPU with PyTorch')
def test_half_on_the_gpu_finds_the_same(weights: Path) -> None:
    single, half = (
        YoloDetector(DetectorSpec(
            'yolo', str(weights), device=device, half=half, score_threshold=0.3,
        )).detect(photo()) for device, half in (('cpu', False), ('cuda', True)))
    assert abs(len(single.scores) - len(half.scores)) <= max(2, len(single.scores) // 10)
    assert np.abs(single.boxes[0] - half.boxes).max(1).min() < 8.0
