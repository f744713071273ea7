"""Drawing of parts given in millimetres, as the camera's lens shows them."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
from laimr_ros.cameras.lens import Lens
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Array = npt.NDArray[np.float64]
Colour = tuple[float, float, float]
Box = tuple[float, float, float, float]

_SHIFT = 4
_STEP_MM = 8.0  # Edges are broken into pieces no longer, so that the lens can bend them.


def rectangle(x0: float, y0: float, x1: float, y1: float) -> list[tuple[float, float]]:
    """Return the corners of an upright rectangle."""
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def ellipse(x: float, y: float, rx: float, ry: float, count: int = 20) -> Array:
    """Return points around an upright ellipse, shape (count, 2)."""
    turn = np.linspace(0, 2 * np.pi, count, endpoint=False)
    return np.stack([x + rx * np.cos(turn), y + ry * np.sin(turn)], axis=1)


def subdivided(outline: npt.ArrayLike, step: float = _STEP_MM) -> Array:
    """Return a closed outline with more points: none of its edges is longer than a step."""
    xy = np.asarray(outline, float)
    ends = np.roll(xy, -1, axis=0)
    pieces = np.maximum(np.ceil(np.hypot(*(ends - xy).T) / step).astype(int), 1)
    return np.concatenate([
        start + (end - start) * (np.arange(count) / count)[:, None]
        for start, end, count in zip(xy, ends, pieces)
    ])


def placed(outline: Array, x: float, y: float, angle: float) -> Array:
    """Return an outline turned about its origin, then moved; angle in radians."""
    sine, cosine = np.sin(angle), np.cos(angle)
    return np.asarray(outline @ np.array([(cosine, sine), (-sine, cosine)]) + (x, y))


class Pen:
    """
    Draws on one image; can also mark which pixels belong to which thing.

    Outlines and lines in millimetres wait until :meth:`place`, which projects them all at once:
    one by one, the small arrays would cost more than the drawing.

    :param lens: what the camera sees through.
    :param image: uint8, shape (height, width, 3), BGR, drawn on.
    :param labels: uint8, shape (height, width), gets the number of what is in front.
    """

    def __init__(self, lens: Lens, image: Image, labels: Image) -> None:
        self.lens = lens
        self.image = image
        self.labels = labels
        self._label = 0
        self._marked: list[npt.NDArray[np.int32]] = []
        # What waits: points, depth, colour, whether it is marked, width of a line or 0.
        self._waiting: list[tuple[npt.ArrayLike, float, Colour, bool, float]] = []

    def begin(self, label: int) -> None:
        """Begin a thing: what is drawn from now on is marked with its number, 0 for none."""
        self._label = label
        self._marked = []

    def fill(
        self, outline: npt.ArrayLike, depth: float, colour: Colour, mark: bool = True
    ) -> None:
        """
        Fill an outline, when it is placed.

        :param outline: shape (N, 2), in millimetres.
        :param depth: from the camera, in millimetres.
        :param mark: false where it lies within what is marked already.
        """
        self._waiting.append((outline, depth, colour, mark, 0.0))

    def line(
        self, points: Sequence[tuple[float, float]], depth: float, colour: Colour, width_mm: float
    ) -> None:
        """Draw an open line, when it is placed; it is never marked, being a wire or a belt."""
        self._waiting.append((points, depth, colour, False, width_mm))

    def place(self, x: float = 0.0, y: float = 0.0, angle: float = 0.0) -> None:
        """Draw what waits, in order, turned about its origin and moved to a place."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        counts = [len(item[0]) for item in waiting]  # type: ignore[arg-type]
        points = placed(np.concatenate([item[0] for item in waiting]), x, y, angle)
        depths = np.repeat([item[1] for item in waiting], counts)
        pixels = to_fixed(self.lens.project(np.column_stack([points, depths])))
        first = 0
        for (_, depth, colour, mark, width), count in zip(waiting, counts):
            part = pixels[first:first + count]
            first += count
            if width:
                thick = max(1, round(width * self.lens.fx / depth))
                cv2.polylines(self.image, [part], False, colour, thick, cv2.LINE_AA, _SHIFT)
            else:
                self.fill_fixed(part, colour, mark)

    def fill_fixed(
        self, pixels: npt.NDArray[np.int32], colour: Colour | None, mark: bool = True
    ) -> None:
        """Fill an outline in sixteenths of pixels at once; without a colour, only mark it."""
        if colour is not None:
            cv2.fillPoly(self.image, [pixels], colour, cv2.LINE_AA, _SHIFT)
        if mark and self._label:
            cv2.fillPoly(self.labels, [pixels], self._label, cv2.LINE_8, _SHIFT)
            self._marked.append(pixels)

    def trace(self, pixels: npt.NDArray[np.int32], colour: Colour, width: int) -> None:
        """Draw a closed line through sixteenths of pixels, its width in pixels."""
        cv2.polylines(self.image, [pixels], True, colour, width, cv2.LINE_AA, _SHIFT)

    def extent(self) -> tuple[Box, float]:
        """
        Return the box of all that was marked since :meth:`begin`, and how many pixels it covers.

        Called before anything is drawn in front. Neither is cut at the border of the image.
        """
        points = np.concatenate(self._marked)
        low = points.min(axis=0) / (1 << _SHIFT)
        high = points.max(axis=0) / (1 << _SHIFT)
        x0, y0 = (np.floor(low) - 1).astype(int).tolist()
        x1, y1 = (np.ceil(high) + 2).astype(int).tolist()
        height, width = self.labels.shape
        if x0 >= 0 and y0 >= 0 and x1 <= width and y1 <= height:
            area = int(np.count_nonzero(self.labels[y0:y1, x0:x1] == self._label))
        else:
            mask = np.zeros((y1 - y0, x1 - x0), np.uint8)
            for outline in self._marked:
                shifted = outline - np.array([x0, y0], np.int32) * (1 << _SHIFT)
                cv2.fillPoly(mask, [shifted], 1, cv2.LINE_8, _SHIFT)
            area = cv2.countNonZero(mask)
        return (float(low[0]), float(low[1]), float(high[0]), float(high[1])), float(area)


def to_fixed(pixels: Array) -> npt.NDArray[np.int32]:
    """Return pixels in sixteenths, kept far from what OpenCV's integers can hold."""
    return np.round(np.clip(pixels, -16000, 16000) * (1 << _SHIFT)).astype(np.int32)


def coverage(pixels: npt.NDArray[np.int32], left: int, top: int, width: int, height: int) -> Image:
    """
    Return how much of each pixel of a part of the image an outline covers, 0 to 255.

    :param pixels: the outline, in sixteenths of pixels.
    """
    mask = np.zeros((height, width), np.uint8)
    shifted = pixels - np.array([left, top], np.int32) * (1 << _SHIFT)
    cv2.fillPoly(mask, [shifted], 255, cv2.LINE_AA, _SHIFT)
    return mask
