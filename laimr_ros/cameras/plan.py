"""How the gripper pushes the printed shapes about: their poses, given seed and time."""

from __future__ import annotations

from dataclasses import dataclass
import math

import numpy as np

SHAPES = ('square', 'circle', 't_shape')

# Where things can stand on the floor, in millimetres from the camera's axis: x_min, y_min, x_max,
# y_max of a shape's centre, and of the gripper's, which reaches further.
FLOOR_MM = (-50.0, -38.0, 56.0, 42.0)
REACH_MM = (-66.0, -46.0, 68.0, 54.0)

_EPISODES = 48
_EPISODE_S = 5.0
_APART_MM = 42.0  # Two shapes of 30 mm, one of them a T seen across its corners.
_CONTACT_MM = 24.0  # From the centre of what is pushed to the gripper's.


@dataclass(frozen=True)
class Pose:
    """
    Where a shape stands.

    :param x: of its centre on the floor, in millimetres from the camera's axis.
    :param y: the same, downwards in the image.
    :param angle: in radians, clockwise in the image.
    """

    x: float
    y: float
    angle: float


@dataclass(frozen=True)
class GripperPose:
    """
    Where the gripper is.

    :param x: of its axis, in millimetres from the camera's axis.
    :param y: the same, downwards in the image.
    :param angle: of its jaws, in radians, clockwise in the image.
    :param lift: 0 at the floor, 1 raised.
    :param opening: 0 closed, 1 open.
    """

    x: float
    y: float
    angle: float
    lift: float
    opening: float


@dataclass(frozen=True)
class _Push:
    """One episode: the gripper goes behind a shape, pushes it somewhere, and lets go."""

    shape: int
    start: Pose
    end: Pose
    gripper_angle: float
    opening: float

    @property
    def direction(self) -> tuple[float, float]:
        dx, dy = self.end.x - self.start.x, self.end.y - self.start.y
        length = math.hypot(dx, dy) or 1.0
        return dx / length, dy / length

    def gripper_at(self, shape: Pose) -> tuple[float, float]:
        """Return where the gripper is while the shape is there."""
        dx, dy = self.direction
        return shape.x - _CONTACT_MM * dx, shape.y - _CONTACT_MM * dy


class Plan:
    """
    What happens in one cell: a closed round of pushes, the same for the same seed.

    :param seed: of everything.
    :param shapes: which shapes lie on the floor, of :data:`SHAPES`.
    :param floor_mm: where their centres may be: x_min, y_min, x_max, y_max in millimetres.
    """

    def __init__(
        self,
        seed: int,
        shapes: tuple[str, ...] = SHAPES,
        floor_mm: tuple[float, float, float, float] = FLOOR_MM,
    ) -> None:
        self.shapes = shapes
        self._floor = floor_mm
        self._random = np.random.default_rng([seed, 1])
        poses = self._first_poses()
        self._offset_s = float(self._random.uniform(0.0, _EPISODES * _EPISODE_S))
        self._pushes: list[_Push] = []
        # The poses at the beginning of each push.
        self._poses: list[tuple[Pose, ...]] = []
        for number in range(_EPISODES):
            self._poses.append(tuple(poses))
            if not shapes:
                continue
            push = self._push(poses, number % len(shapes))
            self._pushes.append(push)
            poses[push.shape] = push.end

    def at(self, time_s: float) -> tuple[tuple[Pose, ...], GripperPose]:
        """
        Return the poses of the shapes, in their order, and of the gripper.

        :param time_s: any time, in seconds. The plan comes round after some minutes; shapes are
            then laid out as in the beginning.
        """
        elapsed = (time_s + self._offset_s) / _EPISODE_S
        number = math.floor(elapsed)
        part = elapsed - number
        number %= _EPISODES
        poses = list(self._poses[number])
        if not self._pushes:
            return (), self._wander(number + part)
        push = self._pushes[number]
        before = self._pushes[number - 1]
        pushing = _ease((part - 0.40) / 0.48)
        shape = Pose(
            push.start.x + (push.end.x - push.start.x) * pushing,
            push.start.y + (push.end.y - push.start.y) * pushing,
            push.start.angle + (push.end.angle - push.start.angle) * pushing,
        )
        poses[push.shape] = shape
        going = _ease(part / 0.32)
        from_x, from_y = before.gripper_at(before.end)
        to_x, to_y = push.gripper_at(push.start)
        here_x, here_y = push.gripper_at(shape)
        turn = _shortest(push.gripper_angle - before.gripper_angle)
        gripper = GripperPose(
            from_x + (to_x - from_x) * going if going < 1 else here_x,
            from_y + (to_y - from_y) * going if going < 1 else here_y,
            before.gripper_angle + turn * going,
            1 - _ease((part - 0.30) / 0.08) + _ease((part - 0.90) / 0.10),
            before.opening + (push.opening - before.opening) * going,
        )
        return tuple(poses), gripper

    def _first_poses(self) -> list[Pose]:
        for _ in range(1000):
            poses = [self._pose() for _ in self.shapes]
            if all(
                math.hypot(a.x - b.x, a.y - b.y) > _APART_MM
                for i, a in enumerate(poses) for b in poses[:i]
            ):
                return poses
        # A floor too small for all of them side by side: they may overlap.
        return poses

    def _push(self, poses: list[Pose], shape: int) -> _Push:
        start = poses[shape]
        others = [pose for index, pose in enumerate(poses) if index != shape]
        push = _Push(shape, start, start, 0.0, 0.5)
        for _ in range(200):
            end = self._pose(start.angle + float(self._random.normal(0.0, 0.8)))
            # Mostly across the push, as when one pushes with a wrist; any angle comes up.
            angle = math.atan2(end.y - start.y, end.x - start.x)
            angle += math.pi / 2 * int(self._random.integers(0, 4))
            angle += float(self._random.normal(0.0, 0.35))
            push = _Push(shape, start, end, angle, float(self._random.uniform(0.0, 1.0)))
            if math.hypot(end.x - start.x, end.y - start.y) < 8.0:
                continue
            if not _inside(push.gripper_at(start), REACH_MM):
                continue
            if not _inside(push.gripper_at(end), REACH_MM):
                continue
            if all(_distance(other, start, end) > _APART_MM for other in others):
                return push
        # Nowhere to go: it only turns where it stands.
        return _Push(shape, start, Pose(start.x, start.y, start.angle + 0.5), push.gripper_angle,
                     push.opening)

    def _pose(self, angle: float | None = None) -> Pose:
        x_min, y_min, x_max, y_max = self._floor
        random = self._random
        return Pose(
            float(random.uniform(x_min, x_max)),
            float(random.uniform(y_min, y_max)),
            float(random.uniform(-math.pi, math.pi)) if angle is None else angle,
        )

    def _wander(self, phase: float) -> GripperPose:
        """Return a gripper that moves over an empty floor; comes round with the plan."""
        turn = 2 * math.pi * phase / _EPISODES
        return GripperPose(
            50.0 * math.sin(7 * turn), 38.0 * math.sin(5 * turn + 1.0), 3 * turn,
            0.5 + 0.5 * math.sin(11 * turn), 0.5 + 0.5 * math.sin(13 * turn),
        )


def _ease(part: float) -> float:
    """Return 0 to 1 with no jump in speed."""
    part = min(max(part, 0.0), 1.0)
    return part * part * (3 - 2 * part)


def _shortest(angle: float) -> float:
    return (angle + math.pi) % (2 * math.pi) - math.pi


def _inside(point: tuple[float, float], box: tuple[float, float, float, float]) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def _distance(pose: Pose, start: Pose, end: Pose) -> float:
    """Return how near a pose comes to the straight way from one to another, in millimetres."""
    dx, dy = end.x - start.x, end.y - start.y
    square = dx * dx + dy * dy
    along = 0.0
    if square:
        along = ((pose.x - start.x) * dx + (pose.y - start.y) * dy) / square
    along = min(max(along, 0.0), 1.0)
    return math.hypot(pose.x - start.x - along * dx, pose.y - start.y - along * dy)
