"""Tests of `laimr_ros.detectors.images`, against pixels computed with numpy and Pillow."""

from __future__ import annotations

import io
import struct
from typing import Any
import zlib

from hypothesis import given, settings
from hypothesis import strategies as st
from laimr_ros.detectors.base import DetectorError
from laimr_ros.detectors.images import (
    blank,
    compressed_size,
    decode_compressed,
    decode_raw,
    ENCODINGS,
    require_bgr,
)
import numpy as np
from PIL import Image
import pytest

LIMIT = 10_000_000


def photo(height: int, width: int, channels: int = 3) -> np.ndarray:
    """Return smooth colours that JPEG keeps well: a different ramp in each channel."""
    y, x = np.mgrid[0:height, 0:width]
    ramps = [40 + 160 * x / max(1, width), 30 + 180 * y / max(1, height),
             60 + 120 * (x + y) / max(1, width + height), 255 - 200 * x / max(1, width)]
    return np.stack(ramps[:channels], -1).astype(np.uint8)


def saved(image: Image.Image, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def reference(data: bytes) -> np.ndarray:
    """Decode with Pillow, to BGR."""
    return np.asarray(Image.open(io.BytesIO(data)).convert('RGB'))[..., ::-1]


def raw(data: Any, height: int, width: int, encoding: str, step: int, big: bool = False) -> Any:
    return decode_raw(bytes(data), height, width, encoding, step, big, LIMIT)


# Compressed images


@pytest.mark.parametrize('height, width', [(1, 1), (48, 64), (37, 53), (700, 300)])
@pytest.mark.parametrize('options', [
    {'quality': 95}, {'quality': 90, 'progressive': True}, {'quality': 95, 'subsampling': 0},
])
def test_jpeg(height: int, width: int, options: dict[str, Any]) -> None:
    data = saved(Image.fromarray(photo(height, width)), 'JPEG', **options)
    image = decode_compressed(data, LIMIT)
    assert image.dtype == np.uint8 and image.shape == (height, width, 3)
    assert np.abs(image.astype(int) - reference(data)).max() <= 4
    assert compressed_size(data) == (width, height)


def test_jpeg_grey() -> None:
    data = saved(Image.fromarray(photo(20, 30)[..., 0]), 'JPEG', quality=95)
    image = decode_compressed(data, LIMIT)
    assert np.abs(image.astype(int) - reference(data)).max() <= 2
    assert (image[..., 0] == image[..., 2]).all()


def test_jpeg_cmyk() -> None:
    data = saved(Image.fromarray(photo(32, 32)).convert('CMYK'), 'JPEG', quality=95)
    image = decode_compressed(data, LIMIT)
    assert np.abs(image.astype(int) - reference(data)).max() <= 6


@pytest.mark.parametrize('orientation', range(1, 9))
def test_exif_orientation_is_ignored(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(Image.fromarray(photo(40, 60)), 'JPEG', quality=95, exif=exif)
    image = decode_compressed(data, LIMIT)
    assert image.shape == (40, 60, 3)
    assert compressed_size(data) == (60, 40)
    assert np.abs(image.astype(int) - reference(data)).max() <= 4


def test_jpeg_with_thumbnail_reads_the_size_of_the_image() -> None:
    thumbnail = saved(Image.fromarray(photo(6, 8)), 'JPEG')
    data = saved(Image.fromarray(photo(60, 80)), 'JPEG')
    segment = b'\xff\xe1' + struct.pack('>H', len(thumbnail) + 2) + thumbnail
    data = data[:2] + segment + data[2:]
    assert compressed_size(data) == (80, 60)
    assert decode_compressed(data, LIMIT).shape == (60, 80, 3)
    with pytest.raises(DetectorError, match='cut short'):
        decode_compressed(data[:len(segment) + 400], LIMIT)


def test_png_is_exact() -> None:
    pixels = photo(13, 17)
    image = decode_compressed(saved(Image.fromarray(pixels), 'PNG'), LIMIT)
    assert np.array_equal(image, pixels[..., ::-1])


def test_png_alpha_is_dropped() -> None:
    pixels = photo(13, 17, 4)
    image = decode_compressed(saved(Image.fromarray(pixels, 'RGBA'), 'PNG'), LIMIT)
    assert np.array_equal(image, pixels[..., 2::-1])


def test_png_grey_with_alpha() -> None:
    pixels = photo(13, 17, 2)
    image = decode_compressed(saved(Image.fromarray(pixels, 'LA'), 'PNG'), LIMIT)
    assert np.array_equal(image, np.repeat(pixels[..., :1], 3, -1))


def test_png_palette() -> None:
    data = saved(Image.fromarray(photo(40, 40)).quantize(16), 'PNG')
    assert np.array_equal(decode_compressed(data, LIMIT), reference(data))


def test_png_one_bit() -> None:
    data = saved(Image.fromarray(photo(40, 40)).convert('1'), 'PNG')
    assert np.array_equal(decode_compressed(data, LIMIT), reference(data))


def test_png_of_sixteen_bit_keeps_the_high_byte() -> None:
    words = np.arange(0, 65536, 64, dtype=np.uint16).reshape(16, 64)
    grey = decode_compressed(_png(words[..., None]), LIMIT)
    assert np.array_equal(grey, np.repeat((words >> 8).astype(np.uint8)[..., None], 3, -1))
    colours = np.stack((words, words[::-1], words[:, ::-1]), -1)
    image = decode_compressed(_png(colours), LIMIT)
    assert np.array_equal(image, (colours >> 8).astype(np.uint8)[..., ::-1])


def _png(words: np.ndarray) -> bytes:
    """Write a 16-bit PNG by hand: independent of any library."""
    height, width, channels = words.shape

    def chunk(name: bytes, body: bytes) -> bytes:
        checksum = zlib.crc32(name + body)
        return struct.pack('>I', len(body)) + name + body + struct.pack('>I', checksum)

    rows = b''.join(b'\0' + row.astype('>u2').tobytes() for row in words)
    colour = {1: 0, 3: 2}[channels]
    return (b'\x89PNG\r\n\x1a\n'
            + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 16, colour, 0, 0, 0))
            + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


@pytest.mark.parametrize('kind', [bytes, bytearray, memoryview])
def test_takes_any_buffer(kind: Any) -> None:
    data = saved(Image.fromarray(photo(8, 9)), 'PNG')
    assert decode_compressed(kind(data), LIMIT).shape == (8, 9, 3)


def test_decoded_image_can_be_written_to() -> None:
    decode_compressed(saved(Image.fromarray(photo(8, 9)), 'PNG'), LIMIT)[:] = 0


@pytest.mark.parametrize('form', ['JPEG', 'PNG'])
@pytest.mark.parametrize('share', [0.2, 0.5, 0.9, 0.999])
def test_cut_short(form: str, share: float) -> None:
    data = saved(Image.fromarray(photo(200, 300)), form)
    with pytest.raises(DetectorError, match='cut short|no frame header|no header'):
        decode_compressed(data[:int(len(data) * share)], LIMIT)


def test_padding_behind_the_image_is_allowed() -> None:
    for form in ('JPEG', 'PNG'):
        data = saved(Image.fromarray(photo(20, 30)), form) + bytes(100)
        assert decode_compressed(data, LIMIT).shape == (20, 30, 3)


def test_damaged_png() -> None:
    data = bytearray(saved(Image.fromarray(photo(200, 300)), 'PNG'))
    middle = len(data) // 2
    data[middle:middle + 50] = bytes(50)
    with pytest.raises(DetectorError, match='PNG image of 300x200'):
        decode_compressed(data, LIMIT)


@pytest.mark.parametrize('data, said', [
    (b'', 'empty'),
    (b'\xff\xd8\xff', 'JPEG'),
    (b'\xff\xd8\xff\xe0\x00\x10JFIF\xff\xd9', 'JPEG'),
    (b'\x89PNG\r\n\x1a\n', 'PNG'),
    (b'RIFF0000WEBP', 'neither JPEG nor PNG'),
    (b'\0' * 100, 'neither JPEG nor PNG'),
    (bytes(12) + b'\x89PNG\r\n\x1a\n' + bytes(50), 'compressedDepth'),
])
def test_what_is_no_image(data: bytes, said: str) -> None:
    with pytest.raises(DetectorError, match=said):
        decode_compressed(data, LIMIT)
    with pytest.raises(DetectorError, match=said):
        compressed_size(data)


def test_huge_header_is_refused_before_decoding() -> None:
    png = (b'\x89PNG\r\n\x1a\n' + b'\0\0\0\rIHDR' + struct.pack('>II', 20_000, 10_000)
           + b'\x08\x02\0\0\0' + bytes(4))
    jpeg = b'\xff\xd8\xff\xc0\x00\x11\x08' + struct.pack('>HH', 10_000, 20_000) + bytes(30)
    for data in (png, jpeg):
        assert compressed_size(data) == (20_000, 10_000)
        with pytest.raises(DetectorError, match='20000x10000 is 200.0 megapixels'):
            decode_compressed(data, LIMIT)


def test_limit_is_the_largest_allowed() -> None:
    data = saved(Image.fromarray(photo(20, 30)), 'PNG')
    assert decode_compressed(data, 600).shape == (20, 30, 3)
    with pytest.raises(DetectorError, match='30x20'):
        decode_compressed(data, 599)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b'', b'\xff\xd8\xff', b'\x89PNG\r\n\x1a\n']))
def test_any_bytes_give_an_image_or_one_error(data: bytes, start: bytes) -> None:
    try:
        decode_compressed(start + data, 10_000)
    except DetectorError as error:
        assert '\n' not in str(error)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 255), st.sampled_from(['JPEG', 'PNG']))
def test_one_wrong_byte_gives_the_right_size_or_one_error(
    place: int, value: int, form: str,
) -> None:
    data = bytearray(saved(Image.fromarray(photo(20, 30)), form))
    data[place % len(data)] = value
    try:
        image = decode_compressed(data, 100_000)
    except DetectorError as error:
        assert '\n' not in str(error)
    else:
        assert image.shape == (*compressed_size(data)[::-1], 3)


# Raw images


def padded(pixels: np.ndarray, padding: int) -> tuple[bytes, int]:
    """Return rows with padding behind each, and the step."""
    rows = np.ascontiguousarray(pixels).reshape(len(pixels), -1).view(np.uint8)
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=77)
    return rows.tobytes(), rows.shape[1]


sizes = st.tuples(st.integers(1, 20), st.integers(1, 20))

EIGHT_BIT = {
    'bgr8': (3, (0, 1, 2)), 'rgb8': (3, (2, 1, 0)), 'bgra8': (4, (0, 1, 2)),
    'rgba8': (4, (2, 1, 0)), 'mono8': (1, (0, 0, 0)), '8UC1': (1, (0, 0, 0)),
    '8UC3': (3, (0, 1, 2)), '8UC4': (4, (0, 1, 2)),
}
SIXTEEN_BIT = {
    'bgr16': (3, (0, 1, 2)), 'rgb16': (3, (2, 1, 0)), 'bgra16': (4, (0, 1, 2)),
    'rgba16': (4, (2, 1, 0)), 'mono16': (1, (0, 0, 0)),
}


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(EIGHT_BIT)), sizes, st.integers(0, 5), st.integers(0, 999))
def test_eight_bit(encoding: str, size: tuple[int, int], padding: int, seed: int) -> None:
    channels, order = EIGHT_BIT[encoding]
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, channels), np.uint8)
    data, step = padded(pixels, padding)
    image = raw(data, *size, encoding, step)
    assert image.dtype == np.uint8
    assert np.array_equal(image, pixels[..., order])


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(SIXTEEN_BIT)), sizes, st.integers(0, 5), st.booleans(),
       st.integers(0, 999))
def test_sixteen_bit_keeps_the_high_byte(
    encoding: str, size: tuple[int, int], padding: int, big: bool, seed: int,
) -> None:
    channels, order = SIXTEEN_BIT[encoding]
    words = np.random.default_rng(seed).integers(0, 65536, (*size, channels), np.uint16)
    data, step = padded(words.astype('>u2' if big else '<u2'), padding)
    image = raw(data, *size, encoding, step, big)
    assert np.array_equal(image, (words // 256).astype(np.uint8)[..., order])


@pytest.mark.parametrize('big', [False, True])
@pytest.mark.parametrize('padding', [0, 1, 6])
def test_distances_are_stretched(big: bool, padding: int) -> None:
    # 100 distances of 1000 to 1990 mm and one row without any.
    words = np.zeros((11, 10), np.uint16)
    words[:10] = np.arange(1000, 2000, 10).reshape(10, 10)
    data, step = padded(words.astype('>u2' if big else '<u2'), padding)
    image = raw(data, 11, 10, '16UC1', step, big)
    low, high = 1000, 1980  # the 1st and the 99th of 100
    expected = np.clip(np.rint((words.astype(float) - low) * 255 / (high - low)), 0, 255)
    expected[10] = 0
    assert np.array_equal(image[..., 0], expected)
    assert (image[..., 0] == image[..., 1]).all() and (image[..., 1] == image[..., 2]).all()


def test_distances_without_any_and_all_the_same() -> None:
    assert not raw(bytes(200), 10, 10, '16UC1', 20).any()
    same = np.full((10, 10), 500, '<u2')
    same[0] = 0
    image = raw(same.tobytes(), 10, 10, '16UC1', 20)
    assert (image[1:] == 255).all() and not image[0].any()


def from_yuv(y: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Convert by the formula of ITU-R BT.601 with limited range, to BGR."""
    y, u, v = 1.164 * (y - 16.0), u - 128.0, v - 128.0
    channels = (y + 2.018 * u, y - 0.391 * u - 0.813 * v, y + 1.596 * v)
    return np.clip(np.stack(channels, -1), 0, 255)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(['yuv422_yuy2', 'yuyv', 'yuv422', 'uyvy']), st.integers(1, 12),
       st.integers(1, 10), st.integers(0, 5), st.integers(0, 999))
def test_yuv(encoding: str, height: int, pairs: int, padding: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    y = random.integers(16, 236, (height, pairs * 2)).astype(float)
    u, v = random.integers(16, 241, (2, height, pairs)).astype(float)
    pixels = np.zeros((height, pairs, 4), np.uint8)
    order = (0, 1, 2, 3) if encoding in ('yuv422_yuy2', 'yuyv') else (1, 0, 3, 2)
    for place, values in zip(order, (y[:, ::2], u, y[:, 1::2], v)):
        pixels[..., place] = values
    data, step = padded(pixels, padding)
    image = raw(data, height, pairs * 2, encoding, step)
    expected = from_yuv(y, np.repeat(u, 2, 1), np.repeat(v, 2, 1))
    assert np.abs(image - expected).max() <= 2


BAYER = ('rggb', 'bggr', 'gbrg', 'grbg')


def mosaic(colours: np.ndarray, pattern: str) -> np.ndarray:
    """Keep of each pixel the one colour that the pattern has there; colours are BGR."""
    grey = np.zeros(colours.shape[:2], colours.dtype)
    for place, letter in enumerate(pattern):
        y, x = divmod(place, 2)
        grey[y::2, x::2] = colours[y::2, x::2, 'bgr'.index(letter)]
    return grey


@pytest.mark.parametrize('pattern', BAYER)
@pytest.mark.parametrize('bits', [8, 16])
@pytest.mark.parametrize('big', [False, True])
@pytest.mark.parametrize('padding', [0, 3])
def test_bayer_finds_the_colour(pattern: str, bits: int, big: bool, padding: int) -> None:
    colours = np.empty((10, 12, 3), np.uint16)
    colours[:] = (20, 120, 220)
    grey = mosaic(colours, pattern)
    words = (grey * 256 + 99).astype('>u2' if big else '<u2')
    rows = grey.astype(np.uint8) if bits == 8 else words
    data, step = padded(rows, padding)
    image = raw(data, 10, 12, f'bayer_{pattern}{bits}', step, big)
    assert (image == (20, 120, 220)).all()


@pytest.mark.parametrize('pattern', BAYER)
def test_bayer_is_bilinear_inside(pattern: str) -> None:
    grey = np.random.default_rng(4).integers(0, 256, (12, 14), np.uint8)
    image = raw(grey.tobytes(), 12, 14, f'bayer_{pattern}8', 14)
    # Independent: average the nearest neighbours that carry the colour, in the 3x3 around.
    letters = np.array([[pattern[(y % 2) * 2 + x % 2] for x in range(14)] for y in range(12)])
    for y in range(1, 11):
        for x in range(1, 13):
            for channel, letter in enumerate('bgr'):
                if letters[y, x] == letter:
                    expected = float(grey[y, x])
                else:
                    square = [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
                    same = [p for p in square if letters[p] == letter]
                    nearest = min(abs(p[0] - y) + abs(p[1] - x) for p in same)
                    expected = np.mean([
                        grey[p] for p in same if abs(p[0] - y) + abs(p[1] - x) == nearest])
                assert abs(image[y, x, channel] - expected) <= 1


def test_every_encoding_takes_a_small_image() -> None:
    for encoding in ENCODINGS:
        image = raw(bytes(4 * 4 * 8), 4, 4, encoding, 32)
        assert image.shape == (4, 4, 3), encoding


def test_bgr_is_not_copied() -> None:
    data = bytearray(range(27))
    image = decode_raw(data, 3, 3, 'bgr8', 9, False, LIMIT)
    data[0] = 200
    assert image[0, 0, 0] == 200


@pytest.mark.parametrize('fields, said', [
    ((bytes(12), 2, 2, '32FC1', 6), '32FC1.*bgr8'),
    ((bytes(12), 2, 2, '', 6), 'unknown image encoding'),
    ((bytes(11), 2, 2, 'bgr8', 6), '11 bytes but 2 rows of 6 take 12'),
    ((b'', 2, 2, 'bgr8', 6), '0 bytes'),
    ((b'', 0, 0, 'bgr8', 0), '0x0'),
    ((bytes(12), 2, 0, 'bgr8', 6), '0x2'),
    ((bytes(12), 2, 2, 'bgr8', 5), 'step is 5 bytes'),
    ((bytes(12), 2, 2, 'mono16', 3), 'step is 3 bytes'),
    ((bytes(12), 2, 3, 'yuyv', 6), 'even width'),
    ((bytes(12), 2, 2, 'bayer_rggb8', 6), 'too small for a Bayer pattern'),
    ((bytes(12), 20_000, 10_000, 'bgr8', 30_000), '200.0 megapixels'),
])
def test_wrong_fields(fields: tuple[Any, ...], said: str) -> None:
    with pytest.raises(DetectorError, match=said):
        raw(*fields)


def test_blank_takes_no_memory() -> None:
    image = blank(10_000, 5_000)
    assert require_bgr(image) == (5_000, 10_000)
    assert image.base is not None and image.strides[:2] == (0, 0)
