"""The server on real sockets, with a detector that does what the test says."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import threading
import time
import zlib

import cv2
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from laimr_ros.detectors.base import DetectorError, DetectorSpec
from laimr_ros.serving.client import ImagePayload
from laimr_ros.serving.endpoint import EndpointError
from laimr_ros.serving.errors import ErrorKind, InferenceError
from laimr_ros.serving.loaded_model import LoadFailure
from laimr_ros.serving.server import InferenceServer
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

pytestmark = pytest.mark.asyncio


async def kind_of(awaitable, match=None):
    with pytest.raises(InferenceError, match=match) as caught:
        await awaitable
    return caught.value.kind


async def cancelled(task):
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_frame_there_and_back(bench, jpeg):
    async with bench() as b:
        await b.serve()
        reply = await b.client().infer('m', ImagePayload(jpeg), 5.0, 'robot1:7')
        np.testing.assert_allclose(reply.boxes, [[0, 0, 6.4, 4.8]], rtol=1e-6)
        assert reply.scores.tolist() == [0.5] and reply.labels == ('größe',)
        assert reply.image_size == (64, 48)
        assert reply.timings.preprocess_s == pytest.approx(0.001)
        assert reply.timings.inference_s == pytest.approx(0.002)
        assert reply.timings.postprocess_s == pytest.approx(0.003, abs=0.001)
        assert 0.0 < reply.timings.decode_s < 1.0
        assert b.detector.seen == [(48, 64, 3)]
        assert len(b.detector.threads) == 1, 'detectors must only know one thread'
        assert threading.get_ident() not in b.detector.threads


async def test_raw_frames(bench):
    async with bench() as b:
        await b.serve()
        client = b.client()
        pixels = np.zeros((5, 7, 3), np.uint8)
        reply = await client.infer('m', ImagePayload(pixels, 'bgr8', 5, 7, 21), 5.0)
        assert reply.image_size == (7, 5) and b.detector.seen == [(5, 7, 3)]
        for image, hint in (
            (ImagePayload(pixels, 'rgb99', 5, 7, 21), 'rgb99'),
            (ImagePayload(pixels, 'bgr8', 50, 7, 21), 'height|rows|bytes'),
            (ImagePayload(pixels, 'bgr8', 5, 7, 20), 'step'),
        ):
            assert await kind_of(client.infer('m', image, 5.0), hint) is ErrorKind.BAD_IMAGE


def png_header(width, height):
    head = struct.pack('>4sIIBBBBB', b'IHDR', width, height, 8, 2, 0, 0, 0)
    return (b'\x89PNG\r\n\x1a\n' + struct.pack('>I', 13) + head
            + struct.pack('>I', zlib.crc32(head)))


async def test_bad_images_are_refused_and_the_next_one_is_served(bench, jpeg):
    async with bench() as b:
        await b.serve()
        client = b.client()
        noise = np.random.default_rng(0).bytes(1000)
        for data, hint in (
            (b'', 'empty'),
            (noise, 'JPEG'),
            (jpeg[:100], 'cut short|corrupt|header'),
            (jpeg[:200] + noise + jpeg[-2:], 'corrupt'),
            (png_header(20_000, 10_000), 'pixels'),
        ):
            error = await kind_of(client.infer('m', ImagePayload(data), 5.0), hint)
            assert error is ErrorKind.BAD_IMAGE
        assert not b.detector.seen
        one = cv2.imencode('.png', np.zeros((1, 1, 3), np.uint8))[1].tobytes()
        assert (await client.infer('m', ImagePayload(one), 5.0)).image_size == (1, 1)
        assert (await client.infer('m', ImagePayload(jpeg), 5.0)).image_size == (64, 48)
        assert b.server.ready


async def test_max_pixels_is_an_option(bench, jpeg):
    async with bench() as b:
        await b.serve(max_pixels=64 * 48 - 1)
        assert await kind_of(
            b.client().infer('m', ImagePayload(jpeg), 5.0), '64') is ErrorKind.BAD_IMAGE


async def test_an_unknown_model_is_told_which_there_are(bench, jpeg):
    async with bench() as b:
        await b.serve(models=('m', 'other'))
        error = await kind_of(b.client().infer('x', ImagePayload(jpeg), 5.0), "'x'.*m, other")
        assert error is ErrorKind.UNKNOWN_MODEL


async def test_a_full_queue_says_so(bench, jpeg, until):
    async with bench() as b:
        await b.serve(max_queue=2)
        b.detector.gate.clear()
        client = b.client()
        running = asyncio.ensure_future(client.infer('m', ImagePayload(jpeg), 10.0))
        await b.begun()
        waiting = [
            asyncio.ensure_future(client.infer('m', ImagePayload(jpeg), 10.0)) for _ in range(2)]
        await until(lambda: b.server._thread.jobs == 3)
        assert await kind_of(
            client.infer('m', ImagePayload(jpeg), 5.0), 'full.*max_queue') is ErrorKind.BUSY
        b.detector.gate.set()
        replies = await asyncio.gather(running, *waiting)
        assert [len(reply.labels) for reply in replies] == [1, 1, 1]
        assert replies[1].timings.queue_s > 0.0
        assert len(b.detector.seen) == 3


@pytest.mark.parametrize('max_queue', [0, 1])
async def test_the_smallest_queues(bench, jpeg, max_queue):
    async with bench() as b:
        await b.serve(max_queue=max_queue)
        client = b.client()
        for _ in range(20):
            await client.infer('m', ImagePayload(jpeg), 5.0)


async def test_a_frame_whose_deadline_passes_in_the_queue_is_not_inferred(bench, jpeg):
    async with bench() as b:
        await b.serve()
        b.detector.gate.clear()
        client = b.client()
        running = asyncio.ensure_future(client.infer('m', ImagePayload(jpeg), 10.0))
        await b.begun()
        assert await kind_of(client.infer('m', ImagePayload(jpeg), 0.1)) is ErrorKind.DEADLINE
        b.detector.gate.set()
        await running
        await client.infer('m', ImagePayload(jpeg), 5.0)
        assert len(b.detector.seen) == 2, 'the first and the last'


async def test_cancelling_on_the_wire_takes_a_frame_off_the_queue(bench, jpeg, until):
    async with bench() as b:
        await b.serve(max_queue=1)
        b.detector.gate.clear()
        client = b.client()
        running = asyncio.ensure_future(client.infer('m', ImagePayload(jpeg), 10.0))
        await b.begun()
        waiting = asyncio.ensure_future(client.infer('m', ImagePayload(jpeg), 10.0))
        await until(lambda: b.server._thread.jobs == 2)
        waiting.cancel()
        await cancelled(waiting)
        await until(lambda: b.server._thread.jobs == 1)
        # Its place is free again, although the thread has not got round to it.
        third = asyncio.ensure_future(client.infer('m', ImagePayload(jpeg), 10.0))
        await until(lambda: b.server._thread.jobs == 2)
        b.detector.gate.set()
        await asyncio.gather(running, third)
        assert len(b.detector.seen) == 2


async def test_a_client_that_vanishes_is_not_served(bench, jpeg, until):
    async with bench() as b:
        await b.serve()
        b.detector.gate.clear()
        first, second = b.client(), b.client()
        running = asyncio.ensure_future(first.infer('m', ImagePayload(jpeg), 10.0))
        await b.begun()
        waiting = asyncio.ensure_future(second.infer('m', ImagePayload(jpeg), 10.0))
        await until(lambda: b.server._thread.jobs == 2)
        await second.close()
        assert await kind_of(waiting, 'closed') is ErrorKind.CANCELLED
        await until(lambda: b.server._thread.jobs == 1)
        b.detector.gate.set()
        await running
        assert len(b.detector.seen) == 1


async def test_drain_finishes_what_it_has_and_is_seen_at_once(bench, jpeg, until):
    async with bench() as b:
        await b.serve()
        client, watcher = b.client(), b.client()
        watch = watcher.watch()
        assert (await anext(watch)).serving
        b.detector.gate.clear()
        tasks = [asyncio.ensure_future(client.infer('m', ImagePayload(jpeg), 10.0))
                 for _ in range(3)]
        await until(lambda: b.server._thread.jobs == 3)
        draining = asyncio.ensure_future(b.server.drain(10.0))
        began = time.monotonic()
        assert not (await anext(watch)).serving
        assert time.monotonic() - began < 1.0
        assert await kind_of(
            client.infer('m', ImagePayload(jpeg), 5.0), 'draining') is ErrorKind.UNAVAILABLE
        assert not draining.done()
        b.detector.gate.set()
        assert await draining is True
        assert [len(reply.labels) for reply in await asyncio.gather(*tasks)] == [1, 1, 1]
        await watch.aclose()


async def test_drain_gives_up_after_its_grace(bench, jpeg):
    async with bench() as b:
        await b.serve()
        b.detector.gate.clear()
        running = asyncio.ensure_future(b.client().infer('m', ImagePayload(jpeg), 10.0))
        await b.begun()
        assert await b.server.drain(0.1) is False
        await b.server.stop()
        assert await kind_of(running) in (ErrorKind.UNAVAILABLE, ErrorKind.CANCELLED)


async def test_stopping_does_not_wait_for_watchers(bench):
    async with bench() as b:
        await b.serve()
        watch = b.client().watch()
        assert (await anext(watch)).serving
        assert await b.server.drain(5.0) is True
        began = time.monotonic()
        await b.server.stop()
        assert time.monotonic() - began < 0.4
        await watch.aclose()


async def test_a_watcher_that_leaves_takes_no_other_with_it(bench):
    async with bench() as b:
        await b.serve()
        watches = [b.client().watch() for _ in range(3)]
        for watch in watches:
            assert (await anext(watch)).serving
        await watches[0].aclose()
        await b.server.drain(1.0)
        for watch in watches[1:]:
            assert not (await asyncio.wait_for(anext(watch), 5.0)).serving
            await watch.aclose()


async def test_listening_before_loading(bench, jpeg):
    async with bench() as b:
        await b.serve(load=False)
        client = b.client()
        watch = client.watch()
        assert not (await anext(watch)).serving
        assert await kind_of(
            client.infer('m', ImagePayload(jpeg), 5.0), 'loading') is ErrorKind.UNAVAILABLE
        assert await asyncio.to_thread(b.server.load) == {'m': 0.125}
        assert (await asyncio.wait_for(anext(watch), 5.0)).serving
        await client.wait_ready(['m'], 5.0)
        await client.infer('m', ImagePayload(jpeg), 5.0)
        await watch.aclose()


async def test_the_life_of_a_lifecycle_node(bench, jpeg):
    async with bench() as b:
        await b.serve()
        for turn in range(2):
            client = b.client()
            await client.infer('m', ImagePayload(jpeg), 5.0)
            await b.server.drain(1.0)
            await b.server.stop()
            await b.server.stop()
            assert not b.server.ready
            if turn:
                await asyncio.to_thread(b.server.unload)
                await asyncio.to_thread(b.server.unload)
                assert b.detector.closed == 1
                await asyncio.to_thread(b.server.load)
                assert b.detector.warm_ups == 2
            b.endpoint, = await b.server.start(['127.0.0.1:0'])
        await b.client().infer('m', ImagePayload(jpeg), 5.0)
        with pytest.raises(RuntimeError, match='already'):
            await b.server.start(['127.0.0.1:0'])


async def test_a_model_that_cannot_be_loaded_is_named_and_leaves_nothing(fake_detector):
    made = []

    def create(spec):
        if spec.kind == 'bad':
            raise OSError('disk on fire')
        made.append(fake_detector())
        return made[-1]

    server = InferenceServer(
        {'good': DetectorSpec('good'), 'worse': DetectorSpec('bad')}, create=create)
    with pytest.raises(LoadFailure, match="'worse'.*OSError: disk on fire"):
        await asyncio.to_thread(server.load)
    assert made[0].closed == 1 and server.service_times_s == {}
    server.unload()


async def test_a_wrong_specification_is_no_load_failure():
    def create(spec):
        raise DetectorError('no such weights')

    server = InferenceServer({'m': DetectorSpec('fake')}, create=create)
    with pytest.raises(DetectorError, match="'m'.*no such weights") as caught:
        await asyncio.to_thread(server.load)
    assert not isinstance(caught.value, LoadFailure)
    server.unload()


async def test_a_failing_image_is_not_a_broken_detector(bench, jpeg, caplog):
    async with bench() as b:
        await b.serve()
        client = b.client()
        b.detector.error = RuntimeError('odd image')
        for _ in range(12):
            assert await kind_of(
                client.infer('m', ImagePayload(jpeg), 5.0), 'odd image') is ErrorKind.INTERNAL
        assert b.server.ready and b.detector.warm_ups > 1
        assert caplog.text.count('Traceback') == 1, 'not one for each frame'
        b.detector.error = DetectorError('too flat')
        assert await kind_of(
            client.infer('m', ImagePayload(jpeg), 5.0), 'too flat') is ErrorKind.BAD_IMAGE
        b.detector.error = None
        await client.infer('m', ImagePayload(jpeg), 5.0)


async def test_a_broken_detector_takes_the_worker_out(bench, jpeg, until):
    async with bench() as b:
        await b.serve()
        client = b.client()
        watch = client.watch()
        assert (await anext(watch)).serving
        b.detector.error, b.detector.broken = RuntimeError('device lost'), True
        for _ in range(5):
            assert await kind_of(
                client.infer('m', ImagePayload(jpeg), 5.0)) is ErrorKind.INTERNAL
        assert not (await asyncio.wait_for(anext(watch), 5.0)).serving
        assert await kind_of(
            client.infer('m', ImagePayload(jpeg), 5.0), 'restart') is ErrorKind.UNAVAILABLE
        await until(b.server.failed.is_set)
        await watch.aclose()


async def test_every_call_of_the_protocol(bench, jpeg):
    async with bench() as b:
        await b.serve(models=('m', 'other'))
        await b.client().infer('m', ImagePayload(jpeg), 5.0)
        async with grpc.aio.insecure_channel(b.endpoint) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            pb = service_pb2
            assert (await stub.ServerLive(pb.ServerLiveRequest())).live
            assert (await stub.ServerReady(pb.ServerReadyRequest())).ready
            for name, version, ready in (
                ('m', '', True), ('m', '1', True), ('m', '2', False), ('x', '', False)):
                answer = await stub.ModelReady(pb.ModelReadyRequest(name=name, version=version))
                assert answer.ready is ready
            assert (await stub.ServerMetadata(pb.ServerMetadataRequest())).name == 'laimr_ros'
            metadata = await stub.ModelMetadata(pb.ModelMetadataRequest(name='m'))
            assert [t.name for t in metadata.inputs] == ['image']
            assert [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs] == [
                ('boxes', 'FP32', [-1, 4]), ('scores', 'FP32', [-1]), ('labels', 'BYTES', [-1])]
            config = (await stub.ModelConfig(pb.ModelConfigRequest(name='m'))).config
            parameters = {k: v.string_value for k, v in config.parameters.items()}
            assert json.loads(parameters['class_names']) == ['thing', 'größe']
            assert json.loads(parameters['random_weights']) is False
            assert float(parameters['service_time_s']) == 0.125
            index = await stub.RepositoryIndex(pb.RepositoryIndexRequest())
            assert [(m.name, m.state) for m in index.models] == [
                ('m', 'READY'), ('other', 'READY')]
            sums = await stub.ModelStatistics(pb.ModelStatisticsRequest(name='m'))
            assert sums.model_stats[0].inference_count == 1
            assert sums.model_stats[0].inference_stats.compute_infer.ns == 2_000_000
            assert len((await stub.ModelStatistics(pb.ModelStatisticsRequest())).model_stats) == 2
            for call, request in (
                (stub.RepositoryModelLoad, pb.RepositoryModelLoadRequest(model_name='m')),
                (stub.TraceSetting, pb.TraceSettingRequest()),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(request)
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            for request, call in (
                (pb.ModelConfigRequest(name='x'), stub.ModelConfig),
                (pb.ModelMetadataRequest(name='m', version='9'), stub.ModelMetadata),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(request)
                assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_for_probes(bench):
    async with bench() as b:
        await b.serve(load=False)
        async with grpc.aio.insecure_channel(b.endpoint) as channel:
            stub = health_pb2_grpc.HealthStub(channel)

            async def status(name):
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
                return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

            assert await status('') == await status('m') == 'NOT_SERVING'
            await asyncio.to_thread(b.server.load)
            assert await status('') == await status('m') == 'SERVING'
            assert await status('inference.GRPCInferenceService') == 'SERVING'
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await status('x')
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            await b.server.drain(1.0)
            assert await status('') == await status('m') == 'NOT_SERVING'


async def test_an_ordinary_client_gets_an_answer(bench, jpeg):
    # Triton's own client, which knows nothing of us.
    import tritonclient.grpc.aio as triton
    async with bench() as b:
        await b.serve()
        client = triton.InferenceServerClient(b.endpoint)
        tensor = triton.InferInput('image', [1], 'BYTES')
        tensor.set_data_from_numpy(np.array([jpeg], np.object_))
        result = await client.infer('m', [tensor])
        assert result.as_numpy('boxes').shape == (1, 4)
        assert result.as_numpy('labels').tolist() == ['größe'.encode()]
        pixels = triton.InferInput('image', [48, 64, 3], 'UINT8')
        pixels.set_data_from_numpy(np.zeros((48, 64, 3), np.uint8))
        assert (await client.infer('m', [pixels])).as_numpy('scores').tolist() == [0.5]
        await client.close()


async def test_the_emulated_link_delays_without_occupying_the_worker(bench, jpeg):
    async with bench() as b:
        await b.serve(emulated_rtt_s=0.2, max_queue=20)
        client = b.client()
        began = time.monotonic()
        replies = await asyncio.gather(
            *(client.infer('m', ImagePayload(jpeg), 5.0) for _ in range(10)))
        took = time.monotonic() - began
        assert 0.2 <= took < 0.5, 'ten at once take one round trip, not ten'
        assert all(reply.timings.queue_s < 0.1 for reply in replies)
        began = time.monotonic()
        await kind_of(client.infer('x', ImagePayload(jpeg), 5.0))
        assert time.monotonic() - began >= 0.2, 'a refusal travels, too'


async def test_several_addresses_at_once(bench, jpeg, tmp_path):
    async with bench() as b:
        b.server = InferenceServer({'m': DetectorSpec('fake')}, create=lambda _: b.detector)
        await asyncio.to_thread(b.server.load)
        path = tmp_path / 'w.sock'
        try:
            endpoints = await b.server.start(['127.0.0.1:0', f'unix:{path}'])
            assert endpoints[1] == f'unix:{path}'
            assert int(endpoints[0].rpartition(':')[2]) > 0
            for endpoint in endpoints:
                await b.client(endpoint).infer('m', ImagePayload(jpeg), 5.0)
        finally:
            await b.close()
        assert not path.exists()


async def test_a_stale_socket_is_replaced_and_nothing_else(bench, jpeg, tmp_path):
    path = tmp_path / 'w.sock'
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    async with bench() as b:
        await b.serve(f'unix:{path}')
        await b.client().infer('m', ImagePayload(jpeg), 5.0)
        async with bench() as other:
            with pytest.raises(EndpointError, match='another process listens'):
                await other.serve(f'unix:{path}')
        await b.client().infer('m', ImagePayload(jpeg), 5.0)
    path.write_text('precious')
    async with bench() as b:
        with pytest.raises(EndpointError, match='no socket'):
            await b.serve(f'unix:{path}')
    assert path.read_text() == 'precious'


async def test_addresses_that_cannot_be_had(bench, tmp_path):
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        for listen, hint in (
            (f'127.0.0.1:{port}', 'another process'),
            (f'0.0.0.0:{port}', 'another process'),
            ('192.0.2.1:8500', 'no address of this machine'),
            ('no-such-host.invalid:8500', 'unknown'),
            (f'unix:{tmp_path}/missing/w.sock', 'does not exist'),
            (f'unix:/{tmp_path}/{120 * "x"}', '107'),
            ('http://127.0.0.1:1', 'gRPC'),
        ):
            async with bench() as b:
                with pytest.raises(EndpointError, match=hint) as caught:
                    await b.serve(listen)
                assert '\n' not in str(caught.value)


async def test_two_workers_never_share_a_port(bench):
    async with bench() as first:
        await first.serve()
        async with bench() as second:
            with pytest.raises(EndpointError, match='another process'):
                await second.serve(first.endpoint)


async def test_nothing_is_left_of_a_thousand_frames(bench, jpeg):
    async with bench() as b:
        await b.serve(max_queue=64)
        client = b.client()

        async def some(count):
            for index in range(count):
                # A third of them is given up at some point on the way.
                timeout_s = 0.001 if index % 3 == 0 else 5.0
                try:
                    await client.infer('m', ImagePayload(jpeg), timeout_s)
                except InferenceError as error:
                    assert error.kind is ErrorKind.DEADLINE

        await asyncio.gather(*(some(50) for _ in range(4)))
        descriptors = len(os.listdir('/proc/self/fd'))
        await asyncio.gather(*(some(50) for _ in range(4)))
        assert len(os.listdir('/proc/self/fd')) == descriptors
        await b.server.drain(5.0)
        assert b.server._thread.jobs == 0 and b.server._active == 0
