"""The command ``laimr worker`` as a real process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys
import threading
import time

import cv2
from laimr_ros import lifeline
from laimr_ros.serving.client import ImagePayload, ReplicaClient
from laimr_ros.serving.errors import ErrorKind, InferenceError
import numpy as np
import pytest

JPEG = cv2.imencode('.jpg', np.zeros((48, 64, 3), np.uint8))[1].tobytes()
IMAGE = ImagePayload(JPEG)
ROOT = Path(__file__).parents[2]


def command(*arguments):
    return [sys.executable, '-m', 'laimr_ros.cli.main', 'worker', *arguments]


def emulated(mean_s=0.0, **options):
    arguments = ['--model', 'm=emulated', '--set', f'models.m.options.mean_s={mean_s}']
    for key, value in options.items():
        arguments += ['--set', f'{key}={value}']
    return arguments


class Worker:
    """A running worker process."""

    def __init__(self, *arguments, start=subprocess.Popen):
        self.process = start(
            command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=ROOT)

    def ready(self):
        """Return its endpoint and start-up time, once it says that it serves."""
        watchdog = threading.Timer(60.0, self.process.kill)
        watchdog.start()
        try:
            line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        assert line.startswith('ready '), (line, self.process.stderr.read())
        _, self.endpoint, seconds = line.split()
        return self.endpoint, float(seconds)

    def end(self, timeout_s=20.0):
        """Wait for its end; return exit status and what it said."""
        out, error = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, error


@contextlib.contextmanager
def worker(*arguments, **kwargs):
    running = Worker(*arguments, **kwargs)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate()


async def infer(endpoint, timeout_s=10.0):
    async with ReplicaClient(endpoint) as client:
        return await client.infer('m', IMAGE, timeout_s)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_serves_until_a_signal(tmp_path, number):
    path, ready_file = tmp_path / 'w.sock', tmp_path / 'ready.json'
    began = time.monotonic()
    with worker(
        *emulated(), '--listen', f'unix:{path}', '--listen', '127.0.0.1:0',
        '--ready-file', str(ready_file),
    ) as running:
        endpoint, seconds = running.ready()
        assert endpoint == f'unix:{path}'
        assert 0.0 < seconds <= time.monotonic() - began + 0.05
        told = json.loads(ready_file.read_text())
        assert told['pid'] == running.process.pid and told['service_times_s'] == {'m': 0.0}
        for endpoint in told['endpoints']:
            assert asyncio.run(infer(endpoint)).image_size == (64, 48)
        running.process.send_signal(number)
        assert running.end() == (0, '', '')
        assert not path.exists() and not ready_file.exists()


def test_a_signal_drains():
    """What is in progress and what waits is finished; the rest is told, and watchers are told."""
    async def scenario(running):
        endpoint, _ = running.ready()
        async with ReplicaClient(endpoint) as client, ReplicaClient(endpoint) as watcher:
            watch = watcher.watch()
            assert (await anext(watch)).serving
            tasks = [asyncio.ensure_future(client.infer('m', IMAGE, 20.0)) for _ in range(3)]
            await asyncio.sleep(0.3)  # Long enough to be accepted, too short to be finished.
            running.process.terminate()
            began = time.monotonic()
            assert not (await asyncio.wait_for(anext(watch), 10.0)).serving
            assert time.monotonic() - began < 0.5
            with pytest.raises(InferenceError) as caught:
                await client.infer('m', IMAGE, 5.0)
            assert caught.value.kind is ErrorKind.UNAVAILABLE
            replies = await asyncio.gather(*tasks)
            assert [len(reply.labels) for reply in replies] == [1, 1, 1]
            await watch.aclose()
        assert await asyncio.to_thread(running.end) == (0, '', '')

    with worker(*emulated(0.8), '--listen', '127.0.0.1:0') as running:
        asyncio.run(scenario(running))


def test_the_grace_ends():
    async def scenario(running):
        endpoint, _ = running.ready()
        async with ReplicaClient(endpoint) as client:
            task = asyncio.ensure_future(client.infer('m', IMAGE, 50.0))
            await asyncio.sleep(0.3)
            running.process.terminate()
            began = time.monotonic()
            with pytest.raises(InferenceError) as caught:
                await task
            assert caught.value.kind in (ErrorKind.UNAVAILABLE, ErrorKind.CANCELLED)
            status, _, error = await asyncio.to_thread(running.end)
            assert status == 0 and '0.2 s were not enough' in error
            assert time.monotonic() - began < 5.0

    with worker(*emulated(30, drain_grace_s=0.2), '--listen', '127.0.0.1:0') as running:
        asyncio.run(scenario(running))


def test_a_second_signal_ends_it_at_once():
    async def scenario(running):
        endpoint, _ = running.ready()
        async with ReplicaClient(endpoint) as client:
            watch = client.watch()
            assert (await anext(watch)).serving
            task = asyncio.ensure_future(client.infer('m', IMAGE, 50.0))
            await asyncio.sleep(0.3)
            running.process.terminate()
            assert not (await asyncio.wait_for(anext(watch), 10.0)).serving
            running.process.send_signal(signal.SIGINT)
            with pytest.raises(InferenceError):
                await task
            await watch.aclose()
        assert (await asyncio.to_thread(running.end))[0] == 128 + signal.SIGINT

    with worker(*emulated(30, drain_grace_s=60), '--listen', '127.0.0.1:0') as running:
        asyncio.run(scenario(running))


def test_a_signal_while_it_loads(tmp_path):
    path = tmp_path / 'w.sock'
    with worker(
        *emulated(), '--set', 'models.m.options.load_s=60', '--listen', f'unix:{path}',
    ) as running:
        deadline = time.monotonic() + 30.0
        while not path.exists():
            assert time.monotonic() < deadline and running.process.poll() is None
            time.sleep(0.02)

        async def ask():
            async with ReplicaClient(f'unix:{path}') as client:
                return await anext(client.watch())
        assert not asyncio.run(ask()).serving, 'it listens, and says that it is not ready'
        running.process.terminate()
        assert running.end(10.0) == (0, '', '')
        assert not path.exists()


def test_sigkill_loses_only_what_was_in_it_and_the_socket_is_reused(tmp_path):
    listen = f'unix:{tmp_path}/w.sock'

    async def scenario(first):
        first.ready()
        async with ReplicaClient(listen) as client:
            watch = client.watch()
            assert (await anext(watch)).serving
            task = asyncio.ensure_future(client.infer('m', IMAGE, 50.0))
            await asyncio.sleep(0.2)
            first.process.kill()
            with pytest.raises(InferenceError) as caught:
                await task
            assert caught.value.kind is ErrorKind.UNAVAILABLE
            assert not (await asyncio.wait_for(anext(watch), 10.0)).serving
            with worker(*emulated(0.0), '--listen', listen) as second:
                await asyncio.to_thread(second.ready)
                assert (await asyncio.wait_for(anext(watch), 10.0)).serving
                await client.infer('m', IMAGE, 10.0)
            await watch.aclose()

    with worker(*emulated(30), '--listen', listen) as first:
        asyncio.run(scenario(first))


def test_it_ends_with_its_parent():
    with worker(*emulated(30, drain_grace_s=60), '--listen', '127.0.0.1:0',
                start=lifeline.spawn) as running:
        running.ready()
        running.process.cut()
        assert running.process.wait(10) == 0

    async def busy(running):
        endpoint, _ = running.ready()
        async with ReplicaClient(endpoint) as client:
            task = asyncio.ensure_future(client.infer('m', IMAGE, 50.0))
            await asyncio.sleep(0.2)
            running.process.cut()
            with pytest.raises(InferenceError):
                await task

    with worker(*emulated(30, drain_grace_s=60), '--listen', '127.0.0.1:0',
                start=lifeline.spawn) as running:
        asyncio.run(busy(running))
        assert running.process.wait(10) == 1, 'the lifeline is more patient than the grace'


@pytest.mark.parametrize('arguments, hint', [
    ([], 'no model'),
    (['--model', 'm'], 'NAME=KIND'),
    (['--model', 'a.b=emulated'], 'no dot'),
    (['--model', 'm=emulate'], "did you mean 'emulated'"),
    (['--model', 'm=emulated', '--listen', 'http://x:1'], 'gRPC'),
    (['--model', 'm=emulated', '--listen', '192.0.2.1:1'], 'no address of this machine'),
    (['--model', 'm=emulated', '--set', 'max_queue'], 'KEY=VALUE'),
    (['--model', 'm=emulated', '--set', 'max_queue=many'], "'many'"),
    (['--model', 'm=emulated', '--threads', '-1'], 'models.m.threads'),
    (['--model', 'm=emulated', '--set', 'models.m.options.meen_s=1',
      '--listen', '127.0.0.1:0'], 'meen_s'),
    (['--params-file', '/does/not/exist'], 'No such file'),
    (['--params-file', __file__], 'no YAML|holds a'),
])
def test_wrong_settings_are_one_line_and_status_2(arguments, hint):
    with worker(*arguments) as running:
        status, out, error = running.end(60.0)
    assert status == 2 and out == ''
    assert error.startswith('laimr worker: ') and error.count('\n') == 1, error
    assert any(part in error for part in hint.split('|')), error


def test_a_port_that_is_taken():
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        with worker(*emulated(), '--listen', f'127.0.0.1:{port}') as running:
            status, _, error = running.end(60.0)
    assert status == 2 and error.count('\n') == 1
    assert f'127.0.0.1:{port}' in error and 'another process' in error


def test_files_and_options_together(tmp_path):
    first, second = tmp_path / 'a.yaml', tmp_path / 'b.yaml'
    first.write_text("""
/**/worker:
  ros__parameters:
    model_names: [a]
    models:
      a: {kind: emulated, options: {mean_s: 0.01}}
    listen: ['127.0.0.1:1']
/**/camera:
  ros__parameters: {rate: 1.0}
""")
    second.write_text('models: {a: {options: {mean_s: 0.02}}}')
    ready_file = tmp_path / 'ready.json'
    with worker(
        '--params-file', str(first), '--params-file', str(second),
        '--model', 'b=emulated', '--set', 'models.b.options.mean_s=0.03',
        '--emulated-rtt', '0.1', '--listen', '127.0.0.1:0', '--ready-file', str(ready_file),
    ) as running:
        endpoint, _ = running.ready()
        assert json.loads(ready_file.read_text())['service_times_s'] == {'a': 0.02, 'b': 0.03}

        async def timed():
            async with ReplicaClient(endpoint) as client:
                began = time.monotonic()
                await client.infer('b', IMAGE, 5.0)
                return time.monotonic() - began
        assert asyncio.run(timed()) > 0.13


def test_nothing_heavy_before_the_lifeline():
    """The command line is read, and the lifeline attached, before gRPC or NumPy is imported."""
    code = """
import os, sys
from laimr_ros import lifeline
def attach():
    print(*sorted({name.split('.')[0] for name in sys.modules}))
    os._exit(0)
lifeline.attach = attach
from laimr_ros.cli.main import main
main(['worker', '--model', 'm=emulated'])
"""
    out = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, timeout=60, cwd=ROOT,
        check=True, env={**os.environ}).stdout.split()
    assert 'laimr_ros' in out
    assert not {'numpy', 'grpc', 'torch', 'cv2', 'yaml', 'asyncio'} & set(out)
