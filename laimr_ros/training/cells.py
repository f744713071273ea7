"""Drawn cells of every kind, with the truth about them: what detectors learn from."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
import math

import cv2
from laimr_ros.cameras.lens import BASE_CAMERA, Lens
from laimr_ros.cameras.plan import GripperPose, Pose, REACH_MM, SHAPES
from laimr_ros.cameras.scene import Frame, Image, Look, Scene, State
from laimr_ros.training.disturbances import Clutter, Light, Sensor
import numpy as np

# Detectors are trained on seeds below and judged on this one and those above.
HELD_OUT_SEED = 1_000_000

# Width and height: the testbed's base camera most of all, its top camera, and odd ones.
SIZES = (
    (640, 480), (640, 480), (640, 480), (640, 480), (1280, 720), (800, 600), (300, 700),
    (640, 480), (640, 480), (640, 640), (480, 640), (640, 360),
)

# So many pictures in turn show one cell: making it costs more than drawing into it.
FRAMES_A_CELL = 8
_APART_MM = 31.0  # Prints stand on the floor, so they touch at most; corners may.


class CellSampler:
    """
    An endless set of labelled pictures. The same seed and index always give the same picture.

    What varies: which shapes there are and where, the gripper, the lens and how it is mounted,
    the wall behind, clutter, cables and ropes, light, shadows, glow and colours, blur, noise and
    compression, and the picture's size.

    :param seed: of everything; training takes those below :data:`HELD_OUT_SEED`.
    :param sizes: width and height of the pictures, in pixels, taken in turn a cell each.
    :param keep: how many cells to keep in memory, for pictures that are not asked for in turn.
    """

    def __init__(
        self, seed: int, sizes: tuple[tuple[int, int], ...] = SIZES, keep: int = 2,
    ) -> None:
        self._seed = seed
        self._sizes = sizes
        self._cell = lru_cache(keep)(self._make_cell)

    def frame(self, index: int) -> Frame:
        """Return one picture and what is in it; any index from 0 up."""
        return self._cell(index // FRAMES_A_CELL).frame(index)

    def _make_cell(self, number: int) -> _Cell:
        return _Cell(self._seed, number, *self._sizes[number % len(self._sizes)])


class _Cell:
    """One cell and its camera, from which several pictures are taken."""

    def __init__(self, seed: int, number: int, width: int, height: int) -> None:
        random = np.random.default_rng([seed, number, 11])
        self._seed = seed
        self._light = Light(random, width, height)
        self._sensor = Sensor(random)
        self._clutter = Clutter(random, width, height)
        # Blur and noise come after what lies in front, so not from the scene.
        self._scene = Scene(
            int(random.integers(2**31)), width, height,
            look=Look(noise=0.0, blur_px=0.0), lens=_lens(random), backdrop=self._clutter.behind)
        self._mirror = int(random.integers(4))

    def frame(self, index: int) -> Frame:
        """Return one picture."""
        random = np.random.default_rng([self._seed, index, 12])
        drawn = self._scene.draw_state(
            _state(random, self._scene.floor_mm()),
            overlay=lambda image, labels: self._cover(random, image, labels))
        image = self._light.shine(drawn.image)
        image = self._sensor.record(random, image)
        return _mirrored(replace(drawn, image=image), self._mirror)

    def _cover(self, random: np.random.Generator, image: Image, labels: Image) -> None:
        self._light.paint(random, image, labels)
        self._clutter.in_front(random, image, labels)


def _lens(random: np.random.Generator) -> Lens:
    """Return a lens a little different, and not quite in the middle."""
    zoom = float(random.uniform(0.72, 1.3))
    return replace(
        BASE_CAMERA,
        fx=BASE_CAMERA.fx * zoom * float(random.uniform(0.97, 1.03)),
        fy=BASE_CAMERA.fy * zoom,
        cx=BASE_CAMERA.cx + float(random.normal(0.0, 22.0)),
        cy=BASE_CAMERA.cy + float(random.normal(0.0, 18.0)))


def _state(
    random: np.random.Generator, floor: tuple[float, float, float, float],
) -> State:
    """Return shapes and a gripper anywhere."""
    count = int(random.choice([0, 1, 2, 3, 4], p=[0.03, 0.37, 0.25, 0.25, 0.10]))
    placed: list[tuple[str, Pose]] = []
    for _ in range(count):
        name = SHAPES[int(random.integers(len(SHAPES)))]
        for _ in range(20):
            pose = Pose(
                float(random.uniform(floor[0], floor[2])),
                float(random.uniform(floor[1], floor[3])),
                float(random.uniform(-math.pi, math.pi)))
            if all(math.hypot(pose.x - p.x, pose.y - p.y) > _APART_MM for _, p in placed):
                placed.append((name, pose))
                break
    x0, y0, x1, y1 = REACH_MM
    gripper = GripperPose(
        float(random.uniform(x0, x1)), float(random.uniform(y0, y1)),
        float(random.uniform(-math.pi, math.pi)),
        0.0 if random.random() < 0.4 else float(random.uniform(0.0, 1.0)),
        float(random.uniform(0.0, 1.0)))
    if placed and random.random() < 0.4:
        # As when it pushes: beside a shape, some of it behind that.
        near = placed[int(random.integers(len(placed)))][1]
        turn, reach = random.uniform(0, 2 * math.pi), random.uniform(14.0, 26.0)
        gripper = replace(
            gripper, x=near.x + float(reach * math.cos(turn)),
            y=near.y + float(reach * math.sin(turn)), lift=0.0)
    elif random.random() < 0.06:
        gripper = replace(gripper, x=240.0)  # Out of the picture.
    return State(tuple(placed), gripper)


def _mirrored(frame: Frame, how: int) -> Frame:
    """Return a picture mirrored left to right (1), upside down (2), both (3) or neither (0)."""
    if how == 0:
        return frame
    image = np.ascontiguousarray(cv2.flip(frame.image, {1: 1, 2: 0, 3: -1}[how]), np.uint8)
    height, width = image.shape[:2]
    objects = []
    for thing in frame.objects:
        x0, y0, x1, y1 = thing.box
        if how & 1:
            x0, x1 = width - x1, width - x0
        if how & 2:
            y0, y1 = height - y1, height - y0
        objects.append(replace(thing, box=(x0, y0, x1, y1)))
    return Frame(image, tuple(objects))
