"""The client against servers that behave in every other way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time

import grpc
from grpc_health.v1 import health_pb2
from laimr_ros.serving import client as client_module
from laimr_ros.serving.client import ImagePayload, ReplicaClient
from laimr_ros.serving.endpoint import EndpointError
from laimr_ros.serving.errors import ErrorKind, InferenceError
import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

pytestmark = pytest.mark.asyncio

IMAGE = ImagePayload(b'any bytes')


class Foreign:
    """A server of whatever calls a test gives it."""

    def __init__(self, infer=None, health=None, **calls):
        self.handlers = []
        named = {}
        if infer is not None:
            named['ModelInfer'] = grpc.unary_unary_rpc_method_handler(
                infer, request_deserializer=service_pb2.ModelInferRequest.FromString,
                response_serializer=lambda r: r if isinstance(r, bytes) else r.SerializeToString())
        for name, call in calls.items():
            named[name] = grpc.unary_unary_rpc_method_handler(
                call, request_deserializer=getattr(service_pb2, f'{name}Request').FromString,
                response_serializer=lambda r: r.SerializeToString())
        self.handlers.append(grpc.method_handlers_generic_handler(
            'inference.GRPCInferenceService', named))
        if health is not None:
            self.handlers.append(grpc.method_handlers_generic_handler('grpc.health.v1.Health', {
                'Watch': grpc.unary_stream_rpc_method_handler(
                    health, request_deserializer=health_pb2.HealthCheckRequest.FromString,
                    response_serializer=health_pb2.HealthCheckResponse.SerializeToString)}))

    async def start(self, endpoint='127.0.0.1:0'):
        self.server = grpc.aio.server(options=[('grpc.so_reuseport', 0)])
        self.server.add_generic_rpc_handlers(tuple(self.handlers))
        port = self.server.add_insecure_port(endpoint)
        await self.server.start()
        return f'127.0.0.1:{port}'


@contextlib.asynccontextmanager
async def foreign(*args, options=None, class_names=None, **kwargs):
    served = Foreign(*args, **kwargs)
    endpoint = await served.start()
    async with ReplicaClient(endpoint, options=options, class_names=class_names) as client:
        yield client
    await served.server.stop(0)


async def error_of(awaitable):
    with pytest.raises(InferenceError) as caught:
        await awaitable
    return caught.value


def found(labels=(1, 0), datatype='INT64'):
    response = service_pb2.ModelInferResponse(model_name='m')
    response.outputs.add(name='labels', datatype=datatype, shape=[len(labels)])
    response.outputs.add(name='scores', datatype='FP32', shape=[len(labels)])
    response.outputs.add(name='boxes', datatype='FP32', shape=[len(labels), 4])
    response.raw_output_contents.extend([
        np.array(labels, '<i8').tobytes(), np.full(len(labels), 0.5, '<f4').tobytes(),
        np.arange(4 * len(labels), dtype='<f4').tobytes()])
    return response


async def answer(request, context):
    return found()


def config_of(value):
    async def config(request, context):
        response = service_pb2.ModelConfigResponse(
            config=model_config_pb2.ModelConfig(name=request.name))
        if value is not None:
            response.config.parameters['class_names'].string_value = value
        return response
    return config


@pytest.mark.parametrize('value, labels', [
    ('["cat", "dog"]', ('dog', 'cat')), (None, ('1', '0')), ('not JSON', ('1', '0')),
    ('{"0": "cat"}', ('1', '0')), ('[1, 2]', ('1', '0')), ('[' * 100_000, ('1', '0')),
    ('["\\ud800", "a"]', ('a', '?')), (f'["{"é" * 500}", "a"]', ('a', 'é' * 128))],
    ids=['names', 'none', 'no JSON', 'object', 'numbers', 'deep', 'half character', 'long'])
async def test_class_ids_get_the_names_of_the_models_configuration(value, labels):
    asked = []
    config = config_of(value)

    async def counted(request, context):
        asked.append(request.name)
        return await config(request, context)

    async with foreign(answer, ModelConfig=counted) as client:
        for _ in range(3):
            assert (await client.infer('m', IMAGE, 5.0)).labels == labels
        assert asked == ['m']


async def test_a_server_without_model_configuration():
    async with foreign(answer) as client:
        assert await client.class_names('m') == ()
        assert (await client.infer('m', IMAGE, 5.0)).labels == ('1', '0')


async def test_a_given_list_of_names_comes_first():
    async with foreign(
            answer, ModelConfig=config_of('["x", "y"]'),
            class_names={'m': ['cat', 'dog']}) as client:
        assert (await client.infer('m', IMAGE, 5.0)).labels == ('dog', 'cat')
        assert await client.class_names('m') == ('cat', 'dog')


async def test_a_reply_that_makes_no_sense():
    async def noise(request, context):
        return b'\xff\xff\xff'

    async with foreign(noise) as client:
        error = await error_of(client.infer('m', IMAGE, 5.0))
        assert error.kind is ErrorKind.BAD_REPLY


@pytest.mark.parametrize('code, kind, retryable, at_fault', [
    (grpc.StatusCode.RESOURCE_EXHAUSTED, ErrorKind.BUSY, True, False),
    (grpc.StatusCode.UNAVAILABLE, ErrorKind.UNAVAILABLE, True, True),
    (grpc.StatusCode.ABORTED, ErrorKind.UNAVAILABLE, True, True),
    (grpc.StatusCode.DEADLINE_EXCEEDED, ErrorKind.DEADLINE, False, False),
    (grpc.StatusCode.CANCELLED, ErrorKind.CANCELLED, False, False),
    (grpc.StatusCode.NOT_FOUND, ErrorKind.UNKNOWN_MODEL, True, True),
    (grpc.StatusCode.INVALID_ARGUMENT, ErrorKind.BAD_IMAGE, False, False),
    (grpc.StatusCode.INTERNAL, ErrorKind.INTERNAL, True, True),
    (grpc.StatusCode.UNKNOWN, ErrorKind.INTERNAL, True, True),
    (grpc.StatusCode.UNIMPLEMENTED, ErrorKind.INTERNAL, True, True),
])
async def test_every_status_has_a_kind(code, kind, retryable, at_fault):
    async def refuse(request, context):
        await context.abort(code, 'a long\n  story')

    async with foreign(refuse) as client:
        error = await error_of(client.infer('m', IMAGE, 5.0))
        assert (error.kind, error.retryable, error.replica_at_fault) == (kind, retryable, at_fault)
        assert client.endpoint in str(error) and 'a long story' in str(error)


async def test_every_kind_of_error_is_decided():
    for kind in ErrorKind:
        error = InferenceError(kind, 'text')
        assert isinstance(error.retryable, bool) and isinstance(error.replica_at_fault, bool)


async def test_a_message_limit_is_the_images_fault():
    async with foreign(answer) as client:  # gRPC takes 4 MiB by default
        error = await error_of(client.infer('m', ImagePayload(bytes(5_000_000)), 5.0))
        assert error.kind is ErrorKind.BAD_IMAGE and 'larger than max' in str(error)


async def test_what_cannot_be_sent():
    async with foreign(answer) as client:
        assert (await error_of(client.infer('m', ImagePayload('x'), 5.0))).kind is (
            ErrorKind.BAD_IMAGE)
        for timeout_s in (0.0, -1.0, float('nan')):
            assert (await error_of(client.infer('m', IMAGE, timeout_s))).kind is (
                ErrorKind.DEADLINE)


async def test_nobody_there(impatient):
    async with ReplicaClient('127.0.0.1:9', options=impatient) as client:
        error = await error_of(client.infer('m', IMAGE, 5.0))
        assert error.kind is ErrorKind.UNAVAILABLE
        with pytest.raises(InferenceError, match=r'127\.0\.0\.1:9.*0\.3 s.*unreachable'):
            await client.wait_ready(timeout_s=0.3)


async def test_the_deadline_travels_and_is_kept():
    remaining = []

    async def slow(request, context):
        remaining.append(context.time_remaining())
        await asyncio.sleep(30)

    async with foreign(slow) as client:
        began = time.monotonic()
        assert (await error_of(client.infer('m', IMAGE, 0.3))).kind is ErrorKind.DEADLINE
        assert 0.25 < time.monotonic() - began < 2.0
        # gRPC rounds what it sends.
        assert 0.0 < remaining[0] < 0.35


async def test_cancelling_is_seen_by_the_server(until):
    events = []

    async def slow(request, context):
        events.append('begun')
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            events.append('cancelled')
            raise

    async with foreign(slow) as client:
        task = asyncio.ensure_future(client.infer('m', IMAGE, 20.0))
        await until(lambda: events)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: events == ['begun', 'cancelled'])


async def test_a_client_that_is_closed():
    async def slow(request, context):
        await asyncio.sleep(30)

    async with foreign(slow) as client:
        task = asyncio.ensure_future(client.infer('m', IMAGE, 20.0))
        await asyncio.sleep(0)
        await client.close()
        await client.close()
        assert (await error_of(task)).kind is ErrorKind.CANCELLED
        assert (await error_of(client.infer('m', IMAGE, 5.0))).kind is ErrorKind.CANCELLED
        assert (await error_of(client.class_names('m'))).kind is ErrorKind.CANCELLED
        assert [health async for health in client.watch()] == []


async def test_a_watch_ends_when_its_client_is_closed(bench):
    async with bench() as b:
        await b.serve()
        client = b.client()
        seen = []

        async def follow():
            async for health in client.watch():
                seen.append(health.serving)
        task = asyncio.ensure_future(follow())
        while not seen:
            await asyncio.sleep(0.005)
        await client.close()
        await asyncio.wait_for(task, 5.0)


async def test_a_watch_can_be_cancelled(bench, impatient):
    async with bench() as b:
        await b.serve()
        for endpoint in (b.endpoint, '127.0.0.1:9'):
            watch = b.client(endpoint, options=impatient).watch()
            await anext(watch)
            task = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not [t for t in asyncio.all_tasks() if 'follow' in repr(t)]


async def test_a_watch_outlives_restarts(bench, jpeg, impatient):
    async with bench() as b:
        await b.serve()
        client = b.client(options=impatient)
        watch = client.watch()
        assert (await anext(watch)).serving
        for _ in range(3):
            await b.server.stop()
            health = await asyncio.wait_for(anext(watch), 5.0)
            assert not health.serving and health.reason
            await b.server.start([b.endpoint])
            assert (await asyncio.wait_for(anext(watch), 5.0)).serving
            # Serving means that frames get through, too.
            await client.infer('m', ImagePayload(jpeg), 5.0)
        await watch.aclose()


async def test_a_watch_begun_before_the_server(bench, impatient, tmp_path):
    endpoint = f'unix:{tmp_path}/w.sock'
    async with bench() as b:
        watch = b.client(endpoint, options=impatient).watch()
        assert not (await asyncio.wait_for(anext(watch), 5.0)).serving
        await b.serve(endpoint)
        assert (await asyncio.wait_for(anext(watch), 5.0)).serving
        await watch.aclose()


def readiness(state):
    async def server_ready(request, context):
        return service_pb2.ServerReadyResponse(ready=state['server'])

    async def model_ready(request, context):
        return service_pb2.ModelReadyResponse(ready=state.get(request.name, False))
    return {'ServerReady': server_ready, 'ModelReady': model_ready}


@pytest.mark.parametrize('has_unknown_health', [False, True])
async def test_a_server_without_health_service_is_asked(impatient, has_unknown_health):
    async def unknown(request, context):
        yield health_pb2.HealthCheckResponse(
            status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        await asyncio.sleep(30)

    state = {'server': True, 'm': True}
    health = unknown if has_unknown_health else None
    async with foreign(health=health, options=impatient, **readiness(state)) as client:
        await client.wait_ready(['m'], 5.0)
        watch = client.watch(['m'])
        assert (await asyncio.wait_for(anext(watch), 5.0)).serving
        state['m'] = False
        health = await asyncio.wait_for(anext(watch), 5.0)
        assert not health.serving and "'m'" in health.reason
        state['m'] = True
        assert (await asyncio.wait_for(anext(watch), 5.0)).serving
        state['server'] = False
        assert not (await asyncio.wait_for(anext(watch), 5.0)).serving
        with pytest.raises(InferenceError, match='not ready'):
            await client.wait_ready(['m'], 0.1)
        await watch.aclose()


async def test_a_server_that_speaks_something_else(impatient):
    async with foreign(options=impatient) as client:
        health = await asyncio.wait_for(anext(client.watch()), 5.0)
        assert not health.serving and health.reason
        assert (await error_of(client.infer('m', IMAGE, 5.0))).kind is ErrorKind.INTERNAL


async def test_a_server_of_another_kind_at_the_same_address(bench, impatient):
    """A replica without a health service is replaced by one with it, and back."""
    served = Foreign(**readiness({'server': True}))
    endpoint = await served.start()
    async with bench() as b:
        watch = b.client(endpoint, options=impatient).watch()
        assert (await asyncio.wait_for(anext(watch), 5.0)).serving
        await served.server.stop(0)
        assert not (await asyncio.wait_for(anext(watch), 5.0)).serving
        await b.serve(endpoint)
        assert (await asyncio.wait_for(anext(watch), 5.0)).serving
        await b.server.drain(1.0)
        began = time.monotonic()
        assert not (await asyncio.wait_for(anext(watch), 5.0)).serving
        assert time.monotonic() - began < 0.5
        await watch.aclose()


FROZEN = """
import asyncio, sys
from laimr_ros.detectors.base import DetectorSpec
from laimr_ros.serving.server import InferenceServer
async def main():
    server = InferenceServer({'m': DetectorSpec('emulated')})
    server.load()
    print(*await server.start(['127.0.0.1:0']), flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_a_host_that_vanishes_is_noticed(impatient):
    """A stopped process is like a pulled cable: nothing says goodbye, nothing answers."""
    process = subprocess.Popen([sys.executable, '-c', FROZEN], stdout=subprocess.PIPE, text=True)
    try:
        endpoint = (await asyncio.to_thread(process.stdout.readline)).strip()
        async with ReplicaClient(endpoint, options=impatient) as client:
            watch = client.watch()
            assert (await asyncio.wait_for(anext(watch), 5.0)).serving
            os.kill(process.pid, signal.SIGSTOP)
            began = time.monotonic()
            infer = asyncio.ensure_future(client.infer('m', IMAGE, 30.0))
            health = await asyncio.wait_for(anext(watch), 10.0)
            assert not health.serving
            assert (await error_of(infer)).kind is ErrorKind.UNAVAILABLE
            # 1 s of silence, then 0.5 s for the answer to a probe.
            assert time.monotonic() - began < 5.0
            os.kill(process.pid, signal.SIGCONT)
            assert (await asyncio.wait_for(anext(watch), 10.0)).serving
            await watch.aclose()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize('endpoint', ['http://x:1', 'x', 'unix:x', 'x:0'])
async def test_wrong_endpoints(endpoint):
    with pytest.raises(EndpointError):
        ReplicaClient(endpoint)


async def test_proxies_are_for_the_web(monkeypatch, bench, jpeg):
    for name in ('http_proxy', 'https_proxy', 'grpc_proxy', 'HTTPS_PROXY'):
        monkeypatch.setenv(name, 'http://127.0.0.1:9')
    async with bench() as b:
        await b.serve()
        await b.client().infer('m', ImagePayload(jpeg), 5.0)


async def test_jitter_stays_near():
    values = [client_module._jittered(1.0) for _ in range(200)]
    assert 0.75 <= min(values) < 0.85 and 1.15 < max(values) <= 1.25
