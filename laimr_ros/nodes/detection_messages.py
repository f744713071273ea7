"""
Detections as they go onto the wire: ``vision_msgs/Detection2DArray``, serialised by hand.

Building ten detections as message objects and serialising them costs about 0.2 ms of CPU a frame,
most of it spent on poses and covariances that never change. Written straight as CDR it is a tenth
of that. A test holds it equal to rclpy's own serialisation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import struct

_LITTLE_ENDIAN = b'\x00\x01\x00\x00'
_HEADER = struct.Struct('<iII')
_UINT32 = struct.Struct('<I')
_DOUBLE = struct.Struct('<d')
_BOX = struct.Struct('<ddddd')
# Pose and covariance of a 2D detection: unknown, which is ROS's default pose.
_NO_POSE = struct.pack('<43d', *([0.0] * 6 + [1.0] + [0.0] * 36))
# The empty string `id`; padded where another detection follows.
_NO_ID = b'\x01\x00\x00\x00\x00'
_NO_ID_PADDED = _NO_ID + b'\x00\x00\x00'


# Class name and alignment -> `results` up to its score; bounded, for names come from outside.
_MAX_RESULTS = 10_000
# Longer names (in bytes) are not kept: entries are bounded in number only.
_LONGEST_KEPT = 256
_results: dict[tuple[str, int], bytes] = {}


def write_detections(
    sec: int,
    nanosec: int,
    frame_id: bytes,
    boxes: Iterable[Sequence[float]],
    scores: Iterable[float],
    labels: Iterable[str],
    threshold: float = 0.0,
) -> bytes:
    """
    Return a serialised ``Detection2DArray``.

    :param sec: seconds of the image's stamp.
    :param nanosec: nanoseconds of the image's stamp.
    :param frame_id: of the image's header, UTF-8.
    :param boxes: ``x1, y1, x2, y2`` of each detection in pixels.
    :param scores: score of each detection, 0 to 1.
    :param labels: class name of each detection.
    :param threshold: detections with a lower score are left out.
    """
    length = len(frame_id) + 1
    header = b''.join((
        _HEADER.pack(sec, nanosec, length), frame_id, b'\x00', bytes(-length % 4)))
    parts = [_LITTLE_ENDIAN, header, b'']
    append = parts.append
    # Offset behind a detection's header, counted from the encapsulation header as alignment is.
    # Detections begin at a multiple of 4, from the second on of 8.
    phase = (len(header) + 4 + len(header)) % 8
    count = 0
    pack_box, pack_score, known = _BOX.pack, _DOUBLE.pack, _results.get
    for (x1, y1, x2, y2), score, label in zip(boxes, scores, labels):
        if score < threshold:
            continue
        if count:
            append(_NO_ID_PADDED)
            phase = len(header) % 8
        count += 1
        append(header)
        append(known((label, phase)) or _result(label, phase))
        append(pack_score(score))
        append(_NO_POSE)
        append(pack_box((x1 + x2) / 2.0, (y1 + y2) / 2.0, 0.0, x2 - x1, y2 - y1))
    if count:
        append(_NO_ID)
    parts[2] = _UINT32.pack(count)
    return b''.join(parts)


def _result(label: str, phase: int) -> bytes:
    """Return the count of results, the class name and padding up to the score."""
    name = label.encode('utf-8', 'replace')
    block = _UINT32.pack(1) + _UINT32.pack(len(name) + 1) + name + b'\x00'
    block += bytes(-(phase + len(block)) % 8)
    if len(name) <= _LONGEST_KEPT:
        if len(_results) >= _MAX_RESULTS:
            _results.clear()
        _results[label, phase] = block
    return block
