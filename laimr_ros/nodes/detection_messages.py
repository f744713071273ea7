"""
Detections as they go onto the wire: ``vision_msgs/Detection2DArray``, serialised by hand.

Building ten detections as message objects and serialising them costs about 0.2 ms of CPU a frame,
most of it spent on poses and covariances that never change. Written straight as CDR it is a tenth
of that. A test holds it equal to rclpy's own serialisation.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class DetectionWriter:
    """
    Writes the detections of frames of one detector.

    :param class_names: by class id; an id beyond them is written as its number.
    """

    def __init__(self, class_names: Sequence[str] = ()) -> None:
        self.class_names = tuple(class_names)
        # Class id and alignment -> `results` up to its score.
        self._results: dict[tuple[int, int], bytes] = {}

    def write(
        self,
        sec: int,
        nanosec: int,
        frame_id: bytes,
        boxes: Sequence[Sequence[float]],
        scores: Sequence[float],
        class_ids: Sequence[int],
        threshold: float = 0.0,
    ) -> bytes:
        """
        Return a serialised ``Detection2DArray``.

        :param sec: seconds of the image's stamp.
        :param nanosec: nanoseconds of the image's stamp.
        :param frame_id: of the image's header, UTF-8.
        :param boxes: ``x1, y1, x2, y2`` of each detection in pixels.
        :param scores: score of each detection, 0 to 1.
        :param class_ids: class id of each detection.
        :param threshold: detections with a lower score are left out.
        """
        length = len(frame_id) + 1
        header = b''.join((
            _HEADER.pack(sec, nanosec, length), frame_id, b'\x00', bytes(-length % 4)))
        parts = [_LITTLE_ENDIAN, header, b'']
        append = parts.append
        # Offset of the next detection from the encapsulation header, which alignment counts from.
        # It is a multiple of 4; from the second detection on, of 8.
        phase = (len(header) + 4 + len(header)) % 8
        count = 0
        pack_box, pack_score = _BOX.pack, _DOUBLE.pack
        results = self._results
        for (x1, y1, x2, y2), score, class_id in zip(boxes, scores, class_ids):
            if score < threshold:
                continue
            if count:
                append(_NO_ID_PADDED)
                phase = len(header) % 8
            count += 1
            append(header)
            append(results.get((class_id, phase)) or self._result(class_id, phase))
            append(pack_score(score))
            append(_NO_POSE)
            append(pack_box((x1 + x2) / 2.0, (y1 + y2) / 2.0, 0.0, x2 - x1, y2 - y1))
        if count:
            append(_NO_ID)
        parts[2] = _UINT32.pack(count)
        return b''.join(parts)

    def name(self, class_id: int) -> str:
        """Return the name of a class."""
        if 0 <= class_id < len(self.class_names):
            return self.class_names[class_id]
        return str(class_id)

    def _result(self, class_id: int, phase: int) -> bytes:
        """Return the count of results, the class name and padding up to the score."""
        name = self.name(class_id).encode()
        block = _UINT32.pack(1) + _UINT32.pack(len(name) + 1) + name + b'\x00'
        block += bytes(-(phase + len(block)) % 8)
        # A worker that makes up class ids must not fill the memory.
        if len(self._results) > 10_000:
            self._results.clear()
        self._results[class_id, phase] = block
        return block
