"""Frames from a directory of images or from a video file."""

from __future__ import annotations

from collections.abc import Callable
import os
from pathlib import Path
import time
from typing import Any

import cv2
from laimr_ros.cameras.sources.base import CameraError, Capture, Clock, SourceEnded
import numpy as np

# Sent as they are; other images are decoded.
_FORMATS = {'.jpg': 'jpeg', '.jpeg': 'jpeg', '.png': 'png'}
_SUFFIXES = {*_FORMATS, '.bmp', '.tif', '.tiff', '.webp', '.ppm', '.pgm'}

Warn = Callable[[str], None]


class DirectorySource:
    """
    The images of a directory, in the order of their names.

    :param path: the directory.
    :param loop: begin again after the last image.
    :param warn: is told once of each file that cannot be read; such files are left out.
    :param clock: gives the stamps.
    :raises CameraError: if there is no such directory, or no image in it.
    """

    def __init__(
        self, path: str, loop: bool = True, warn: Warn = print, clock: Clock = time.time
    ) -> None:
        directory = Path(path).expanduser()
        if not path or not directory.is_dir():
            raise CameraError(f'{path!r} is no directory; set `path` to a directory of images')
        try:
            names = sorted(os.listdir(directory))
        except OSError as error:
            raise CameraError(f'directory {path} cannot be read: {error.strerror}; '
                              'allow it, or set `path` to another one') from error
        self._files = [
            directory / name for name in names if Path(name).suffix.lower() in _SUFFIXES
        ]
        if not self._files:
            raise CameraError(
                f'directory {path} holds no image; put files of type '
                f'{", ".join(sorted(_SUFFIXES))} there, or set `path` to another one')
        self._path, self._loop, self._warn, self._clock = path, loop, warn, clock
        self._next = 0
        self._unreadable: set[Path] = set()
        self._proven: set[Path] = set()

    def read(self) -> Capture:
        """
        Return the next image.

        :raises SourceEnded: after the last one, unless it loops.
        :raises CameraError: if no image of the directory can be read (any more).
        """
        for _ in range(len(self._files)):
            if self._next == len(self._files):
                if not self._loop:
                    raise SourceEnded(f'every image of {self._path} was shown')
                self._next = 0
            file = self._files[self._next]
            self._next += 1
            capture = self._load(file)
            if capture is not None:
                return capture
        if not self._loop:
            raise SourceEnded(f'every image of {self._path} was shown')
        raise CameraError(f'no image in {self._path} can be read; put others there')

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _load(self, file: Path) -> Capture | None:
        stamp_s = self._clock()
        try:
            data = file.read_bytes()
        except OSError as error:
            self._leave_out(file, error.strerror or str(error))
            return None
        kind = _FORMATS.get(file.suffix.lower())
        if kind is not None and file in self._proven:
            return Capture(data, kind, stamp_s)
        image = None
        if data:
            image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        if image is None:
            self._leave_out(file, 'not an image, or damaged')
            return None
        self._unreadable.discard(file)
        if kind is None:
            return Capture(np.asarray(image, np.uint8), 'bgr8', stamp_s)
        # Decoding it was only to be sure; once is enough.
        self._proven.add(file)
        return Capture(data, kind, stamp_s)

    def _leave_out(self, file: Path, reason: str) -> None:
        if file not in self._unreadable:
            self._unreadable.add(file)
            self._warn(f'{file} is left out: {reason}')


class VideoSource:
    """
    The frames of a video file, one a read, whatever its own rate.

    :param path: the file.
    :param loop: begin again after the last frame.
    :param clock: gives the stamps.
    :raises CameraError: if the file cannot be opened.
    """

    def __init__(self, path: str, loop: bool = True, clock: Clock = time.time) -> None:
        if not path or not Path(path).expanduser().is_file():
            raise CameraError(f'{path!r} is no file; set `path` to a video file')
        self._path, self._loop, self._clock = str(Path(path).expanduser()), loop, clock
        self._video: Any = None
        self._open()

    def read(self) -> Capture:
        """
        Return the next frame.

        :raises SourceEnded: after the last one, unless it loops.
        :raises CameraError: if not even the first frame can be decoded.
        """
        for again in (False, True):
            if self._video is None:
                self._open()
            stamp_s = self._clock()
            good, image = self._video.read()
            if good:
                return Capture(np.asarray(image, np.uint8), 'bgr8', stamp_s)
            if not self._loop:
                raise SourceEnded(f'every frame of {self._path} was shown')
            if not again:
                # Opened again, not wound back: not every container can be.
                self.close()
        raise CameraError(f'{self._path} holds no frame that can be decoded; use another file')

    def close(self) -> None:
        """Close the file."""
        if self._video is not None:
            self._video.release()
            self._video = None

    def _open(self) -> None:
        video = cv2.VideoCapture(self._path)
        if not video.isOpened():
            video.release()
            raise CameraError(f'{self._path} is not a video that OpenCV can read; '
                              'convert it, for example to MP4 with H.264')
        self._video = video
