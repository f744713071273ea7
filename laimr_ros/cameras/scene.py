"""A drawn CloudGripper cell, as its base camera shows it, with the truth about what is in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import cv2
from laimr_ros.cameras.background import draw_background
from laimr_ros.cameras.gantry import draw_gantry, draw_gripper
from laimr_ros.cameras.lens import BASE_CAMERA, Lens
from laimr_ros.cameras.pen import Pen
from laimr_ros.cameras.plan import FLOOR_MM, GripperPose, Plan, Pose, SHAPES
from laimr_ros.cameras.prints import draw_print, FLOOR_DEPTH_MM
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
# Draws over a picture whose things are marked, by number, in a second image of the same size.
Overlay = Callable[[Image, Image], None]

CLASSES = (*SHAPES, 'gripper')

_GRIPPER_LABEL = 200
_NOISE_FRAMES = 4


@dataclass(frozen=True)
class SceneObject:
    """
    One thing in the picture.

    :param label: its class, of :data:`CLASSES`.
    :param box: x1, y1, x2, y2 in pixels, around what can be seen of it.
    :param visible_fraction: how much of its outline is in the picture and not behind others, 0-1.
    """

    label: str
    box: tuple[float, float, float, float]
    visible_fraction: float


@dataclass(frozen=True)
class Frame:
    """
    One picture and what is in it.

    :param image: uint8, shape (height, width, 3), BGR.
    :param objects: everything of which something can be seen, far things first.
    """

    image: Image
    objects: tuple[SceneObject, ...]


@dataclass(frozen=True)
class Look:
    """
    What may differ from camera to camera and from day to day.

    :param exposure: factor on all brightness.
    :param tint: factors on blue, green and red.
    :param noise: standard deviation of the sensor's noise, in grey levels.
    :param blur_px: standard deviation of the lens's blur, in pixels of a 640x480 image.
    """

    exposure: float = 1.0
    tint: tuple[float, float, float] = (1.0, 1.0, 1.0)
    noise: float = 1.1
    blur_px: float = 0.7


@dataclass(frozen=True)
class State:
    """
    Where everything is.

    :param shapes: name and pose of each printed shape; the last lies in front.
    :param gripper: where the gripper is.
    """

    shapes: tuple[tuple[str, Pose], ...]
    gripper: GripperPose


class Scene:
    """
    One drawn cell. The same seed and time always give the same picture.

    Not thread-safe: one caller at a time.

    :param seed: of the motion and of the small differences between cells.
    :param width: of the pictures, in pixels.
    :param height: of the pictures, in pixels. Where the format is not 4:3 the middle is shown.
    :param shapes: which shapes are in the cell, of ``square``, ``circle`` and ``t_shape``.
    :param look: brightness, noise and blur.
    :param lens: of a camera that is mounted or made otherwise; its size is made to fit.
    :param backdrop: makes what is behind everything of the empty cell's picture, both uint8 of
        shape (height, width, 3).
    :raises ValueError: for a size or a shape that cannot be drawn.
    """

    def __init__(
        self,
        seed: int,
        width: int = 640,
        height: int = 480,
        shapes: tuple[str, ...] = SHAPES,
        look: Look | None = None,
        lens: Lens = BASE_CAMERA,
        backdrop: Callable[[Image], Image] | None = None,
    ) -> None:
        if not (16 <= width <= 8192 and 16 <= height <= 8192):
            raise ValueError(f'a scene of {width}x{height} pixels cannot be drawn; '
                             'set width and height from 16 to 8192')
        unknown = [shape for shape in shapes if shape not in SHAPES]
        if unknown:
            raise ValueError(f'shape {unknown[0]!r} is unknown; use {", ".join(SHAPES)}')
        self.lens = lens.at_size(width, height)
        self._look = Look() if look is None else look
        self._seed = seed % 2**32
        self._shapes = shapes
        self._scale = self.lens.fx / BASE_CAMERA.fx
        self._background = draw_background(self.lens)
        if backdrop is not None:
            self._background = backdrop(self._background)
        self._noise = _noise_frames(width, height, self._look.noise)
        self._glow = self._red_glow()

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height of the pictures, in pixels."""
        return self.lens.width, self.lens.height

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self._seed, self._shapes, self.floor_mm())

    def state(self, time_s: float) -> State:
        """Return where everything is at a time in seconds."""
        poses, gripper = self._plan.at(time_s)
        return State(tuple(zip(self._plan.shapes, poses)), gripper)

    def draw(self, time_s: float) -> Frame:
        """Return the picture at a time in seconds; any origin will do, the epoch's too."""
        # A different noise 60 times a second, yet the same at the same time.
        return self.draw_state(self.state(time_s), noise_number=int(time_s * 60) % 2**31)

    def draw_state(
        self, state: State, noise_number: int = 0, overlay: Overlay | None = None,
    ) -> Frame:
        """
        Return the picture of things placed by the caller, for example to train a detector.

        :param state: where everything is.
        :param noise_number: which of the noise patterns to use.
        :param overlay: draws what lies in front of everything. In the second image the n-th shape
            is marked with n, from 1, and the gripper with 200; what is covered must become 0.
        """
        image = self._background.copy()
        labels = np.zeros(image.shape[:2], np.uint8)
        pen = Pen(self.lens, image, labels)
        self._add_glow(image, state.gripper)
        pen.begin(0)
        draw_gantry(pen, state.gripper)
        pen.begin(_GRIPPER_LABEL)
        draw_gripper(pen, state.gripper)
        drawn = [(_GRIPPER_LABEL, 'gripper', *pen.extent())]
        for number, (shape, pose) in enumerate(state.shapes, start=1):
            pen.begin(number)
            draw_print(pen, shape, pose, self._seed + number)
            drawn.append((number, shape, *pen.extent()))
        if overlay is not None:
            overlay(image, labels)
        found = (_found(labels, *thing) for thing in drawn)
        return Frame(self._finish(image, noise_number), tuple(o for o in found if o is not None))

    def floor_mm(self) -> tuple[float, float, float, float]:
        """
        Return where shapes may stand: on the floor, and in the picture.

        :returns: x_min, y_min, x_max, y_max of a shape's centre, in millimetres.
        """
        scale = FLOOR_DEPTH_MM / self.lens.fx
        inset = 12.0  # Less than half a shape: some are cut by the border, as in real pictures.
        x0 = max(FLOOR_MM[0], -self.lens.cx * scale + inset)
        y0 = max(FLOOR_MM[1], -self.lens.cy * scale + inset)
        x1 = min(FLOOR_MM[2], (self.lens.width - self.lens.cx) * scale - inset)
        y1 = min(FLOOR_MM[3], (self.lens.height - self.lens.cy) * scale - inset)
        return (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))

    def _red_glow(self) -> Image:
        """Return the faint red light of the gantry's lamp on the wall behind it."""
        side = max(3, round(110 * self._scale))
        across = np.linspace(-2, 2, side)
        light = np.exp(-(across[:, None] ** 2 * 0.7 + across[None, :] ** 2 * 1.6))
        return np.stack([0 * light, 0 * light, 22 * light], axis=2).astype(np.uint8)

    def _add_glow(self, image: Image, gripper: GripperPose) -> None:
        x, y = self.lens.project([(gripper.x + 22.0, 44.0, 237.0)])[0]
        side = self._glow.shape[0]
        left, top = round(x - side / 2), round(y - side / 2)
        x0, y0 = max(left, 0), max(top, 0)
        x1, y1 = min(left + side, image.shape[1]), min(top + side, image.shape[0])
        if x1 > x0 and y1 > y0:
            part = image[y0:y1, x0:x1]
            cv2.add(part, self._glow[y0 - top:y1 - top, x0 - left:x1 - left], dst=part)

    def _finish(self, image: Image, noise_number: int) -> Image:
        look = self._look
        if look.blur_px > 0:
            reach = (3, 3) if self._scale <= 1.2 else (0, 0)
            blurred = cv2.GaussianBlur(image, reach, look.blur_px * self._scale)
            image = np.asarray(blurred, np.uint8)
        if look.exposure != 1.0 or look.tint != (1.0, 1.0, 1.0):
            factors = np.array([*look.tint, 1.0]) * look.exposure
            image = np.asarray(cv2.multiply(image, factors), np.uint8)
        if look.noise > 0:
            plus, minus = self._noise[noise_number % _NOISE_FRAMES]
            cv2.add(image, plus, dst=image)
            cv2.subtract(image, minus, dst=image)
        return image


@lru_cache(maxsize=8)
def _noise_frames(width: int, height: int, deviation: float) -> tuple[tuple[Image, Image], ...]:
    """Return patterns of noise, each to be added and to be taken away: bytes have no sign."""
    random = np.random.default_rng(3)
    frames = []
    for _ in range(_NOISE_FRAMES):
        # Most of a sensor's noise is brightness, the same in all channels.
        noise = random.normal(0, 0.8, (height, width, 1))
        noise = np.round((noise + random.normal(0, 0.6, (height, width, 3))) * deviation)
        plus, minus = noise.clip(0, 255), (-noise).clip(0, 255)
        frames.append((plus.astype(np.uint8), minus.astype(np.uint8)))
    return tuple(frames)


def _found(
    labels: Image, number: int, name: str, box: tuple[float, float, float, float], area: float
) -> SceneObject | None:
    """Return what can be seen of a thing in the labelled image, if anything."""
    height, width = labels.shape
    left, top = max(int(box[0]) - 2, 0), max(int(box[1]) - 2, 0)
    right, bottom = min(int(box[2]) + 3, width), min(int(box[3]) + 3, height)
    if right <= left or bottom <= top:
        return None
    seen = labels[top:bottom, left:right] == number
    count = int(np.count_nonzero(seen))
    if not count:
        return None
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    return SceneObject(
        name,
        (float(left + columns[0]), float(top + rows[0]),
         float(left + columns[-1] + 1), float(top + rows[-1] + 1)),
        min(1.0, count / area),
    )


