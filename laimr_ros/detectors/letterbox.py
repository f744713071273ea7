"""Fit an image of any size into a network's input, and bring boxes back to source pixels."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Letterbox:
    """
    Where an image lies in the network's input; everything in pixels.

    :param source_height: rows of the image.
    :param source_width: columns of the image.
    :param height: rows of the input.
    :param width: columns of the input.
    :param inner_height: rows of the resized image in the input.
    :param inner_width: columns of the resized image in the input.
    :param top: rows of padding above it.
    :param left: columns of padding before it.
    """

    source_height: int
    source_width: int
    height: int
    width: int
    inner_height: int
    inner_width: int
    top: int = 0
    left: int = 0

    def to_source(self, boxes: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """
        Bring boxes from input pixels to source pixels, cut off at the image's border.

        :param boxes: float32, shape (N, 4), ``x1, y1, x2, y2``.
        :return: float32, shape (N, 4).
        """
        # The two sides are rounded each on its own, so each has its own scale.
        scale_x = self.source_width / self.inner_width
        scale_y = self.source_height / self.inner_height
        offset = np.array((self.left, self.top, self.left, self.top), np.float32)
        scale = np.array((scale_x, scale_y, scale_x, scale_y), np.float32)
        limit = np.array((self.source_width, self.source_height) * 2, np.float32)
        moved: npt.NDArray[np.float32] = (boxes - offset) * scale
        return np.clip(moved, np.float32(0.0), limit)


def centred(
    source_height: int, source_width: int, side: tuple[int, int], stride: int, rectangle: bool,
) -> Letterbox:
    """
    Place an image in the middle, as YOLO networks are trained.

    :param source_height: rows of the image, in pixels.
    :param source_width: columns of the image, in pixels.
    :param side: height and width to fit it into, in pixels.
    :param stride: of the network, in pixels.
    :param rectangle: cut the padding down to the next multiple of the stride.
    """
    scale = min(side[0] / source_height, side[1] / source_width)
    inner_height = max(round(source_height * scale), 1)
    inner_width = max(round(source_width * scale), 1)
    pad_height, pad_width = side[0] - inner_height, side[1] - inner_width
    if rectangle:
        pad_height, pad_width = pad_height % stride, pad_width % stride
    # An odd pixel of padding goes below and to the right.
    return Letterbox(
        source_height, source_width, inner_height + pad_height, inner_width + pad_width,
        inner_height, inner_width, pad_height // 2, pad_width // 2)


def top_left(source_height: int, source_width: int, side: tuple[int, int]) -> Letterbox:
    """
    Place an image in the top left corner, as EfficientDet networks are trained.

    :param source_height: rows of the image, in pixels.
    :param source_width: columns of the image, in pixels.
    :param side: height and width of the network's input, in pixels.
    """
    scale = min(side[0] / source_height, side[1] / source_width)
    return Letterbox(
        source_height, source_width, side[0], side[1],
        max(int(source_height * scale), 1), max(int(source_width * scale), 1))


class Canvas:
    """
    The padded image, in RGB. Its memory is used again as long as the geometry stays the same.

    :param colour: red, green and blue of the padding, 0 to 255.
    """

    def __init__(self, colour: tuple[int, int, int]) -> None:
        self._colour = colour
        self._letterbox: Letterbox | None = None
        self._pixels = np.zeros((0, 0, 3), np.uint8)

    def draw(self, image: npt.NDArray[np.uint8], letterbox: Letterbox) -> npt.NDArray[np.uint8]:
        """
        Return the network's input; valid until the next call.

        :param image: uint8, shape (source_height, source_width, 3), BGR.
        :param letterbox: where to put it.
        :return: uint8, shape (height, width, 3), RGB.
        """
        if letterbox != self._letterbox:
            self._pixels = np.empty((letterbox.height, letterbox.width, 3), np.uint8)
            self._pixels[:] = self._colour
            self._letterbox = letterbox
        size = (letterbox.inner_width, letterbox.inner_height)
        if image.shape[1::-1] != size:
            image = cv2.resize(  # type: ignore[assignment]
                image, size, interpolation=cv2.INTER_LINEAR)
        inner = self._pixels[
            letterbox.top:letterbox.top + letterbox.inner_height,
            letterbox.left:letterbox.left + letterbox.inner_width]
        # Not as cvtColor's destination: a view of a part is not always written in place.
        inner[:] = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        return self._pixels
