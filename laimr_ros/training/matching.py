"""Which detection is which thing of one picture, to count what was found, missed and made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laimr_ros.cameras.scene import SceneObject
from laimr_ros.training.accuracy import MIN_VISIBLE

Box = tuple[float, float, float, float]
Found = tuple[str, float, Box]


@dataclass
class Tally:
    """
    Counts over pictures.

    :param found: things that were detected.
    :param missed: things that were not.
    :param wrong: detections of nothing that is there.
    """

    found: int = 0
    missed: int = 0
    wrong: int = 0

    @property
    def objects(self) -> int:
        """Return how many things were to be found."""
        return self.found + self.missed

    @property
    def recall(self) -> float | None:
        """Return the part of the things that was found, 0 to 1; None without any."""
        return self.found / self.objects if self.objects else None

    @property
    def precision(self) -> float | None:
        """Return the part of the detections that was right, 0 to 1; None without any."""
        made = self.found + self.wrong
        return self.found / made if made else None

    def add(self, other: Tally) -> None:
        """Add another's counts."""
        self.found += other.found
        self.missed += other.missed
        self.wrong += other.wrong


def match(
    truth: Sequence[SceneObject], detections: Sequence[Found], min_iou: float = 0.5,
) -> Tally:
    """
    Match one picture's detections to what is in it, the surest first.

    A detection takes the thing of its class that it overlaps most, if nothing surer took it. What
    hardly shows (:data:`~laimr_ros.training.accuracy.MIN_VISIBLE`) counts neither way.

    :param truth: what is in the picture.
    :param detections: class name, score and box (x1, y1, x2, y2 in pixels) of each.
    :param min_iou: overlap from which a detection counts as found, 0 to 1.
    """
    tally = Tally()
    taken: set[int] = set()
    for label, _, box in sorted(detections, key=lambda one: -one[1]):
        overlaps = [
            (iou(box, thing.box), number) for number, thing in enumerate(truth)
            if thing.label == label and number not in taken]
        best, number = max(overlaps, default=(0.0, -1))
        if best < min_iou:
            tally.wrong += 1
            continue
        taken.add(number)
        if truth[number].visible_fraction >= MIN_VISIBLE:
            tally.found += 1
    tally.missed = sum(
        thing.visible_fraction >= MIN_VISIBLE and number not in taken
        for number, thing in enumerate(truth))
    return tally


def iou(one: Box, other: Box) -> float:
    """Return the intersection over the union of two boxes, 0 to 1."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    common = width * height
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return common / (areas - common)
