"""The gantry and the gripper as the base camera sees them: from below, behind the shapes."""

from __future__ import annotations

from functools import lru_cache
import math

from laimr_ros.cameras.pen import Array, ellipse, Pen, rectangle, subdivided
from laimr_ros.cameras.plan import GripperPose
import numpy as np

# Depths from the camera in millimetres, from how the parts shift against each other in real
# pictures; the floor is at prints.FLOOR_DEPTH_MM.
_CHAIN_DEPTH_MM = 300.0
_BEAM_DEPTH_MM = 237.0
_JAWS_DEPTH_MM = 160.0
_LIFT_MM = 30.0

_BEAM_X_MM = 16.5  # The beam runs beside the gripper's axis.
_CHAIN_X_MM = 13.8

_BLACK = (36, 37, 36)
_DARK = (30, 31, 30)
_SERVO = (39, 40, 39)
_RAIL = (62, 63, 62)
_RAIL_LIGHT = (104, 106, 106)
_CHAIN = (98, 34, 24)
_YELLOW = (50, 148, 210)
_YELLOW_SHADE = (44, 124, 202)
_YELLOW_LIGHT = (74, 172, 228)
_CLEAR = (124, 128, 128)
_CLEAR_LIGHT = (206, 209, 209)


@lru_cache(maxsize=256)
def _disc(x: float, y: float, rx: float, ry: float, count: int) -> Array:
    return ellipse(x, y, rx, ry, count)


@lru_cache(maxsize=64)
def _long(x0: float, y0: float, x1: float, y1: float) -> Array:
    return subdivided(rectangle(x0, y0, x1, y1), 24.0)


def draw_gantry(pen: Pen, pose: GripperPose) -> None:
    """Draw the beam, its ends and the cable chain, all of which move along x with the gripper."""
    depth = _CHAIN_DEPTH_MM
    for y in (-112.0, 84.0):
        pen.fill(rectangle(-12, y, 4, y + 29), depth, _BLACK)
    pen.fill(_long(1.4, -90, 4.2, 90), depth, (50, 51, 50))
    # The chain hangs from its bracket below, leans, and turns round beside the carriage.
    top = -56.0 + 0.28 * pose.y
    lean = 4.0 + 0.06 * pose.x
    height = np.linspace(82.0, top, 12)
    centre = -5.0 - lean * ((82.0 - height) / 130.0) ** 2
    pen.fill(np.concatenate([
        np.column_stack([centre - 4.4, height]),
        [(centre[-1] - 2.5, top - 3.0), (centre[-1] + 2.5, top - 3.0)],
        np.column_stack([centre + 4.4, height])[::-1],
    ]), depth, _CHAIN)
    for x, y in zip(centre[:-1], height[:-1]):
        pen.fill(rectangle(x - 1.2, y - 7.0, x + 1.6, y - 3.6), depth, (88, 84, 84))
        pen.fill(rectangle(x - 4.4, y - 0.6, x + 4.4, y + 0.6), depth, (72, 28, 22))
    pen.place(pose.x + _CHAIN_X_MM)

    depth = _BEAM_DEPTH_MM
    pen.fill(_long(-5.0, -88, -3.2, 90), depth, _RAIL_LIGHT)
    pen.fill(_long(-3.6, -88, 3.6, 90), depth, _RAIL)
    for y in range(-76, 80, 15):
        pen.fill(_disc(0.0, y, 0.9, 0.9, 6), depth, (124, 124, 124))
    for sign in (-1, 1):
        reach = sign * 94.0
        inner, neck, foot = (reach - sign * far for far in (39.0, 22.0, 8.0))
        pen.fill(rectangle(-12.0, foot, 8.0, neck + sign * 4), depth, _DARK)
        pen.fill([(-5, inner), (4.8, inner), (5, neck), (9, foot), (9, reach), (-14, reach),
                  (-14, neck + sign * 6), (-5, neck)], depth, _BLACK)
        pen.fill(rectangle(-12, reach - 3, 12, reach + 3), depth, (78, 84, 70))
        pen.fill(rectangle(-8, reach - 2, 8, reach + 2), depth, (112, 114, 114))
        for y in (inner + sign * 5.0, inner + sign * 19.0):
            pen.fill(_disc(0.0, y, 2.5, 2.5, 10), depth, (170, 173, 173))
            pen.fill(_disc(0.4, y + 0.3, 1.1, 1.1, 6), depth, (104, 105, 105))
    # The switch at the lower end.
    pen.fill(rectangle(6, 60, 12, 71), depth, _BLACK)
    pen.place(pose.x + _BEAM_X_MM)


def draw_gripper(pen: Pen, pose: GripperPose) -> None:
    """Draw the carriage and the gripper; everything filled belongs to the gripper."""
    _draw_carriage(pen)
    pen.place(pose.x + _BEAM_X_MM * 0.75, pose.y * 1.02)

    depth = _JAWS_DEPTH_MM + _LIFT_MM * pose.lift
    pen.fill(rectangle(-9, -27, 8, -7), depth + 14, _SERVO)
    pen.fill(rectangle(-8, -26, 7, -12), depth + 14, (45, 46, 45), False)
    pen.fill(rectangle(-13, -9, 13, -4), depth + 8, _BLACK)
    for shift, colour in ((0.0, (60, 60, 150)), (1.3, (70, 190, 220)), (2.4, (40, 70, 110))):
        pen.line([(8, -21 + shift), (13, -19 + shift), (17, -21 + shift), (19, -25 + shift)],
                 depth + 14, colour, 1.2)
    pen.fill(_disc(-0.5, 11, 11.5, 6, 20), depth + 10, (26, 26, 25))
    pen.fill(rectangle(-9, -4, 9, 6), depth + 6, (32, 32, 31))
    # The row of clear posts and the screws in them.
    pen.fill(rectangle(-14, 4.4, 14, 9.6), depth + 5, _CLEAR)
    for post in range(-12, 14, 5):
        pen.fill(rectangle(post, 4.6, post + 1.1, 9.5), depth + 5, _CLEAR_LIGHT, False)
        pen.fill(rectangle(post + 2.2, 4.6, post + 2.9, 9.3), depth + 5, (84, 87, 87), False)
        pen.fill(_disc(post + 1.4, 10.0, 1.5, 0.9, 8), depth + 4, (196, 199, 199), False)
    # From the middle to each jaw.
    half = 6.5 + 8.0 * pose.opening
    for side in (-1, 1):
        tip = side * half
        pen.fill(rectangle(side * 0.5, -7.5, tip + side * 2.0, -3.0), depth + 2, _YELLOW)
        pen.fill(rectangle(side * 0.5, -4.0, tip + side * 2.0, -3.0), depth + 2, _YELLOW_SHADE,
                 False)
        pen.fill(rectangle(tip - side * 1.2, -7, tip + side * 2.0, 7), depth + 1, _YELLOW_LIGHT)
        # A jaw's finger from below: half a disc, its flat towards the other one.
        pen.fill(_half_disc(6.4, 6.6) * (side, 1) + (tip, 1.6), depth, _YELLOW_LIGHT)
        pen.fill(_half_disc(5.0, 5.4) * (side, 1) + (tip + side * 0.4, 1.4), depth,
                 _YELLOW_SHADE, False)
    pen.place(pose.x, pose.y, pose.angle)


def _draw_carriage(pen: Pen) -> None:
    """Draw what rides on the beam and does not turn with the jaws."""
    depth = _BEAM_DEPTH_MM - 22.0
    pen.fill(rectangle(-10, -14, 10, 16), depth + 18, (34, 35, 34))
    pen.fill(rectangle(6, -10, 12, 10), depth + 16, (66, 76, 58))
    pen.fill(rectangle(7.5, -7, 10.5, 7), depth + 16, (64, 70, 72), False)
    pen.fill(rectangle(-28, -20, -14, 2), depth + 12, _BLACK)
    pen.fill(rectangle(-25, -14, -18, 20), depth + 6, _YELLOW)
    pen.fill(rectangle(-25, -2, -21, 12), depth + 6, (40, 66, 104), False)
    for shift, colour in ((0.0, (46, 80, 140)), (1.6, (60, 130, 190)), (3.0, (30, 40, 56))):
        pen.line([(-28 + shift, -10), (-27 + shift, -16 - shift), (-23 + shift, -17 - shift),
                  (-20 + shift, -12), (-17 + shift, -6)], depth + 8, colour, 1.5)
    pen.line([(-16, 16), (-17, 22), (-20, 27)], depth + 8, (70, 180, 225), 1.5)
    pen.line([(-14, 16), (-15, 22), (-18, 27)], depth + 8, (90, 80, 190), 1.2)


@lru_cache(maxsize=8)
def _half_disc(rx: float, ry: float) -> Array:
    turn = np.linspace(-math.pi / 2, math.pi / 2, 12)
    return np.stack([rx * np.cos(turn), ry * np.sin(turn)], axis=1)
