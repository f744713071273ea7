"""Replies of our own server and of others."""

from __future__ import annotations

import struct
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st
from laimr_ros.serving.errors import ErrorKind, InferenceError
from laimr_ros.serving.reply import decode_reply, encode_reply, NeedsClassNames, Timings
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

finite = st.floats(-1e6, 1e6, width=32)
label = st.text(st.characters(exclude_categories=['Cs']), max_size=20)
detection = st.tuples(finite, finite, finite, finite, st.floats(0, 1, width=32), label)


@settings(max_examples=100, deadline=None)
@given(st.lists(detection, max_size=30), st.integers(1, 9999), st.integers(1, 9999))
def test_there_and_back(found, width, height):
    boxes = np.array([d[:4] for d in found], np.float32).reshape(-1, 4)
    scores = np.array([d[4] for d in found], np.float32)
    timings = Timings(0.000001, 0.002, 0.03, 0.4, 5.0)
    raw = encode_reply(
        'm', 'f', boxes, scores, [d[5] for d in found], timings, (width, height))
    reply = decode_reply(raw)
    assert reply.boxes.dtype == np.float32 and reply.boxes.shape == (len(found), 4)
    assert reply.scores.dtype == np.float32
    np.testing.assert_array_equal(reply.boxes, boxes)
    np.testing.assert_array_equal(reply.scores, scores)
    assert reply.labels == tuple(d[5] for d in found)
    assert reply.image_size == (width, height)
    assert reply.timings is not None
    assert reply.timings.queue_s == pytest.approx(1e-6)
    assert reply.timings.service_s == pytest.approx(5.432)


@settings(max_examples=100, deadline=None)
@given(label, label, st.lists(detection, max_size=3),
       st.lists(st.integers(0, 2 ** 40), min_size=5, max_size=5),
       st.integers(0, 2 ** 31 - 1), st.integers(0, 200))
def test_the_message_is_what_protobuf_writes(model, frame_id, found, times_us, width, height):
    boxes = np.array([d[:4] for d in found], np.float32).reshape(-1, 4)
    scores = np.array([d[4] for d in found], np.float32)
    raw = encode_reply(
        model, frame_id, boxes, scores, [d[5] for d in found],
        Timings(*(us * 1e-6 for us in times_us)), (width, height))
    names = [d[5].encode() for d in found]
    expected = service_pb2.ModelInferResponse(
        model_name=model, model_version='1', id=frame_id, raw_output_contents=[
            boxes.tobytes(), scores.tobytes(),
            b''.join(struct.pack('<I', len(name)) + name for name in names)])
    for name, datatype, shape in (
        ('boxes', 'FP32', [len(found), 4]), ('scores', 'FP32', [len(found)]),
        ('labels', 'BYTES', [len(found)]),
    ):
        expected.outputs.add(name=name, datatype=datatype, shape=shape)
    keys = ('queue_us', 'decode_us', 'preprocess_us', 'inference_us', 'postprocess_us')
    for key, value in (
            *zip(keys, times_us), ('image_width', width), ('image_height', height)):
        expected.parameters[key].int64_param = value
    assert service_pb2.ModelInferResponse.FromString(raw) == expected


def foreign(
    boxes=((1, 2, 3, 4), (5, 6, 7, 8)), scores=(0.5, 0.25), labels=(b'cat', b'dog'),
    label_type='BYTES', typed=False, order=(0, 1, 2), shapes=None, float_type='FP32',
):
    dtype = {'FP32': '<f4', 'FP64': '<f8', 'FP16': '<f2'}[float_type]
    if label_type == 'BYTES':
        label_raw = b''.join(struct.pack('<I', len(v)) + v for v in labels)
        label_field = 'bytes_contents'
    else:
        label_raw = np.array(labels, {'INT32': '<i4', 'INT64': '<i8'}[label_type]).tobytes()
        label_field = {'INT32': 'int_contents', 'INT64': 'int64_contents'}[label_type]
    flat = np.array(boxes, float).ravel()
    float_field = {'FP32': 'fp32_contents', 'FP64': 'fp64_contents', 'FP16': ''}[float_type]
    shapes = shapes or ([len(boxes), 4], [len(scores)], [len(labels)])
    tensors = [
        ('boxes', float_type, shapes[0], flat.astype(dtype).tobytes(), float_field, flat),
        ('scores', float_type, shapes[1], np.array(scores, dtype).tobytes(), float_field, scores),
        ('labels', label_type, shapes[2], label_raw, label_field, labels)]
    response = service_pb2.ModelInferResponse(model_name='m')
    for index in order:
        name, datatype, shape, raw, field, values = tensors[index]
        tensor = response.outputs.add(name=name, datatype=datatype, shape=shape)
        if typed:
            getattr(tensor.contents, field).extend(values)
        else:
            response.raw_output_contents.append(raw)
    return response


def read(response, names=None):
    return decode_reply(response.SerializeToString(), names)


@pytest.mark.parametrize('typed', [False, True])
@pytest.mark.parametrize('order', [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize('float_type', ['FP32', 'FP64'])
@pytest.mark.parametrize('label_type, labels', [
    ('BYTES', (b'cat', b'dog')), ('INT32', (1, 2)), ('INT64', (1, 2))])
def test_any_order_and_form(typed, order, float_type, label_type, labels):
    reply = read(
        foreign(labels=labels, label_type=label_type, typed=typed, order=order,
                float_type=float_type), ['bird', 'cat', 'dog'])
    np.testing.assert_array_equal(reply.boxes, [[1, 2, 3, 4], [5, 6, 7, 8]])
    np.testing.assert_array_equal(reply.scores, [0.5, 0.25])
    assert reply.labels == ('cat', 'dog')
    assert reply.timings is None and reply.image_size is None


def test_half_precision_and_a_batch_of_one():
    reply = read(foreign(float_type='FP16', shapes=([1, 2, 4], [1, 2], [1, 2])))
    assert reply.boxes.shape == (2, 4) and reply.boxes.dtype == np.float32
    assert reply.labels == ('cat', 'dog')


def test_half_precision_of_usual_images():
    boxes = [(10, 10, 640, 480), (0, 0, 3840, 2160)]
    reply = read(foreign(boxes=boxes, float_type='FP16'))
    np.testing.assert_array_equal(reply.boxes, boxes)


def test_a_label_of_the_greatest_length():
    assert read(foreign(labels=(b'x' * 256, b'y'))).labels == ('x' * 256, 'y')


def test_labels_without_end_do_not_fill_the_memory():
    tracemalloc.start()
    try:
        for number in range(200):
            with pytest.raises(InferenceError):
                read(foreign(labels=(b'%d' % number + b'x' * 200_000, b'y')))
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


def test_what_a_server_calls_its_outputs_does_not_fill_the_message():
    response = without('boxes')
    response.outputs[0].name = 'z' * 100_000
    with pytest.raises(InferenceError) as caught:
        read(response)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize('typed', [False, True])
@pytest.mark.parametrize('label_type', ['BYTES', 'INT64'])
def test_nothing_found(typed, label_type):
    reply = read(foreign(
        boxes=(), scores=(), labels=(), label_type=label_type, typed=typed,
        shapes=([0, 4], [0], [0])))
    assert reply.boxes.shape == (0, 4) and reply.scores.shape == (0,) and reply.labels == ()


def test_further_outputs_are_passed_over():
    response = foreign()
    response.outputs.add(name='masks', datatype='FP32', shape=[1])
    response.raw_output_contents.append(bytes(4))
    assert read(response).labels == ('cat', 'dog')


def test_class_ids_without_names():
    response = foreign(labels=(7, 0), label_type='INT64')
    with pytest.raises(NeedsClassNames):
        read(response)
    assert read(response, ()).labels == ('7', '0')


def without(name):
    response = foreign()
    index = [tensor.name for tensor in response.outputs].index(name)
    del response.outputs[index]
    del response.raw_output_contents[index]
    return response


def changed(index, raw):
    response = foreign()
    response.raw_output_contents[index] = raw
    return response


@pytest.mark.parametrize('response, hint', [
    (without('boxes'), "no output 'boxes'"),
    (without('scores'), "no output 'scores'"),
    (without('labels'), "no output 'labels'"),
    (foreign(boxes=((1, 2, 3, float('nan')), (5, 6, 7, 8))), 'finite'),
    (foreign(boxes=((1, 2, 3, float('inf')), (5, 6, 7, 8))), 'finite'),
    (foreign(scores=(0.5, float('nan'))), 'finite'),
    (foreign(scores=(float('-inf'), 0.1)), 'finite'),
    (foreign(shapes=([4, 2], [2], [2])), r'\[4, 2\]'),
    (foreign(shapes=([8], [2], [2])), r'\[8\]'),
    (foreign(shapes=([-1, 4], [2], [2])), 'boxes of shape'),
    (foreign(shapes=([2, 4], [-1], [2])), 'scores of shape'),
    (foreign(shapes=([2, 2, 4], [2], [2])), 'boxes of shape'),
    (foreign(shapes=([2, 4], [2, 1], [2])), 'scores of shape'),
    (foreign(scores=(0.5, 0.4, 0.3)), '2 boxes but scores'),
    (foreign(labels=(b'cat',)), '2 boxes but labels'),
    (foreign(labels=(b'cat',), shapes=([2, 4], [2], [2])), '1 labels'),
    (changed(0, bytes(28)), '28 bytes of boxes'),
    (changed(1, bytes(9)), '9 bytes of scores'),
    (changed(2, b'\3\0\0'), 'within a length'),
    (changed(2, b'\3\0\0\0ab'), 'within a name'),
    (changed(2, b'\xff\xff\xff\xffab'), 'within a name'),
    (changed(2, b'\1\0\0\0\xff\1\0\0\0a'), 'UTF-8'),
    (foreign(labels=(b'cat', b'x' * 257)), 'a label of 257 bytes, and 256 is the most'),
    (foreign(labels=(b'cat', b'x' * 2_000_000)), 'a label of 2000000 bytes'),
    (foreign(labels=(b'x' * 257, b'cat'), typed=True), 'a label of 257 bytes'),
    (foreign(boxes=((1, 2, 3, 1e100), (5, 6, 7, 8)), float_type='FP64'), 'finite'),
    (foreign(boxes=((1, 2, 3, 1e100), (5, 6, 7, 8)), float_type='FP64', typed=True), 'finite'),
    (foreign(scores=(0.5, -1e300), float_type='FP64'), 'finite'),
    (foreign(boxes=((1, 2, 3, float('inf')), (5, 6, 7, 8)), float_type='FP16'), 'finite'),
    (foreign(typed=True, shapes=([3, 4], [3], [3])), '8 numbers of boxes'),
    (foreign(labels=(1, 2), label_type='INT32'), 'class ids'),
    (foreign(labels=(-1, 0), label_type='INT32'), 'class ids'),
])
def test_malformed(response, hint):
    with pytest.raises(InferenceError, match=hint) as caught:
        read(response, ['bird', 'cat'])
    assert caught.value.kind is ErrorKind.BAD_REPLY
    assert caught.value.retryable and caught.value.replica_at_fault


def test_wrong_datatypes_and_contents():
    response = foreign()
    response.outputs[0].datatype = 'INT8'
    with pytest.raises(InferenceError, match='INT8'):
        read(response)
    response = foreign()
    response.outputs[2].datatype = 'FP32'
    with pytest.raises(InferenceError, match='labels of datatype'):
        read(response)
    response = foreign()
    del response.raw_output_contents[2]
    with pytest.raises(InferenceError, match='3 outputs but 2 raw'):
        read(response)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_a_bad_reply(noise):
    with pytest.raises(InferenceError) as caught:
        decode_reply(noise)
    assert caught.value.kind is ErrorKind.BAD_REPLY


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2 ** 31), st.integers(0, 255))
def test_one_wrong_byte_never_ends_in_anything_else(position, value):
    raw = bytearray(foreign().SerializeToString())
    raw[position % len(raw)] = value
    try:
        reply = decode_reply(bytes(raw), ())
    except InferenceError as error:
        assert error.kind is ErrorKind.BAD_REPLY
    else:
        assert reply.boxes.shape == (len(reply.scores), 4)
        assert len(reply.labels) == len(reply.scores)


def test_partial_timings():
    response = foreign()
    response.parameters['queue_us'].int64_param = 5
    assert read(response).timings is None
    response.parameters['inference_us'].int64_param = 7000
    assert read(response).timings == Timings(queue_s=5 * 1e-6, inference_s=7000 * 1e-6)
    response.parameters['inference_us'].int64_param = -1
    assert read(response).timings is None
