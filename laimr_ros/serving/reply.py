"""Detections as an Open Inference Protocol reply: written by the server, read by the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
import math
import struct
from typing import Any

from google.protobuf.message import DecodeError
from laimr_ros.serving.codec import varint
from laimr_ros.serving.errors import ErrorKind, InferenceError
import numpy as np
import numpy.typing as npt
from tritonclient.grpc import service_pb2

BOXES, SCORES, LABELS = 'boxes', 'scores', 'labels'

#: Longest label in bytes of UTF-8; longer ones are no names, and would fill caches and topics.
MAX_LABEL_BYTES = 256

# Keys of the field numbers in protobuf's wire format, both "length-delimited".
_ID_KEY = bytes([3 << 3 | 2])
_RAW_OUTPUT_CONTENTS_KEY = bytes([6 << 3 | 2])

_unpack_length = struct.Struct('<I').unpack_from

# Datatype of the protocol -> NumPy type of raw contents, field of typed contents. FP16 has none.
_FLOATS: dict[str, tuple[np.dtype[Any], str]] = {
    'FP32': (np.dtype('<f4'), 'fp32_contents'),
    'FP64': (np.dtype('<f8'), 'fp64_contents'),
    'FP16': (np.dtype('<f2'), ''),
}
_INTEGERS: dict[str, tuple[np.dtype[Any], str]] = {
    'INT64': (np.dtype('<i8'), 'int64_contents'),
    'INT32': (np.dtype('<i4'), 'int_contents'),
    'INT16': (np.dtype('<i2'), 'int_contents'),
    'INT8': (np.dtype('<i1'), 'int_contents'),
    'UINT64': (np.dtype('<u8'), 'uint64_contents'),
    'UINT32': (np.dtype('<u4'), 'uint_contents'),
    'UINT16': (np.dtype('<u2'), 'uint_contents'),
    'UINT8': (np.dtype('<u1'), 'uint_contents'),
}


@dataclass(frozen=True)
class Timings:
    """
    Where the time went in the replica, all in seconds.

    :param queue_s: waiting for the worker's only thread.
    :param decode_s: from bytes to pixels.
    :param preprocess_s: to prepare the network's input.
    :param inference_s: in the network.
    :param postprocess_s: on boxes.
    """

    queue_s: float = 0.0
    decode_s: float = 0.0
    preprocess_s: float = 0.0
    inference_s: float = 0.0
    postprocess_s: float = 0.0

    @property
    def service_s(self) -> float:
        """Return the time the replica was occupied, in seconds: all but the queue."""
        return self.decode_s + self.preprocess_s + self.inference_s + self.postprocess_s


@dataclass(frozen=True)
class InferenceReply:
    """
    What a replica found in one image.

    :param boxes: float32, shape (N, 4), ``x1, y1, x2, y2`` in pixels of the source image.
    :param scores: float32, shape (N,).
    :param labels: class names, N of them.
    :param timings: times within the replica; None if it does not tell.
    :param image_size: width and height of the image in pixels; None if it does not tell.
    """

    boxes: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    labels: tuple[str, ...]
    timings: Timings | None = None
    image_size: tuple[int, int] | None = None


class NeedsClassNames(Exception):
    """The reply has class ids, and the names of the classes are not known yet."""


@lru_cache(maxsize=4096)
def _label_element(name: str) -> bytes:
    encoded = name.encode()
    return struct.pack('<I', len(encoded)) + encoded


# Bounded in bytes, too: by `MAX_LABEL_BYTES` an entry.
@lru_cache(maxsize=4096)
def _label_text(encoded: bytes) -> str:
    return encoded.decode()


def encode_reply(
    model: str, frame_id: str, boxes: npt.NDArray[np.float32], scores: npt.NDArray[np.float32],
    labels: Sequence[str], timings: Timings, image_size: tuple[int, int],
) -> bytes:
    """
    Write a ``ModelInferResponse``; the parameters are as for ``InferenceReply``.

    By hand, around parts that protobuf has written once: a third of the time of its own classes,
    which are made for messages that change.
    """
    width, height = image_size
    identity = frame_id.encode()
    label_contents = b''.join([_label_element(label) for label in labels])
    box_contents = np.ascontiguousarray(boxes, '<f4').tobytes()
    score_contents = np.ascontiguousarray(scores, '<f4').tobytes()
    return b''.join((
        _template(model, len(scores)),
        _ID_KEY, varint(len(identity)), identity,
        _parameter(b'queue_us', _microseconds(timings.queue_s)),
        _parameter(b'decode_us', _microseconds(timings.decode_s)),
        _parameter(b'preprocess_us', _microseconds(timings.preprocess_s)),
        _parameter(b'inference_us', _microseconds(timings.inference_s)),
        _parameter(b'postprocess_us', _microseconds(timings.postprocess_s)),
        _parameter(b'image_width', width),
        _parameter(b'image_height', height),
        _RAW_OUTPUT_CONTENTS_KEY, varint(len(box_contents)), box_contents,
        _RAW_OUTPUT_CONTENTS_KEY, varint(len(score_contents)), score_contents,
        _RAW_OUTPUT_CONTENTS_KEY, varint(len(label_contents)), label_contents))


def _microseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e6))


def _parameter(name: bytes, value: int) -> bytes:
    """Return one entry of ``parameters``: a name and an ``int64_param``, both short."""
    number = varint(value)
    # The entry is {1: name, 2: {2: number}}.
    return b'"%c\n%c%b\x12%c\x10%b' % (
        len(name) + len(number) + 5, len(name), name, len(number) + 1, number)


@lru_cache(maxsize=1024)
def _template(model: str, count: int) -> bytes:
    """Return all that is the same in every reply with so many detections."""
    make = service_pb2.ModelInferResponse.InferOutputTensor
    return service_pb2.ModelInferResponse(
        model_name=model, model_version='1', outputs=[
            make(name=BOXES, datatype='FP32', shape=[count, 4]),
            make(name=SCORES, datatype='FP32', shape=[count]),
            make(name=LABELS, datatype='BYTES', shape=[count])]).SerializeToString()


def decode_reply(raw: bytes, class_names: Sequence[str] | None = None) -> InferenceReply:
    """
    Read a ``ModelInferResponse`` of any server that gives boxes, scores and labels.

    Outputs may come in any order, with a leading batch side of 1, in raw or in typed contents.

    :param raw: the serialised message.
    :param class_names: names by class id, for servers whose labels are numbers; empty to use the
        numbers as names.
    :raises InferenceError: ``BAD_REPLY``, if it is malformed.
    :raises NeedsClassNames: if labels are numbers and ``class_names`` is None.
    """
    try:
        response = service_pb2.ModelInferResponse.FromString(raw)
    except DecodeError as error:
        raise _bad(f'is no ModelInferResponse ({error})') from None
    contents = response.raw_output_contents
    outputs = {}
    for index, tensor in enumerate(response.outputs):
        outputs[tensor.name] = tensor, index
    if contents and len(contents) != len(response.outputs):
        raise _bad(f'has {len(response.outputs)} outputs but {len(contents)} raw contents')
    for name in (BOXES, SCORES, LABELS):
        if name not in outputs:
            raise _bad(f'has no output {name!r}, only {sorted(outputs)}')

    tensor, index = outputs[BOXES]
    shape = _shape(tensor, 2)
    if shape[1] != 4:
        raise _bad(f'has boxes of shape {shape}; [N, 4] is needed')
    count = shape[0]
    boxes = _floats(tensor, contents[index] if contents else None, 4 * count)
    tensor, index = outputs[SCORES]
    _require_count(tensor, count)
    scores = _floats(tensor, contents[index] if contents else None, count)
    # A square is finite only if its root is, and a dot product costs a quarter of `isfinite`.
    # (It is infinite from 1e19 up, too; no image has such pixels.) Both are float32 here: in half
    # precision the square of any usual pixel would be infinite.
    if not math.isfinite(np.vdot(boxes, boxes) + np.vdot(scores, scores)):
        raise _bad('has boxes or scores that are not finite numbers')
    tensor, index = outputs[LABELS]
    _require_count(tensor, count)
    labels = _labels(tensor, contents[index] if contents else None, count, class_names)

    numbers = {name: value.int64_param for name, value in response.parameters.items()}
    return InferenceReply(
        boxes.reshape(count, 4), scores, labels, _timings(numbers), _image_size(numbers))


def _bad(what: str) -> InferenceError:
    if len(what) > 300:
        # Names and shapes in it are the server's, and may be of any length.
        what = what[:300] + '...'
    return InferenceError(
        ErrorKind.BAD_REPLY,
        f'the reply {what}; the model must give boxes [N, 4] as x1, y1, x2, y2, scores [N] '
        'and labels [N]')


def _shape(tensor: Any, dimensions: int) -> list[int]:
    """Return the shape without a leading batch side of 1."""
    shape = list(tensor.shape)
    if len(shape) == dimensions + 1 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) != dimensions or min(shape) < 0:
        raise _bad(f'has {tensor.name} of shape {list(tensor.shape)}')
    return shape


def _require_count(tensor: Any, count: int) -> None:
    if _shape(tensor, 1)[0] != count:
        raise _bad(f'has {count} boxes but {tensor.name} of shape {list(tensor.shape)}')


def _numbers(
    tensor: Any, raw: bytes | None, types: dict[str, tuple[np.dtype[Any], str]], count: int,
) -> npt.NDArray[Any]:
    dtype, field = types.get(tensor.datatype, (None, ''))
    if dtype is None:
        raise _bad(f'has {tensor.name} of datatype {tensor.datatype!r}, not {" or ".join(types)}')
    if raw is None:
        # A server that has nothing to say leaves the contents out.
        values = getattr(tensor.contents, field) if field else ()
        numbers = np.array(values, dtype)
    elif len(raw) != count * dtype.itemsize:
        raise _bad(f'has {len(raw)} bytes of {tensor.name} for shape {list(tensor.shape)}')
    else:
        numbers = np.frombuffer(raw, dtype)
    if len(numbers) != count:
        raise _bad(f'has {len(numbers)} numbers of {tensor.name} for shape {list(tensor.shape)}')
    return numbers


def _floats(tensor: Any, raw: bytes | None, count: int) -> npt.NDArray[np.float32]:
    numbers = _numbers(tensor, raw, _FLOATS, count)
    if numbers.dtype == np.float32:
        return numbers
    with np.errstate(over='ignore'):  # what is too large becomes infinite, which is refused
        return numbers.astype(np.float32)


def _labels(
    tensor: Any, raw: bytes | None, count: int, class_names: Sequence[str] | None,
) -> tuple[str, ...]:
    if tensor.datatype != 'BYTES':
        ids = _numbers(tensor, raw, _INTEGERS, count).tolist()
        if class_names is None and ids:
            raise NeedsClassNames
        if not class_names:
            return tuple(map(str, ids))
        if ids and not 0 <= min(ids) <= max(ids) < len(class_names):
            raise _bad(f'has class ids up to {max(ids)}, down to {min(ids)}, '
                       f'but {len(class_names)} classes are known')
        return tuple(class_names[i] for i in ids)
    try:
        if raw is None:
            elements = tensor.contents.bytes_contents
            for element in elements:
                if len(element) > MAX_LABEL_BYTES:
                    raise _too_long(len(element))
            labels = tuple([_label_text(element) for element in elements])
        else:
            # Much the same objects are seen again and again; only small keys are worth keeping.
            labels = _known_labels(raw) if len(raw) <= 1024 else _split_labels(raw)
    except UnicodeDecodeError:
        raise _bad('has labels that are not UTF-8') from None
    if len(labels) != count:
        raise _bad(f'has {len(labels)} labels for shape {list(tensor.shape)}')
    return labels


def _too_long(length: int) -> InferenceError:
    return _bad(f'has a label of {length} bytes, and {MAX_LABEL_BYTES} is the most')


def _split_labels(raw: bytes) -> tuple[str, ...]:
    labels = []
    at, end = 0, len(raw)
    while at < end:
        if end - at < 4:
            raise _bad('has labels that end within a length')
        start = at + 4
        at = start + _unpack_length(raw, at)[0]
        if at > end:
            raise _bad('has labels that end within a name')
        if at - start > MAX_LABEL_BYTES:
            raise _too_long(at - start)
        labels.append(_label_text(raw[start:at]))
    return tuple(labels)


# At most 1 KiB a key, and about ten times that in short labels.
_known_labels = lru_cache(maxsize=1024)(_split_labels)


def _timings(numbers: dict[str, int]) -> Timings | None:
    if 'queue_us' not in numbers or 'inference_us' not in numbers:
        return None
    take = numbers.get
    values = (numbers['queue_us'], take('decode_us', 0), take('preprocess_us', 0),
              numbers['inference_us'], take('postprocess_us', 0))
    if min(values) < 0:
        return None
    return Timings(*(value * 1e-6 for value in values))


def _image_size(numbers: dict[str, int]) -> tuple[int, int] | None:
    width, height = numbers.get('image_width', 0), numbers.get('image_height', 0)
    return (width, height) if width > 0 and height > 0 else None
