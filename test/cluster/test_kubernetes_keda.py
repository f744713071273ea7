"""KEDA's external scaler, asked as KEDA asks: its messages are taken apart by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
import grpc
from laimr_ros.cluster.kubernetes.board import Board
from laimr_ros.cluster.kubernetes.certificates import make_certificates
from laimr_ros.cluster.kubernetes.keda import KedaScaler
from laimr_ros.cluster.kubernetes.replicas import ClusterConfig
import pytest


def reference_message() -> Any:
    """Return a ScaledObjectRef made with a real map, unlike the one under test."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name='t.proto', package='t', syntax='proto3')
    message = file.message_type.add(name='Ref')
    for number, name in ((1, 'name'), (2, 'namespace')):
        message.field.add(name=name, number=number, type=kinds.TYPE_STRING, label=1)
    entry = message.nested_type.add(name='MetaEntry')
    entry.options.map_entry = True
    for number, name in ((1, 'key'), (2, 'value')):
        entry.field.add(name=name, number=number, type=kinds.TYPE_STRING, label=1)
    message.field.add(
        name='meta', number=3, type=kinds.TYPE_MESSAGE, label=3, type_name='.t.Ref.MetaEntry')
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName('t.Ref'))


REFERENCE = reference_message()


def ref(pool: str = 'edge') -> bytes:
    """Return a serialized reference to the ScaledObject of a pool."""
    return bytes(REFERENCE(
        name='so', namespace='laimr', meta={'pool': pool, 'scalerAddress': 'x:9090'},
    ).SerializeToString())


def varint_fields(data: bytes) -> dict[int, int]:
    """Return the whole numbers of a message by field number; others are passed over."""
    found, at = {}, 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found[key >> 3] = varint()
        elif key & 7 == 1:
            at += 8
        else:
            length = varint()
            at += length
    return found


@pytest.fixture
async def scaler() -> Iterator[Any]:
    """Return a board, and a channel to its scaler."""
    board = Board(30.0)
    scaler = KedaScaler(board, {'edge': 'laimr'}, ClusterConfig(keda_listen='127.0.0.1:0'))
    await scaler.start()
    channel = grpc.aio.insecure_channel(f'127.0.0.1:{scaler.port}')
    yield board, channel
    await channel.close()
    await scaler.close()


def call(channel: Any, method: str) -> Any:
    """Return a method that takes and gives bytes."""
    return channel.unary_unary(f'/externalscaler.ExternalScaler/{method}')


async def test_is_active_and_metrics(scaler: Any) -> None:
    """The number of replicas against a target of one each."""
    board, channel = scaler
    board.put('edge', 7)
    assert varint_fields(await call(channel, 'IsActive')(ref())) == {1: 1}
    spec = await call(channel, 'GetMetricSpec')(ref())
    assert b'laimr_desired_replicas' in spec
    inner = spec[2:]
    assert varint_fields(inner) == {2: 1}
    request = b'\x0a' + bytes([len(ref())]) + ref() + b'\x12\x06s0-abc'
    reply = await call(channel, 'GetMetrics')(request)
    assert b's0-abc' in reply
    assert varint_fields(reply[2:]) == {2: 7}
    board.put('edge', 0)
    assert varint_fields(await call(channel, 'IsActive')(ref())) == {}


async def test_activity_is_pushed_when_it_changes(scaler: Any) -> None:
    """Once at first, then at each change between none and some; other changes are no news."""
    board, channel = scaler
    board.put('edge', 2)
    stream = channel.unary_stream('/externalscaler.ExternalScaler/StreamIsActive')(ref())
    assert varint_fields(await stream.read()) == {1: 1}
    board.put('edge', 5)
    board.put('edge', 0)
    assert varint_fields(await stream.read()) == {}
    board.put('edge', 1)
    assert varint_fields(await stream.read()) == {1: 1}
    stream.cancel()


async def test_no_number_is_an_error_upon_which_keda_holds(scaler: Any) -> None:
    """Unknown yet, or too old; never a zero."""
    board, channel = scaler
    for why in ('nobody has said yet', 'is withheld'):
        for method, request in (('IsActive', ref()), ('GetMetrics', b'\x0a' + bytes(
                [len(ref())]) + ref())):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(channel, method)(request)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert why in caught.value.details()
        board.put('edge', 3)
        board._max_age_s = -1.0


async def test_an_unknown_pool_is_named(scaler: Any) -> None:
    """With those that there are."""
    _, channel = scaler
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, 'GetMetricSpec')(ref('egde'))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "names pool 'egde'; use one of ['edge']" in caught.value.details()


async def test_tls_with_a_certificate_that_is_renewed(tmp_path: Path) -> None:
    """Each connection sees the certificate of its time."""
    board = Board(30.0)
    board.put('edge', 1)

    def renew() -> bytes:
        made = make_certificates(('localhost',))
        (tmp_path / 'c').write_bytes(made.certificate)
        (tmp_path / 'k').write_bytes(made.key)
        return made.authority

    async def ask(authority: bytes) -> dict[int, int]:
        # A pool of its own: channels of equal settings share their connection otherwise.
        async with grpc.aio.secure_channel(
                f'localhost:{scaler.port}', grpc.ssl_channel_credentials(authority),
                options=(('grpc.use_local_subchannel_pool', 1),)) as channel:
            return varint_fields(await call(channel, 'IsActive')(ref(), timeout=5.0))

    first = renew()
    scaler = KedaScaler(board, {'edge': 'laimr'}, ClusterConfig(
        keda_listen='127.0.0.1:0', tls_cert_file=str(tmp_path / 'c'),
        tls_key_file=str(tmp_path / 'k')))
    await scaler.start()
    try:
        assert await ask(first) == {1: 1}
        second = renew()
        assert await ask(second) == {1: 1}
        with pytest.raises(grpc.aio.AioRpcError):
            await ask(first)
    finally:
        await scaler.close()


def test_a_port_that_is_taken_is_one_line() -> None:
    """It names the parameter and the fix."""
    import asyncio
    import socket
    with socket.create_server(('127.0.0.1', 0)) as taken:
        address = f'127.0.0.1:{taken.getsockname()[1]}'

        async def start() -> None:
            await KedaScaler(Board(1.0), {}, ClusterConfig(keda_listen=address)).start()

        with pytest.raises(ValueError, match=f'keda_listen: {address} cannot be listened on'):
            asyncio.run(start())
