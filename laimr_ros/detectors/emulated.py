"""A detector that takes the time of one and uses no CPU: fleets larger than the machine."""

from __future__ import annotations

from collections.abc import Mapping
import math
import time
from typing import Any

from laimr_ros.detectors.base import Detections, DetectorError, DetectorSpec
from laimr_ros.detectors.images import require_bgr
from laimr_ros.detectors.instance import find_instance, Instance
from laimr_ros.detectors.options import fill_in, take_names, take_number, take_whole
import numpy as np
import numpy.typing as npt

LAWS = ('constant', 'lognormal', 'exponential', 'power_law')

_DEFAULTS: dict[str, Any] = {
    'law': 'constant',
    'mean_s': 0.0,
    'cv': 0.0,
    'gamma': 1.0,
    'background': 0.0,
    'seed': None,
    'detections': 1,
    'class_names': ('object',),
    'cores': 1.0,
    'instance': '',
    'load_file': '',
    'load_s': 0.0,
}


class EmulatedDetector:
    """
    Emulate a detector on an instance with a given law of service time.

    ``spec.options`` takes:

    * ``law``: ``constant``, ``lognormal`` (with ``cv``), ``exponential``, or ``power_law``:
      ``mean_s * (1 + u**gamma)``, times a log-normal factor of mean 1 if ``cv`` is set, where
      ``u = background + running / cores`` is found at the start, this inference counted.
    * ``mean_s``: mean service time of one inference alone, in seconds; 0 returns at once.
    * ``cv``: coefficient of variation (standard deviation over mean).
    * ``gamma``, ``background``: exponent and utilisation by others, for ``power_law``.
    * ``seed``: of the service times; without it every detector has its own.
    * ``detections``: boxes in each answer, always the same ones for one image size.
    * ``class_names``: names, given to the boxes in turn.
    * ``cores``: of the instance. While more inferences than cores are in progress on it, each is
      slowed down by the ratio (processor sharing). ``power_law`` has its own slow-down instead.
    * ``instance``: name of the instance, shared by the detectors of this process that name it.
    * ``load_file``: file through which the detectors of several processes share the instance.
    * ``load_s``: time to load, in seconds.

    :param spec: what to make; ``weights``, ``input_px``, ``device``, ``half`` and ``threads``
        mean nothing here.
    :raises DetectorError: if an option is unknown or out of range.
    """

    # A server need not decode an image for this detector: `images.blank` is as good.
    needs_pixels = False

    def __init__(self, spec: DetectorSpec) -> None:
        options = _check(spec.options)
        self._law = str(options['law'])
        self._mean_s: float = options['mean_s']
        self._sigma = math.sqrt(math.log1p(options['cv'] ** 2))
        self._gamma: float = options['gamma']
        self._background: float = options['background']
        self._random = np.random.default_rng(options['seed'])
        self._class_names: tuple[str, ...] = options['class_names']
        self._instance: Instance = find_instance(
            str(options['instance']), options['cores'], str(options['load_file']))
        self._unit_boxes, self._scores = _unit_boxes(
            min(options['detections'], spec.max_detections), spec.score_threshold)
        self._class_ids = np.arange(len(self._scores), dtype=np.int64) % len(self._class_names)
        if options['load_s'] > 0.0:
            time.sleep(options['load_s'])

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the class names, by class id."""
        return self._class_names

    @property
    def random_weights(self) -> bool:
        """Return True: the boxes mean nothing."""
        return True

    def warm_up(self) -> float:
        """Return the law's median time on an idle instance in seconds; there is nothing to run."""
        cores = self._instance.cores
        power = self._law == 'power_law'
        alone = self._slow_down(1.0 / cores) if power else max(1.0, 1.0 / cores)
        if self._law == 'exponential':
            return self._mean_s * math.log(2.0) * alone
        return self._mean_s * math.exp(-self._sigma ** 2 / 2.0) * alone

    def detect(self, image: npt.NDArray[np.uint8]) -> Detections:
        """
        Wait for the service time and return boxes that depend on the image's size only.

        :param image: uint8, shape (height, width, 3); its pixels are not read.
        :raises DetectorError: if the image has another shape or type.
        """
        height, width = require_bgr(image)
        inference_s = self._serve()
        scale = np.array((width, height, width, height), np.float32)
        return Detections(
            boxes=self._unit_boxes * scale, scores=self._scores.copy(),
            class_ids=self._class_ids.copy(), inference_s=inference_s)

    def close(self) -> None:
        """Do nothing: there is no memory to free."""

    def _serve(self) -> float:
        if self._mean_s == 0.0:
            return 0.0
        work_s = self._draw()
        if self._law == 'power_law':
            return self._instance.occupy_by_law(lambda load: work_s * self._slow_down(load))
        return self._instance.occupy(work_s)

    def _draw(self) -> float:
        """Draw the service time of one inference alone, in seconds."""
        if self._law == 'exponential':
            return float(self._random.exponential(self._mean_s))
        if self._law == 'constant' or self._sigma == 0.0:
            return self._mean_s
        return self._mean_s * float(self._random.lognormal(-self._sigma ** 2 / 2.0, self._sigma))

    def _slow_down(self, load: float) -> float:
        """Return the power law's factor at so many running inferences a core."""
        return 1.0 + float((self._background + load) ** self._gamma)


def _check(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options with defaults filled in, or say which one is wrong."""
    options = fill_in('emulated', given, _DEFAULTS)
    if options['law'] not in LAWS:
        raise DetectorError(
            f'unknown law {options["law"]!r} of an emulated detector; use {", ".join(LAWS)}')
    for name in ('mean_s', 'cv', 'gamma', 'background', 'load_s', 'cores'):
        options[name] = take_number('emulated', options, name)
    options['detections'] = take_whole('emulated', options, 'detections')
    if options['law'] in ('constant', 'exponential') and options['cv']:
        raise DetectorError(
            f'law {options["law"]!r} has no cv; leave it out, or use law lognormal')
    options['class_names'] = take_names('emulated', options['class_names'])
    if options['seed'] is not None:
        take_whole('emulated', options, 'seed')
    return options


def _unit_boxes(
    count: int, score_threshold: float,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return boxes spread over a unit square, in rows from the top left, and falling scores."""
    columns = max(1, math.ceil(math.sqrt(count)))
    index = np.arange(count)
    corners = np.stack((index % columns, index // columns), 1) / columns
    margin = 0.1 / columns
    boxes = np.concatenate((corners + margin, corners + 1.0 / columns - margin), 1)
    scores = np.linspace(0.95, 0.5, count)
    kept = scores >= score_threshold
    return boxes[kept].astype(np.float32), scores[kept].astype(np.float32)
