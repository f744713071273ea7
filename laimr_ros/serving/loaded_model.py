"""One detector that is loaded: from the bytes of an image to detections, with the times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
import logging
import time

from laimr_ros.detectors import images
from laimr_ros.detectors.base import Detections, Detector, DetectorError, DetectorSpec
from laimr_ros.serving.codec import ImagePayload
from laimr_ros.serving.inference_thread import Job
from laimr_ros.serving.reply import Timings
import numpy as np
import numpy.typing as npt

_logger = logging.getLogger(__name__)

# Cameras send the same size again and again, and nobody can write to a blank image.
_blank = lru_cache(maxsize=64)(images.blank)


class LoadFailure(DetectorError):
    """Loading failed although the specification may be right: trying again may help."""


@dataclass
class Statistics:
    """Sums over all inferences of a model; times in seconds."""

    successes: int = 0
    failures: int = 0
    queue_s: float = 0.0
    input_s: float = 0.0
    infer_s: float = 0.0
    output_s: float = 0.0
    last_inference_ms: int = 0


@dataclass(frozen=True)
class Outcome:
    """What the inference thread hands back: detections, times, and the image's size."""

    detections: Detections
    labels: tuple[str, ...]
    timings: Timings
    image_size: tuple[int, int]


@dataclass(frozen=True)
class LoadedModel:
    """
    A model that is ready. Everything but reading its fields belongs to the inference thread.

    :param name: by which clients ask for it.
    :param spec: what it was made from.
    :param detector: the detector, warmed up.
    :param service_s: measured time of one image alone in seconds, without decoding.
    :param needs_pixels: False for a detector that looks at an image's size only.
    """

    name: str
    spec: DetectorSpec
    detector: Detector
    service_s: float
    needs_pixels: bool = True
    statistics: Statistics = field(default_factory=Statistics)

    @classmethod
    def load(
        cls, name: str, spec: DetectorSpec, create: Callable[[DetectorSpec], Detector],
    ) -> LoadedModel:
        """
        Make the detector and warm it up.

        :raises DetectorError: naming the model; a ``LoadFailure`` if not the specification but
            the machine is at fault: out of memory, a missing driver.
        """
        began = time.monotonic()
        detector = None
        try:
            detector = create(spec)
            service_s = detector.warm_up()
        except Exception as error:
            if detector is not None:
                detector.close()
            if isinstance(error, DetectorError):
                raise DetectorError(f'model {name!r} cannot be loaded: {error}') from error
            text = ' '.join(f'{type(error).__name__}: {error}'.split())
            raise LoadFailure(f'model {name!r} cannot be loaded: {text}') from error
        _logger.info(
            'model %s (%s %s) loaded in %.2f s; %.1f ms an image%s', name, spec.kind, spec.weights,
            time.monotonic() - began, service_s * 1e3,
            '; its weights are random' if detector.random_weights else '')
        return cls(name, spec, detector, service_s, getattr(detector, 'needs_pixels', True))

    def infer(self, image: ImagePayload, job: Job[Outcome], max_pixels: int) -> Outcome:
        """
        Decode an image and detect what is in it.

        :param job: asked, between the two, whether anyone still waits.
        :raises DetectorError: if the image cannot be read or is too large.
        :raises DeadlinePassed: if nobody waits.
        """
        began = time.monotonic()
        pixels = self._decode(image, max_pixels)
        decoded = time.monotonic()
        job.check()
        detections = self.detector.detect(pixels)
        ended = time.monotonic()
        decode_s = decoded - began
        preprocess_s, inference_s = detections.preprocess_s, detections.inference_s
        # What the detector does not account for belongs to the service time all the same.
        output_s = max(detections.postprocess_s, ended - decoded - preprocess_s - inference_s)
        statistics = self.statistics
        statistics.successes += 1
        statistics.queue_s += job.queued_s
        statistics.input_s += decode_s + preprocess_s
        statistics.infer_s += inference_s
        statistics.output_s += output_s
        statistics.last_inference_ms = int(time.time() * 1e3)
        names = self.detector.class_names
        height, width = pixels.shape[:2]
        return Outcome(
            detections, tuple([names[i] for i in detections.class_ids.tolist()]),
            Timings(job.queued_s, decode_s, preprocess_s, inference_s, output_s), (width, height))

    def _decode(self, image: ImagePayload, max_pixels: int) -> npt.NDArray[np.uint8]:
        if not self.needs_pixels:
            # Decoding would be the dearest part of a detector that only pretends. An image that
            # is plainly wrong goes the ordinary way, for the ordinary error.
            if image.encoding:
                width, height = image.width, image.height
                whole = len(image.data) >= height * image.step > 0
            else:
                width, height = images.compressed_size(image.data)
                whole = True
            if whole and 0 < width * height <= max_pixels:
                return _blank(width, height)
        if image.encoding:
            return images.decode_raw(
                image.data, image.height, image.width, image.encoding, image.step,
                image.is_bigendian, max_pixels)
        return images.decode_compressed(image.data, max_pixels)
