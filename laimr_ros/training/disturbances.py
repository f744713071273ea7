"""What differs from cell to cell and day to day: clutter, light and the camera's sensor."""

from __future__ import annotations

from functools import lru_cache

import cv2
from laimr_ros.cameras.scene import Image
import numpy as np
import numpy.typing as npt

Field = npt.NDArray[np.float32]

_NOISE_PX = 1024


class Clutter:
    """
    Things without a name, behind what is to be found and in front of it.

    :param random: decides what there is.
    :param width: of the pictures, in pixels.
    :param height: of the pictures, in pixels.
    """

    def __init__(self, random: np.random.Generator, width: int, height: int) -> None:
        self._random = random
        self._width, self._height = width, height
        self._scale = max(width / 640, height / 480)
        self._cables = int(random.integers(0, 4)) if random.random() < 0.6 else 0
        self._colours = [_colour(random) for _ in range(4)]

    def behind(self, empty: Image) -> Image:
        """Return the wall, changed: another texture, things that lie about, cables."""
        random = self._random
        image = empty.copy()
        if random.random() < 0.5:
            share = float(random.uniform(0.15, 1.0))
            flat = _smooth(random, self._width, self._height, int(random.integers(2, 9)))
            wall = flat[:, :, None] * np.asarray(_colour(random), np.float32)
            image = _bytes(image * (1 - share) + wall * share)
        for _ in range(int(random.integers(0, 6)) if random.random() < 0.6 else 0):
            self._thing(image)
        for _ in range(int(random.integers(0, 4))):
            self._cable(random, image, _colour(random), float(random.uniform(2, 12)))
        return image

    def in_front(self, random: np.random.Generator, image: Image, labels: Image) -> None:
        """Draw ropes and cables, and now and then something that hides more."""
        for number in range(self._cables):
            width = float(random.uniform(1.5, 6.0))
            self._cable(random, image, self._colours[number], width, labels)
        if random.random() < 0.15:
            x = int(random.integers(0, self._width))
            y = int(random.integers(0, self._height))
            axes = (np.array(random.uniform(12, 45, 2)) * self._scale).astype(int)
            turn = float(random.uniform(0, 180))
            shape = ((float(x), float(y)), (float(axes[0] * 2), float(axes[1] * 2)), turn)
            corners = np.round(cv2.boxPoints(shape)).astype(np.int32)
            cv2.fillPoly(image, [corners], self._colours[3], cv2.LINE_AA)
            cv2.fillPoly(labels, [corners], 0)

    def _thing(self, image: Image) -> None:
        random = self._random
        x = float(random.uniform(0, self._width))
        y = float(random.uniform(0, self._height))
        size = random.uniform(10, 110, 2) * self._scale
        # Red things that are none of the shapes are among them.
        colour = _colour(random, reddish=random.random() < 0.25)
        if random.random() < 0.3:
            size = np.maximum(size, 1.6 * size[::-1])  # No circle of the shapes' kind.
            cv2.ellipse(image, ((x, y), (float(size[0]), float(size[1])), 0.0), colour, -1,
                        cv2.LINE_AA)
            return
        count = int(random.choice([3, 5, 6]))
        turn = np.sort(random.uniform(0, 2 * np.pi, count))
        reach = random.uniform(0.3, 1.0, count)
        points = np.stack([x + size[0] * reach * np.cos(turn),
                           y + size[1] * reach * np.sin(turn)], axis=1)
        cv2.fillPoly(image, [np.round(points).astype(np.int32)], colour, cv2.LINE_AA)

    def _cable(
        self, random: np.random.Generator, image: Image, colour: tuple[float, float, float],
        width: float, labels: Image | None = None,
    ) -> None:
        knots = random.uniform(-0.1, 1.1, (4, 2)) * (self._width, self._height)
        part = np.linspace(0.0, 1.0, 24)[:, None]
        curve = (
            (1 - part) ** 3 * knots[0] + 3 * part * (1 - part) ** 2 * knots[1]
            + 3 * part ** 2 * (1 - part) * knots[2] + part ** 3 * knots[3])
        line = [np.round(curve).astype(np.int32)]
        thick = max(1, round(width * self._scale))
        cv2.polylines(image, line, False, colour, thick, cv2.LINE_AA)
        if thick > 2 and random.random() < 0.7:
            light = tuple(min(255.0, c * 1.4 + 15) for c in colour)
            cv2.polylines(image, line, False, light, max(1, thick // 3), cv2.LINE_AA)
        if labels is not None:
            cv2.polylines(labels, line, False, 0, thick)


class Light:
    """
    How everything is lit, and what colours come out of it.

    :param random: decides how.
    :param width: of the pictures, in pixels.
    :param height: of the pictures, in pixels.
    """

    def __init__(self, random: np.random.Generator, width: int, height: int) -> None:
        exposure = float(np.exp(random.normal(0.0, 0.25)))
        balance = np.exp(random.normal(0.0, 0.07, 3)).astype(np.float32)
        field = np.ones((height, width), np.float32)
        if random.random() < 0.7:
            depth = float(random.uniform(0.1, 0.5))
            field = 1.0 - depth + 2 * depth * _smooth(random, width, height, 3)
        if random.random() < 0.3:
            # The hard shadow of something outside.
            corners = random.uniform(-0.3, 1.3, (4, 2)) * (width, height)
            shade = np.zeros((height, width), np.uint8)
            cv2.fillConvexPoly(shade, cv2.convexHull(corners.astype(np.int32)), 255)
            soft = cv2.GaussianBlur(shade, (0, 0), float(random.uniform(1, 12)))
            field = field * (1 - np.asarray(soft, np.float32) / 255 * random.uniform(0.15, 0.5))
        self._gain: Field = (field[:, :, None] * balance * exposure).astype(np.float32)
        self._glow: Image | None = None
        if random.random() < 0.35:
            # A lamp that shines into the picture, red as the gantry's or white.
            spot = _spot(random, width, height)
            colour = (0.1, 0.1, 1.0) if random.random() < 0.6 else (1.0, 1.0, 1.0)
            strength = float(random.uniform(15, 110))
            self._glow = _bytes(spot[:, :, None] * np.asarray(colour, np.float32) * strength)
        self._gamma = float(np.exp(random.normal(0.0, 0.18)))
        self._saturation = float(np.exp(random.normal(0.0, 0.2)))
        self._hue = round(random.normal(0.0, 3.0))

    def paint(self, random: np.random.Generator, image: Image, labels: Image) -> None:
        """Give each thing a colour a little its own: other filament, other lamp."""
        for number in np.unique(labels[::4, ::4]):
            if number == 0 or random.random() < 0.3:
                continue
            factor = np.exp(random.normal(0.0, 0.16, 3) + random.normal(0.0, 0.18))
            columns = np.flatnonzero((labels[::4] == number).any(axis=0))
            rows = np.flatnonzero((labels[:, ::4] == number).any(axis=1))
            if not len(columns) or not len(rows):
                continue
            part = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
            mask = labels[part] == number
            coloured = cv2.multiply(image[part], np.array([*factor, 1.0]))
            image[part][mask] = np.asarray(coloured)[mask]

    def shine(self, image: Image) -> Image:
        """Return the picture as it is lit."""
        lit = cv2.multiply(image, self._gain, dtype=cv2.CV_8U)
        if self._glow is not None:
            lit = cv2.add(lit, self._glow)
        levels = np.arange(256) / 255.0
        table = np.round(levels ** self._gamma * 255.0).astype(np.uint8)
        made = cv2.LUT(lit, table)
        hsv = cv2.cvtColor(made, cv2.COLOR_BGR2HSV)
        hue = ((np.arange(256) + self._hue) % 180).astype(np.uint8)
        saturation = np.clip(np.arange(256) * self._saturation, 0, 255).astype(np.uint8)
        same = np.arange(256, dtype=np.uint8)
        tables = np.stack([hue, saturation, same], axis=1).reshape(1, 256, 3)
        return np.asarray(
            cv2.cvtColor(cv2.LUT(hsv, tables), cv2.COLOR_HSV2BGR), np.uint8)


class Sensor:
    """
    Blur, noise and compression of one camera.

    :param random: decides how much.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self._blur_px = float(random.uniform(0.0, 1.3)) if random.random() < 0.85 else float(
            random.uniform(1.3, 2.4))
        self._noise = float(random.exponential(2.2))
        self._motion_px = int(random.integers(3, 10)) if random.random() < 0.15 else 0
        self._quality = int(random.integers(35, 98)) if random.random() < 0.7 else 0

    def record(self, random: np.random.Generator, image: Image) -> Image:
        """Return what the camera makes of it."""
        scale = max(image.shape[1] / 640, image.shape[0] / 480)
        if self._blur_px * scale > 0.3:
            image = np.asarray(cv2.GaussianBlur(image, (0, 0), self._blur_px * scale), np.uint8)
        if self._motion_px:
            kernel = np.zeros((self._motion_px, self._motion_px), np.float32)
            angle = random.uniform(0, np.pi)
            middle = (self._motion_px - 1) / 2
            reach = np.array([np.cos(angle), np.sin(angle)]) * middle
            start, end = (np.round(middle + sign * reach).astype(int).tolist() for sign in (-1, 1))
            cv2.line(kernel, start, end, 1.0)
            image = np.asarray(cv2.filter2D(image, -1, kernel / kernel.sum()), np.uint8)
        if self._noise > 0.3:
            height, width = image.shape[:2]
            pattern = _noise(max(_NOISE_PX, 2 * max(height, width)))
            y = int(random.integers(0, len(pattern) - height))
            x = int(random.integers(0, len(pattern) - width))
            image = np.asarray(cv2.addWeighted(
                image, 1.0, pattern[y:y + height, x:x + width], self._noise, 0.0,
                dtype=cv2.CV_8U), np.uint8)
        if self._quality:
            coded = cv2.imencode('.jpg', image, [cv2.IMWRITE_JPEG_QUALITY, self._quality])[1]
            image = np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), np.uint8)
        return image


@lru_cache(maxsize=2)
def _noise(side: int) -> Field:
    """Return a pattern of which pictures take parts: most of it the same in all channels."""
    random = np.random.default_rng(7)
    grey = random.normal(0.0, 0.8, (side, side, 1))
    return (grey + random.normal(0.0, 0.6, (side, side, 3))).astype(np.float32)


def _bytes(values: npt.NDArray[np.floating]) -> Image:
    return np.clip(values, 0, 255).astype(np.uint8)


def _smooth(random: np.random.Generator, width: int, height: int, cells: int) -> Field:
    """Return something that varies smoothly over the picture, 0 to 1."""
    coarse = random.uniform(0.0, 1.0, (cells, cells)).astype(np.float32)
    return np.clip(np.asarray(
        cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC), np.float32), 0, 1)


def _spot(random: np.random.Generator, width: int, height: int) -> Field:
    x, y = random.uniform(0, width), random.uniform(0, height)
    reach = random.uniform(0.05, 0.4, 2) * width
    across = ((np.arange(width) - x) / reach[0]) ** 2
    down = ((np.arange(height) - y) / reach[1]) ** 2
    return np.exp(-(across[None, :] + down[:, None])).astype(np.float32)


def _colour(
    random: np.random.Generator, *, reddish: bool = False,
) -> tuple[float, float, float]:
    if reddish:
        red = float(random.uniform(90, 220))
        return red * float(random.uniform(0.1, 0.4)), red * float(random.uniform(0.1, 0.5)), red
    grey = float(random.uniform(15, 230))
    if random.random() < 0.6:
        b, g, r = (min(255.0, max(0.0, grey + float(random.normal(0, 8)))) for _ in range(3))
        return b, g, r
    b, g, r = (float(random.uniform(10, 230)) for _ in range(3))
    return b, g, r
