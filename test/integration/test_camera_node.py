"""The camera node as a process of its own, heard by a real subscriber."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import json
import os
from pathlib import Path
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import cv2
from laimr_ros.cameras.lens import BASE_CAMERA
import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='needs rclpy: run `make setup`, or source ROS 2')

from rcl_interfaces.srv import SetParameters  # noqa: E402, I001
from rclpy.context import Context  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.node import Node  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from rclpy.qos import QoSProfile, ReliabilityPolicy  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from sensor_msgs.msg import CameraInfo, CompressedImage, Image  # noqa: E402
import itertools  # noqa: E402

BEST_EFFORT = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
RELIABLE = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
LONG_S = 40.0  # For what takes a second on a machine that does nothing else.


class Process:
    """A process whose output is collected line by line."""

    def __init__(self, arguments: list[str], domain: int, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, '-m', *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env={
                **os.environ, 'ROS_DOMAIN_ID': str(domain), 'PYTHONUNBUFFERED': '1',
                'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST', 'NO_PROXY': '127.0.0.1,localhost',
                **environment})
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.rstrip())
                self._changed.notify_all()

    def wait_for_line(self, words: str) -> str:
        """Return the first line that holds some words."""
        deadline = time.monotonic() + LONG_S
        with self._changed:
            while True:
                for line in self.lines:
                    if words in line:
                        return line
                left = deadline - time.monotonic()
                assert left > 0, f'no line with {words!r} in {self.lines}'
                self._changed.wait(left)

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal and return the exit status."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Return the exit status, once it is there."""
        status = self._process.wait(LONG_S)
        self._thread.join(5.0)
        return status

    def kill(self) -> None:
        """End it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(LONG_S)


class Ears:
    """A node that collects messages."""

    def __init__(self, domain: int) -> None:
        self._context = Context()
        rclpy.init(context=self._context, domain_id=domain)
        self.node = Node('ears', context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)

    def listen(self, kind: Any, topic: str, qos: QoSProfile = BEST_EFFORT) -> queue.Queue[Any]:
        """Subscribe; messages come in a queue, with their time of arrival."""
        heard: queue.Queue[Any] = queue.Queue()
        self.node.create_subscription(kind, topic, lambda m: heard.put((time.time(), m)), qos)
        return heard

    def take(self, heard: queue.Queue[Any], count: int) -> list[Any]:
        """Return so many messages with their times of arrival."""
        self.until(lambda: heard.qsize() >= count)
        return [heard.get() for _ in range(count)]

    def until(self, condition: Callable[[], bool]) -> None:
        """Spin until something is so."""
        deadline = time.monotonic() + LONG_S
        while not condition():
            assert time.monotonic() < deadline, 'waited in vain'
            self._executor.spin_once(timeout_sec=0.1)

    def set_parameters(self, node: str, **values: Any) -> list[Any]:
        """Set parameters of another node; return the results."""
        client = self.node.create_client(SetParameters, f'{node}/set_parameters')
        self.until(client.service_is_ready)
        future = client.call_async(SetParameters.Request(parameters=[
            Parameter(name, value=value).to_parameter_msg() for name, value in values.items()]))
        self.until(future.done)
        results: list[Any] = future.result().results
        return results

    def close(self) -> None:
        """Take the node down."""
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self._context)


@pytest.fixture()
def domain() -> int:
    """Give a ROS domain of this test alone, as far as chance allows."""
    return random.SystemRandom().randint(1, 100)


@pytest.fixture()
def ears(domain: int) -> Iterator[Ears]:
    """Give a listener in the domain."""
    ears = Ears(domain)
    yield ears
    ears.close()


@pytest.fixture()
def start(domain: int) -> Iterator[Callable[..., Process]]:
    """Give a function that starts a process; all of them are ended with the test."""
    processes: list[Process] = []

    def begin(*arguments: str, **environment: str) -> Process:
        processes.append(Process(list(arguments), domain, **environment))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()


def camera(*parameters: str, namespace: str = '/robot7') -> list[str]:
    """Return the arguments of a camera node."""
    return ['laimr_ros.nodes.entry', 'camera', '--ros-args', '-r', f'__ns:={namespace}',
            *(word for text in parameters for word in ('-p', text))]


def stamp_s(message: Any) -> float:
    """Return a message's stamp in seconds."""
    return float(message.header.stamp.sec + message.header.stamp.nanosec * 1e-9)


def decoded(message: CompressedImage) -> np.ndarray:
    """Return the picture in a message."""
    image = cv2.imdecode(np.frombuffer(message.data, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return np.asarray(image)


def test_drawn_frames(ears: Ears, start: Callable[..., Process], tmp_path: Path) -> None:
    truth = tmp_path / 'truth.jsonl'
    heard = ears.listen(CompressedImage, '/robot7/image_raw/compressed')
    infos = ears.listen(CameraInfo, '/robot7/camera_info')
    process = start(*camera('rate:=5', 'seed:=3', 'rte:=5', f'truth_file:={truth}'))
    messages = ears.take(heard, 16)

    stamps = [stamp_s(m) for _, m in messages]
    assert all(b > a for a, b in itertools.pairwise(stamps))
    # Five a second; a frame that a busy machine is too late for is left out, not made up for.
    assert 0.25 < (len(stamps) - 1) / (stamps[-1] - stamps[0]) / 5.0 < 1.15
    for arrival_s, message in messages:
        assert -0.001 < arrival_s - stamp_s(message) < 5.0
        assert message.header.frame_id == 'robot7/camera_optical_frame'
        assert message.format == 'jpeg'
    assert decoded(messages[-1][1]).shape == (480, 640, 3)

    ears.until(lambda: not infos.empty())
    info = infos.get()[1]
    assert (info.width, info.height, info.distortion_model) == (640, 480, 'equidistant')
    assert list(info.d) == list(BASE_CAMERA.distortion)
    assert (info.k[0], info.k[2], info.k[4], info.k[5]) == (
        BASE_CAMERA.fx, BASE_CAMERA.cx, BASE_CAMERA.fy, BASE_CAMERA.cy)

    assert 'did you mean rate?' in process.wait_for_line('parameter rte is unknown')
    assert process.end() == 0
    lines = [json.loads(line) for line in truth.read_text().splitlines()]
    known = {(t['stamp']['sec'], t['stamp']['nanosec']): t['boxes'] for t in lines}
    for _, message in messages:
        boxes = known[message.header.stamp.sec, message.header.stamp.nanosec]
        assert {'label', 'box', 'visible_fraction'} == set(boxes[0])
        assert {b['label'] for b in boxes} <= {'square', 'circle', 't_shape', 'gripper'}


def test_changes_while_it_runs(ears: Ears, start: Callable[..., Process]) -> None:
    heard = ears.listen(CompressedImage, '/robot7/image_raw/compressed')
    process = start(*camera('rate:=0.01', 'width:=320', 'height:=240'))
    process.wait_for_line('frames/s')
    node = '/robot7/camera'
    assert ears.set_parameters(node, rate=50.0)[0].successful
    ears.take(heard, 10)  # and not one in a hundred seconds
    (refused,) = ears.set_parameters(node, rate=-1.0)
    assert not refused.successful and 'rate' in refused.reason
    (refused,) = ears.set_parameters(node, arrivals='sometimes')
    assert not refused.successful and 'bounded_pareto' in refused.reason
    (refused,) = ears.set_parameters(node, source='video')
    assert not refused.successful and 'read-only' in refused.reason
    (sharp,) = (len(m.data) for _, m in ears.take(heard, 1))
    assert ears.set_parameters(node, jpeg_quality=5)[0].successful
    ears.until(lambda: len(heard.get()[1].data) < sharp / 2 if not heard.empty() else False)
    assert process.end(signal.SIGTERM) == 0


def test_raw_images_and_qos(ears: Ears, start: Callable[..., Process]) -> None:
    override = 'qos_overrides./robot7/image_raw.publisher.reliability'
    raw = ears.listen(Image, '/robot7/image_raw', RELIABLE)
    unheard = ears.listen(CompressedImage, '/robot7/image_raw/compressed', RELIABLE)
    process = start(*camera('publish_raw:=true', 'encoding:=rgb8', f'{override}:=reliable',
                            'frame_id:=eye', 'width:=160', 'height:=120'))
    message = ears.take(raw, 1)[0][1]
    assert (message.width, message.height, message.encoding, message.step) == (
        160, 120, 'rgb8', 480)
    assert message.header.frame_id == 'eye'
    pixels = np.frombuffer(message.data, np.uint8).reshape(120, 160, 3)
    # The shapes are red: in this encoding that is the first channel.
    assert (pixels[:, :, 0].astype(int) - pixels[:, :, 2] > 40).sum() > 50
    # The other topic keeps best effort, which the log explains.
    line = process.wait_for_line('asks for more than our reliability')
    assert '/robot7/image_raw/compressed' in line and 'best effort' in line
    assert unheard.empty()
    assert process.end() == 0


def test_images_of_a_directory_pass_untouched(
    ears: Ears, start: Callable[..., Process], tmp_path: Path
) -> None:
    cv2.imwrite(str(tmp_path / 'a.png'), np.full((30, 40, 3), 60, np.uint8))
    (tmp_path / 'b.jpg').write_bytes(b'')
    heard = ears.listen(CompressedImage, '/robot7/image_raw/compressed')
    infos = ears.listen(CameraInfo, '/robot7/camera_info')
    process = start(*camera('source:=directory', f'path:={tmp_path}', 'rate:=50'))
    for _, message in ears.take(heard, 5):
        assert message.format == 'png'
        assert bytes(message.data) == (tmp_path / 'a.png').read_bytes()
    ears.until(lambda: not infos.empty())
    info = infos.get()[1]
    assert (info.width, info.height) == (40, 30)
    assert info.k[0] == 0.0  # not calibrated
    process.wait_for_line('b.jpg is left out')
    assert process.end() == 0


def test_ends_with_its_source(start: Callable[..., Process], tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / 'a.png'), np.zeros((8, 8, 3), np.uint8))
    process = start(*camera('source:=directory', f'path:={tmp_path}', 'loop:=false'))
    process.wait_for_line('every image of')
    assert process.wait() == 0


@pytest.mark.parametrize(('parameters', 'words'), [
    (['rate:=0.0'], ['rate', '0.0', 'frames/s']),
    (['source:=webcam'], ["'webcam'", 'v4l2']),
    (['source:=directory', 'path:=/no/such/place'], ['/no/such/place', '`path`']),
    (['source:=cloudgripper'], ['CLOUDGRIPPER_TOKEN']),
    (['truth_file:=/no/such/place/x'], ['truth_file', '/no/such/place/x']),
])
def test_a_bad_start_is_one_line(
    start: Callable[..., Process], parameters: list[str], words: list[str]
) -> None:
    process = start(*camera(*parameters), CLOUDGRIPPER_TOKEN='')
    assert process.wait() == 2
    (line,) = process.lines
    assert line.startswith('camera: ') and all(word in line for word in words)


def test_simulated_time(ears: Ears, start: Callable[..., Process]) -> None:
    heard = ears.listen(CompressedImage, '/robot7/image_raw/compressed')
    clock = ears.node.create_publisher(Clock, '/clock', RELIABLE)
    now_s = [500.0]

    def tick() -> None:
        now_s[0] += 0.05
        message = Clock()
        message.clock.sec, message.clock.nanosec = int(now_s[0]), int(now_s[0] % 1 * 1e9)
        clock.publish(message)

    ears.node.create_timer(0.02, tick)  # two and a half times as fast as real time
    process = start(*camera('use_sim_time:=true', 'rate:=5.0', 'width:=160', 'height:=120'))
    stamps = [stamp_s(m) for _, m in ears.take(heard, 6)]
    assert all(500.0 < stamp < now_s[0] + 0.01 for stamp in stamps)
    assert np.median(np.diff(stamps)) == pytest.approx(0.2, abs=0.11)
    assert process.end() == 0


def test_the_whole_way_over_the_testbed(ears: Ears, start: Callable[..., Process]) -> None:
    token = {'CLOUDGRIPPER_TOKEN': 'secret of this test'}
    testbed = start('laimr_ros.cli.main', 'testbed', '--port', '0', '--robots', '2',
                    '--fail-rate', '0.3', '--camera-rate', '10', **token)
    url = testbed.wait_for_line('http://').split(' at ')[1].split(' ')[0]
    heard = ears.listen(CompressedImage, '/robot2/image_raw/compressed')
    process = start(*camera('source:=cloudgripper', f'url:={url}', 'robot:=robot2', 'rate:=30',
                            namespace='/robot2'), **token)
    messages = ears.take(heard, 12)
    stamps = [stamp_s(m) for _, m in messages]
    # Asked 30 times a second, a camera of 10 gives each picture once, with its time of capture.
    assert all(b - a > 0.09 for a, b in itertools.pairwise(stamps))
    assert all(abs(s * 10 - round(s * 10)) < 0.01 for s in stamps)
    assert decoded(messages[-1][1]).shape == (480, 640, 3)
    complaints = [line for line in process.lines if 'Cannot read frame from webcam' in line]
    assert len(complaints) <= 1
    # The API goes and comes back; nobody restarts the camera.
    assert testbed.end(signal.SIGTERM) == 0
    process.wait_for_line('cannot be reached')
    start('laimr_ros.cli.main', 'testbed', '--port', url.rsplit(':', 1)[1], '--robots', '2',
          **token)
    while not heard.empty():
        heard.get()
    ears.take(heard, 3)
    process.wait_for_line('frames again, after')
    assert process.end() == 0
    assert not any('secret of this test' in line for line in process.lines)


def test_ends_with_its_parent(start: Callable[..., Process], domain: int) -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, '-m', *camera('width:=160', 'height:=120')],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, pass_fds=[read_end],
        env={**os.environ, 'ROS_DOMAIN_ID': str(domain), 'LAIMR_LIFELINE_FD': str(read_end)})
    os.close(read_end)
    try:
        assert process.stdout is not None
        assert 'frames/s' in process.stdout.readline()
        os.close(write_end)
        assert process.wait(LONG_S) == 0
    finally:
        process.kill()
        process.wait(LONG_S)
        process.stdout.close()  # type: ignore[union-attr]
