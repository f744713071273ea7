"""The CloudGripper source over real HTTP: against drawn cells, and against faults."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import threading
import time
from typing import Any
import urllib.request

from aiohttp import web
import cv2
from laimr_ros.cameras.scene import Scene
from laimr_ros.cameras.sources.base import CameraError
from laimr_ros.cameras.sources.cloudgripper import CloudGripperSource
from laimr_ros.cameras.testbed import Testbed, TestbedSpec
import numpy as np
import pytest

TOKEN = 'a token for tests'
JPEG = cv2.imencode('.jpg', np.full((48, 64, 3), 90, np.uint8))[1].tobytes()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('NO_PROXY', '127.0.0.1,localhost')


@contextmanager
def served(spec: TestbedSpec) -> Iterator[str]:
    """Serve a testbed in a thread; give its address."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(Testbed(spec).app(), access_log=None, shutdown_timeout=0.5)
    ready = threading.Event()

    async def begin() -> None:
        await runner.setup()
        await web.TCPSite(runner, '127.0.0.1', 0).start()
        ready.set()

    def serve() -> None:
        loop.run_until_complete(begin())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(10.0)
    try:
        yield f'http://127.0.0.1:{runner.addresses[0][1]}'
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10.0)


@contextmanager
def answering(
    status: int, body: bytes, headers: dict[str, str] | None = None, delay_s: float = 0.0,
    length: int | None = None,
) -> Iterator[tuple[str, list[Any]]]:
    """Serve the same answer always; give the address and the requests."""
    requests: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, dict(self.headers)))
            time.sleep(delay_s)
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header('Content-Length', str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f'http://127.0.0.1:{server.server_port}', requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def source(url: str, token: str = TOKEN, **options: Any) -> CloudGripperSource:
    """Return a source whose token is in an environment of its own."""
    # A busy host may take seconds to draw the first picture; who tests time-outs gives their own.
    options.setdefault('timeout_s', 30.0)
    return CloudGripperSource(
        url, options.pop('robot', 'robot1'), token_env='TOKEN', environment={'TOKEN': token},
        **options)


def answer(**changes: Any) -> bytes:
    """Return a good answer, changed."""
    good = {'data': base64.b64encode(JPEG).decode(), 'time': 1_796_000_000.5}
    return json.dumps({**good, **changes}).encode()


@pytest.mark.parametrize(('camera', 'size'), [('base', (480, 640)), ('top', (720, 1280))])
def test_frames_of_the_testbed(camera: str, size: tuple[int, int]) -> None:
    with served(TestbedSpec(robots=3, token=TOKEN, seed=4, camera_hz=5.0)) as url:
        reading = source(url, robot='robot3', camera=camera)
        before = time.time()
        capture = reading.read()
        assert capture is not None and capture.format == 'jpeg'
        # The time of capture, on the camera's beat; not that of reception.
        assert before - 0.2 <= capture.stamp_s <= time.time()
        assert (capture.stamp_s * 5.0) == pytest.approx(round(capture.stamp_s * 5.0), abs=1e-4)
        image = cv2.imdecode(np.frombuffer(capture.data, np.uint8), cv2.IMREAD_COLOR)
        assert image is not None and image.shape[:2] == size
        drawn = Scene(403, size[1], size[0]).draw(capture.stamp_s).image
        assert np.abs(image.astype(int) - drawn).mean() < 3.0
        reading.close()


def test_the_same_capture_is_given_once() -> None:
    with answering(200, answer()) as (url, requests):
        reading = source(url)
        first = reading.read()
        assert first is not None and first.data == JPEG and first.stamp_s == 1_796_000_000.5
        assert reading.read() is None
        assert reading.read() is None
        assert requests[0][0] == '/robot1/api/v1.1/robot/getImageBase'
        assert requests[0][1]['apiKey'] == TOKEN


def test_tokens() -> None:
    with served(TestbedSpec(robots=1, token=TOKEN)) as url:
        with pytest.raises(CameraError, match=r'refuses the token \(HTTP 403\).*TOKEN') as caught:
            source(url, token='another secret').read()
        assert 'another secret' not in str(caught.value)
        with pytest.raises(urllib.request.HTTPError, match='401'):
            urllib.request.urlopen(f'{url}/robot1/api/v1.1/robot/getImageBase', timeout=5)
    with pytest.raises(CameraError, match='environment variable TOKEN'):
        source('http://localhost', token='')


def test_robots_and_failures_of_the_testbed() -> None:
    with served(TestbedSpec(robots=2, token=TOKEN)) as url:
        for robot in ('robot3', 'robot0', 'robotx', 'robot', 'robot-1'):
            with pytest.raises(CameraError, match=r'HTTP 404.*Unknown robot'):
                source(url, robot=robot).read()
    with served(TestbedSpec(robots=1, token=TOKEN, fail_rate=1.0)) as url, \
            pytest.raises(CameraError, match='HTTP 404.*Cannot read frame from webcam'):
        source(url).read()


def test_state_of_the_testbed() -> None:
    with served(TestbedSpec(robots=1, token=TOKEN, seed=2)) as url:
        request = urllib.request.Request(f'{url}/robot1/api/v1.1/robot/getState',
                                         headers={'apiKey': TOKEN})
        with urllib.request.urlopen(request, timeout=10) as response:
            answered = json.load(response)
    assert abs(answered['timestamp'] - time.time()) < 10.0
    state = answered['state']
    assert all(0.0 <= state[name] <= 1.0 for name in ('x_norm', 'y_norm', 'z_norm', 'claw_norm'))
    assert 0.0 <= state['rotation'] < 360.0


@pytest.mark.parametrize(('status', 'body', 'words'), [
    (200, answer(data='%%%'), 'not base64'),
    (200, answer(data='abc'), 'not base64'),
    (200, answer(data=None), 'no image data'),
    (200, answer(data=base64.b64encode(b'GIF89a').decode()), 'no JPEG'),
    (200, answer(data=base64.b64encode(JPEG[:-20]).decode()), 'cut short'),
    (200, answer(time=None), 'no capture time'),
    (200, answer(time='yesterday'), 'no capture time'),
    (200, answer(time=True), 'no capture time'),
    (200, b'{"data": "', 'no JSON object'),
    (200, b'[]', 'no JSON object'),
    (200, b'<html>', 'no JSON object'),
    (200, b'', 'no JSON object'),
    (404, b'{"error": "Cannot read frame from webcam."}', 'Cannot read frame from webcam'),
    (404, b'<html>', r'HTTP 404.*no reason told'),
    (500, b'', 'HTTP 500'),
    (401, b'', 'refuses the token'),
])
def test_nonsense_is_named_and_survived(status: int, body: bytes, words: str) -> None:
    with answering(status, body) as (url, _):
        reading = source(url)
        for _ in range(2):
            with pytest.raises(CameraError, match=words) as caught:
                reading.read()
            assert '\n' not in str(caught.value) and TOKEN not in str(caught.value)


def test_padding_after_the_jpeg_is_no_damage() -> None:
    padded = base64.b64encode(JPEG + b'\0' * 7).decode()
    with answering(200, answer(data=padded)) as (url, _):
        assert source(url).read() is not None


def test_a_damaged_frame_does_not_count_as_given() -> None:
    with answering(200, answer(data='%%%')) as (url, _):
        reading = source(url)
        with pytest.raises(CameraError):
            reading.read()
    assert reading._last_stamp_s < 0  # the same capture, undamaged, would be taken


def test_the_token_does_not_follow_a_redirect() -> None:
    with answering(200, answer()) as (other, seen), \
            answering(302, b'', {'Location': f'{other}/elsewhere'}) as (url, _):
        with pytest.raises(CameraError, match='redirects'):
            source(url).read()
        assert seen == []


def test_time_outs() -> None:
    with answering(200, answer(), delay_s=1.5) as (url, _), \
            pytest.raises(CameraError, match='no answer within 0.3 s'):
        source(url, timeout_s=0.3).read()
    # The body never comes to its end.
    with answering(200, answer(), length=10_000_000) as (url, _), \
            pytest.raises(CameraError, match='cannot be reached|no answer'):
        source(url, timeout_s=0.5).read()


def test_nobody_listens() -> None:
    with answering(200, b'') as (url, _):
        pass
    with pytest.raises(CameraError, match=r'cannot be reached \(.*refused.*\); check `url`'):
        source(url).read()
    with pytest.raises(CameraError, match='cannot be reached'):
        source('http://no-such-host.invalid').read()


@pytest.mark.parametrize(('changes', 'words'), [
    ({'url': ''}, 'set `url`'), ({'url': 'host:80'}, 'set `url`'), ({'robot': ''}, 'set `robot`'),
    ({'robot': '../x'}, 'set `robot`'), ({'camera': 'side'}, 'base or top'),
])
def test_what_is_needed(changes: dict[str, str], words: str) -> None:
    with pytest.raises(CameraError, match=words):
        source(**{'url': 'http://localhost', **changes})
