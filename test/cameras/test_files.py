"""Directories of images and video files as sources."""

from __future__ import annotations

from pathlib import Path

import cv2
from laimr_ros.cameras.sources.base import CameraError, SourceEnded
from laimr_ros.cameras.sources.files import DirectorySource, VideoSource
import numpy as np
import pytest


def image(value: int, width: int = 32, height: int = 24) -> np.ndarray:
    """Return an even grey image."""
    return np.full((height, width, 3), value, np.uint8)


@pytest.fixture()
def directory(tmp_path: Path) -> Path:
    """Give a directory of two good images, three bad ones and one that is none."""
    cv2.imwrite(str(tmp_path / 'b.jpg'), image(200))
    cv2.imwrite(str(tmp_path / 'a.PNG'), image(100))
    (tmp_path / 'aa.jpg').write_bytes(b'')
    (tmp_path / 'ab.jpg').write_bytes(b'\xff\xd8 nonsense')
    (tmp_path / 'ac.jpg').mkdir()
    (tmp_path / 'notes.txt').write_text('no image')
    return tmp_path


def test_images_come_as_they_are_sorted_and_again(directory: Path) -> None:
    warnings: list[str] = []
    source = DirectorySource(str(directory), True, warnings.append, lambda: 12.5)
    captures = [source.read() for _ in range(5)]
    assert [c.format for c in captures] == ['png', 'jpeg', 'png', 'jpeg', 'png']
    assert captures[0].data == (directory / 'a.PNG').read_bytes()
    assert captures[1].data == (directory / 'b.jpg').read_bytes()
    assert captures[0].stamp_s == 12.5 and captures[0].truth is None
    # Each bad file is told once, not once a round.
    assert sorted(Path(w.split(' ')[0]).name for w in warnings) == ['aa.jpg', 'ab.jpg', 'ac.jpg']


def test_ends_after_the_last_image(directory: Path) -> None:
    source = DirectorySource(str(directory), False, lambda text: None)
    source.read()
    source.read()
    for _ in range(2):
        with pytest.raises(SourceEnded):
            source.read()


def test_other_formats_are_decoded(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / 'x.bmp'), image(77))
    capture = DirectorySource(str(tmp_path)).read()
    assert capture.format == 'bgr8'
    assert isinstance(capture.data, np.ndarray) and (capture.data == 77).all()


def test_a_file_that_goes_away_is_left_out(directory: Path) -> None:
    warnings: list[str] = []
    source = DirectorySource(str(directory), True, warnings.append)
    source.read()
    source.read()
    (directory / 'b.jpg').unlink()
    assert [source.read().format for _ in range(3)] == ['png'] * 3
    (directory / 'a.PNG').unlink()
    with pytest.raises(CameraError, match='no image in .* can be read'):
        source.read()


@pytest.mark.parametrize('path', ['', '/no/such/place', __file__])
def test_no_directory(path: str) -> None:
    with pytest.raises(CameraError, match='set `path`'):
        DirectorySource(path)


def test_no_image_in_it(tmp_path: Path) -> None:
    with pytest.raises(CameraError, match='holds no image'):
        DirectorySource(str(tmp_path))


@pytest.fixture()
def video(tmp_path: Path) -> Path:
    """Give a video of three frames, dark to bright."""
    path = tmp_path / 'three.avi'
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*'MJPG'), 10.0, (64, 48))
    assert writer.isOpened()
    for value in (40, 120, 220):
        writer.write(image(value, 64, 48))
    writer.release()
    return path


def test_video_frames_in_order_and_again(video: Path) -> None:
    source = VideoSource(str(video), True)
    means = []
    for _ in range(7):
        capture = source.read()
        assert isinstance(capture.data, np.ndarray) and capture.data.shape == (48, 64, 3)
        means.append(float(capture.data.mean()))
    source.close()
    source.close()
    assert means == pytest.approx([40, 120, 220, 40, 120, 220, 40], abs=4)


def test_video_ends(video: Path) -> None:
    source = VideoSource(str(video), False)
    for _ in range(3):
        source.read()
    with pytest.raises(SourceEnded):
        source.read()


def test_no_video(tmp_path: Path) -> None:
    with pytest.raises(CameraError, match='set `path`'):
        VideoSource(str(tmp_path / 'none.mp4'))
    bad = tmp_path / 'bad.mp4'
    bad.write_bytes(b'nothing of the kind' * 100)
    with pytest.raises(CameraError, match='not a video'):
        VideoSource(str(bad))
