"""A detector that does what a test says, and servers and clients that are always closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import cv2
from laimr_ros.detectors.base import Detections, DetectorSpec
from laimr_ros.serving.client import ClientOptions, ReplicaClient
from laimr_ros.serving.config import ServerOptions
from laimr_ros.serving.server import InferenceServer
import numpy as np
import pytest


class FakeDetector:
    """Finds one box a hundredth of the image's size; can be held, and can be made to fail."""

    def __init__(self, spec=None):
        self.spec = spec
        self.class_names = ('thing', 'größe')
        self.random_weights = False
        self.seen = []
        self.closed = 0
        self.warm_ups = 0
        self.error = None
        self.broken = False
        self.threads = set()
        self.started = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def warm_up(self):
        self.warm_ups += 1
        self.threads.add(threading.get_ident())
        if self.broken:
            raise RuntimeError('no device')
        return 0.125

    def detect(self, image):
        self.threads.add(threading.get_ident())
        self.seen.append(image.shape)
        self.started.release()
        assert self.gate.wait(20)
        if self.error is not None:
            raise self.error
        height, width = image.shape[:2]
        return Detections(
            np.array([[0, 0, width / 10, height / 10]], np.float32), np.array([0.5], np.float32),
            np.array([1]), preprocess_s=0.001, inference_s=0.002, postprocess_s=0.003)

    def close(self):
        self.closed += 1


class Bench:
    """One server on a real socket, its detector and any number of clients."""

    def __init__(self, stack):
        self._stack = stack
        self.detector = FakeDetector()

    async def serve(self, listen='127.0.0.1:0', models=('m',), load=True, **options):
        specs = {name: DetectorSpec('fake') for name in models}

        def create(spec):
            if isinstance(self.detector, Exception):
                raise self.detector
            self.detector.spec = spec
            return self.detector

        self.server = InferenceServer(specs, ServerOptions(**options), create)
        if load:
            await asyncio.wrap_future(self.server.begin_load())
        self._stack.push_async_callback(self.close)
        self.endpoint, = await self.server.start([listen])
        return self.server

    async def close(self):
        if isinstance(self.detector, FakeDetector):
            self.detector.gate.set()
        await self.server.stop()
        await asyncio.to_thread(self.server.unload)

    def client(self, endpoint=None, **kwargs):
        client = ReplicaClient(endpoint or self.endpoint, **kwargs)
        self._stack.push_async_callback(client.close)
        return client

    async def begun(self):
        """Wait until the detector has begun with one more image."""
        assert await asyncio.to_thread(self.detector.started.acquire, True, 10)


@contextlib.asynccontextmanager
async def _bench():
    async with contextlib.AsyncExitStack() as stack:
        yield Bench(stack)


@pytest.fixture
def bench():
    """Return a context manager of a server and its clients."""
    return _bench


@pytest.fixture
def fake_detector():
    return FakeDetector


@pytest.fixture(scope='session')
def jpeg():
    return cv2.imencode('.jpg', np.zeros((48, 64, 3), np.uint8))[1].tobytes()


@pytest.fixture
def until():
    """Return a function that waits until a condition holds, and fails after ten seconds."""
    async def wait(condition):
        deadline = time.monotonic() + 10.0
        while not condition():
            assert time.monotonic() < deadline, 'it did not happen in time'
            await asyncio.sleep(0.005)
    return wait


@pytest.fixture
def impatient():
    """Return client options that notice everything quickly."""
    return ClientOptions(
        keepalive_s=1.0, keepalive_timeout_s=0.5, reconnect_min_s=0.05, reconnect_max_s=0.2,
        poll_s=0.05, ask_timeout_s=0.5)


