"""Checkpoints that say what they are, and weights that come with the package."""

from __future__ import annotations

from pathlib import Path

from laimr_ros.detectors.base import DetectorError, DetectorSpec
from laimr_ros.detectors.checkpoint import Description, read_description, save_checkpoint
from laimr_ros.detectors.factory import create_detector
from laimr_ros.detectors.files import find_file
import numpy as np
import pytest
from safetensors.torch import load_file, save_file
import torch

ARCHITECTURE = 'tf_efficientdet_lite0'
NAMES = ('nut', 'bolt')


@pytest.fixture(scope='module')
def state() -> dict[str, torch.Tensor]:
    """Return the weights of a network of two classes."""
    from effdet.config import get_efficientdet_config
    from effdet.efficientdet import EfficientDet
    config = get_efficientdet_config(ARCHITECTURE)
    config.num_classes = len(NAMES)
    torch.manual_seed(1)
    return dict(EfficientDet(config, pretrained_backbone=False).state_dict())


def save(path: Path, state: dict[str, torch.Tensor]) -> Path:
    """Write a checkpoint."""
    save_checkpoint(
        path, state, architecture=ARCHITECTURE, class_names=NAMES, image_size=128)
    return path


def test_a_checkpoint_needs_nothing_else(
    tmp_path: Path, state: dict[str, torch.Tensor],
) -> None:
    """Whatever its name; architecture, names and input size are in it, numbers in half."""
    path = save(tmp_path / 'mine.safetensors', state)
    assert read_description(path) == Description(ARCHITECTURE, NAMES, 128)
    stored = load_file(path)
    assert {v.dtype for v in stored.values() if v.is_floating_point()} == {torch.float16}
    detector = create_detector(DetectorSpec('efficientdet', str(path), device='cpu'))
    assert detector.class_names == NAMES
    assert detector.input_size == (128, 128)  # type: ignore[attr-defined]
    assert not detector.random_weights
    detector.detect(np.zeros((60, 80, 3), np.uint8))


def test_what_is_set_comes_first(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    """Other names, another size."""
    path = save(tmp_path / 'mine.safetensors', state)
    detector = create_detector(DetectorSpec(
        'efficientdet', str(path), 256, 'cpu', options={'class_names': ['a', 'b']}))
    assert detector.class_names == ('a', 'b')
    assert detector.input_size == (256, 256)  # type: ignore[attr-defined]


def test_a_file_that_says_nothing_needs_its_architecture(
    tmp_path: Path, state: dict[str, torch.Tensor],
) -> None:
    """As any safetensors file of other makers."""
    path = tmp_path / 'mine.safetensors'
    save_file({key: value.contiguous() for key, value in state.items()}, path)
    assert read_description(path) == Description()
    with pytest.raises(DetectorError, match='set option architecture'):
        create_detector(DetectorSpec('efficientdet', str(path), device='cpu'))
    detector = create_detector(DetectorSpec(
        'efficientdet', str(path), device='cpu', options={'architecture': ARCHITECTURE}))
    assert len(detector.class_names) == 2


@pytest.mark.parametrize('metadata, says', [
    ({'class_names': 'nut'}, 'its description cannot be read'),
    ({'class_names': '{}'}, 'class_names {}'),
    ({'image_size': 'big'}, 'its description cannot be read'),
    ({'image_size': '-1'}, 'image_size -1'),
    ({'class_names': '["a", "b", "c"]', 'architecture': ARCHITECTURE}, '3 classes but'),
    ({'architecture': 'other'}, "unknown EfficientDet 'other'"),
])
def test_a_wrong_description_is_named(
    metadata: dict[str, str], says: str, tmp_path: Path, state: dict[str, torch.Tensor],
) -> None:
    """With the file, in one line."""
    path = tmp_path / 'mine.safetensors'
    save_file({key: value.contiguous() for key, value in state.items()}, path, metadata)
    with pytest.raises(DetectorError) as caught:
        create_detector(DetectorSpec('efficientdet', str(path), device='cpu'))
    assert says in str(caught.value) and '\n' not in str(caught.value)


def test_a_damaged_file_is_named(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    """Cut short, as by a full disk."""
    path = save(tmp_path / 'mine.safetensors', state)
    path.write_bytes(path.read_bytes()[:10_000])
    with pytest.raises(DetectorError, match=r"cannot load '.*mine\.safetensors'"):
        create_detector(DetectorSpec('efficientdet', str(path), device='cpu'))


def test_weights_of_the_package_are_found() -> None:
    """From anywhere; other paths are taken as they are."""
    assert find_file('package://laimr_ros/weights/cell_yolov5n.pt').is_file()
    assert find_file('weights/x.pt') == Path('weights/x.pt')
    assert find_file('~/x.pt') == Path.home() / 'x.pt'
    with pytest.raises(DetectorError, match="no file of weights 'package://laimr_ros/weights/x'"):
        create_detector(DetectorSpec('yolo', 'package://laimr_ros/weights/x', device='cpu'))
