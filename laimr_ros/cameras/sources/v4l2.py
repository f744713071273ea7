"""Frames of a camera on this machine, through Video4Linux."""

from __future__ import annotations

from collections.abc import Callable
import errno
from functools import partial
import glob
import os
import threading
import time
from typing import Any

import cv2
from laimr_ros.cameras.sources.base import CameraError, Capture, Clock
import numpy as np

_FRAME_TIMEOUT_S = 5.0
_MJPG = int.from_bytes(b'MJPG', 'little')


def open_device(device: str, width: int, height: int) -> Any:
    """
    Open a device for capturing, with motion JPEG where it has that.

    :param device: its path, such as ``/dev/video0``.
    :param width: wanted, in pixels; 0 for the device's own.
    :param height: wanted, in pixels; 0 for the device's own.
    :returns: an opened ``cv2.VideoCapture``.
    :raises CameraError: if it is missing, forbidden, busy or no camera.
    """
    try:
        os.close(os.open(device, os.O_RDWR | os.O_NONBLOCK))
    except OSError as error:
        raise CameraError(_why(device, error)) from error
    capture = cv2.VideoCapture(device, cv2.CAP_V4L2)
    if not capture.isOpened():
        capture.release()
        raise CameraError(f'{device} is no camera, or another program uses it; close that program '
                          f'(`fuser {device}` names it), or set `device` to another one')
    # Motion JPEG can be passed on as it is; where the device has none, OpenCV keeps its format.
    capture.set(cv2.CAP_PROP_FOURCC, float(_MJPG))
    if width and height:
        capture.set(cv2.CAP_PROP_FRAME_WIDTH, float(width))
        capture.set(cv2.CAP_PROP_FRAME_HEIGHT, float(height))
    if int(capture.get(cv2.CAP_PROP_FOURCC)) == _MJPG:
        capture.set(cv2.CAP_PROP_CONVERT_RGB, 0.0)
    return capture


def _why(device: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        found = ', '.join(sorted(glob.glob('/dev/video*'))) or 'none'
        return f'{device} does not exist; plug the camera in, or set `device` to one of: {found}'
    if error.errno in (errno.EACCES, errno.EPERM):
        return f'{device} may not be opened; add this user to the group `video` and log in again'
    if error.errno == errno.EBUSY:
        return f'{device} is used by another program; close it (`fuser {device}` names it)'
    return f'{device} cannot be opened: {error.strerror}; set `device` to a camera'


class V4l2Source:
    """
    A camera device. Always gives the newest frame, and comes back after it was unplugged.

    A thread empties the driver's queue, where frames would otherwise grow old.

    :param device: its path, such as ``/dev/video0``.
    :param width: wanted, in pixels; 0 for the device's own.
    :param height: wanted, in pixels; 0 for the device's own.
    :param clock: gives the stamps.
    :param opener: opens the device; for tests.
    """

    def __init__(
        self,
        device: str,
        width: int = 0,
        height: int = 0,
        clock: Clock = time.time,
        opener: Callable[[str, int, int], Any] = open_device,
    ) -> None:
        if not device:
            raise CameraError('no device is given; set `device`, for example to /dev/video0')
        self._device, self._clock = device, clock
        self._open = partial(opener, device, width, height)
        self._changed = threading.Condition()
        self._newest: Capture | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def read(self) -> Capture | None:
        """
        Return the newest frame that was not returned yet, waiting for it if need be.

        :raises CameraError: if the device cannot be opened, stopped giving frames or is gone.
        """
        if self._thread is None or not self._thread.is_alive():
            if self._closed:
                return None
            capture = self._open()
            self._newest = None
            self._thread = threading.Thread(
                target=self._grab, args=(capture,), name='v4l2', daemon=True
            )
            self._thread.start()
        deadline = time.monotonic() + _FRAME_TIMEOUT_S
        with self._changed:
            while self._newest is None and not self._closed:
                left = deadline - time.monotonic()
                if not self._thread.is_alive():
                    raise CameraError(
                        f'{self._device} stopped giving frames; is it unplugged, or used by '
                        'another program? It is opened again when it is back')
                if left <= 0:
                    raise CameraError(f'{self._device} gave no frame in {_FRAME_TIMEOUT_S:g} s; '
                                      'plug it in again, or try a lower resolution')
                self._changed.wait(min(left, 0.2))
            newest, self._newest = self._newest, None
            return newest

    def close(self) -> None:
        """Let go of the device."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(1.0)

    def _grab(self, capture: Any) -> None:
        try:
            while not self._closed:
                good, data = capture.read()
                stamp_s = self._clock()
                if not good or data is None:
                    return
                with self._changed:
                    self._newest = _as_capture(data, stamp_s)
                    self._changed.notify_all()
        finally:
            capture.release()
            with self._changed:
                self._changed.notify_all()


def _as_capture(data: Any, stamp_s: float) -> Capture:
    """Return what OpenCV gave: a JPEG in a flat array, or a decoded image."""
    image = np.asarray(data, np.uint8)
    flat = image.reshape(-1)
    if image.ndim < 3 and flat[:2].tobytes() == b'\xff\xd8':
        return Capture(flat.tobytes(), 'jpeg', stamp_s)
    if image.ndim == 2:
        image = np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR), np.uint8)
    return Capture(image, 'bgr8', stamp_s)
