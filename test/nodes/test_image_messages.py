"""Images read in place must equal what rclpy reads."""

from __future__ import annotations

import struct

import pytest

pytest.importorskip('rclpy', reason='no ROS here: run `make setup`')

from builtin_interfaces.msg import Time
from hypothesis import given, settings, strategies
from laimr_ros.nodes.image_messages import (
    MessageError,
    read_compressed,
    read_raw,
    reader,
)
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

texts = strategies.text(
    strategies.characters(exclude_characters='\x00', exclude_categories=('Cs',)), max_size=20)
headers = strategies.builds(
    lambda sec, nanosec, frame: Header(stamp=Time(sec=sec, nanosec=nanosec), frame_id=frame),
    strategies.integers(-2**31, 2**31 - 1), strategies.integers(0, 10**9 - 1), texts)
uint32 = strategies.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=200)
@given(headers, texts, strategies.binary(max_size=70))
def test_compressed_image_is_read_as_rclpy_wrote_it(header, text, data):
    message = CompressedImage(header=header, format=text, data=data)
    image = read_compressed(serialize_message(message))
    assert (image.sec, image.nanosec) == (header.stamp.sec, header.stamp.nanosec)
    assert image.stamp_ns == header.stamp.sec * 10**9 + header.stamp.nanosec
    assert image.frame_id.decode() == header.frame_id
    assert image.format == text
    assert bytes(image.data) == data
    assert (image.encoding, image.height, image.width, image.step) == ('', 0, 0, 0)


@settings(deadline=None, max_examples=200)
@given(headers, uint32, uint32, texts, strategies.booleans(), uint32,
       strategies.binary(max_size=70))
def test_raw_image_is_read_as_rclpy_wrote_it(header, height, width, encoding, big, step, data):
    message = Image(
        header=header, height=height, width=width, encoding=encoding, is_bigendian=int(big),
        step=step, data=data)
    image = read_raw(serialize_message(message))
    assert (image.sec, image.nanosec) == (header.stamp.sec, header.stamp.nanosec)
    assert image.frame_id.decode() == header.frame_id
    assert (image.height, image.width, image.step) == (height, width, step)
    assert (image.encoding, image.is_bigendian, image.format) == (encoding, big, '')
    assert bytes(image.data) == data


def test_big_endian_message_is_read():
    message = (
        b'\x00\x00\x00\x00' + struct.pack('>iII', 7, 8, 4) + b'cam\x00'
        + struct.pack('>I', 5) + b'jpeg\x00' + bytes(3) + struct.pack('>I', 3) + b'abc')
    image = read_compressed(message)
    assert (image.sec, image.nanosec, image.frame_id) == (7, 8, b'cam')
    assert (image.format, bytes(image.data)) == ('jpeg', b'abc')


def test_image_is_a_view_not_a_copy():
    message = serialize_message(CompressedImage(format='jpeg', data=bytes(1000)))
    assert read_compressed(message).data.obj is message


@settings(deadline=None)
@given(strategies.integers(0, 60), strategies.sampled_from([CompressedImage, Image]))
def test_cut_message_is_an_error(length, message_type):
    whole = serialize_message(message_type(
        header=Header(frame_id='camera_frame'), data=bytes(100)))
    with pytest.raises(MessageError):
        reader(message_type)(whole[:length])


@settings(deadline=None)
@given(strategies.binary(max_size=80))
def test_garbage_never_raises_anything_else(garbage):
    for read in (read_compressed, read_raw):
        try:
            read(b'\x00\x01\x00\x00' + garbage)
        except MessageError:
            pass


def test_representation_unknown_here_is_left_to_the_middleware():
    message = bytearray(serialize_message(CompressedImage(format='png', data=b'xyz')))
    # PL_CDR, little endian: not read here, while Fast CDR knows it.
    message[1] = 0x03
    with pytest.raises(MessageError, match='0003'):
        read_compressed(bytes(message))
    try:
        image = reader(CompressedImage)(bytes(message))
    except MessageError as error:
        assert 'middleware' in str(error)
    else:
        assert (image.format, bytes(image.data)) == ('png', b'xyz')
