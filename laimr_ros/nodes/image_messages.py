"""
Images as they come off the wire: read in place from their serialised form (CDR).

A subscription in raw mode hands over the serialised message. Only the few fields in front of the
image are read; the image itself stays where it is, as a view, so a frame costs no copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import struct
from typing import Any

COMPRESSED_TYPE = 'sensor_msgs/msg/CompressedImage'
RAW_TYPE = 'sensor_msgs/msg/Image'

_CDR_BIG_ENDIAN = b'\x00\x00'
_CDR_LITTLE_ENDIAN = b'\x00\x01'
# The encapsulation header; alignment counts from behind it.
_ORIGIN = 4


@dataclass(slots=True, eq=False)
class ImageMessage:
    """
    One image message.

    :param sec: seconds of the stamp.
    :param nanosec: nanoseconds of the stamp.
    :param frame_id: of the header, as sent.
    :param data: the image's bytes: a JPEG or PNG file, or pixels row by row.
    :param format: of a compressed image, as sent; empty for pixels.
    :param encoding: of pixels (``bgr8``); empty for a compressed image.
    :param height: rows; 0 for a compressed image.
    :param width: columns; 0 for a compressed image.
    :param step: bytes a row; 0 for a compressed image.
    :param is_bigendian: byte order of pixels of 16 bits.
    """

    sec: int
    nanosec: int
    frame_id: bytes
    data: memoryview
    format: str = ''
    encoding: str = ''
    height: int = 0
    width: int = 0
    step: int = 0
    is_bigendian: bool = False

    @property
    def stamp_ns(self) -> int:
        """Return the stamp in nanoseconds."""
        return self.sec * 1_000_000_000 + self.nanosec


class MessageError(ValueError):
    """A message cannot be read."""


class _Layout:
    """The readers of one byte order."""

    def __init__(self, order: str) -> None:
        self.stamp_and_length = struct.Struct(f'{order}iII').unpack_from
        self.uint32 = struct.Struct(f'{order}I').unpack_from
        self.two_uint32 = struct.Struct(f'{order}II').unpack_from


_LAYOUTS = {_CDR_LITTLE_ENDIAN: _Layout('<'), _CDR_BIG_ENDIAN: _Layout('>')}


def read_compressed(message: bytes) -> ImageMessage:
    """
    Read a serialised ``sensor_msgs/CompressedImage``.

    :param message: the serialised message with its encapsulation header.
    :raises MessageError: if it is cut short or in another representation than plain CDR.
    """
    layout = _LAYOUTS.get(message[:2])
    if layout is None:
        raise MessageError(f'representation {message[:2].hex()} is not plain CDR')
    try:
        sec, nanosec, frame_length = layout.stamp_and_length(message, _ORIGIN)
        begin = _ORIGIN + 12
        end = begin + frame_length
        at = (end + 3) & ~3
        format_length, = layout.uint32(message, at)
        format_end = at + 4 + format_length
        count_at = (format_end + 3) & ~3
        count, = layout.uint32(message, count_at)
        text = message[at + 4:format_end - 1].decode('utf-8', 'replace')
    except struct.error as error:
        raise MessageError('the message is cut short') from error
    return ImageMessage(
        sec, nanosec, _string(message, begin, end), _tail(message, count_at + 4, count), text)


def read_raw(message: bytes) -> ImageMessage:
    """
    Read a serialised ``sensor_msgs/Image``.

    :param message: the serialised message with its encapsulation header.
    :raises MessageError: if it is cut short or in another representation than plain CDR.
    """
    layout = _LAYOUTS.get(message[:2])
    if layout is None:
        raise MessageError(f'representation {message[:2].hex()} is not plain CDR')
    try:
        sec, nanosec, frame_length = layout.stamp_and_length(message, _ORIGIN)
        begin = _ORIGIN + 12
        end = begin + frame_length
        at = (end + 3) & ~3
        height, width = layout.two_uint32(message, at)
        encoding_length, = layout.uint32(message, at + 8)
        encoding_end = at + 12 + encoding_length
        is_bigendian = message[encoding_end] != 0
        step_at = (encoding_end + 4) & ~3
        step, count = layout.two_uint32(message, step_at)
        encoding = message[at + 12:encoding_end - 1].decode('utf-8', 'replace')
    except (struct.error, IndexError) as error:
        raise MessageError('the message is cut short') from error
    return ImageMessage(
        sec, nanosec, _string(message, begin, end), _tail(message, step_at + 8, count), '',
        encoding, height, width, step, is_bigendian)


def read_any(message: bytes, message_type: type[Any]) -> ImageMessage:
    """
    Read a serialised image in whatever representation the middleware itself understands.

    :param message: the serialised message.
    :param message_type: ``CompressedImage`` or ``Image``.
    :raises MessageError: if not even the middleware can read it.
    """
    from rclpy.serialization import deserialize_message
    if len(message) < _ORIGIN:
        raise MessageError(f'the message has {len(message)} bytes')
    try:
        typed = deserialize_message(message, message_type)
    except Exception as error:  # rclpy raises its own C++ error type, which it does not export.
        raise MessageError(f'the middleware cannot read the message: {error}') from error
    stamp = typed.header.stamp
    frame_id = typed.header.frame_id.encode('utf-8', 'surrogateescape')
    data = memoryview(bytes(typed.data))
    if hasattr(typed, 'format'):
        return ImageMessage(stamp.sec, stamp.nanosec, frame_id, data, typed.format)
    return ImageMessage(
        stamp.sec, stamp.nanosec, frame_id, data, '', typed.encoding, typed.height, typed.width,
        typed.step, bool(typed.is_bigendian))


def reader(message_type: type[Any]) -> Callable[[bytes], ImageMessage]:
    """
    Return the function that reads serialised messages of a type: in place if that works.

    :param message_type: ``CompressedImage`` or ``Image``.
    """
    fast = read_compressed if hasattr(message_type, 'format') else read_raw

    def read(message: bytes) -> ImageMessage:
        try:
            return fast(message)
        except MessageError:
            return read_any(message, message_type)

    return read


def _string(message: bytes, begin: int, end: int) -> bytes:
    """Return a string's bytes without its final NUL."""
    return message[begin:end - 1] if end > begin else b''


def _tail(message: bytes, begin: int, count: int) -> memoryview:
    """Return a view of a sequence of bytes. :raises MessageError: if it is not all there."""
    if begin + count > len(message):
        raise MessageError('the message is cut short')
    return memoryview(message)[begin:begin + count]
