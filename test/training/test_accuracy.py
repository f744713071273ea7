"""Average precision of detections whose figures can be told by hand."""

from __future__ import annotations

from collections.abc import Sequence

from laimr_ros.cameras.scene import CLASSES, Frame, SceneObject
from laimr_ros.detectors.base import Detections, DetectorError, DetectorSpec
from laimr_ros.detectors.factory import create_detector
from laimr_ros.training.accuracy import average_precision, check_classes, measure
from laimr_ros.training.cells import CellSampler, HELD_OUT_SEED
import numpy as np
import pytest

BOX = (100.0, 100.0, 200.0, 200.0)


def frame(*objects: tuple[str, tuple[float, float, float, float], float]) -> Frame:
    """Return a picture with these things in it."""
    return Frame(np.zeros((0, 0, 3), np.uint8), tuple(SceneObject(*one) for one in objects))


def detections(*found: tuple[str, tuple[float, float, float, float], float]) -> Detections:
    """Return detections, by the classes of the drawn cells."""
    return Detections(
        np.array([box for _, box, _ in found], np.float32).reshape(-1, 4),
        np.array([score for _, _, score in found], np.float32),
        np.array([CLASSES.index(label) for label, _, _ in found], np.int64))


def figures(
    truths: Sequence[Frame], found: Sequence[Detections],
) -> tuple[float, float]:
    """Return mAP50 and mAP50-95."""
    made = average_precision(truths, found, CLASSES)
    return made.map50, made.map50_95


def test_all_found_is_one() -> None:
    """Every thing with its very box."""
    truths = [frame(('square', BOX, 1.0)), frame(('gripper', BOX, 0.5))]
    found = [detections(('square', BOX, 0.9)), detections(('gripper', BOX, 0.3))]
    assert figures(truths, found) == pytest.approx((1.0, 1.0))


def test_nothing_found_is_zero() -> None:
    """No detection at all, and only wrong ones."""
    truths = [frame(('square', BOX, 1.0))]
    assert figures(truths, [detections()]) == (0.0, 0.0)
    assert figures(truths, [detections(('circle', BOX, 0.9))]) == (0.0, 0.0)


def test_half_of_the_things_found() -> None:
    """51 of COCO's 101 recall levels are reached."""
    truths = [frame(('square', BOX, 1.0)), frame(('square', BOX, 1.0))]
    found = [detections(('square', BOX, 0.9)), detections()]
    assert figures(truths, found) == pytest.approx((51 / 101, 51 / 101))


def test_a_loose_box_counts_at_low_overlap_only() -> None:
    """An IoU of 0.8: found at 0.5 to 0.8, seven of the ten thresholds."""
    loose = (100.0, 100.0, 200.0, 180.0)
    made = figures([frame(('square', BOX, 1.0))], [detections(('square', loose, 0.9))])
    assert made == pytest.approx((1.0, 0.7), abs=0.11)
    assert made[0] == pytest.approx(1.0)


def test_a_wrong_one_that_is_surer_halves_precision() -> None:
    """The first of two detections is of nothing."""
    found = detections(('square', (300.0, 300.0, 400.0, 400.0), 0.9), ('square', BOX, 0.5))
    assert figures([frame(('square', BOX, 1.0))], [found])[0] == pytest.approx(0.5)


def test_what_hardly_shows_counts_neither_way() -> None:
    """Found or not, the figures are those of the rest."""
    hidden = (300.0, 300.0, 400.0, 400.0)
    truths = [frame(('square', BOX, 1.0), ('square', hidden, 0.1))]
    without = figures(truths, [detections(('square', BOX, 0.9))])
    with_it = figures(truths, [detections(('square', hidden, 0.95), ('square', BOX, 0.9))])
    assert without == with_it == pytest.approx((1.0, 1.0))


def test_nothing_to_find_is_said() -> None:
    """Rather than a figure about nothing."""
    with pytest.raises(ValueError, match='nothing to find'):
        figures([frame()], [detections()])


def test_a_detector_of_other_classes_is_refused() -> None:
    """COCO's, for example."""
    detector = create_detector(DetectorSpec('emulated', options={'class_names': ['person']}))
    with pytest.raises(DetectorError, match="knows no 'square'; its classes are person"):
        check_classes(detector)


class Oracle:
    """Detects what it was told, picture by picture, under class ids of its own."""

    class_names = ('dog', *reversed(CLASSES))

    def __init__(self, frames: Sequence[Frame]) -> None:
        """Know the pictures."""
        self._frames = {frame.image.tobytes(): frame for frame in frames}

    def detect(self, image: np.ndarray) -> Detections:
        """Return everything in the picture."""
        things = self._frames[image.tobytes()].objects
        return Detections(
            np.array([thing.box for thing in things], np.float32).reshape(-1, 4),
            np.full(len(things), 0.9, np.float32),
            np.array([self.class_names.index(thing.label) for thing in things], np.int64))


def test_classes_are_matched_by_name() -> None:
    """The order of a detector's classes is its own."""
    sampler = CellSampler(HELD_OUT_SEED, ((160, 120),))
    frames = [sampler.frame(index) for index in range(24)]
    made = measure(Oracle(frames), frames)  # type: ignore[arg-type]
    assert made.map50 == made.map50_95 == pytest.approx(1.0)
    assert made.frames == 24 and made.objects > 24
