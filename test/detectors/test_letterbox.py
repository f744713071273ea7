"""Tests of `laimr_ros.detectors.letterbox`, against the libraries whose networks are run."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from laimr_ros.detectors.letterbox import Canvas, centred, Letterbox, top_left
import numpy as np
import pytest

sizes = st.integers(1, 1200)


@settings(max_examples=40, deadline=None)
@given(sizes, sizes, st.booleans())
@example(700, 300, True)
@example(1, 1, True)
@example(1, 900, True)
@example(1079, 1919, False)
def test_pixels_are_those_of_ultralytics(height: int, width: int, rectangle: bool) -> None:
    augment = pytest.importorskip(
        'ultralytics.data.augment', reason='pip install ultralytics-opencv-headless')
    random = np.random.default_rng(height * 7 + width)
    image = random.integers(0, 256, (height, width, 3), np.uint8)
    expected = augment.LetterBox((640, 640), auto=rectangle, stride=32)(image=image)
    letterbox = centred(height, width, (640, 640), 32, rectangle)
    drawn = Canvas((114, 114, 114)).draw(image, letterbox)
    assert np.array_equal(drawn, expected[..., ::-1])


@settings(max_examples=100, deadline=None)
@given(sizes, sizes, st.booleans(), st.floats(0, 1), st.floats(0, 1))
def test_a_point_comes_back(
    height: int, width: int, middle: bool, across: float, down: float,
) -> None:
    letterbox = centred(height, width, (640, 640), 32, True) if middle else top_left(
        height, width, (640, 640))
    # Where a share of the image lies in the input follows from the geometry alone.
    x = letterbox.left + across * letterbox.inner_width
    y = letterbox.top + down * letterbox.inner_height
    box = letterbox.to_source(np.array([[x, y, x, y]], np.float32))[0]
    assert box == pytest.approx([across * width, down * height] * 2, abs=0.01 + 1e-3 * max(
        width / letterbox.inner_width, height / letterbox.inner_height))


def test_boxes_are_cut_off_at_the_border() -> None:
    letterbox = centred(300, 700, (640, 640), 32, True)
    boxes = letterbox.to_source(np.array([[-50, -50, 9000, 9000]], np.float32))
    assert boxes.tolist() == [[0, 0, 700, 300]]


def test_rectangle_is_the_smallest_multiple_of_the_stride() -> None:
    letterbox = centred(300, 700, (640, 640), 32, True)
    assert (letterbox.height, letterbox.width) == (288, 640)
    assert centred(300, 700, (640, 640), 32, False).height == 640


def test_canvas_is_used_again_and_repainted_when_the_geometry_changes() -> None:
    canvas = Canvas((1, 2, 3))
    small = Letterbox(2, 2, 4, 4, 2, 2)
    first = canvas.draw(np.full((2, 2, 3), 9, np.uint8), small)
    assert canvas.draw(np.full((2, 2, 3), 8, np.uint8), small) is first
    assert first[0, 0].tolist() == [8, 8, 8] and first[3, 3].tolist() == [1, 2, 3]
    other = canvas.draw(np.full((2, 2, 3), 7, np.uint8), Letterbox(2, 2, 4, 4, 2, 2, 2, 2))
    assert other[0, 0].tolist() == [1, 2, 3] and other[3, 3].tolist() == [7, 7, 7]


def test_colours_become_rgb() -> None:
    image = np.zeros((4, 4, 3), np.uint8)
    image[:] = (10, 20, 30)
    drawn = Canvas((0, 0, 0)).draw(image, top_left(4, 4, (8, 8)))
    assert (drawn == (30, 20, 10)).all()
