"""EfficientDet networks through effdet."""

from __future__ import annotations

import math
from pathlib import Path
import time
from typing import Any
import warnings

from laimr_ros.detectors import network
from laimr_ros.detectors.base import Detections, DetectorError, DetectorSpec
from laimr_ros.detectors.checkpoint import Description, read_checkpoint
from laimr_ros.detectors.coco import default_names
from laimr_ros.detectors.engine import Engine, is_engine
from laimr_ros.detectors.export import Levels
from laimr_ros.detectors.files import find_file
from laimr_ros.detectors.images import require_bgr
from laimr_ros.detectors.letterbox import Canvas, top_left
from laimr_ros.detectors.options import fill_in, take_names, take_number, take_whole
import numpy as np
import numpy.typing as npt
import torch
from torchvision.ops import batched_nms

with warnings.catch_warnings():
    # effdet marks its functions so when it is imported; they work, and we do not call them.
    warnings.filterwarnings(
        'ignore', message='`torch.jit.script` is deprecated', category=FutureWarning)
    from effdet.anchors import Anchors, decode_box_outputs
    from effdet.config import get_efficientdet_config
    from effdet.config.model_config import efficientdet_model_param_dict
    from effdet.efficientdet import EfficientDet

_DEFAULTS: dict[str, Any] = {
    'architecture': '', 'num_classes': 0, 'class_names': None, 'iou': 0.5, 'seed': 0,
}
_FILES = ('.pth', '.pt', '.safetensors')
_CLASS_BIAS = 'class_net.predict.conv_pw.bias'
# More candidates than the original takes into suppression only cost time.
_CANDIDATES = 5000


class EfficientDetDetector:
    """
    EfficientDet, from a checkpoint or, by the name of an architecture, with random weights.

    A checkpoint is a state dictionary of effdet's network in ``.pth``, ``.pt`` or
    ``.safetensors``; it is loaded without running code that it may hold. One written by
    :func:`laimr_ros.detectors.checkpoint.save_checkpoint` knows architecture, class names and
    input size; what is set here or in ``input_px`` comes first. A ``.xml`` file is a network
    that `laimr export` wrote.

    ``spec.options`` takes:

    * ``architecture``: of the checkpoint, when its file name does not begin with it.
    * ``num_classes``: classes of a network with random weights (a checkpoint knows its own).
    * ``class_names``: one name a class; COCO's 90 by default.
    * ``iou``: boxes of one class that overlap more are suppressed, 0 to 1.
    * ``seed``: of random weights; the same everywhere.

    :param spec: what to make.
    :raises DetectorError: if it cannot be made.
    """

    def __init__(self, spec: DetectorSpec) -> None:
        options = fill_in('efficientdet', spec.options, _DEFAULTS)
        self._spec = spec
        self._iou = take_number('efficientdet', options, 'iou', 0.0, 1.0)
        self._device = network.choose_device(spec)
        self._half = network.choose_half(spec, self._device)
        network.limit_threads(spec.threads)

        self._random = Path(spec.weights).suffix.lower() not in _FILES
        file = find_file(spec.weights)
        engine = Engine(file, 'efficientdet', spec.threads) if is_engine(file) else None
        state: dict[str, torch.Tensor] = {}
        said = Description()
        if engine is not None:
            self._random = False
            words = engine.words
            said = Description(
                words['architecture'], tuple(words['class_names']), words['input_px'])
            if spec.input_px not in (0, said.image_size):
                raise DetectorError(
                    f'{spec.weights!r} was exported for {said.image_size} and input_px is '
                    f'{spec.input_px}; set input_px to 0, or export it again')
        elif not self._random:
            state, said = read_checkpoint(spec.weights)
        config = _configure(spec, str(options['architecture']), self._random, said)
        self.architecture = str(config.name)
        self._class_names = _names(spec, options, config, state, said)
        config.num_classes = len(self._class_names)
        self._side = (int(config.image_size[0]), int(config.image_size[1]))
        self._anchors: Any = Anchors.from_config(config).boxes.to(self._device)
        seed = take_whole('efficientdet', options, 'seed')
        self._engine = engine
        self._network: Any = engine
        if engine is None:
            self._network = _build(spec, config, None if self._random else state, seed)
            self._network.requires_grad_(False)
            self._network.to(
                self._device, torch.float16 if self._half else torch.float32,
                memory_format=torch.channels_last)

        mean, std = normalisation(config)
        red, green, blue = (round(255.0 * value) for value in mean)
        self._canvas = Canvas((red, green, blue))
        self._mean = torch.tensor(mean, device=self._device).view(1, 3, 1, 1) * 255.0
        self._scale = 1.0 / (torch.tensor(std, device=self._device).view(1, 3, 1, 1) * 255.0)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the class names, by class id."""
        return self._class_names

    @property
    def random_weights(self) -> bool:
        """Return whether the network was built from an architecture alone."""
        return self._random

    @property
    def input_size(self) -> tuple[int, int]:
        """Return height and width of the network's input, in pixels."""
        return self._side

    def warm_up(self) -> float:
        """Detect in a grey 4:3 image a few times; return the median time in seconds."""
        image = network.camera_frame(self._side)
        return network.time_of(lambda: self.detect(image))

    def detect(self, image: npt.NDArray[np.uint8]) -> Detections:
        """
        Detect objects in one image.

        :param image: uint8, shape (height, width, 3), BGR.
        :raises DetectorError: if the image has another shape or type, or after ``close``.
        """
        if self._network is None:
            raise DetectorError('the detector is closed; make a new one')
        height, width = require_bgr(image)
        network.limit_threads(self._spec.threads)
        begin = time.perf_counter()
        letterbox = top_left(height, width, self._side)
        with torch.inference_mode():
            pixels = self.prepare(self._canvas.draw(image, letterbox))
            prepared = time.perf_counter()
            class_levels, box_levels = self.forward(pixels)
            network.wait_for(self._device)
            inferred = time.perf_counter()
            limit = (letterbox.inner_width, letterbox.inner_height)
            boxes, scores, class_ids = self._select(class_levels, box_levels, limit)
        return Detections(
            boxes=letterbox.to_source(boxes), scores=scores, class_ids=class_ids,
            preprocess_s=prepared - begin, inference_s=inferred - prepared,
            postprocess_s=time.perf_counter() - inferred)

    def prepare(self, pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
        """
        Make the network's input of a letterboxed image.

        :param pixels: uint8, shape (height, width, 3), RGB.
        :return: shape (1, 3, height, width), normalised, on the detector's device.
        """
        tensor = torch.from_numpy(pixels).to(self._device).permute(2, 0, 1).unsqueeze(0)
        tensor = tensor.float().sub_(self._mean).mul_(self._scale)
        return tensor.half() if self._half else tensor

    def forward(self, pixels: torch.Tensor) -> Any:
        """Run the network alone, on what ``prepare`` returned."""
        if self._engine is None:
            return self._network(pixels)
        levels = self._engine(pixels)
        return levels[:len(levels) // 2], levels[len(levels) // 2:]

    def exportable(self) -> torch.nn.Module:
        """
        Return the network with all its outputs side by side.

        :raises DetectorError: if it is an exported one already.
        """
        if self._engine is not None:
            raise DetectorError(f'{self._spec.weights!r} is exported already; give a checkpoint')
        return Levels(self._network.to(memory_format=torch.contiguous_format))

    def close(self) -> None:
        """Free the network's memory, on the GPU too."""
        if self._network is not None:
            self._network = self._anchors = self._engine = None
            network.free(self._device)

    def _select(
        self, class_levels: list[torch.Tensor], box_levels: list[torch.Tensor],
        limit: tuple[int, int],
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """
        Turn the network's outputs into boxes in input pixels.

        :param class_levels: a level of the pyramid each, shape (1, A * classes, rows, columns).
        :param box_levels: likewise, shape (1, A * 4, rows, columns).
        :param limit: width and height that the image takes of the input, in pixels.
        """
        count = len(self._class_names)
        logits = torch.cat([level[0].permute(1, 2, 0).reshape(-1) for level in class_levels])
        threshold = self._spec.score_threshold
        # Comparing before the sigmoid leaves a handful of candidates of over a million.
        floor = math.log(threshold / (1.0 - threshold)) if 0.0 < threshold < 1.0 else (
            -math.inf if threshold <= 0.0 else math.inf)
        candidates = torch.nonzero(logits >= floor).squeeze(1)
        if len(candidates) > _CANDIDATES:
            candidates = candidates[torch.topk(logits[candidates], _CANDIDATES).indices]
        anchors = torch.div(candidates, count, rounding_mode='floor')
        codes = torch.cat([level[0].permute(1, 2, 0).reshape(-1, 4) for level in box_levels])
        boxes = decode_box_outputs(codes[anchors].float(), self._anchors[anchors], True)
        boxes[:, 0::2].clamp_(0.0, float(limit[0]))
        boxes[:, 1::2].clamp_(0.0, float(limit[1]))
        scores = logits[candidates].float().sigmoid()
        class_ids = candidates % count
        kept = batched_nms(boxes, scores, class_ids, self._iou)[:self._spec.max_detections]
        return (
            boxes[kept].cpu().numpy(), scores[kept].cpu().numpy(), class_ids[kept].cpu().numpy())


def _configure(
    spec: DetectorSpec, architecture: str, random: bool, said: Description,
) -> Any:
    """Return effdet's configuration of the architecture that is asked for."""
    known = sorted(efficientdet_model_param_dict)
    if random:
        if architecture and spec.weights and architecture != spec.weights:
            raise DetectorError(
                f'weights {spec.weights!r} are no file of weights ({", ".join(_FILES)}) while '
                f'option architecture is {architecture!r}; give one of the two')
        architecture = spec.weights or architecture
    elif not architecture and said.architecture:
        architecture = said.architecture
    elif not architecture:
        stem = Path(spec.weights).name
        begins = [name for name in known if stem.startswith(name)]
        if not begins:
            raise DetectorError(
                f'cannot tell the architecture of {spec.weights!r} by its name; set option '
                'architecture, such as tf_efficientdet_lite0')
        architecture = max(begins, key=len)
    if random and architecture not in efficientdet_model_param_dict and find_file(
            architecture).is_file():
        raise DetectorError(
            f'{architecture!r} has no name of weights for kind efficientdet; it must end in one '
            f'of {", ".join(_FILES)}, or in .xml for an engine of `laimr export`')
    if architecture not in efficientdet_model_param_dict:
        raise DetectorError(
            f'unknown EfficientDet {architecture!r}; give a file of weights '
            f'({", ".join(_FILES)}) or one of {", ".join(known)}')
    config = get_efficientdet_config(architecture)
    side = spec.input_px or said.image_size
    if side:
        # Every level of the pyramid halves the one before it; at least one cell must be left.
        smallest = 2 ** int(config.max_level)
        if side < smallest:
            raise DetectorError(
                f'input_px is {side}; {architecture} takes at least {smallest}')
        config.image_size = (side, side)
    return config


def _names(
    spec: DetectorSpec, options: dict[str, Any], config: Any,
    state: dict[str, torch.Tensor], said: Description,
) -> tuple[str, ...]:
    """Return one name a class of the network."""
    given = options['class_names']
    names = take_names('efficientdet', given) if given is not None else said.class_names
    asked = take_whole('efficientdet', options, 'num_classes')
    if state:
        if _CLASS_BIAS not in state:
            raise DetectorError(
                f'{spec.weights!r} is no EfficientDet checkpoint (it lacks {_CLASS_BIAS})')
        anchors = int(config.num_scales) * len(config.aspect_ratios)
        count = len(state[_CLASS_BIAS]) // anchors
    else:
        count = asked or len(names) or int(config.num_classes)
    for name, value in (('class_names', len(names)), ('num_classes', asked)):
        if value not in (0, count):
            raise DetectorError(
                f'option {name} says {value} classes but {spec.weights!r} has {count}')
    return names or default_names(count)


def normalisation(config: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of red, green and blue, 0 to 1."""
    imagenet = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    mean, std = config.get('mean', imagenet[0]), config.get('std', imagenet[1])
    return tuple(float(value) for value in mean), tuple(float(value) for value in std)


def _build(
    spec: DetectorSpec, config: Any, state: dict[str, torch.Tensor] | None, seed: int,
) -> EfficientDet:
    """Return the network in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = EfficientDet(config, pretrained_backbone=False)
    if state is not None:
        if problem := network.why_not_fitting(built, state):
            raise DetectorError(
                f'{spec.weights!r} does not fit architecture {config.name}: {problem}; '
                'set option architecture')
        built.load_state_dict(state)
    return built.eval()
