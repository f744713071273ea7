"""Make the detector that a specification asks for."""

from __future__ import annotations

import importlib
import math

from laimr_ros.detectors.base import Detector, DetectorError, DetectorSpec

# kind -> module and class, and the package that it takes from elsewhere.
_KINDS = {
    'yolo': ('yolo', 'YoloDetector', 'ultralytics-opencv-headless'),
    'efficientdet': ('efficientdet', 'EfficientDetDetector', 'effdet'),
    'emulated': ('emulated', 'EmulatedDetector', ''),
}

KINDS = tuple(_KINDS)


def create_detector(spec: DetectorSpec) -> Detector:
    """
    Make a detector and load its weights; it is not warmed up yet.

    :param spec: what to make.
    :raises DetectorError: if the specification is wrong or a package is missing.
    """
    if spec.kind not in _KINDS:
        raise DetectorError(f'unknown detector kind {spec.kind!r}; use {", ".join(KINDS)}')
    _check(spec)
    module, name, package = _KINDS[spec.kind]
    try:
        detector_type = getattr(importlib.import_module(f'laimr_ros.detectors.{module}'), name)
        detector: Detector = detector_type(spec)
    except ImportError as error:
        missing = (error.name or '').partition('.')[0]
        if not package or missing == 'laimr_ros':
            raise
        # ultralytics' package has another name than its module; others' names are the same.
        install = package if missing in ('', 'ultralytics') else missing
        reason = ' '.join(str(error).split())
        raise DetectorError(
            f'detector kind {spec.kind!r} lacks a package ({reason}); pip install {install}'
        ) from error
    return detector


def _check(spec: DetectorSpec) -> None:
    """Check what every kind of detector has in common."""
    if spec.input_px < 0:
        raise DetectorError(f"input_px is {spec.input_px}; give pixels, or 0 for the model's own")
    if spec.threads < 0:
        raise DetectorError(f"threads is {spec.threads}; give 0 for the library's choice or more")
    if not math.isfinite(spec.score_threshold) or not 0.0 <= spec.score_threshold <= 1.0:
        raise DetectorError(f'score_threshold is {spec.score_threshold:g}; give 0 to 1')
    if spec.max_detections < 1:
        raise DetectorError(f'max_detections is {spec.max_detections}; give at least 1')
