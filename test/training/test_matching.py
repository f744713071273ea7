"""Matching of one picture's detections to what is in it."""

from __future__ import annotations

from laimr_ros.cameras.scene import SceneObject
from laimr_ros.training.matching import iou, match, Tally
import pytest

BOX = (0.0, 0.0, 10.0, 10.0)
APART = (50.0, 0.0, 60.0, 10.0)


def thing(label: str = 'square', box: tuple[float, float, float, float] = BOX,
          visible: float = 1.0) -> SceneObject:
    """Return something in a picture."""
    return SceneObject(label, box, visible)


@pytest.mark.parametrize('other, expected', [
    (BOX, 1.0), (APART, 0.0), ((10.0, 0.0, 20.0, 10.0), 0.0),
    ((5.0, 0.0, 15.0, 10.0), 1 / 3), ((0.0, 0.0, 5.0, 5.0), 0.25),
])
def test_iou(other: tuple[float, float, float, float], expected: float) -> None:
    """Known overlaps, either way round."""
    assert iou(BOX, other) == iou(other, BOX) == pytest.approx(expected)


@pytest.mark.parametrize('found, counts', [
    ([('square', 0.9, BOX)], (1, 1, 0)),
    ([], (0, 2, 0)),
    ([('circle', 0.9, BOX)], (0, 2, 1)),
    ([('square', 0.9, APART)], (1, 1, 0)),
    ([('square', 0.9, BOX), ('square', 0.8, BOX)], (1, 1, 1)),
    ([('square', 0.9, BOX), ('square', 0.8, APART)], (2, 0, 0)),
    ([('square', 0.9, (0.0, 0.0, 10.0, 4.9))], (0, 2, 1)),
])
def test_each_thing_is_found_once(found: list, counts: tuple[int, int, int]) -> None:
    """Same class, half of it overlapped, by one detection."""
    tally = match([thing(), thing(box=APART)], found)
    assert (tally.found, tally.missed, tally.wrong) == counts


def test_the_surest_takes_the_thing() -> None:
    """A less sure one with a better box comes too late."""
    tally = match([thing()], [('square', 0.5, BOX), ('square', 0.9, (0.0, 0.0, 10.0, 8.0))])
    assert (tally.found, tally.wrong) == (1, 1)


def test_what_hardly_shows_counts_neither_way() -> None:
    """Neither found, nor missed, nor made up."""
    truth = [thing(visible=0.2)]
    assert match(truth, []) == match(truth, [('square', 0.9, BOX)]) == Tally()


def test_shares() -> None:
    """Of nothing there is none."""
    tally = Tally()
    assert tally.recall is None and tally.precision is None
    tally.add(Tally(found=3, missed=1, wrong=2))
    assert tally.recall == 0.75 and tally.precision == 0.6 and tally.objects == 4
