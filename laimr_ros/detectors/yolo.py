"""YOLO networks through ultralytics, without the overhead of its ``predict()``."""

from __future__ import annotations

from pathlib import Path
import time
from typing import Any

from laimr_ros.detectors import network
from laimr_ros.detectors.base import Detections, DetectorError, DetectorSpec
from laimr_ros.detectors.coco import default_names
from laimr_ros.detectors.engine import Engine, is_engine
from laimr_ros.detectors.images import require_bgr
from laimr_ros.detectors.letterbox import Canvas, centred
from laimr_ros.detectors.options import fill_in, take_names, take_number, take_whole
from laimr_ros.detectors.reasons import in_short
from laimr_ros.detectors.yolo_files import read_network, require_format, tasks
import numpy as np
import numpy.typing as npt
import torch

# Suppression uses torchvision's fast kernel only if it was imported before.
import torchvision  # noqa: F401
import ultralytics
from ultralytics.nn.autobackend import AutoBackend
from ultralytics.utils.nms import non_max_suppression

# Typed in part only.
YOLO: Any = ultralytics.YOLO  # type: ignore[attr-defined]

_DEFAULTS: dict[str, Any] = {'iou': 0.7, 'class_names': None, 'seed': 0, 'trusted': False}
_PADDING = (114, 114, 114)
_ARCHITECTURES = ('.yaml', '.yml')


class YoloDetector:
    """
    YOLOv5 and later, from any file of weights, exported model or architecture.

    A ``.xml`` file is a network that `laimr export` wrote; other exported models are run by
    ultralytics.

    ``spec.options`` takes:

    * ``iou``: boxes of one class that overlap more are suppressed, 0 to 1.
    * ``class_names``: names to use in place of the network's own.
    * ``seed``: of random weights, when ``weights`` is an architecture; the same everywhere.
    * ``trusted``: load a ``.pt`` file that holds other Python objects than ultralytics' own.
      Such a file can run any code: only for files whose origin you know.

    :param spec: what to make.
    :raises DetectorError: if it cannot be made.
    """

    def __init__(self, spec: DetectorSpec) -> None:
        options = fill_in('yolo', spec.options, _DEFAULTS)
        self._spec = spec
        self._iou = take_number('yolo', options, 'iou', 0.0, 1.0)
        self._device = network.choose_device(spec)
        self._random = Path(spec.weights).suffix.lower() in _ARCHITECTURES
        network.limit_threads(spec.threads)
        seed = take_whole('yolo', options, 'seed')
        self._backend: Any = _load(
            spec, self._device, self._random, seed, options['trusted'] is True)
        self._half = bool(self._backend.fp16)
        self._class_names = _names(
            spec.weights, self._backend, options['class_names'], self._random)
        self._stride = int(self._backend.stride)
        # A network whose shape was fixed at export takes that shape only.
        self._rectangle = self._backend.format == 'pt' or bool(self._backend.dynamic)
        self._side = _side(spec, self._backend, self._rectangle, self._stride)
        self._canvas = Canvas(_PADDING)

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
        """Return height and width of the largest network input, in pixels."""
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
        if self._backend is None:
            raise DetectorError('the detector is closed; make a new one')
        height, width = require_bgr(image)
        network.limit_threads(self._spec.threads)
        begin = time.perf_counter()
        letterbox = centred(height, width, self._side, self._stride, self._rectangle)
        with torch.inference_mode():
            pixels = self.prepare(self._canvas.draw(image, letterbox))
            prepared = time.perf_counter()
            outputs = self.forward(pixels)
            network.wait_for(self._device)
            inferred = time.perf_counter()
            found = non_max_suppression(
                outputs, self._spec.score_threshold, self._iou,
                max_det=self._spec.max_detections, end2end=bool(self._backend.end2end))[0]
            rows = found[:, :6].float().cpu().numpy()
        boxes = letterbox.to_source(rows[:, :4])
        return Detections(
            boxes=boxes, scores=rows[:, 4].copy(), class_ids=rows[:, 5].astype(np.int64),
            preprocess_s=prepared - begin, inference_s=inferred - prepared,
            postprocess_s=time.perf_counter() - inferred)

    def prepare(self, pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
        """
        Make the network's input of a letterboxed image.

        :param pixels: uint8, shape (height, width, 3), RGB.
        :return: shape (1, 3, height, width), 0 to 1, on the detector's device.
        """
        # As bytes to the device. The channels stay last in memory, as the network has them.
        tensor = torch.from_numpy(pixels).to(self._device).permute(2, 0, 1).unsqueeze(0)
        tensor = (tensor.half() if self._half else tensor.float()).mul_(1.0 / 255.0)
        # Runtimes of exported networks are handed the bare address.
        return tensor if self._backend.format == 'pt' else tensor.contiguous()

    def forward(self, pixels: torch.Tensor) -> Any:
        """Run the network alone, on what ``prepare`` returned."""
        return self._backend(pixels)

    def exportable(self) -> torch.nn.Module:
        """
        Return the network as it can be exported.

        :raises DetectorError: if it is an exported one already.
        """
        made: Any = getattr(self._backend, 'model', None)
        if self._backend.format != 'pt':
            raise DetectorError(f'{self._spec.weights!r} is exported already; give a .pt file')
        head = made.model[-1]
        head.export, head.dynamic, head.format = True, True, 'openvino'
        exportable: torch.nn.Module = made.to(memory_format=torch.contiguous_format)
        return exportable

    def close(self) -> None:
        """Free the network's memory, on the GPU too."""
        if self._backend is not None:
            self._backend = None
            network.free(self._device)


class _Exported:
    """
    An exported network, as ultralytics' backends look.

    :param path: of the engine.
    :param threads: CPU threads; 0 leaves the library's choice.
    """

    fp16 = False
    stride = 32
    format = 'openvino'
    dynamic = True
    end2end = False

    def __init__(self, path: Path, threads: int) -> None:
        self._engine = Engine(path, 'yolo', threads)
        self.names = dict(enumerate(self._engine.words['class_names']))
        self.imgsz = int(self._engine.words['input_px'])

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Run the network."""
        return self._engine(pixels)[0]


def _load(
    spec: DetectorSpec, device: torch.device, random: bool, seed: int, trusted: bool,
) -> Any:
    """Return the network, fused, on its device."""
    half = network.choose_half(spec, device)
    model: Any
    try:
        if random:
            model = _build(spec.weights, seed)
        else:
            path = network.require_file(
                'yolo', spec.weights, 'an architecture such as yolov5n.yaml for random weights')
            if is_engine(path):
                return _Exported(path, spec.threads)
            if path.suffix.lower() == '.pt':
                model = read_network(path, trusted)
            else:
                require_format(path)
                model = str(path)
        # Left alone, ultralytics keeps channels last on the CPU only; GPUs gain from it too.
        channels_last = True if device.type == 'cuda' and not isinstance(model, str) else None
        backend = AutoBackend(
            model, device=device, fp16=half, verbose=False, channels_last=channels_last)
    except DetectorError:
        raise
    # Whatever a library raises on a damaged or foreign file is the user's wrong file to us.
    except Exception as error:
        raise DetectorError(
            f'cannot load {spec.weights!r} as a YOLO network: {in_short(error)}; give a '
            'checkpoint of ultralytics') from error
    task = getattr(model, 'task', None) or getattr(backend, 'task', None) or 'detect'
    if task != 'detect' or isinstance(model, tasks.RTDETRDetectionModel):
        raise DetectorError(
            f'{spec.weights!r} is a network for {task} of type {type(model).__name__}; '
            'give a YOLO network for detection')
    if int(getattr(backend, 'channels', 3)) != 3:
        raise DetectorError(
            f'{spec.weights!r} takes images of {backend.channels} channels; '
            'give a network for colour images')
    backend.eval()
    return backend


def _names(weights: str, backend: Any, given: Any, random: bool) -> tuple[str, ...]:
    """Return the class names: those given, or the network's, or COCO's for an architecture."""
    own = backend.names
    count = int(backend.model.model[-1].nc) if backend.format == 'pt' else len(own)
    if given is not None:
        names = take_names('yolo', given)
        if len(names) != count:
            raise DetectorError(
                f'option class_names has {len(names)} names but {weights!r} has {count} '
                'classes; give one name a class')
        return names
    if random:
        return default_names(count)
    if len(own) != count:
        # Ultralytics makes up 999 of them where there are none.
        raise DetectorError(
            f'{weights!r} has {count} classes and no names for them; set option class_names')
    return tuple(str(own[i]) for i in range(count))


def _build(architecture: str, seed: int) -> Any:
    """Return the network of an architecture, with random weights that depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return YOLO(architecture).model.eval()
        except FileNotFoundError as error:
            raise DetectorError(
                f'no architecture {architecture!r} in ultralytics {ultralytics.__version__}; '
                'use one like yolov5n.yaml, yolov8s.yaml or yolo11m.yaml') from error


def _side(
    spec: DetectorSpec, backend: Any, rectangle: bool, stride: int,
) -> tuple[int, int]:
    """Return height and width that an image is fitted into."""
    exported = getattr(backend, 'imgsz', None)
    if exported is not None and backend.format != 'pt':
        height, width = (exported, exported) if isinstance(exported, int) else exported
        if not rectangle:
            if spec.input_px not in (0, height, width):
                raise DetectorError(
                    f'{spec.weights!r} was exported for {height}x{width} and input_px is '
                    f'{spec.input_px}; set input_px to 0, or export it again')
            return int(height), int(width)
        own = max(int(height), int(width))
    else:
        arguments = getattr(getattr(backend, 'model', None), 'args', None) or {}
        trained = arguments.get('imgsz', 640) if isinstance(arguments, dict) else 640
        own = int(max(trained) if isinstance(trained, (list, tuple)) else trained)
    side = -(-(spec.input_px or own) // stride) * stride
    return side, side
