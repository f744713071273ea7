"""Drawn cells behind the CloudGripper testbed's HTTP API: the whole path without the rack."""

from __future__ import annotations

import asyncio
import base64
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
import hmac
import math
import time
from typing import Any

from aiohttp import web
import cv2
from laimr_ros.cameras.plan import REACH_MM
from laimr_ros.cameras.scene import Scene
import numpy as np

MAX_ROBOTS = 32
_SIZES = {'base': (640, 480), 'top': (1280, 720)}


@dataclass(frozen=True)
class TestbedSpec:
    """
    What a testbed is like.

    :param robots: how many, named ``robot1`` and so on.
    :param token: what the header ``apiKey`` must hold.
    :param fail_rate: part of image requests answered as by a camera that gives no frame, 0 to 1.
    :param delay_s: before each answer, in seconds.
    :param camera_hz: pictures a second of each camera; two requests in between get the same one.
    :param seed: of the cells and of the failures.
    :param jpeg_quality: 1 to 100.
    """

    robots: int = MAX_ROBOTS
    token: str = ''
    fail_rate: float = 0.0
    delay_s: float = 0.0
    camera_hz: float = 15.0
    seed: int = 0
    jpeg_quality: int = 90

    __test__ = False  # pytest: not a test, whatever its name.


class Testbed:
    """
    The API's endpoints over drawn cells.

    :param spec: what it is like.
    """

    __test__ = False

    def __init__(self, spec: TestbedSpec) -> None:
        self._spec = spec
        self._random = np.random.default_rng([spec.seed, 5])
        self._scenes: dict[tuple[int, str], Scene] = {}
        self._pictures: dict[tuple[int, str], tuple[float, str]] = {}
        # One thread: a scene is drawn by one caller at a time, and cores are for the detectors.
        self._draw = ThreadPoolExecutor(1, 'draw')

    def app(self) -> web.Application:
        """Return the web application."""
        app = web.Application(middlewares=[self._guard])
        prefix = '/{robot}/api/v1.1/robot'
        app.router.add_get(f'{prefix}/getImageBase', self._image_base)
        app.router.add_get(f'{prefix}/getImageTop', self._image_top)
        app.router.add_get(f'{prefix}/getState', self._state)
        app.on_cleanup.append(self._close)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        token = request.headers.get('apiKey')
        if token is None:
            return _error(401, 'Missing apiKey.')
        if not hmac.compare_digest(token.encode(), self._spec.token.encode()):
            return _error(403, 'Invalid apiKey.')
        if self._spec.delay_s:
            await asyncio.sleep(self._spec.delay_s)
        response: web.StreamResponse = await handler(request)
        return response

    async def _image_base(self, request: web.Request) -> web.Response:
        return await self._image(request, 'base')

    async def _image_top(self, request: web.Request) -> web.Response:
        return await self._image(request, 'top')

    async def _image(self, request: web.Request, camera: str) -> web.Response:
        number = self._number(request)
        if number is None:
            return _error(404, 'Unknown robot.')
        if self._random.random() < self._spec.fail_rate:
            return _error(404, 'Cannot read frame from webcam.')
        loop = asyncio.get_running_loop()
        captured_s, text = await loop.run_in_executor(self._draw, self._picture, number, camera)
        return web.json_response({'data': text, 'time': captured_s})

    async def _state(self, request: web.Request) -> web.Response:
        number = self._number(request)
        if number is None:
            return _error(404, 'Unknown robot.')
        now_s = time.time()
        loop = asyncio.get_running_loop()
        scene = await loop.run_in_executor(self._draw, self._scene, number, 'base')
        gripper = scene.state(now_s).gripper
        x0, y0, x1, y1 = REACH_MM
        return web.json_response({'timestamp': now_s, 'state': {
            'x_norm': _part(gripper.x, x0, x1),
            'y_norm': _part(gripper.y, y0, y1),
            'z_norm': _part(gripper.lift, 0.0, 1.0),
            'rotation': math.degrees(gripper.angle) % 360.0,
            'claw_norm': _part(gripper.opening, 0.0, 1.0),
        }})

    def _number(self, request: web.Request) -> int | None:
        name = request.match_info['robot']
        digits = name.removeprefix('robot')
        if name == digits or not digits.isascii() or not digits.isdigit() or len(digits) > 2:
            return None
        number = int(digits)
        return number if 1 <= number <= self._spec.robots else None

    def _scene(self, number: int, camera: str) -> Scene:
        scene = self._scenes.get((number, camera))
        if scene is None:
            # Both cameras of a robot look at the same cell.
            scene = Scene(self._spec.seed * 100 + number, *_SIZES[camera])
            self._scenes[number, camera] = scene
        return scene

    def _picture(self, number: int, camera: str) -> tuple[float, str]:
        """Return the time of capture and the base64 text of the newest picture."""
        rate = self._spec.camera_hz
        captured_s = math.floor(time.time() * rate) / rate
        made = self._pictures.get((number, camera))
        if made is not None and made[0] == captured_s:
            return made
        frame = self._scene(number, camera).draw(captured_s)
        quality = [cv2.IMWRITE_JPEG_QUALITY, self._spec.jpeg_quality]
        data = cv2.imencode('.jpg', frame.image, quality)[1].tobytes()
        made = captured_s, base64.b64encode(data).decode('ascii')
        self._pictures[number, camera] = made
        return made

    async def _close(self, app: web.Application) -> None:
        self._draw.shutdown(wait=False, cancel_futures=True)


def _part(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _error(status: int, text: str) -> web.Response:
    return web.json_response({'error': text}, status=status)
