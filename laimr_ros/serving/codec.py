"""A frame as an Open Inference Protocol request: written by the client, read by the server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
import struct
from typing import Any

from tritonclient.grpc import service_pb2

INPUT_NAME = 'image'

# 40 megapixels of three bytes, the largest image a worker takes by default, and some room.
MAX_MESSAGE_BYTES = 128 * 1024 * 1024

# Keys of the field numbers in protobuf's wire format, all "length-delimited".
_ID_KEY = bytes([3 << 3 | 2])
_RAW_INPUT_CONTENTS_KEY = bytes([7 << 3 | 2])

_pack_length = struct.Struct('<I').pack
_unpack_length = struct.Struct('<I').unpack_from


class RequestError(ValueError):
    """A request is not one for an image; the message names what is wrong and what is right."""


@dataclass(frozen=True)
class ImagePayload:
    """
    An image as it came from the camera.

    :param data: anything with a contiguous buffer of bytes (``bytes``, ``array``, ``memoryview``,
        an ndarray); it is passed on, not copied and not kept.
    :param encoding: empty for a JPEG or PNG, else that of ``sensor_msgs/Image``.
    :param height: rows, for raw images only.
    :param width: columns, for raw images only.
    :param step: bytes a row, for raw images only.
    :param is_bigendian: byte order of pixels wider than a byte, for raw images only.
    """

    data: Any
    encoding: str = ''
    height: int = 0
    width: int = 0
    step: int = 0
    is_bigendian: bool = False


def encode_request(model: str, image: ImagePayload, frame_id: str = '') -> bytes:
    """
    Write a ``ModelInferRequest``.

    The pixels are copied once, into the message. Protobuf's own classes would copy them three
    times, which costs more than all the rest; so the small fields are written by protobuf, once
    a model, and ``raw_input_contents``, the field of the highest number and so the last, by hand.

    :param model: name of the model.
    :param image: the image.
    :param frame_id: comes back in the reply.
    :raises RequestError: if the image is too large for a message, or is no buffer of bytes.
    """
    try:
        # One-dimensional and contiguous, or it cannot be joined.
        size = memoryview(image.data).nbytes
        if size > MAX_MESSAGE_BYTES - 4096:
            raise RequestError(
                f'an image of {size} bytes does not fit into a message of {MAX_MESSAGE_BYTES}; '
                'send it compressed, or smaller')
        if image.encoding:
            middle = _raw_input(
                image.encoding, image.height, image.width, image.step, image.is_bigendian, size)
            raw_key = _RAW_INPUT_CONTENTS_KEY + varint(size)
        else:
            middle = _COMPRESSED_INPUT
            raw_key = _RAW_INPUT_CONTENTS_KEY + varint(size + 4) + _pack_length(size)
        if frame_id:
            name = frame_id.encode()
            identity = _ID_KEY + varint(len(name)) + name
        else:
            identity = b''
        return b''.join((_model_name(model), identity, middle, raw_key, image.data))
    except (TypeError, BufferError) as error:
        raise RequestError(
            f'image data is a {type(image.data).__name__}, not a contiguous buffer of bytes '
            f'({error}); give bytes, an array or a contiguous ndarray') from None


def decode_request(request: service_pb2.ModelInferRequest) -> ImagePayload:
    """
    Read the image of a request, without copying it.

    Takes what ``encode_request`` writes, tensors in ``contents`` too, and an rgb8 image of shape
    [height, width, 3] without any parameters, which is what other clients send.

    :raises RequestError: if it holds no image, or more than one thing.
    """
    inputs = request.inputs
    if len(inputs) != 1 or inputs[0].name != INPUT_NAME:
        names = [tensor.name for tensor in inputs]
        raise RequestError(f'the inputs are {names}; give one, named {INPUT_NAME!r}')
    tensor = inputs[0]
    contents = request.raw_input_contents
    if len(contents) > 1:
        raise RequestError(f'raw_input_contents has {len(contents)} elements; give one')
    raw = contents[0] if contents else None
    datatype = tensor.datatype
    if datatype == 'BYTES':
        return ImagePayload(_one_element(tensor, raw))
    if datatype == 'UINT8':
        return _raw_image(request, tensor, raw)
    raise RequestError(
        f'input {INPUT_NAME!r} has datatype {datatype!r}; give BYTES for a JPEG or PNG, '
        'UINT8 for a raw image')


def _one_element(tensor: Any, raw: bytes | None) -> memoryview:
    """Return the only element of a BYTES tensor."""
    shape = list(tensor.shape)
    if shape not in ([1], [1, 1]):
        raise RequestError(
            f'input {INPUT_NAME!r} has shape {shape}; give [1], one compressed image a request')
    if raw is None:
        elements = tensor.contents.bytes_contents
        if len(elements) != 1:
            raise RequestError(f'input {INPUT_NAME!r} has {len(elements)} elements; give one')
        return memoryview(elements[0])
    if len(raw) < 4 or _unpack_length(raw)[0] != len(raw) - 4:
        raise RequestError(
            f'input {INPUT_NAME!r} has {len(raw)} bytes that do not start with their number; '
            'give a 4-byte little-endian length, then so many bytes')
    return memoryview(raw)[4:]


def _raw_image(
    request: service_pb2.ModelInferRequest, tensor: Any, raw: bytes | None,
) -> ImagePayload:
    data = memoryview(bytes(tensor.contents.uint_contents) if raw is None else raw)
    shape = list(tensor.shape)
    length = 1
    for side in shape:
        length *= side
    if length != len(data):
        raise RequestError(
            f'input {INPUT_NAME!r} has shape {shape} but {len(data)} bytes; make them agree')
    parameters = request.parameters
    if 'encoding' not in parameters:
        if shape[:-3] not in ([], [1]) or len(shape) < 3 or shape[-1] != 3:
            raise RequestError(
                f'input {INPUT_NAME!r} has shape {shape} and the request no parameter '
                "'encoding'; give shape [height, width, 3] of RGB, or the parameters encoding, "
                'height, width, step and is_bigendian')
        height, width = shape[-3], shape[-2]
        return ImagePayload(data, 'rgb8', height, width, 3 * width)
    numbers = {}
    for name in ('height', 'width', 'step'):
        value = parameters[name].int64_param if name in parameters else -1
        if value < 0:
            raise RequestError(f'the request needs a parameter {name!r}, a number of pixels '
                               '(step: bytes), to read a raw image')
        numbers[name] = value
    return ImagePayload(
        data, parameters['encoding'].string_param, **numbers,
        is_bigendian='is_bigendian' in parameters and parameters['is_bigendian'].bool_param)


def varint(value: int) -> bytes:
    """Return a number from 0 up in protobuf's variable-length form."""
    if value <= 0x7F:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# The caches are bounded because names and sizes come from outside.
@lru_cache(maxsize=256)
def _model_name(model: str) -> bytes:
    return service_pb2.ModelInferRequest(model_name=model).SerializeToString()


@lru_cache(maxsize=256)
def _raw_input(
    encoding: str, height: int, width: int, step: int, is_bigendian: bool, size: int,
) -> bytes:
    request = service_pb2.ModelInferRequest()
    request.parameters['encoding'].string_param = encoding
    request.parameters['height'].int64_param = height
    request.parameters['width'].int64_param = width
    request.parameters['step'].int64_param = step
    request.parameters['is_bigendian'].bool_param = bool(is_bigendian)
    tensor = request.inputs.add()
    tensor.name, tensor.datatype = INPUT_NAME, 'UINT8'
    tensor.shape.append(size)
    return request.SerializeToString(deterministic=True)


def _compressed_input() -> bytes:
    request = service_pb2.ModelInferRequest()
    tensor = request.inputs.add()
    tensor.name, tensor.datatype = INPUT_NAME, 'BYTES'
    tensor.shape.append(1)
    return request.SerializeToString()


_COMPRESSED_INPUT = _compressed_input()
