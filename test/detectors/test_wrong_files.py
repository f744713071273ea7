"""Files that are no weights, or somebody else's: one clear error each, and no code is run."""

from __future__ import annotations

from collections.abc import Callable
import os
from pathlib import Path

from laimr_ros.detectors.base import DetectorError, DetectorSpec
from laimr_ros.detectors.factory import create_detector
from laimr_ros.detectors.files import find_file
import pytest
import torch

YOLO = find_file('package://laimr_ros/weights/cell_yolov5n.pt')
LITE = find_file('package://laimr_ros/weights/cell_efficientdet_lite0.safetensors')


class Evil:
    """Runs a command where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        """Take the file that the command makes."""
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        """Return what unpickling calls."""
        return os.system, (f'touch {self.mark}',)


def make(what: str, directory: Path) -> Path:
    """Make a wrong file."""
    path = directory / ('folder.pt' if what == 'folder' else f'{what}.pt')
    if what == 'folder':
        path.mkdir()
    elif what == 'cut':
        path.write_bytes(YOLO.read_bytes()[:100_000])
    elif what == 'text':
        path.write_text('these are no weights\n')
    elif what == 'empty':
        path.write_bytes(b'')
    elif what == 'evil':
        torch.save({'model': Evil(directory / 'mark'), 'state_dict': Evil(directory / 'mark')},
                   path)
    elif what == 'state':
        torch.save({'backbone.weight': torch.zeros(3)}, path)
    elif what == 'list':
        torch.save([1, 2, 3], path)
    return path


@pytest.mark.parametrize('kind', ['yolo', 'efficientdet'])
@pytest.mark.parametrize('what', ['folder', 'cut', 'text', 'empty', 'evil', 'state', 'list'])
def test_wrong_files(kind: str, what: str, tmp_path: Path) -> None:
    """Named, in one line, with nothing run."""
    path = make(what, tmp_path)
    options = {'architecture': 'tf_efficientdet_lite0'} if kind == 'efficientdet' else {}
    with pytest.raises(DetectorError) as caught:
        create_detector(DetectorSpec(kind, str(path), device='cpu', options=options))
    text = str(caught.value)
    assert path.name in text and '\n' not in text and len(text) < 600
    assert not (tmp_path / 'mark').exists()


def test_another_kinds_weights() -> None:
    """A YOLO as EfficientDet, and the reverse."""
    with pytest.raises(DetectorError, match='cell_yolov5n'):
        create_detector(DetectorSpec(
            'efficientdet', str(YOLO), device='cpu',
            options={'architecture': 'tf_efficientdet_lite0'}))
    with pytest.raises(DetectorError, match='cell_efficientdet_lite0'):
        create_detector(DetectorSpec('yolo', str(LITE), device='cpu'))


def test_weights_without_class_names(tmp_path: Path) -> None:
    """Names can be given; without them the file is refused."""
    from laimr_ros.detectors.yolo import read_network
    network = read_network(YOLO)
    del network.names
    path = tmp_path / 'nameless.pt'
    torch.save({'model': network, 'train_args': {'imgsz': 416}}, path)
    with pytest.raises(DetectorError, match=r'nameless.*class_names'):
        create_detector(DetectorSpec('yolo', str(path), device='cpu'))
    detector = create_detector(DetectorSpec(
        'yolo', str(path), device='cpu', options={'class_names': ['a', 'b', 'c', 'd']}))
    assert detector.class_names == ('a', 'b', 'c', 'd')


@pytest.mark.parametrize('kind', ['yolo', 'efficientdet'])
@pytest.mark.parametrize('what, says', [
    ('folder', 'is a directory'), ('cut', 'is damaged or cut off'), ('text', 'is text'),
    ('empty', 'is empty'), ('evil', 'can run any code|could run any code'),
])
@pytest.mark.filterwarnings('error')
def test_wrong_files_are_named_in_our_words(
    kind: str, what: str, says: str, tmp_path: Path,
) -> None:
    """What they are; no word of the library, least of all how to load them all the same."""
    path = make(what, tmp_path)
    options = {'architecture': 'tf_efficientdet_lite0'} if kind == 'efficientdet' else {}
    with pytest.raises(DetectorError, match=says) as caught:
        create_detector(DetectorSpec(kind, str(path), device='cpu', options=options))
    text = str(caught.value)
    assert text.isascii() and text.isprintable()
    for word in ('weights_only', 'weights.pt', 'os error', 'Recommended', 'http'):
        assert word not in text


def test_harmless_files_are_not_called_dangerous(tmp_path: Path) -> None:
    """A dictionary of tensors, and our own file of the other kind."""
    with pytest.raises(DetectorError, match='holds no network of ultralytics') as caught:
        create_detector(DetectorSpec('yolo', str(make('state', tmp_path)), device='cpu'))
    assert 'code' not in str(caught.value) and 'trusted' not in str(caught.value)
    with pytest.raises(DetectorError, match='give kind efficientdet'):
        create_detector(DetectorSpec('yolo', str(LITE), device='cpu'))
    with pytest.raises(DetectorError, match='a checkpoint of ultralytics, for kind yolo'):
        create_detector(DetectorSpec('efficientdet', str(YOLO), device='cpu', options={
            'architecture': 'tf_efficientdet_lite0'}))
