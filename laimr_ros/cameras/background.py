"""
What never moves in the cell: walls, light strips, extrusions, belts, fans.

Shapes are given in pixels of a 640x480 image, and drawn once, enlarged and then averaged down.
"""

from __future__ import annotations

from functools import lru_cache

import cv2
from laimr_ros.cameras.lens import BASE_CAMERA, Lens
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Points = list[tuple[float, float]]
Colour = tuple[int, int, int]

_SHIFT = 4  # OpenCV draws with coordinates in sixteenths of a pixel.


class _Canvas:
    """An image drawn on in reference pixels, larger than wanted so that edges come out smooth."""

    def __init__(self, scale: float, left: float, top: float, width: int, height: int) -> None:
        self._scale, self._left, self._top = scale, left, top
        self.image: Image = np.zeros((height, width, 3), np.uint8)

    def _fixed(self, points: npt.ArrayLike) -> npt.NDArray[np.int32]:
        xy = (np.asarray(points, float) + 0.5) * self._scale - [self._left, self._top] - 0.5
        return np.round(xy * (1 << _SHIFT)).astype(np.int32)

    def fill(self, points: Points, colour: Colour) -> None:
        """Fill a polygon."""
        cv2.fillPoly(self.image, [self._fixed(points)], colour, cv2.LINE_AA, _SHIFT)

    def band(self, upper: Points, lower: Points, colour: Colour) -> None:
        """Fill what lies between two smooth curves through the given points."""
        self.fill([*_curve(upper), *_curve(lower)[::-1]], colour)

    def line(self, points: Points, colour: Colour, width: float) -> None:
        """Draw a smooth curve through the given points."""
        cv2.polylines(self.image, [self._fixed(_curve(points))], False, colour,
                      max(1, round(width * self._scale)), cv2.LINE_AA, _SHIFT)

    def disc(self, x: float, y: float, rx: float, ry: float, colour: Colour) -> None:
        """Fill an ellipse with upright axes."""
        turn = np.linspace(0, 2 * np.pi, 48, endpoint=False)
        self.fill(list(zip(x + rx * np.cos(turn), y + ry * np.sin(turn))), colour)

    def soften(self, x0: float, y0: float, x1: float, y1: float, pixels: float) -> None:
        """Blur a rectangle, as what is out of focus or glares."""
        corners = self._fixed([(x0, y0), (x1, y1)]) >> _SHIFT
        (left, top), (right, bottom) = np.maximum(corners, 0)
        part = self.image[top:bottom, left:right]
        if part.size:
            part[:] = cv2.GaussianBlur(part, (0, 0), pixels * self._scale)


def _curve(points: Points, count: int = 24) -> list[tuple[float, float]]:
    """Return a smooth curve through two, three or more points: a quadratic fit by chord."""
    if len(points) < 3:
        return points
    xy = np.asarray(points, float)
    along = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(xy, axis=0).T))])
    degree = min(len(points) - 1, 3)
    fine = np.linspace(0, along[-1], count)
    return list(zip(*(np.polyval(np.polyfit(along, xy[:, axis], degree), fine)
                      for axis in (0, 1))))


@lru_cache(maxsize=8)
def draw_background(lens: Lens) -> Image:
    """
    Return the empty cell; the same array for the same lens, so it cannot be written to.

    :param lens: gives the size, and the part of the reference image that is seen.
    :returns: uint8, shape (height, width, 3), BGR.
    """
    scale = lens.fx / BASE_CAMERA.fx
    finer = 2
    canvas = _Canvas(
        scale * finer,
        (BASE_CAMERA.width * scale - lens.width) / 2 * finer,
        (BASE_CAMERA.height * scale - lens.height) / 2 * finer,
        lens.width * finer, lens.height * finer,
    )
    canvas.image[:] = _wall(lens, finer)
    _left(canvas)
    _top(canvas)
    _bottom(canvas)
    _right(canvas)
    _belts(canvas)
    size = (lens.width, lens.height)
    image = np.asarray(cv2.resize(canvas.image, size, interpolation=cv2.INTER_AREA), np.uint8)
    image.setflags(write=False)
    return image


def _wall(lens: Lens, finer: int) -> Image:
    """Return the grey sheet behind everything, lighter in the middle."""
    width, height = lens.width * finer, lens.height * finer
    scale = lens.fx / BASE_CAMERA.fx * finer
    left = (BASE_CAMERA.width * scale - width) / 2
    top = (BASE_CAMERA.height * scale - height) / 2
    x = (np.arange(width, dtype=np.float32) + left) / scale
    y = ((np.arange(height, dtype=np.float32) + top) / scale)[:, None]
    # Light falls in from above and below; the sheet is brightest left of the middle.
    grey = 92 + 88 * np.exp(-(((x - 245) / 210) ** 2 + ((y - 262) / 190) ** 2) / 1.6)
    grey = grey + 3 * np.exp(-((y - 205) / 16) ** 2) - 4 * np.exp(-((y - 148) / 16) ** 2)
    grey = grey + 6 * np.exp(-((y - 425) / 22) ** 2) - 4 * np.exp(-((y - 372) / 18) ** 2)
    return np.repeat(grey[:, :, None], 3, axis=2).clip(0, 255).astype(np.uint8)


def _left(canvas: _Canvas) -> None:
    """Draw the wall, the double extrusion and the belts at the left."""

    def edge(top: float, middle: float, bottom: float) -> Points:
        return [(top, 60), (middle, 250), (bottom, 460)]

    canvas.band([(-10, -10), (-10, 500)], [(38, 55), (17, 255), (37, 455)], (203, 204, 205))
    canvas.fill([(-10, 500), (-10, 430), (22, 440), (40, 470), (10, 500)], (176, 177, 178))
    canvas.soften(-10, 400, 24, 490, 6.0)
    for edges, colour in (
        ((edge(36, 17, 34), edge(43, 26, 42)), (122, 124, 125)),
        ((edge(43, 26, 42), edge(52, 34, 50)), (158, 160, 160)),
        ((edge(50, 33, 47), edge(53, 37, 51)), (98, 101, 100)),
        ((edge(53, 37, 51), edge(58, 45, 58)), (170, 172, 172)),
        ((edge(57, 44, 55), edge(60, 47, 59)), (128, 132, 131)),
        ((edge(60, 47, 59), edge(70, 58, 66)), (172, 172, 173)),
        ((edge(68, 57, 64), edge(82, 68, 80)), (116, 117, 118)),
        ((edge(78, 66, 76), edge(83, 71, 81)), (34, 35, 35)),
        ((edge(84, 71, 82), edge(86, 73, 84)), (110, 108, 112)),
        ((edge(86, 73, 84), edge(90, 77, 91)), (30, 31, 31)),
        ((edge(90, 77, 91), edge(104, 87, 98)), (148, 145, 146)),
        ((edge(104, 87, 98), edge(106, 89, 100)), (84, 88, 86)),
    ):
        canvas.band(*edges, colour)


def _top(canvas: _Canvas) -> None:
    """Draw the upper wall, its two light strips and the extrusion under them."""
    canvas.fill([(-10, -10), (650, -10), (650, 10), (552, 66), (320, 48), (60, 62)],
                (162, 162, 163))
    # The extrusion from the corner of the picture to that of the frame.
    canvas.fill([(-10, -6), (22, -6), (78, 48), (50, 62)], (150, 151, 151))
    for y in (0, 14, 27):
        canvas.line([(-6, y - 12), (52, y + 36 - y * 0.3)], (104, 105, 105), 1.6)
    canvas.line([(12, -6), (74, 50)], (196, 197, 197), 3.0)
    # Shade between and beside the strips.
    canvas.band([(101, 14), (200, 2), (320, -2), (440, 8), (550, 30)],
                [(101, 22), (200, 11), (320, 6), (440, 14), (550, 36)], (128, 127, 130))
    canvas.band([(60, 36), (180, 32), (300, 23), (420, 27), (560, 46)],
                [(60, 62), (180, 46), (300, 38), (420, 43), (560, 68)], (106, 106, 107))
    canvas.band([(77, -6), (200, -9), (320, -10), (440, -6), (579, 8)],
                [(90, 9), (200, -2), (320, -6), (440, 0), (566, 20)], (252, 254, 254))
    canvas.soften(60, -10, 600, 30, 1.4)
    canvas.band([(101, 25), (180, 15), (300, 8), (420, 14), (548, 33)],
                [(110, 37), (200, 29), (300, 24), (420, 30), (536, 44)], (252, 254, 254))
    # The extrusion: two bright lips and the groove.
    canvas.band([(60, 46), (180, 37), (300, 30), (420, 35), (555, 52)],
                [(60, 68), (180, 55), (300, 48), (420, 54), (555, 72)], (132, 132, 133))
    canvas.band([(118, 43), (200, 34), (300, 31), (420, 36), (525, 49)],
                [(118, 47), (200, 40), (300, 37), (420, 43), (525, 55)], (250, 252, 252))
    canvas.band([(116, 50), (200, 42), (300, 39), (420, 45), (530, 58)],
                [(116, 56), (200, 50), (300, 48), (420, 54), (530, 66)], (250, 252, 252))
    canvas.soften(62, 34, 150, 64, 2.2)
    canvas.line([(84, 53), (200, 41), (300, 38), (420, 44), (520, 56)], (140, 140, 141), 1.4)
    canvas.band([(60, 66), (180, 56), (300, 49), (420, 55), (552, 72)],
                [(60, 78), (180, 68), (300, 63), (420, 68), (552, 82)], (106, 106, 107))
    canvas.line([(60, 68), (180, 56), (300, 49), (420, 55), (552, 71)], (70, 71, 71), 1.6)
    # Brackets at both ends.
    canvas.fill([(36, 48), (84, 44), (92, 60), (58, 66), (52, 84), (38, 80)], (128, 126, 126))
    for x, y in ((78, 49), (48, 71), (44, 62)):
        canvas.disc(x, y, 3.4, 3.0, (74, 73, 73))
        canvas.disc(x + 1, y, 1.6, 1.4, (186, 186, 186))
    canvas.fill([(508, 46), (552, 54), (556, 70), (522, 66), (506, 56)], (196, 206, 210))
    for x, y in ((516, 58), (530, 60)):
        canvas.disc(x, y, 4.0, 3.4, (78, 82, 84))
        canvas.disc(x - 0.5, y - 1, 2.2, 1.6, (168, 174, 176))


def _bottom(canvas: _Canvas) -> None:
    """Draw the lower extrusion, lit by a strip outside the picture."""
    canvas.fill([(-10, 520), (40, 455), (320, 474), (560, 450), (650, 480), (650, 520)],
                (118, 119, 119))
    canvas.band([(60, 447), (180, 460), (300, 467), (420, 464), (555, 448)],
                [(60, 458), (180, 464), (300, 471), (420, 468), (555, 452)], (88, 89, 89))
    canvas.band([(85, 456), (180, 465), (300, 470), (420, 468), (556, 449)],
                [(85, 462), (180, 472), (300, 478), (420, 476), (556, 460)], (250, 252, 252))
    canvas.band([(85, 465), (180, 475), (300, 481), (420, 479), (540, 464)],
                [(85, 474), (180, 484), (300, 492), (420, 490), (540, 476)], (250, 252, 252))
    canvas.soften(66, 448, 150, 490, 2.4)
    canvas.line([(84, 463), (180, 473), (300, 479), (420, 477), (520, 465)], (138, 139, 139), 1.8)
    canvas.fill([(36, 430), (60, 432), (96, 420), (100, 432), (72, 452), (80, 468), (40, 470)],
                (134, 133, 133))
    for x, y in ((48, 443), (80, 463), (66, 434)):
        canvas.disc(x, y, 3.4, 3.0, (80, 80, 80))
        canvas.disc(x + 1, y, 1.5, 1.3, (190, 190, 190))
    canvas.fill([(508, 462), (552, 449), (580, 470), (560, 476), (545, 462), (512, 472)],
                (188, 198, 202))
    for x, y in ((515, 463), (530, 460), (566, 466)):
        canvas.disc(x, y, 3.8, 3.4, (76, 80, 82))
    # The board by the corner, and its lamp.
    canvas.fill([(516, 408), (525, 408), (525, 446), (508, 444), (508, 418)], (36, 36, 36))
    canvas.line([(526, 410), (525, 440)], (56, 50, 96), 2.0)
    canvas.disc(519, 444, 2.6, 2.4, (60, 70, 250))


def _right(canvas: _Canvas) -> None:
    """Draw the fans, the other camera and the extrusion with its white cable at the right."""
    canvas.fill([(540, 78), (592, 46), (592, 470), (555, 448), (540, 430)], (96, 97, 97))
    canvas.band([(606, -10), (650, -10)], [(606, 490), (650, 490)], (122, 122, 123))
    canvas.fill([(600, 60), (650, 10), (650, 84), (608, 108)], (112, 114, 115))
    canvas.line([(608, 106), (622, 92), (650, 84)], (40, 42, 43), 5.0)
    canvas.fill([(633, 86), (650, 80), (650, 100), (634, 100)], (248, 250, 250))
    canvas.fill([(634, 106), (650, 104), (650, 410), (628, 450), (636, 380)], (244, 247, 246))
    canvas.soften(600, 60, 660, 460, 1.6)
    for x in (525, 533):
        canvas.line([(x, 96), (x + 3, 140)], (30, 31, 31), 3.4)
    canvas.line([(531, 380), (528, 430)], (34, 35, 35), 4.0)
    for top, flip in ((128, False), (296, True)):
        def at(points: Points, top: float = top, flip: bool = flip) -> Points:
            return [(x, top + (92 - y if flip else y)) for x, y in points]

        canvas.fill(at([(517, 20), (524, 12), (588, -4), (624, 6), (632, 40), (628, 84),
                        (598, 96), (528, 94), (519, 84), (515, 54)]), (38, 39, 38))
        canvas.fill(at([(528, 22), (586, 8), (586, 78), (530, 84)]), (33, 34, 33))
        canvas.line(at([(528, 82), (588, 78)]), (52, 54, 52), 1.2)
        canvas.line(at([(528, 24), (560, 14), (584, 8)]), (50, 52, 50), 1.0)
        canvas.disc(600, top + (42 if not flip else 62), 25, 32, (206, 206, 204))
        y = top + (30 if not flip else 40)
        canvas.line([(590, y - 22), (592, y + 8), (595, y + 34)], (128, 88, 62), 3.6)
    canvas.fill([(558, 240), (590, 238), (590, 280), (558, 280)], (74, 88, 62))
    canvas.disc(573, 261, 9, 9, (88, 98, 104))
    canvas.disc(573, 260, 6.5, 6.5, (26, 26, 26))
    canvas.disc(561, 266, 2, 3, (84, 120, 168))

    def edge(top: float, middle: float, bottom: float) -> Points:
        return [(top, 44), (middle, 250), (bottom, 490)]

    for edges, colour in (
        ((edge(579, 594, 574), edge(583, 598, 578)), (138, 140, 140)),
        ((edge(583, 598, 578), edge(588, 603, 584)), (210, 212, 213)),
        ((edge(588, 603, 584), edge(591, 607, 588)), (112, 114, 115)),
        ((edge(591, 607, 588), edge(597, 613, 595)), (246, 248, 248)),
        ((edge(597, 613, 595), edge(599, 615, 597)), (150, 152, 152)),
        ((edge(599, 615, 597), edge(604, 622, 602)), (236, 238, 238)),
    ):
        canvas.band(*edges, colour)
    canvas.line([(575, 40), (640, -16)], (150, 151, 151), 12.0)
    canvas.line([(584, 36), (645, -18)], (84, 85, 86), 2.0)
    canvas.line([(570, 36), (628, -18)], (206, 207, 207), 3.0)
    canvas.fill([(590, 238), (650, 232), (650, 268), (590, 273)], (226, 228, 230))
    canvas.line([(590, 250), (650, 246)], (206, 208, 210), 1.0)


def _belts(canvas: _Canvas) -> None:
    """Draw the belts above and below the working area."""
    dark = (38, 39, 39)
    canvas.line([(90, 79), (180, 71), (280, 69), (400, 76), (525, 85)], dark, 2.4)
    canvas.line([(92, 84), (180, 81), (280, 83), (400, 88), (525, 87)], dark, 2.6)
    canvas.line([(105, 91), (250, 85), (400, 87), (515, 97)], (122, 134, 138), 1.4)
    canvas.line([(92, 433), (180, 442), (300, 449), (400, 447), (515, 436)], dark, 2.6)
    canvas.line([(92, 436), (180, 443), (300, 440), (400, 434), (515, 433)], dark, 2.2)
    canvas.line([(290, 460), (300, 449), (316, 455), (336, 456)], (120, 92, 76), 1.4)
    canvas.disc(92, 90, 5, 5, (88, 88, 88))
    canvas.disc(92, 424, 6, 6, (104, 104, 104))
    canvas.disc(520, 95, 4, 4, (150, 150, 150))
