"""The interface of every source of frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from laimr_ros.cameras.scene import SceneObject
import numpy as np
import numpy.typing as npt

# Returns the present time in seconds since the epoch, or of the simulated clock.
Clock = Callable[[], float]


class CameraError(RuntimeError):
    """
    No frame could be had; the message says why and what to do.

    The source can be read again later, unless it could not even be made.
    """


class SourceEnded(CameraError):
    """The source has no more frames and never will."""


@dataclass(frozen=True)
class Capture:
    """
    One frame as it comes from a source.

    :param data: a JPEG or PNG file as it is, or an image: uint8, shape (height, width, 3), BGR.
    :param format: ``jpeg``, ``png`` or ``bgr8``.
    :param stamp_s: when it was taken, in seconds of the source's clock.
    :param truth: what is in the picture, where that is known.
    """

    data: bytes | npt.NDArray[np.uint8]
    format: str
    stamp_s: float
    truth: tuple[SceneObject, ...] | None = None


class Source(Protocol):
    """A camera, or what stands in for one. One thread reads; any thread may close."""

    def read(self) -> Capture | None:
        """
        Return the newest frame, or nothing when there is no new one since the last read.

        May block for as long as a frame takes.

        :raises SourceEnded: when there will be no more frames.
        :raises CameraError: when this frame could not be had.
        """

    def close(self) -> None:
        """Let go of the device, file or connection. Safe to call twice."""
