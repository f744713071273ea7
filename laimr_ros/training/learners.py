"""Networks while they learn: pictures to inputs, outputs to a loss, weights to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import datetime
from pathlib import Path
from typing import Any, Protocol

from laimr_ros.cameras.scene import CLASSES, Frame
from laimr_ros.detectors.base import DetectorError
from laimr_ros.detectors.letterbox import Canvas, centred, Letterbox, top_left
from laimr_ros.detectors.network import why_not_fitting
from laimr_ros.detectors.reasons import in_short
import torch

#: What shows less of itself is not taught: too little to tell what it is.
MIN_VISIBLE = 0.2

#: Pictures, and what is in them.
Batch = tuple[torch.Tensor, torch.Tensor]


class LearnerError(ValueError):
    """A network cannot be trained as asked; the message names value and fix."""


class Learner(Protocol):
    """One architecture's part of training."""

    network: torch.nn.Module

    def letterbox(self, height: int, width: int) -> Letterbox:
        """Return where a picture lies in the network's input, as its detector will have it."""

    @property
    def padding(self) -> tuple[int, int, int]:
        """Return red, green and blue around the picture, 0 to 255."""

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return how wrong the network is about a batch, as one number that can be derived."""

    def save(self, network: torch.nn.Module, path: Path, notes: str) -> None:
        """Write the weights of a network like ``network`` so that the detector can load them."""


def make_batch(learner: Learner, frames: Sequence[Frame]) -> Batch:
    """
    Make a batch of pictures of one size.

    :returns: uint8, shape (N, 3, height, width), RGB; and what is in them, float32 of shape
        (objects, 6): number of the picture, class id and x1, y1, x2, y2 in pixels of the input.
    """
    pixels, rows = [], []
    canvas = Canvas(learner.padding)
    for number, frame in enumerate(frames):
        box = learner.letterbox(*frame.image.shape[:2])
        pixels.append(torch.from_numpy(canvas.draw(frame.image, box).copy()))
        scale_x, scale_y = box.inner_width / box.source_width, box.inner_height / box.source_height
        rows += [
            (number, CLASSES.index(thing.label),
             thing.box[0] * scale_x + box.left, thing.box[1] * scale_y + box.top,
             thing.box[2] * scale_x + box.left, thing.box[3] * scale_y + box.top)
            for thing in frame.objects if thing.visible_fraction >= MIN_VISIBLE]
    # The channels stay last in memory, as the networks are quickest with.
    truth = torch.tensor(rows, dtype=torch.float32).reshape(-1, 6)
    return torch.stack(pixels).permute(0, 3, 1, 2), truth


class YoloLearner:
    """
    A YOLO network of ultralytics.

    :param architecture: such as ``yolov5n.yaml``.
    :param input_px: side of the network's input, in pixels.
    :param start: file of weights of the same architecture to go on from, or None for random ones.
    """

    padding = (114, 114, 114)

    def __init__(self, architecture: str, input_px: int, start: Path | None = None) -> None:
        from laimr_ros.detectors.yolo_files import read_network
        from ultralytics.nn.tasks import DetectionModel
        from ultralytics.utils import DEFAULT_CFG

        self._architecture, self._input_px = architecture, input_px
        network: Any = DetectionModel(architecture, nc=len(CLASSES), verbose=False)
        if start is not None:
            _load(network, read_network(start).float().state_dict(), start, architecture)
        network.args = DEFAULT_CFG
        network.names = dict(enumerate(CLASSES))
        self.network = network.to(memory_format=torch.channels_last)

    def letterbox(self, height: int, width: int) -> Letterbox:
        """Return where a picture lies in the network's input."""
        return centred(height, width, (self._input_px, self._input_px), 32, True)

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the loss that ultralytics trains with."""
        pixels, truth = batch
        height, width = pixels.shape[2:]
        whole = torch.tensor([width, height, width, height], dtype=torch.float32)
        low, high = truth[:, 2:4], truth[:, 4:6]
        network: Any = self.network
        # Only the network gains by fewer bits; the loss would lose.
        with torch.autocast('cpu', torch.bfloat16):
            outputs = network(pixels.float() / 255.0)
        total, _ = network.loss({
            'img': pixels, 'batch_idx': truth[:, 0], 'cls': truth[:, 1:2],
            'bboxes': torch.cat([(low + high) / 2, high - low], dim=1) / whole,
        }, _as_float(outputs))
        return total.sum() / len(pixels)

    def save(self, network: torch.nn.Module, path: Path, notes: str) -> None:
        """Write a checkpoint as ultralytics does."""
        from ultralytics import __version__

        made: Any = type(self.network)(self._architecture, nc=len(CLASSES), verbose=False)
        made.load_state_dict(network.state_dict())
        made.names = dict(enumerate(CLASSES))
        made.args = {'imgsz': self._input_px, 'task': 'detect', 'model': self._architecture}
        torch.save({
            'epoch': -1, 'best_fitness': None, 'model': made.half().eval(), 'ema': None,
            'updates': None, 'optimizer': None, 'train_args': made.args,
            'date': datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds'),
            'version': __version__, 'license': 'AGPL-3.0', 'notes': notes,
        }, path)


class EfficientDetLearner:
    """
    An EfficientDet of effdet.

    :param architecture: such as ``tf_efficientdet_lite0``.
    :param input_px: side of the network's input, in pixels.
    :param start: a checkpoint to go on from, or None for random weights.
    """

    def __init__(self, architecture: str, input_px: int, start: Path | None = None) -> None:
        from effdet.bench import DetBenchTrain
        from effdet.config import get_efficientdet_config
        from effdet.efficientdet import EfficientDet
        from laimr_ros.detectors.checkpoint import read_checkpoint
        from laimr_ros.detectors.efficientdet import normalisation

        self._architecture, self._input_px = architecture, input_px
        config: Any = get_efficientdet_config(architecture)
        config.num_classes = len(CLASSES)
        config.image_size = (input_px, input_px)
        network: Any = EfficientDet(config, pretrained_backbone=False)
        if start is not None:
            state = read_checkpoint(str(start))[0]
            _load(network, {k: v.float() for k, v in state.items()}, start, architecture)
        for module in network.modules():
            # Made for weeks on many machines; a short training must learn these sooner.
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 0.03
        self.network: Any = network.to(memory_format=torch.channels_last)
        mean, std = normalisation(config)
        self._mean = torch.tensor(mean).view(1, 3, 1, 1) * 255.0
        self._std = torch.tensor(std).view(1, 3, 1, 1) * 255.0
        self._bench = DetBenchTrain(self.network, create_labeler=True)

    @property
    def padding(self) -> tuple[int, int, int]:
        """Return red, green and blue around the picture."""
        red, green, blue = (round(float(v)) for v in self._mean.flatten())
        return red, green, blue

    def letterbox(self, height: int, width: int) -> Letterbox:
        """Return where a picture lies in the network's input."""
        return top_left(height, width, (self._input_px, self._input_px))

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the loss that effdet trains with."""
        pixels, truth = batch
        owners = truth[:, 0].long()
        most = max(1, int(torch.bincount(owners, minlength=1).max()))
        boxes = torch.full((len(pixels), most, 4), -1.0)
        classes = torch.full((len(pixels), most), -1.0)
        for number in range(len(pixels)):
            rows = truth[owners == number]
            # Rows before columns and classes from 1, as effdet has them.
            boxes[number, :len(rows)] = rows[:, [3, 2, 5, 4]]
            classes[number, :len(rows)] = rows[:, 1] + 1
        result = self._bench(
            (pixels.float() - self._mean) / self._std, {'bbox': boxes, 'cls': classes})
        loss: torch.Tensor = result['loss']
        return loss

    def save(self, network: torch.nn.Module, path: Path, notes: str) -> None:
        """Write a checkpoint with what its detector must know."""
        from laimr_ros.detectors.checkpoint import save_checkpoint

        state: Mapping[str, torch.Tensor] = network.state_dict()
        save_checkpoint(
            path, dict(state), architecture=self._architecture, class_names=CLASSES,
            image_size=self._input_px)


def create_learner(
    kind: str, architecture: str, input_px: int, start: Path | None = None,
) -> Learner:
    """
    Make a network that can learn.

    :param kind: ``yolo`` or ``efficientdet``.
    :param input_px: side of its input, in pixels.
    :param start: file of weights to start from.
    :raises LearnerError: for another kind, architecture or start.
    """
    kinds: dict[str, Any] = {'yolo': YoloLearner, 'efficientdet': EfficientDetLearner}
    if kind not in kinds:
        raise LearnerError(f'detectors of kind {kind!r} cannot be trained; use {", ".join(kinds)}')
    try:
        learner: Learner = kinds[kind](architecture, input_px, start)
    except DetectorError as error:
        raise LearnerError(f'cannot start from {str(start)!r}: {error}') from error
    # Whatever a library raises for a name that it does not know is the user's to mend.
    except Exception as error:
        raise LearnerError(f'cannot train {kind} {architecture!r}: {in_short(error)}') from error
    return learner


def _load(
    network: torch.nn.Module, state: Mapping[str, torch.Tensor], start: Path, architecture: str,
) -> None:
    """
    Let a network start from given weights.

    :raises DetectorError: if they are another network's.
    """
    if problem := why_not_fitting(network, state):
        raise DetectorError(
            f'its weights do not fit {architecture} for the {len(CLASSES)} classes of drawn '
            f'cells ({problem}); give weights that `laimr train` wrote for it')
    network.load_state_dict(state)


def _as_float(outputs: Any) -> Any:
    if isinstance(outputs, torch.Tensor):
        return outputs.float()
    if isinstance(outputs, Mapping):
        return {key: _as_float(value) for key, value in outputs.items()}
    return type(outputs)(_as_float(value) for value in outputs)
