"""The red printed shapes, seen from below through the floor: a square, a circle and a T."""

from __future__ import annotations

from functools import lru_cache

import cv2
from laimr_ros.cameras.pen import (
    Array,
    coverage,
    ellipse,
    Image,
    Pen,
    placed,
    subdivided,
    to_fixed,
)
from laimr_ros.cameras.plan import Pose
import numpy as np
import numpy.typing as npt

FLOOR_DEPTH_MM = 157.0  # From the camera to the floor: 30 mm are 97 pixels there.
SIDE_MM = 30.0

_HALF = SIDE_MM / 2
_OUTLINES: dict[str, Array] = {
    'square': np.array([(-15, -15), (15, -15), (15, 15), (-15, 15)], float),
    'circle': ellipse(0, 0, _HALF, _HALF, 40),
    # Strokes of 10 mm: the bar above, the stem under its middle.
    't_shape': np.array([(-15, -15), (15, -15), (15, -5), (5, -5), (5, 15), (-5, 15), (-5, -5),
                         (-15, -5)], float),
}
_FINE = {
    shape: outline if shape == 'circle' else subdivided(outline, 10.0)
    for shape, outline in _OUTLINES.items()
}
_HEIGHT_MM = {'square': 14.0, 'circle': 14.0, 't_shape': 8.0}

_SIDE = (34, 44, 160)
_SIDE_DARK = (22, 28, 108)
_RIM = (34, 44, 178)

_TEXTURE_PX = 96
_MARGIN = 1.15  # The texture reaches a little over the face, for the smooth edge.
_CORNERS = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * (_HALF * _MARGIN)


@lru_cache(maxsize=64)
def texture(shape: str, seed: int) -> Image:
    """
    Return what the lower face looks like: dark in the middle, glowing towards its edges.

    :param shape: ``square``, ``circle`` or ``t_shape``.
    :param seed: of the mottling and of the side from which light comes.
    :returns: uint8, shape (96, 96, 3), BGR; covers the face's box and a little more.
    """
    random = np.random.default_rng([seed, 2, sorted(_OUTLINES).index(shape)])
    size = _TEXTURE_PX
    to_pixels = size / (SIDE_MM * _MARGIN)
    mask = np.zeros((size, size), np.uint8)
    cv2.fillPoly(mask, [np.round(_OUTLINES[shape] * to_pixels + size / 2).astype(np.int32)], 255)
    inside_mm = cv2.distanceTransform(mask, cv2.DIST_L2, 3) / to_pixels
    mottled = np.asarray(cv2.GaussianBlur(random.normal(size=(size, size)), (0, 0), 7))
    mottled = mottled / mottled.std()
    turn = random.uniform(0, 2 * np.pi)
    y, x = np.mgrid[-1:1:size * 1j, -1:1:size * 1j]
    slope = x * np.cos(turn) + y * np.sin(turn)
    glow = np.exp(-inside_mm / 4.0) if shape != 't_shape' else np.exp(-inside_mm / 1.8)
    base = random.uniform(66, 88) if shape != 't_shape' else random.uniform(92, 112)
    red = base + 62 * glow + 5 * mottled + 10 * slope
    rim = np.exp(-((inside_mm - 0.3) / 0.5) ** 2)
    red = red + 34 * rim
    green = 0.19 * red + 6 + 8 * rim
    blue = 0.15 * red + 8 + 6 * rim
    return np.stack([blue, green, red], axis=2).clip(0, 255).astype(np.uint8)


def draw_print(pen: Pen, shape: str, pose: Pose, seed: int) -> None:
    """
    Draw one shape on the floor: its sides as far as they show, then its lower face.

    :param shape: ``square``, ``circle`` or ``t_shape``.
    :param seed: of the face's texture.
    """
    face_mm = placed(_FINE[shape], pose.x, pose.y, pose.angle)
    both = np.concatenate([face_mm, face_mm])
    depths = np.repeat([FLOOR_DEPTH_MM, FLOOR_DEPTH_MM + _HEIGHT_MM[shape]], len(face_mm))
    pixels = pen.lens.project(np.column_stack([both, depths]))
    face, far = np.split(to_fixed(pixels), 2)
    # What is further away appears nearer to the axis: sides show where they look that way. The
    # face covers the others, so all of them may be drawn.
    if shape == 'circle':
        hull = np.asarray(cv2.convexHull(np.concatenate([face, far])), np.int32)
        pen.fill_fixed(hull[:, 0], _SIDE)
    else:
        face_next, far_next = np.roll(face, -1, axis=0), np.roll(far, -1, axis=0)
        along = (face_next - face).astype(float)
        lit = (along[:, 0] * 0.6 + along[:, 1]) / np.maximum(np.hypot(*along.T), 1e-9)
        quads = np.stack([face, face_next, far_next, far], axis=1)
        for quad, light in zip(quads, (0.5 + 0.4 * lit).tolist()):
            b, g, r = (a + (z - a) * light for a, z in zip(_SIDE_DARK, _SIDE))
            pen.fill_fixed(quad, (b, g, r))
    _lay_face(pen, face, pose, texture(shape, seed))
    pen.fill_fixed(face, None)
    pen.trace(face, _RIM, max(1, round(pen.lens.fx / 504.51)))


def _lay_face(pen: Pen, face: npt.NDArray[np.int32], pose: Pose, pattern: Image) -> None:
    """Lay the texture over the face, through a mask with a smooth edge."""
    height, width = pen.labels.shape
    left, top = np.maximum((face.min(axis=0) >> 4) - 2, 0).tolist()
    right, bottom = np.minimum((face.max(axis=0) >> 4) + 3, (width, height)).tolist()
    if right <= left or bottom <= top:
        return
    corners = placed(_CORNERS, pose.x, pose.y, pose.angle)
    depths = np.full(4, FLOOR_DEPTH_MM)
    target = pen.lens.project(np.column_stack([corners, depths])) - (left, top)
    last = _TEXTURE_PX - 1
    source = np.array([(0, 0), (last, 0), (last, last), (0, last)], np.float32)
    warp = cv2.getPerspectiveTransform(source, target.astype(np.float32))
    laid = np.asarray(cv2.warpPerspective(
        pattern, warp, (right - left, bottom - top), borderMode=cv2.BORDER_REPLICATE
    ), np.uint8)
    mask = coverage(face, left, top, right - left, bottom - top)
    part = pen.image[top:bottom, left:right]
    part[:] = _blend(part, laid, mask)


def _blend(under: Image, over: Image, mask: npt.NDArray[np.uint8]) -> Image:
    weight = mask.astype(np.uint16)[:, :, None]
    mixed = over * weight + under * (255 - weight) + 127
    return (mixed // 255).astype(np.uint8)
