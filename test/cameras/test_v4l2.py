"""The V4L2 source, with a stand-in for OpenCV's capture (no test machine has a camera)."""

from __future__ import annotations

from pathlib import Path
import threading
from typing import Any

import cv2
from laimr_ros.cameras.sources.base import CameraError
from laimr_ros.cameras.sources.v4l2 import open_device, V4l2Source
import numpy as np
import pytest

JPEG = cv2.imencode('.jpg', np.zeros((16, 16, 3), np.uint8))[1].tobytes()


class StandIn:
    """Gives what the test puts in; blocks in between, as a driver does."""

    def __init__(self, frames: list[Any], hold: bool = True) -> None:
        self.frames = frames
        self.hold = hold
        self.released = threading.Event()
        self.taken = threading.Semaphore(0)

    def read(self) -> tuple[bool, Any]:
        if self.frames:
            self.taken.release()
            return True, self.frames.pop(0)
        if self.hold:
            self.released.wait(10.0)
        return False, None

    def release(self) -> None:
        self.released.set()


def flat(data: bytes) -> np.ndarray:
    """Return bytes as OpenCV gives a frame that it did not convert."""
    return np.frombuffer(data, np.uint8)[None, :]


def test_motion_jpeg_is_passed_on() -> None:
    device = StandIn([flat(JPEG)])
    source = V4l2Source('/dev/video9', clock=lambda: 3.0, opener=lambda *a: device)
    capture = source.read()
    assert capture is not None
    assert (capture.data, capture.format, capture.stamp_s) == (JPEG, 'jpeg', 3.0)
    device.release()
    source.close()


def test_the_newest_frame_wins() -> None:
    first, last = np.zeros((4, 6, 3), np.uint8), np.full((4, 6, 3), 9, np.uint8)
    device = StandIn([first, first, last])
    source = V4l2Source('/dev/video9', opener=lambda *a: device)
    seen = source.read()
    # The frames behind the first one replace each other until somebody reads.
    for _ in range(3):
        assert device.taken.acquire(timeout=5.0)
    while seen is not None and not (seen.data == last).all():  # type: ignore[union-attr]
        seen = source.read()
    assert seen is not None and seen.format == 'bgr8'
    device.release()
    source.close()


def test_grey_devices_are_converted() -> None:
    device = StandIn([np.full((4, 6), 50, np.uint8)])
    source = V4l2Source('/dev/video9', opener=lambda *a: device)
    capture = source.read()
    assert capture is not None
    assert isinstance(capture.data, np.ndarray) and capture.data.shape == (4, 6, 3)
    device.release()
    source.close()


def test_opened_again_after_it_was_unplugged() -> None:
    devices: list[Any] = [
        StandIn([flat(JPEG)], hold=False),
        CameraError('/dev/video9 does not exist; plug the camera in'),
        StandIn([flat(JPEG)]),
    ]

    def opener(*arguments: Any) -> Any:
        device = devices.pop(0)
        if isinstance(device, CameraError):
            raise device
        return device

    source = V4l2Source('/dev/video9', opener=opener)
    results = []
    for _ in range(10):
        try:
            results.append(source.read() is not None)
        except CameraError as error:
            results.append(str(error))
        if results[-1] is True and len(results) > 2:
            break
    assert results[0] is True and results[-1] is True
    assert any('plug the camera in' in str(r) for r in results)
    source.close()


def test_why_a_device_does_not_open(tmp_path: Path) -> None:
    with pytest.raises(CameraError, match='does not exist; plug the camera in'):
        open_device(str(tmp_path / 'video0'), 0, 0)
    (tmp_path / 'file').write_bytes(b'')
    with pytest.raises(CameraError, match='no camera, or another program uses it'):
        open_device(str(tmp_path / 'file'), 0, 0)
    with pytest.raises(CameraError, match='set `device`'):
        V4l2Source('')
