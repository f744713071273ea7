"""Export of trained networks to an engine that a CPU runs sooner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laimr_ros.detectors.base import DetectorError, DetectorSpec
from laimr_ros.detectors.engine import save_engine, SUFFIX
from laimr_ros.detectors.factory import create_detector
import torch


def export(spec: DetectorSpec, path: Path) -> None:
    """
    Export the network of a detector; class names and input size go with it.

    :param spec: of a ``yolo`` or ``efficientdet`` with trained weights.
    :param path: of the ``.xml`` file to write; the weights go beside it in a ``.bin`` file.
    :raises DetectorError: if the network cannot be loaded or exported.
    """
    if spec.kind not in ('yolo', 'efficientdet'):
        raise DetectorError(
            f'detectors of kind {spec.kind!r} cannot be exported; give yolo or efficientdet')
    if path.suffix.lower() != SUFFIX:
        raise DetectorError(f'an engine is a file *{SUFFIX}, not {path.name!r}; give such a name')
    detector: Any = create_detector(spec)
    try:
        if detector.random_weights:
            raise DetectorError(
                f'{spec.weights!r} has random weights, which are not worth an export; give '
                'trained ones')
        side = max(detector.input_size)
        words = {'kind': spec.kind, 'class_names': list(detector.class_names), 'input_px': side,
                 'architecture': getattr(detector, 'architecture', '')}
        save_engine(
            detector.exportable(), torch.rand(1, 3, side, side), path, words,
            any_size=spec.kind == 'yolo')
    finally:
        detector.close()


class Levels(torch.nn.Module):
    """
    Gives the outputs of all levels of a pyramid side by side, as engines have them.

    :param network: returns two lists, classes and boxes.
    """

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self._network = network

    def forward(self, pixels: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the levels of the classes, then those of the boxes."""
        classes, boxes = self._network(pixels)
        return tuple(classes) + tuple(boxes)
