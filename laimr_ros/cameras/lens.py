"""The fisheye lens of the base camera: points of the cell to pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Angle from the axis, in radians, beyond which a calibrated polynomial may turn back: what lies
# further out must not come into the picture again, and is taken to go on evenly.
_WIDEST = 0.75


@dataclass(frozen=True)
class Lens:
    """
    A fisheye lens in OpenCV's model, which ROS calls ``equidistant``.

    :param width: of the image, in pixels.
    :param height: of the image, in pixels.
    :param fx: focal length along x, in pixels.
    :param fy: focal length along y, in pixels.
    :param cx: principal point, in pixels.
    :param cy: principal point, in pixels.
    :param distortion: k1 to k4, polynomial in the angle from the axis.
    """

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    distortion: tuple[float, float, float, float]

    def project(self, points: npt.ArrayLike) -> Array:
        """
        Return the pixels at which points appear.

        :param points: shape (N, 3), in millimetres; x to the right and y downwards in the image,
            z away from the camera.
        :returns: shape (N, 2), x and y in pixels.
        """
        xyz = np.asarray(points, dtype=np.float64)
        x, y = xyz[:, 0] / xyz[:, 2], xyz[:, 1] / xyz[:, 2]
        radius = np.hypot(x, y)
        wide = np.arctan(radius)
        angle = np.minimum(wide, _WIDEST)
        square = angle * angle
        k1, k2, k3, k4 = self.distortion
        bent = angle * (1 + square * (k1 + square * (k2 + square * (k3 + square * k4))))
        bent += 0.5 * (wide - angle)
        scale = bent / np.maximum(radius, 1e-12)
        return np.stack([self.fx * scale * x + self.cx, self.fy * scale * y + self.cy], axis=1)

    def at_size(self, width: int, height: int) -> Lens:
        """
        Return this lens for another image size: same shapes, the middle part where it is narrower.

        :param width: in pixels.
        :param height: in pixels.
        """
        scale = max(width / self.width, height / self.height)
        # Pixel centres stand at whole numbers, so scaling turns about the corner at -0.5.
        left = (self.width * scale - width) / 2
        top = (self.height * scale - height) / 2
        return replace(
            self, width=width, height=height, fx=self.fx * scale, fy=self.fy * scale,
            cx=(self.cx + 0.5) * scale - 0.5 - left, cy=(self.cy + 0.5) * scale - 0.5 - top,
        )


# Calibrated on one cell (`cr01`) of the CloudGripper rack, with OpenCV's fisheye model.
BASE_CAMERA = Lens(
    640, 480, 504.51, 504.42, 298.73, 257.62, (-0.0960, -0.0501, 0.5812, -1.0125)
)
