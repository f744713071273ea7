"""Frames of a CloudGripper robot, over the testbed's HTTP API."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
import json
import math
import os
import time
from typing import Any

from laimr_ros.cameras.sources.base import CameraError, Capture

ENDPOINTS = {'base': 'getImageBase', 'top': 'getImageTop'}
_MAX_BYTES = 32 * 1024 * 1024


class CloudGripperSource:
    """
    One camera of one robot. Frames are stamped with the time of capture that the API tells.

    :param url: of the API, such as ``https://host``; the robot's name follows it.
    :param robot: name of the robot, ``robot1`` to ``robot32``.
    :param camera: ``base`` or ``top``.
    :param token_env: name of the environment variable that holds the token. The token itself is
        never a parameter: parameters can be read by everyone on the ROS network.
    :param timeout_s: for a whole request, in seconds.
    :param environment: where the token is looked up; for tests.
    :raises CameraError: if something needed is not given.
    """

    def __init__(
        self,
        url: str,
        robot: str,
        camera: str = 'base',
        token_env: str = 'CLOUDGRIPPER_TOKEN',
        timeout_s: float = 3.0,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        import requests

        if not url.startswith(('http://', 'https://')):
            raise CameraError(f'{url!r} is no address of the CloudGripper API; set `url`, for '
                              'example to http://localhost:8000')
        if not robot or '/' in robot:
            raise CameraError(f'{robot!r} is no robot; set `robot`, for example to robot1')
        if camera not in ENDPOINTS:
            raise CameraError(f'camera {camera!r} is unknown; set `camera` to base or top')
        token = environment.get(token_env, '')
        if not token:
            raise CameraError(f'no token for the CloudGripper API; put it into the environment '
                              f'variable {token_env}, or name another one with `token_env`')
        self._address = f'{url.rstrip("/")}/{robot}/api/v1.1/robot/{ENDPOINTS[camera]}'
        self._token_env, self._timeout_s = token_env, timeout_s
        self._requests = requests
        self._session = requests.Session()
        self._session.headers['apiKey'] = token
        self._last_stamp_s = -math.inf

    def read(self) -> Capture | None:
        """
        Return the robot's newest frame, or nothing if it was returned before.

        :raises CameraError: if the API cannot be reached, refuses, or answers with nonsense.
        """
        status, body = self._get()
        if status in (401, 403):
            raise CameraError(f'{self._address} refuses the token (HTTP {status}); put a valid '
                              f'one into the environment variable {self._token_env}')
        answer = _parsed(body)
        if status != 200:
            reason = answer.get('error') if isinstance(answer, dict) else None
            raise CameraError(f'{self._address} gives no frame (HTTP {status}): '
                              f'{str(reason or "no reason told")[:200]}')
        if not isinstance(answer, dict):
            raise self._nonsense('no JSON object')
        stamp = answer.get('time')
        if isinstance(stamp, bool) or not isinstance(stamp, (int, float)) or not (
            math.isfinite(stamp) and 0 < stamp < 2**32
        ):
            raise self._nonsense(f'time {str(stamp)[:40]!r}, which is no capture time')
        if stamp == self._last_stamp_s:
            return None
        data = self._decoded(answer.get('data'))
        self._last_stamp_s = float(stamp)
        return Capture(data, 'jpeg', float(stamp))

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _get(self) -> tuple[int, bytes]:
        deadline = time.monotonic() + self._timeout_s
        try:
            # A redirect would carry the token to another host.
            with self._session.get(
                self._address, timeout=self._timeout_s, stream=True, allow_redirects=False
            ) as response:
                if response.is_redirect:
                    raise CameraError(f'{self._address} redirects to another address; set `url` '
                                      'to the final one')
                body = bytearray()
                for part in response.iter_content(65536):
                    body += part
                    if len(body) > _MAX_BYTES:
                        raise self._nonsense(f'more than {_MAX_BYTES >> 20} MiB')
                    if time.monotonic() > deadline:
                        raise self._too_slow()
                return response.status_code, bytes(body)
        except self._requests.exceptions.Timeout as error:
            raise self._too_slow() from error
        except self._requests.exceptions.SSLError as error:
            raise CameraError(f'{self._address}: no safe connection ({_root(error)}); check `url` '
                              'and the certificates of this machine') from error
        except self._requests.exceptions.RequestException as error:
            if 'timed out' in str(error):
                raise self._too_slow() from error
            raise CameraError(f'{self._address} cannot be reached ({_root(error)}); check `url` '
                              'and the network') from error

    def _decoded(self, text: Any) -> bytes:
        if not isinstance(text, str):
            raise self._nonsense('no image data')
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self._nonsense('image data that is not base64') from error
        if data[:2] != b'\xff\xd8':
            raise self._nonsense('an image that is no JPEG')
        # Some cameras pad the end of the file.
        if not data.rstrip(b'\0').endswith(b'\xff\xd9'):
            raise self._nonsense('a JPEG that is cut short')
        return data

    def _too_slow(self) -> CameraError:
        return CameraError(f'{self._address} gave no answer within {self._timeout_s:g} s; check '
                           'the network, or raise `timeout`')

    def _nonsense(self, what: str) -> CameraError:
        return CameraError(f'{self._address} answers with {what}; is `url` a CloudGripper API?')


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _root(error: BaseException) -> str:
    """Return the innermost reason in few words: the outer ones are long and repeat the address."""
    seen: BaseException = error
    while True:
        inner = seen.__cause__ or seen.__context__ or next(
            (a for a in seen.args if isinstance(a, BaseException)), None
        ) or getattr(seen, 'reason', None)
        if not isinstance(inner, BaseException) or inner is seen:
            break
        seen = inner
    return str(getattr(seen, 'strerror', None) or seen)[:200] or type(seen).__name__
