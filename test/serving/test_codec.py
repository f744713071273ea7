"""Requests against protobuf's own classes."""

from __future__ import annotations

import array
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from laimr_ros.serving.codec import (
    decode_request,
    encode_request,
    ImagePayload,
    MAX_MESSAGE_BYTES,
    RequestError,
)
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

names = st.text(st.characters(exclude_categories=['Cs']), max_size=200)
numbers = st.integers(0, 2 ** 31 - 1)


def by_protobuf(model, frame_id, data):
    request = service_pb2.ModelInferRequest(model_name=model, id=frame_id)
    request.inputs.add(name='image', datatype='BYTES', shape=[1])
    request.raw_input_contents.append(struct.pack('<I', len(data)) + data)
    return request


@settings(max_examples=100, deadline=None)
@given(names, names, st.binary(max_size=300))
def test_compressed_equals_protobuf_byte_by_byte(model, frame_id, data):
    assert encode_request(model, ImagePayload(data), frame_id) == by_protobuf(
        model, frame_id, data).SerializeToString()


@pytest.mark.parametrize('size', [0, 1, 123, 124, 127, 128, 16379, 16380, 100_000, 3_000_000])
def test_lengths_of_all_widths(size):
    data = np.random.default_rng(size).bytes(size)
    assert encode_request('m', ImagePayload(data), 'f') == by_protobuf(
        'm', 'f', data).SerializeToString()


@settings(max_examples=100, deadline=None)
@given(names, names, st.binary(max_size=300), names.filter(bool), numbers, numbers, numbers,
       st.booleans())
def test_raw_equals_protobuf(model, frame_id, data, encoding, height, width, step, big):
    image = ImagePayload(data, encoding, height, width, step, big)
    parsed = service_pb2.ModelInferRequest.FromString(encode_request(model, image, frame_id))
    expected = service_pb2.ModelInferRequest(model_name=model, id=frame_id)
    expected.parameters['encoding'].string_param = encoding
    expected.parameters['height'].int64_param = height
    expected.parameters['width'].int64_param = width
    expected.parameters['step'].int64_param = step
    expected.parameters['is_bigendian'].bool_param = big
    expected.inputs.add(name='image', datatype='UINT8', shape=[len(data)])
    expected.raw_input_contents.append(data)
    assert parsed == expected
    again = decode_request(parsed)
    assert bytes(again.data) == data
    assert (again.encoding, again.height, again.width, again.step, again.is_bigendian) == (
        encoding, height, width, step, big)


@pytest.mark.parametrize('make', [
    bytes, bytearray, memoryview, lambda b: array.array('B', b), lambda b: np.frombuffer(b, 'u1'),
    lambda b: memoryview(b'xx' + b)[2:], lambda b: np.frombuffer(b, 'u1').reshape(2, -1)])
def test_any_buffer_will_do(make):
    data = bytes(range(200))
    assert encode_request('m', ImagePayload(make(data))) == encode_request('m', ImagePayload(data))


@pytest.mark.parametrize('data', ['text', None, 7, np.zeros((4, 4), 'u1')[:, ::2]])
def test_what_is_no_buffer_is_named(data):
    with pytest.raises(RequestError, match=type(data).__name__):
        encode_request('m', ImagePayload(data))


def test_too_large_for_a_message():
    with pytest.raises(RequestError, match='does not fit'):
        encode_request('m', ImagePayload(bytes(MAX_MESSAGE_BYTES)))


def test_compressed_is_read_without_a_copy():
    request = by_protobuf('m', '', b'abc')
    image = decode_request(request)
    assert image.encoding == '' and bytes(image.data) == b'abc'
    assert isinstance(image.data, memoryview)


def test_other_clients_requests():
    request = service_pb2.ModelInferRequest()
    tensor = request.inputs.add(name='image', datatype='BYTES', shape=[1, 1])
    tensor.contents.bytes_contents.append(b'jpeg')
    assert bytes(decode_request(request).data) == b'jpeg'

    for shape in ([2, 3, 3], [1, 2, 3, 3]):
        request = service_pb2.ModelInferRequest()
        request.inputs.add(name='image', datatype='UINT8', shape=shape)
        request.raw_input_contents.append(bytes(18))
        assert decode_request(request) == ImagePayload(bytes(18), 'rgb8', 2, 3, 9)
        del request.raw_input_contents[:]
        request.inputs[0].contents.uint_contents.extend(18 * [5])
        assert decode_request(request) == ImagePayload(18 * b'\5', 'rgb8', 2, 3, 9)


def broken(**change):
    request = by_protobuf('m', '', b'abc')
    for field, value in change.items():
        if field == 'raw':
            del request.raw_input_contents[:]
            request.raw_input_contents.extend(value)
        elif field == 'shape':
            request.inputs[0].shape[:] = value
        else:
            setattr(request.inputs[0], field, value)
    return request


@pytest.mark.parametrize('request_, hint', [
    (service_pb2.ModelInferRequest(), "named 'image'"),
    (broken(name='picture'), 'picture'),
    (broken(datatype='FP32'), 'FP32'),
    (broken(shape=[2]), r'\[2\]'),
    (broken(shape=[]), r'\[1\]'),
    (broken(raw=[]), '0 elements'),
    (broken(raw=[b'', b'']), '2 elements'),
    (broken(raw=[b'abc']), 'little-endian'),
    (broken(raw=[struct.pack('<I', 4) + b'abc']), 'little-endian'),
    (broken(datatype='UINT8', shape=[8]), 'agree'),
    (broken(datatype='UINT8', shape=[7]), 'encoding'),
])
def test_requests_that_hold_no_image(request_, hint):
    with pytest.raises(RequestError, match=hint):
        decode_request(request_)


def test_a_raw_image_needs_all_its_numbers():
    request = service_pb2.ModelInferRequest.FromString(
        encode_request('m', ImagePayload(b'abc', 'rgb8', 1, 1, 3)))
    del request.parameters['step']
    with pytest.raises(RequestError, match='step'):
        decode_request(request)
    request.parameters['step'].int64_param = -3
    with pytest.raises(RequestError, match='step'):
        decode_request(request)
