"""The interface every detector implements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class DetectorError(ValueError):
    """A detector cannot be made or cannot read an image; the message names value and fix."""


@dataclass(frozen=True)
class Detections:
    """
    What one detector found in one image.

    :param boxes: float32, shape (N, 4), ``x1, y1, x2, y2`` in pixels of the source image.
    :param scores: float32, shape (N,), 0 to 1, descending.
    :param class_ids: int64, shape (N,), indices into the detector's ``class_names``.
    :param preprocess_s: time spent to prepare the network's input, in seconds.
    :param inference_s: time spent in the network, in seconds.
    :param postprocess_s: time spent on boxes (suppression, scaling back), in seconds.
    """

    boxes: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    class_ids: npt.NDArray[np.int64]
    preprocess_s: float = 0.0
    inference_s: float = 0.0
    postprocess_s: float = 0.0


@dataclass(frozen=True)
class DetectorSpec:
    """
    Everything needed to make one detector.

    :param kind: ``yolo``, ``efficientdet`` or ``emulated``.
    :param weights: file of weights, or an architecture (``yolov5n.yaml``,
        ``tf_efficientdet_lite0``) which is then built with random weights.
    :param input_px: side of the square network input in pixels; 0 for the model's own.
    :param device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    :param half: half precision; ignored with a warning where the device has none.
    :param threads: CPU threads of the network; 0 leaves the library's choice.
    :param score_threshold: detections below it are left out, 0 to 1.
    :param max_detections: at most so many detections an image.
    :param options: what only this kind takes (the law of ``emulated``, for example).
    """

    kind: str
    weights: str = ''
    input_px: int = 0
    device: str = 'auto'
    half: bool = False
    threads: int = 1
    score_threshold: float = 0.25
    max_detections: int = 100
    options: Mapping[str, Any] = field(default_factory=dict)


class Detector(Protocol):
    """Images in, boxes in source pixels out. Not thread-safe: one caller at a time."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the class names, by class id."""

    @property
    def random_weights(self) -> bool:
        """Return whether the network was never trained, so that its boxes mean nothing."""

    def warm_up(self) -> float:
        """Run the network a few times; return the median time of one image in seconds."""

    def detect(self, image: npt.NDArray[np.uint8]) -> Detections:
        """
        Detect objects in one image.

        :param image: uint8, shape (height, width, 3), channels in OpenCV's order (BGR).
        :raises DetectorError: if the image has another shape or type.
        """

    def close(self) -> None:
        """Free the network's memory, on the GPU too. Safe to call twice."""
