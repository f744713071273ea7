"""Images as cameras send them, made into what detectors take: BGR, 8 bit, source pixels."""

from __future__ import annotations

from collections.abc import Callable
import struct

import cv2
from laimr_ros.detectors.base import DetectorError
import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview
BgrImage = npt.NDArray[np.uint8]

_PNG = b'\x89PNG\r\n\x1a\n'
_PNG_END = b'IEND\xaeB`\x82'
_JPEG = b'\xff\xd8\xff'
_JPEG_END = b'\xff\xd9'
# Start-of-frame markers: C0 to CF without DHT (C4), JPG (C8) and DAC (CC).
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# The end marker is among the last bytes, behind it at most some padding of the camera's.
_PADDING = 4096


def require_bgr(image: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """
    Return height and width of an image that a detector can take.

    :param image: uint8, shape (height, width, 3).
    :raises DetectorError: if it has another shape or type, or no pixels.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise DetectorError(
            f'image is {image.dtype} of shape {image.shape}; '
            'give uint8 of shape (height, width, 3) in BGR order')
    return int(image.shape[0]), int(image.shape[1])


def blank(width: int, height: int) -> BgrImage:
    """Return a black image of that size which takes no memory (read-only, one shared pixel)."""
    return np.broadcast_to(np.zeros(3, np.uint8), (height, width, 3))


def compressed_size(data: Bytes) -> tuple[int, int]:
    """
    Read width and height of a JPEG or PNG image from its header alone.

    :param data: the whole file, or at least its beginning.
    :return: width and height in pixels, as stored (an EXIF orientation is not applied).
    :raises DetectorError: if the data are empty, another format, or broken in the header.
    """
    width, height, _ = _header(memoryview(data).cast('B'))
    return width, height


def decode_compressed(data: Bytes, max_pixels: int) -> BgrImage:
    """
    Decode a JPEG or PNG image.

    Grey, palette, alpha (dropped), CMYK and 16 bit (its high byte) all become 8-bit BGR. The EXIF
    orientation is ignored, so that boxes are in the pixels that the camera sent.

    :param data: the whole file.
    :param max_pixels: a larger image is refused before it is decoded.
    :return: uint8, shape (height, width, 3).
    :raises DetectorError: if the data are no image, cut short, corrupt or too large.
    """
    view = memoryview(data).cast('B')
    width, height, header_end = _header(view)
    _check_size(width, height, max_pixels)
    kind, end = ('PNG', _PNG_END) if view[:8] == _PNG else ('JPEG', _JPEG_END)
    # Decoders fill the missing part with grey and say nothing. An embedded thumbnail, which lies
    # before the header, has an end marker of its own.
    tail = max(header_end, len(view) - _PADDING)
    if view[-len(end):] != end and end not in bytes(view[tail:]):
        raise DetectorError(
            f'{kind} image of {width}x{height} is cut short after {len(view)} bytes; '
            'check the camera and the network')
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(view, np.uint8), flags)
    except cv2.error:
        image = None
    if image is None or image.shape != (height, width, 3):
        raise DetectorError(
            f'{kind} image of {width}x{height} is corrupt or of a kind that cannot be decoded '
            f'({len(view)} bytes); check the camera and the network')
    return image  # type: ignore[return-value]


def decode_raw(
    data: Bytes,
    height: int,
    width: int,
    encoding: str,
    step: int,
    is_bigendian: bool,
    max_pixels: int,
) -> BgrImage:
    """
    Make BGR from the fields of a `sensor_msgs/Image`.

    Of 16-bit channels the high byte is kept: full range, the same in every frame. Only ``16UC1``,
    which by convention holds distances of any range with 0 for none, is stretched: each frame's
    1st to 99th percentile of its non-zero pixels becomes 0 to 255, and 0 stays 0. ``8UC3`` and
    ``8UC4`` are taken as BGR; alpha is dropped; YUV is BT.601 with limited range.

    :param data: the rows, ``step`` bytes each; more is ignored.
    :param height: rows, in pixels.
    :param width: columns, in pixels.
    :param encoding: a name in ``ENCODINGS``.
    :param step: length of a row with its padding, in bytes.
    :param is_bigendian: whether 16-bit channels have their high byte first.
    :param max_pixels: a larger image is refused.
    :return: uint8, shape (height, width, 3); a read-only view of ``data`` where these are BGR.
    :raises DetectorError: if a field is unknown or contradicts the others.
    """
    if encoding not in _ENCODINGS:
        raise DetectorError(
            f'unknown image encoding {encoding!r}; set the camera to one of '
            f'{", ".join(ENCODINGS)}')
    channels, depth, convert = _ENCODINGS[encoding]
    _check_size(width, height, max_pixels)
    view = memoryview(data).cast('B')
    row = width * channels * depth
    if step < row:
        raise DetectorError(
            f'step is {step} bytes but a row of {width} pixels {encoding} takes {row}; '
            'check the camera driver')
    if len(view) < height * step:
        raise DetectorError(
            f'image data are {len(view)} bytes but {height} rows of {step} take '
            f'{height * step}; check the camera driver')
    rows = np.frombuffer(view, np.uint8, height * step).reshape(height, step)[:, :row]
    if encoding == '16UC1':
        # Padding may leave rows at odd addresses: copy first, look at pairs of bytes after.
        words = np.ascontiguousarray(rows).view('>u2' if is_bigendian else '<u2')
        return _grey(_stretch(words))
    if depth == 2:
        rows = rows[:, (0 if is_bigendian else 1)::2]
    pixels = rows.reshape(height, width, channels)
    try:
        return convert(np.ascontiguousarray(pixels))
    except cv2.error as error:
        raise DetectorError(
            f'{width}x{height} image of encoding {encoding} cannot be converted: '
            f'{error.err or error}') from error


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width <= 0 or height <= 0:
        raise DetectorError(f'image size is {width}x{height}; check the camera driver')
    if width * height > max_pixels:
        raise DetectorError(
            f'image of {width}x{height} is {width * height / 1e6:.1f} megapixels, over the limit '
            f"of {max_pixels / 1e6:.1f}; raise the limit or lower the camera's resolution")


def _header(view: memoryview) -> tuple[int, int, int]:
    """Return width, height and where in the data the header ends."""
    if not len(view):
        raise DetectorError('image is empty (0 bytes); check that the camera fills `data`')
    if view[:8] == _PNG:
        return _png_header(view)
    if view[:3] == _JPEG:
        return _jpeg_header(view)
    if view[12:20] == _PNG:
        raise DetectorError(
            'data are of image transport compressedDepth: distances, not an image for detection; '
            'subscribe to the `compressed` topic of a colour or mono camera')
    raise DetectorError(
        f'image is neither JPEG nor PNG (begins with {bytes(view[:4]).hex(" ")}); '
        'send `image_raw/compressed` with format jpeg or png, or raw images')


def _png_header(view: memoryview) -> tuple[int, int, int]:
    if len(view) < 24 or bytes(view[12:16]) != b'IHDR':
        raise DetectorError(f'PNG image has no header in its {len(view)} bytes')
    width, height = struct.unpack_from('>II', view, 16)
    return width, height, 24


def _jpeg_header(view: memoryview) -> tuple[int, int, int]:
    position = 2
    # Segments follow each other by their lengths up to the frame header.
    while position + 9 <= len(view) and view[position] == 0xFF:
        marker = view[position + 1]
        if marker == 0xFF:  # fill byte
            position += 1
        elif marker in _JPEG_FRAMES:
            height, width = struct.unpack_from('>HH', view, position + 5)
            return width, height, position
        elif marker in (0xD9, 0xDA):
            break
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:  # markers without a length
            position += 2
        else:
            position += 2 + int(struct.unpack_from('>H', view, position + 2)[0])
    raise DetectorError(
        f'JPEG image has no frame header in its {len(view)} bytes; '
        'check the camera and the network')


def _colour(code: int) -> Callable[[BgrImage], BgrImage]:
    def convert(pixels: BgrImage) -> BgrImage:
        return cv2.cvtColor(pixels, code)  # type: ignore[return-value]
    return convert


def _bayer(code: int) -> Callable[[BgrImage], BgrImage]:
    def convert(pixels: BgrImage) -> BgrImage:
        if min(pixels.shape[:2]) < 3:
            raise DetectorError(
                f'{pixels.shape[1]}x{pixels.shape[0]} image is too small for a Bayer pattern; '
                'it takes 3x3 pixels')
        return cv2.cvtColor(pixels, code)  # type: ignore[return-value]
    return convert


def _yuv422(code: int) -> Callable[[BgrImage], BgrImage]:
    def convert(pixels: BgrImage) -> BgrImage:
        if pixels.shape[1] % 2:
            raise DetectorError(
                f'width is {pixels.shape[1]} but YUV 4:2:2 stores pixels in pairs; '
                'give an even width')
        return cv2.cvtColor(pixels, code)  # type: ignore[return-value]
    return convert


def _grey(pixels: BgrImage) -> BgrImage:
    return cv2.cvtColor(pixels, cv2.COLOR_GRAY2BGR)  # type: ignore[return-value]


def _same(pixels: BgrImage) -> BgrImage:
    return pixels


def _stretch(words: npt.NDArray[np.uint16]) -> BgrImage:
    counts = np.bincount(words.reshape(-1), minlength=65536)
    counts[0] = 0
    total = np.cumsum(counts)
    if not total[-1]:
        return np.zeros(words.shape, np.uint8)
    low, high = (int(np.searchsorted(total, share * total[-1])) for share in (0.01, 0.99))
    span = np.arange(65536, dtype=np.float32) - low
    table = np.clip(np.rint(span * (255.0 / max(1, high - low))), 0, 255).astype(np.uint8)
    if low == high:
        table[1:] = 255
    table[0] = 0
    stretched: BgrImage = table[words]
    return stretched


# encoding -> channels, bytes a channel, conversion of (height, width, channels) to BGR.
# OpenCV names a Bayer pattern by its second row and column, ROS by its first.
_ENCODINGS: dict[str, tuple[int, int, Callable[[BgrImage], BgrImage]]] = {
    'bgr8': (3, 1, _same),
    'rgb8': (3, 1, _colour(cv2.COLOR_RGB2BGR)),
    'bgra8': (4, 1, _colour(cv2.COLOR_BGRA2BGR)),
    'rgba8': (4, 1, _colour(cv2.COLOR_RGBA2BGR)),
    'mono8': (1, 1, _grey),
    '8UC1': (1, 1, _grey),
    '8UC3': (3, 1, _same),
    '8UC4': (4, 1, _colour(cv2.COLOR_BGRA2BGR)),
    'bgr16': (3, 2, _same),
    'rgb16': (3, 2, _colour(cv2.COLOR_RGB2BGR)),
    'bgra16': (4, 2, _colour(cv2.COLOR_BGRA2BGR)),
    'rgba16': (4, 2, _colour(cv2.COLOR_RGBA2BGR)),
    'mono16': (1, 2, _grey),
    '16UC1': (1, 2, _grey),
    'yuv422_yuy2': (2, 1, _yuv422(cv2.COLOR_YUV2BGR_YUY2)),
    'yuyv': (2, 1, _yuv422(cv2.COLOR_YUV2BGR_YUY2)),
    'yuv422': (2, 1, _yuv422(cv2.COLOR_YUV2BGR_UYVY)),
    'uyvy': (2, 1, _yuv422(cv2.COLOR_YUV2BGR_UYVY)),
    'bayer_rggb8': (1, 1, _bayer(cv2.COLOR_BayerBG2BGR)),
    'bayer_bggr8': (1, 1, _bayer(cv2.COLOR_BayerRG2BGR)),
    'bayer_gbrg8': (1, 1, _bayer(cv2.COLOR_BayerGR2BGR)),
    'bayer_grbg8': (1, 1, _bayer(cv2.COLOR_BayerGB2BGR)),
    'bayer_rggb16': (1, 2, _bayer(cv2.COLOR_BayerBG2BGR)),
    'bayer_bggr16': (1, 2, _bayer(cv2.COLOR_BayerRG2BGR)),
    'bayer_gbrg16': (1, 2, _bayer(cv2.COLOR_BayerGR2BGR)),
    'bayer_grbg16': (1, 2, _bayer(cv2.COLOR_BayerGB2BGR)),
}

ENCODINGS = tuple(_ENCODINGS)
