"""The lens against OpenCV's own fisheye model."""

from __future__ import annotations

import cv2
from laimr_ros.cameras.lens import BASE_CAMERA
import numpy as np
import pytest


def test_projection_is_opencv_s() -> None:
    random = np.random.default_rng(1)
    points = np.column_stack([random.uniform(-90, 90, (200, 2)), random.uniform(150, 320, 200)])
    lens = BASE_CAMERA
    matrix = np.array([(lens.fx, 0, lens.cx), (0, lens.fy, lens.cy), (0, 0, 1)])
    expected, _ = cv2.fisheye.projectPoints(
        points[:, None], np.zeros(3), np.zeros(3), matrix, np.array(lens.distortion))
    assert lens.project(points) == pytest.approx(expected[:, 0], abs=1e-6)


def test_the_axis_is_the_principal_point() -> None:
    assert BASE_CAMERA.project([(0, 0, 157)])[0] == pytest.approx((298.73, 257.62))


@pytest.mark.parametrize(('width', 'height', 'scale'), [
    (640, 480, 1.0), (1280, 960, 2.0), (1280, 720, 2.0), (300, 700, 700 / 480), (320, 240, 0.5),
])
def test_other_sizes_show_the_middle_of_the_same_picture(
    width: int, height: int, scale: float
) -> None:
    lens = BASE_CAMERA.at_size(width, height)
    assert (lens.width, lens.height) == (width, height)
    points = [(-30.0, 20.0, 157.0), (40.0, -10.0, 237.0)]
    # Measured from the middle of the picture, everything is as far away as the scale says.
    reference = (BASE_CAMERA.project(points) - (319.5, 239.5)) * scale
    assert lens.project(points) - ((width - 1) / 2, (height - 1) / 2) == pytest.approx(reference)


def test_nothing_far_outside_comes_back_into_the_picture() -> None:
    out = np.array([(-float(x), 0.0, 157.0) for x in range(100, 5000, 50)])
    pixels = BASE_CAMERA.project(out)[:, 0]
    assert (np.diff(pixels) < 0).all()
