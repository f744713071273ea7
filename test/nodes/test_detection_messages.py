"""Detections written by hand must equal rclpy's own serialisation."""

from __future__ import annotations

import pytest

pytest.importorskip('vision_msgs', reason='no vision_msgs here: run `make setup`')

from builtin_interfaces.msg import Time
from hypothesis import given, settings, strategies
from laimr_ros.nodes import detection_messages
from laimr_ros.nodes.detection_messages import write_detections
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import Header
from vision_msgs.msg import (
    BoundingBox2D,
    Detection2D,
    Detection2DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
    Point2D,
    Pose2D,
)

texts = strategies.text(
    strategies.characters(exclude_characters='\x00', exclude_categories=('Cs',)), max_size=13)
numbers = strategies.floats(-1e6, 1e6, width=32)
detections = strategies.lists(
    strategies.tuples(
        strategies.tuples(numbers, numbers, numbers, numbers),
        strategies.floats(0.0, 1.0, width=32), texts),
    max_size=5)


def by_rclpy(header, found, threshold=0.0):
    """Build the message the ordinary way."""
    message = Detection2DArray(header=header)
    for (x1, y1, x2, y2), score, name in found:
        if score < threshold:
            continue
        message.detections.append(Detection2D(
            header=header,
            results=[ObjectHypothesisWithPose(
                hypothesis=ObjectHypothesis(class_id=name, score=score))],
            bbox=BoundingBox2D(
                center=Pose2D(position=Point2D(x=(x1 + x2) / 2.0, y=(y1 + y2) / 2.0)),
                size_x=x2 - x1, size_y=y2 - y1)))
    return message


@settings(deadline=None, max_examples=300)
@given(strategies.integers(-2**31, 2**31 - 1), strategies.integers(0, 10**9 - 1), texts,
       detections, strategies.sampled_from([0.0, 0.5]))
def test_equal_to_rclpy(sec, nanosec, frame_id, found, threshold):
    header = Header(stamp=Time(sec=sec, nanosec=nanosec), frame_id=frame_id)
    expected = by_rclpy(header, found, threshold)
    written = write_detections(
        sec, nanosec, frame_id.encode(), [f[0] for f in found], [f[1] for f in found],
        [f[2] for f in found], threshold)
    assert deserialize_message(written, Detection2DArray) == expected
    # rclpy leaves whatever was in memory in the padding, so not byte by byte.
    assert len(written) == len(serialize_message(expected))


def test_nothing_found_is_an_empty_array():
    written = write_detections(1, 2, b'camera', [], [], [])
    message = deserialize_message(written, Detection2DArray)
    assert message.detections == []
    assert (message.header.stamp.sec, message.header.frame_id) == (1, 'camera')


def test_made_up_names_do_not_fill_the_memory():
    for number in range(25_000):
        write_detections(1, 2, b'c', [(0.0, 0.0, 1.0, 1.0)], [0.5], [str(number)])
    assert len(detection_messages._results) <= 10_000


def test_long_names_are_not_kept():
    detection_messages._results.clear()
    for length, kept in ((256, 1), (257, 1), (100_000, 1)):
        written = write_detections(1, 2, b'c', [(0.0, 0.0, 1.0, 1.0)], [0.5], ['x' * length])
        message = deserialize_message(written, Detection2DArray)
        assert message.detections[0].results[0].hypothesis.class_id == 'x' * length
        assert len(detection_messages._results) == kept


def test_half_a_character_stops_nothing():
    written = write_detections(1, 2, b'c', [(0.0, 0.0, 1.0, 1.0)], [0.5], ['a\ud800'])
    message = deserialize_message(written, Detection2DArray)
    assert message.detections[0].results[0].hypothesis.class_id == 'a?'
