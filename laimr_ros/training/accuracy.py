"""How well detections fit the truth: average precision as COCO counts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import contextlib
from dataclasses import dataclass
import io
import statistics
import time
from typing import Any

from laimr_ros.cameras.scene import CLASSES, Frame
from laimr_ros.detectors.base import Detections, Detector, DetectorError
import numpy as np

#: Of what shows less of itself no detector is asked to find it, nor blamed for finding it.
MIN_VISIBLE = 0.25


@dataclass(frozen=True)
class Accuracy:
    """
    Figures on a set of pictures, 0 to 1.

    :param map50: mean over the classes of average precision at an IoU of 0.5.
    :param map50_95: the same, mean over IoUs of 0.5 to 0.95.
    :param by_class: average precision at 0.5 to 0.95 of each class of which there was any.
    :param frames: how many pictures.
    :param objects: how many things were to be found.
    :param service_s: median time of ``detect``, in seconds.
    """

    map50: float
    map50_95: float
    by_class: dict[str, float]
    frames: int
    objects: int
    service_s: float = 0.0


def measure(detector: Detector, frames: Iterable[Frame]) -> Accuracy:
    """
    Run a detector over labelled pictures.

    :param detector: its ``score_threshold`` should be near 0, or precision at high recall is lost.
    :raises DetectorError: if its classes are not those of the pictures.
    """
    check_classes(detector)
    truths, found, taken = [], [], []
    for frame in frames:
        begin = time.perf_counter()
        found.append(detector.detect(frame.image))
        taken.append(time.perf_counter() - begin)
        # Without the picture, so that thousands can be judged.
        truths.append(Frame(np.zeros((0, 0, 3), np.uint8), frame.objects))
    figures = average_precision(truths, found, detector.class_names)
    return Accuracy(
        figures.map50, figures.map50_95, figures.by_class, figures.frames, figures.objects,
        statistics.median(taken))


def check_classes(detector: Detector) -> None:
    """
    Check that a detector knows what is drawn.

    :raises DetectorError: if its classes are not those of the drawn cells.
    """
    lacking = [name for name in CLASSES if name not in detector.class_names]
    if lacking:
        names = detector.class_names
        shown = ', '.join(names[:6]) + (', ...' if len(names) > 6 else '')
        raise DetectorError(
            f'the detector knows no {lacking[0]!r}; its classes are {shown}, but those of the '
            f'drawn cells are {", ".join(CLASSES)}; use weights that `laimr train` wrote')


def average_precision(
    frames: Sequence[Frame], found: Sequence[Detections], class_names: Sequence[str],
) -> Accuracy:
    """
    Return average precision, through pycocotools.

    :param frames: what is in each picture.
    :param found: what was detected in each.
    :param class_names: by the class ids of the detections; those of no drawn thing count as false
        for none.
    :raises ValueError: if there is nothing to find at all.
    """
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    annotations: list[dict[str, Any]] = []
    objects = 0
    for number, frame in enumerate(frames, start=1):
        for thing in frame.objects:
            x0, y0, x1, y1 = thing.box
            ignored = thing.visible_fraction < MIN_VISIBLE
            objects += not ignored
            annotations.append({
                'id': len(annotations) + 1, 'image_id': number,
                'category_id': CLASSES.index(thing.label) + 1,
                'bbox': [x0, y0, x1 - x0, y1 - y0], 'area': (x1 - x0) * (y1 - y0),
                'iscrowd': int(ignored), 'ignore': int(ignored)})
    if not objects:
        raise ValueError('there is nothing to find in these pictures; take more of them')
    rows = [
        [number, x0, y0, x1 - x0, y1 - y0, score, CLASSES.index(class_names[kind]) + 1]
        for number, one in enumerate(found, start=1)
        for (x0, y0, x1, y1), score, kind in zip(
            one.boxes.tolist(), one.scores.tolist(), one.class_ids.tolist())
        if class_names[kind] in CLASSES]
    if not rows:
        zero = dict.fromkeys(CLASSES, 0.0)
        return Accuracy(0.0, 0.0, zero, len(frames), objects)
    # pycocotools prints its progress.
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            'images': [{'id': n} for n in range(1, len(frames) + 1)], 'annotations': annotations,
            'categories': [{'id': n, 'name': c} for n, c in enumerate(CLASSES, start=1)]}
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(np.array(rows, np.float64)), 'bbox')
        evaluation.evaluate()
        evaluation.accumulate()
    # Axes: IoU, recall, class, size, most detections a picture; -1 where a class has no truth.
    precision = evaluation.eval['precision'][:, :, :, 0, -1]
    there = [k for k in range(len(CLASSES)) if (precision[:, :, k] > -1).all()]
    return Accuracy(
        float(precision[0][:, there].mean()), float(precision[:, :, there].mean()),
        {CLASSES[k]: float(precision[:, :, k].mean()) for k in there}, len(frames), objects)
