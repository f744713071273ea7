"""The dispatcher as a process: real topics, real workers on sockets, and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import itertools
import json
import os
from pathlib import Path
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from typing import Any
import urllib.request
import zlib

import pytest

pytest.importorskip('vision_msgs', reason='no ROS or vision_msgs here: run `make setup`')

from builtin_interfaces.msg import Time
import cv2
from diagnostic_msgs.msg import DiagnosticArray
from laimr_ros import lifeline
from laimr_ros.nodes.executor import make_executor, spin
import numpy as np
from rcl_interfaces.srv import SetParameters
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Float64, String, UInt32
from vision_msgs.msg import Detection2DArray, LabelInfo

DEADLINE_S = 40.0
LATCHED = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
BEST_EFFORT = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
RELIABLE = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
ENDINGS = ('answered', 'superseded', 'expired', 'rejected', 'failed')


def eventually(predicate: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait until something holds; return it."""
    end = time.monotonic() + deadline_s
    while not (value := predicate()):
        assert time.monotonic() < end, f'never happened: {what}'
        time.sleep(0.01)
    return value


def jpeg(height: int = 48, width: int = 64) -> bytes:
    """Return a small real JPEG."""
    image = np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)
    return bytes(cv2.imencode('.jpg', image)[1].tobytes())


def png_header(width: int, height: int) -> bytes:
    """Return the beginning of a PNG file: signature, header, and a little data."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (struct.pack('>I', len(data)) + kind + data
                + struct.pack('>I', zlib.crc32(kind + data)))

    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0,
                                                             0, 0))
            + chunk(b'IDAT', zlib.compress(bytes(1000))) + chunk(b'IEND', b''))


class Robot:
    """A robot that publishes images and hears its detections."""

    def __init__(
        self, node: Node, name: str, frame_id: str = 'camera', *, raw: bool = False,
        qos: QoSProfile = BEST_EFFORT,
    ) -> None:
        """Publish and subscribe."""
        self.node, self.name, self.frame_id, self.raw = node, name, frame_id, raw
        self.heard: list[Detection2DArray] = []
        topic = f'/{name}/image_raw' + ('' if raw else '/compressed')
        self.publisher = node.create_publisher(Image if raw else CompressedImage, topic, qos)
        self.subscription = node.create_subscription(
            Detection2DArray, f'/{name}/detections', self.heard.append, 10)
        self.sent: list[tuple[int, int]] = []

    def wait_heard(self) -> None:
        """Wait until the dispatcher listens and can answer."""
        eventually(self.publisher.get_subscription_count, f'{self.name} is found')
        eventually(lambda: self.node.count_publishers(f'/{self.name}/detections'), 'detections')

    def send(self, data: bytes | None = None, age_s: float = 0.0) -> tuple[int, int]:
        """Publish one image; return its stamp."""
        now = time.time_ns() - round(age_s * 1e9)
        stamp = now // 10**9, now % 10**9
        if self.raw:
            message: Any = Image(
                height=4, width=6, encoding='bgr8', step=18, data=bytes(72) if data is None
                else data)
        else:
            message = CompressedImage(format='jpeg', data=jpeg() if data is None else data)
        message.header.stamp.sec, message.header.stamp.nanosec = stamp
        message.header.frame_id = self.frame_id
        self.publisher.publish(message)
        self.sent.append(stamp)
        return stamp

    def answer(self, stamp: tuple[int, int]) -> Detection2DArray | None:
        """Return the detections of one image, if they are there."""
        for message in list(self.heard):
            if (message.header.stamp.sec, message.header.stamp.nanosec) == stamp:
                return message
        return None

    def ask(self, data: bytes | None = None) -> Detection2DArray:
        """Publish an image until one is answered; return the detections."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            stamp = self.send(data)
            wait_until = time.monotonic() + 1.0
            while time.monotonic() < wait_until:
                if (message := self.answer(stamp)) is not None:
                    return message
                time.sleep(0.005)
        raise AssertionError(f'{self.name} never got an answer')

    def leave(self) -> None:
        """Publish no more."""
        self.node.destroy_publisher(self.publisher)
        self.node.destroy_subscription(self.subscription)


class World:
    """A ROS domain of its own, with workers, one dispatcher and robots."""

    def __init__(self, base: Path) -> None:
        """Start to spin; nothing runs yet."""
        self.base = base
        self.domain = random.randint(1, 230)
        self.context = Context()
        rclpy.init(context=self.context, domain_id=self.domain)
        self.node = Node('test_robots', context=self.context)
        self.executor = make_executor(self.context)
        self.executor.add_node(self.node)
        self.statuses: list[dict[str, Any]] = []
        self.diagnostics: dict[str, Any] = {}
        self.node.create_subscription(
            String, '/dispatcher/status', lambda m: self.statuses.append(json.loads(m.data)),
            LATCHED)
        self.node.create_subscription(DiagnosticArray, '/diagnostics', self._diagnose, 10)
        self.set_parameters = self.node.create_client(
            SetParameters, '/dispatcher/set_parameters')
        self._thread = threading.Thread(target=spin, args=(self.executor,), daemon=True)
        self._thread.start()
        self.workers: dict[str, lifeline.Child] = {}
        self.dispatcher: lifeline.Child | None = None
        self.log = base / 'dispatcher.log'
        self.records_file = base / 'records.jsonl'

    def _diagnose(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.diagnostics[status.name] = (
                status.level, status.message, {v.key: v.value for v in status.values})

    def endpoint(self, name: str) -> str:
        """Return where a worker serves."""
        return f'unix:{self.base}/{name}.sock'

    def start_worker(self, name: str, mean_s: float = 0.01, detections: int = 3) -> None:
        """Start a worker and wait until it serves."""
        worker = lifeline.spawn(
            [sys.executable, '-m', 'laimr_ros.cli.main', 'worker', '--model', 'fake=emulated',
             '--set', f'models.fake.options.mean_s={mean_s}',
             '--set', f'models.fake.options.detections={detections}',
             '--set', 'models.fake.options.class_names=[cup, robot]',
             '--listen', self.endpoint(name)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.workers[name] = worker
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.startswith('ready'):
                return
        raise AssertionError(f'worker {name} ended')

    def start_dispatcher(self, workers: list[str], parameters: str = '', **pool: Any) -> None:
        """Start the dispatcher with an edge pool of some workers."""
        settings = {'endpoints': [self.endpoint(w) for w in workers], **pool}
        file = self.base / 'dispatcher.yaml'
        file.write_text(textwrap.dedent(f"""\
            /**/dispatcher:
              ros__parameters:
                lane_names: [lane]
                lanes.lane.model: fake
                lanes.lane.slo: 2.0
                pool_names: [edge]
                discovery_period: 0.1
                diagnostics_period: 0.1
                robot_timeout: 0.5
                records_file: {self.records_file}
                image_qos.depth: 20
            """) + ''.join(
                f'    pools.edge.{key}: {json.dumps(value)}\n' for key, value in settings.items())
            + ''.join(f'    {line}\n' for line in textwrap.dedent(parameters).splitlines()))
        with open(self.log, 'w') as output:
            self.dispatcher = lifeline.spawn(
                [sys.executable, '-m', 'laimr_ros.nodes.entry', 'dispatcher', '--ros-args',
                 '--params-file', str(file)],
                stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, 'ROS_DOMAIN_ID': str(self.domain)})
        eventually(lambda: self.statuses, 'the dispatcher tells its status')

    def robot(self, name: str, frame_id: str = 'camera', **options: Any) -> Robot:
        """Let a robot come."""
        return Robot(self.node, name, frame_id, **options)

    def set(self, name: str, value: Any) -> tuple[bool, str]:
        """Set a parameter of the dispatcher; return whether it was taken, and the reason."""
        assert self.set_parameters.wait_for_service(DEADLINE_S)
        request = SetParameters.Request(parameters=[Parameter(name, value=value)
                                                    .to_parameter_msg()])
        future = self.set_parameters.call_async(request)
        eventually(future.done, 'set_parameters answers')
        result = future.result().results[0]
        return result.successful, result.reason

    def status(self, predicate: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        """Wait for a status in which something holds; return it."""
        return eventually(
            lambda: self.statuses[-1] if self.statuses and predicate(self.statuses[-1]) else None,
            what)

    def idle(self) -> dict[str, int]:
        """Wait until no frame is open; return the counters."""
        seen = len(self.statuses)
        status = self.status(
            lambda s: len(self.statuses) > seen + 1 and s['counters']['in_flight'] == 0, 'idle')
        return dict(status['counters'])

    def said(self) -> str:
        """Return the dispatcher's log."""
        return self.log.read_text()

    def stop_dispatcher(self, number: int = signal.SIGINT) -> float:
        """Ask the dispatcher to end; return how long it took, in seconds."""
        assert self.dispatcher is not None
        begin = time.monotonic()
        self.dispatcher.send_signal(number)
        status = self.dispatcher.wait(10.0)
        took = time.monotonic() - begin
        assert status == 0, self.said()
        return took

    def records(self) -> list[dict[str, Any]]:
        """Return the records."""
        return [json.loads(line) for line in self.records_file.read_text().splitlines()]

    def close(self) -> None:
        """End everything."""
        for process in (self.dispatcher, *self.workers.values()):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(5.0)
        self.executor.shutdown(timeout_sec=5.0)
        self._thread.join(5.0)
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)
        if self.log.exists():
            print(self.said())


@pytest.fixture
def world() -> Iterator[World]:
    # Paths of Unix sockets must be short.
    with tempfile.TemporaryDirectory(prefix='ld-') as directory:
        world = World(Path(directory))
        try:
            yield world
        finally:
            world.close()


def adds_up(counters: dict[str, int]) -> bool:
    return counters['received'] == sum(counters[e] for e in ENDINGS) + counters['in_flight']


def test_frames_become_detections_and_all_is_told(world: World) -> None:
    world.start_worker('a')
    labels: list[LabelInfo] = []
    world.node.create_subscription(
        LabelInfo, '/dispatcher/lanes/lane/label_info', labels.append, LATCHED)
    world.start_dispatcher(['a'])
    one, two = world.robot('one', 'same_frame'), world.robot('rack/two', 'same_frame')
    for robot in (one, two):
        robot.wait_heard()
        found = robot.ask()
        assert found.header.frame_id == 'same_frame'
        assert len(found.detections) == 3
        for detection in found.detections:
            assert detection.header == found.header
            assert 0 <= detection.bbox.center.position.x <= 64
            assert 0 <= detection.bbox.center.position.y <= 48
            assert detection.bbox.size_x > 0
            hypothesis = detection.results[0].hypothesis
            assert hypothesis.class_id in ('cup', 'robot')
            assert 0 < hypothesis.score <= 1
    # Identity is the topic: each heard only answers to what it sent itself.
    for robot in (one, two):
        heard = {(m.header.stamp.sec, m.header.stamp.nanosec) for m in robot.heard}
        assert heard <= set(robot.sent)
        assert len(heard) == len(robot.heard), 'a frame was answered twice'
    eventually(lambda: labels, 'class names')
    assert [(c.class_id, c.class_name) for c in labels[-1].class_map] == [(0, 'cup'), (1, 'robot')]
    counters = world.idle()
    assert adds_up(counters) and counters['answered'] == len(one.heard) + len(two.heard)
    status = world.statuses[-1]
    assert set(status['robots']) == {'one', 'rack/two'}
    assert status['lanes']['lane']['p99_s'] > 0
    for name in ('dispatcher: frames', 'dispatcher: lane lane', 'dispatcher: pool edge',
                 'dispatcher: robot one', 'dispatcher: robot rack/two'):
        assert name in world.diagnostics
    assert adds_up({k: int(v) for k, v in world.diagnostics['dispatcher: frames'][2].items()
                    if k in (*ENDINGS, 'received', 'in_flight')})
    assert world.stop_dispatcher() < 3.0
    records = world.records()
    assert len(records) == world.statuses[-1]['counters']['received']
    answered = [r for r in records if r['outcome'] == 'answered']
    assert len(answered) == counters['answered']
    for record in answered:
        assert record['replica'] == world.endpoint('a') and record['pool'] == 'edge'
        assert record['predicted']['completion_s'] > 0 and record['service_s'] > 0.009
        assert record['detections'] == 3 and record['on_time']
    stamps = {(r['robot'], divmod(r['stamp_ns'], 10**9)) for r in answered}
    assert stamps == {(r.name, (m.header.stamp.sec, m.header.stamp.nanosec))
                      for r in (one, two) for m in r.heard}


def test_bad_images_are_counted_and_nothing_else_suffers(world: World) -> None:
    world.start_worker('a')
    world.start_dispatcher(['a'], 'max_image_bytes: 100000')
    robot = world.robot('bad')
    robot.wait_heard()
    robot.ask()
    before = world.idle()

    def send(data: bytes) -> dict[str, int]:
        """Send one image; return what it was counted as."""
        nonlocal before
        robot.send(data)
        world.status(
            lambda s: s['counters']['received'] > before['received']
            and s['counters']['in_flight'] == 0, 'the image is counted')
        after = world.idle()
        assert adds_up(after)
        change = {key: after[key] - before[key] for key in after if after[key] != before[key]}
        before = after
        return change

    assert send(b'') == {'received': 1, 'rejected': 1}
    assert send(bytes(100_001)) == {'received': 1, 'rejected': 1}
    assert send(b'no image at all') == {'received': 1, 'failed': 1}
    assert send(jpeg()[:40]) == {'received': 1, 'failed': 1}
    assert send(png_header(20_000, 10_000)) == {'received': 1, 'failed': 1}
    assert send(jpeg(1, 1)) == {'received': 1, 'answered': 1, 'on_time': 1}
    reasons = world.statuses[-1]['robots']['bad']['reasons']
    assert any('empty image' in r for r in reasons)
    assert any('max_image_bytes' in r for r in reasons)
    # The worker is none the worse for it, and has not been accused either.
    assert robot.ask().detections
    assert world.workers['a'].poll() is None
    assert world.statuses[-1]['pools']['edge']['ready'] == 1


def test_raw_images(world: World) -> None:
    world.start_worker('a')
    world.start_dispatcher(['a'])
    robot = world.robot('raw', raw=True)
    robot.wait_heard()
    found = robot.ask()
    assert len(found.detections) == 3
    assert all(0 <= d.bbox.center.position.x <= 6 for d in found.detections)
    # A robot that offers both is listened to on the smaller one.
    both = world.robot('raw')
    eventually(both.publisher.get_subscription_count, 'compressed is subscribed')
    eventually(lambda: not robot.publisher.get_subscription_count(), 'raw is let go of')
    assert len(both.ask().detections) == 3


def test_two_cameras_in_one_namespace(world: World) -> None:
    world.start_worker('a')
    world.start_dispatcher(['a'], 'topics: [left=/cams/left, right=/cams/right]')
    for name in ('left', 'right'):
        camera = world.robot(name)
        camera.node.destroy_publisher(camera.publisher)
        camera.publisher = world.node.create_publisher(
            CompressedImage, f'/cams/{name}', BEST_EFFORT)
        camera.wait_heard()
        assert camera.ask().detections


def test_the_log_says_what_is_looked_for_and_what_is_not_found(world: World) -> None:
    world.start_worker('a')
    world.start_dispatcher(['a'])
    nameless = world.node.create_publisher(
        CompressedImage, '/image_raw/compressed', BEST_EFFORT)
    said = world.said()
    assert 'lane lane: model fake, SLO 2 s, pools [edge]' in said
    assert f'pool edge: endpoints [{world.endpoint("a")}], bridge /local_bridge, replicas' in said
    assert 'looking for images on /{robot}/image_raw/compressed, /{robot}/image_raw' in said
    eventually(lambda: '/image_raw/compressed has no robot name' in world.said(), 'the hint')
    double = Node('dispatcher', context=world.context)
    eventually(lambda: '2 nodes are named /dispatcher' in world.said(), 'the namesake')
    double.destroy_node()
    eventually(lambda: 'only node named /dispatcher again' in world.said(), 'its end')
    world.node.destroy_publisher(nameless)


def test_a_file_for_another_node_is_told_of(world: World) -> None:
    file = world.base / 'p.yaml'
    file.write_text('/**/dispacher:\n  ros__parameters:\n    policy: laimr\n')
    with open(world.log, 'w') as output:
        world.dispatcher = lifeline.spawn(
            [sys.executable, '-m', 'laimr_ros.nodes.entry', 'dispatcher', '--ros-args',
             '--params-file', str(file)], stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, 'ROS_DOMAIN_ID': str(world.domain)})
    eventually(lambda: f'no section of {file} is for the node /dispatcher' in world.said(),
               'the warning')


def test_a_worker_with_another_model_is_explained(world: World) -> None:
    world.start_worker('a')
    world.start_dispatcher(['a'], 'lanes.lane.model: fakes')
    eventually(lambda: "it serves [fake], not 'fakes' (lane lane asks for it); did you mean "
               "'fake'?" in world.said(), 'the explanation')


def test_a_worker_killed_with_frames_in_hand_loses_none(world: World) -> None:
    world.start_worker('a', mean_s=0.3)
    world.start_worker('b', mean_s=0.3)
    world.start_dispatcher(['a', 'b'], 'lanes.lane.slo: 10.0')
    robots = [world.robot(f'r{i}') for i in range(4)]
    for robot in robots:
        robot.wait_heard()
    world.status(lambda s: s['pools']['edge']['ready'] == 2, 'both workers serve')
    for robot in robots:
        robot.send()
    world.status(lambda s: any(
        link['endpoint'] == world.endpoint('a') and link['in_flight'] for link in s['links']),
        'worker a has a frame')
    world.workers['a'].kill()
    for robot in robots:
        eventually(lambda robot=robot: robot.answer(robot.sent[-1]), f'{robot.name} is answered')
    counters = world.idle()
    assert counters['received'] == counters['answered'] == 4
    status = world.status(lambda s: s['pools']['edge']['ready'] == 1, 'the dead one is noticed')
    assert re.search(r'\[WARN\].*/a\.sock of pool edge does not serve', world.said())
    assert [link['serving'] for link in sorted(
        status['links'], key=lambda link: link['endpoint'])] == [False, True]
    # Restarted at the same place it is used again, without a restart of the dispatcher.
    world.start_worker('a', mean_s=0.01)
    world.status(lambda s: s['pools']['edge']['ready'] == 2, 'it is back')
    world.workers['b'].kill()
    assert len(robots[0].ask().detections) == 3
    assert world.stop_dispatcher(signal.SIGTERM) < 3.0
    assert {r['replica'] for r in world.records()} == {world.endpoint('a'), world.endpoint('b')}
    assert any(r['attempts'] == 2 for r in world.records())


def test_a_robot_leaves_and_comes_back(world: World) -> None:
    world.start_worker('a')
    world.start_dispatcher(['a'])
    robot, other = world.robot('gone'), world.robot('stays')
    for r in (robot, other):
        r.wait_heard()
        r.ask()
    robot.leave()
    world.status(lambda s: set(s['robots']) == {'stays'}, 'it has left')
    eventually(lambda: not world.node.count_publishers('/gone/detections'), 'publisher destroyed')
    eventually(lambda: not world.node.count_subscribers('/gone/image_raw/compressed'),
               'subscription destroyed')
    assert other.ask().detections
    assert world.robot('gone').ask().detections


def test_wrong_quality_of_service_is_explained(world: World) -> None:
    world.start_worker('a')
    world.start_dispatcher(['a'], 'image_qos.reliability: reliable')
    robot = world.robot('unheard', qos=BEST_EFFORT)
    text = eventually(
        lambda: re.search('no image from .*unheard.*', world.said()), 'the log line').group()
    for part in ('/test_robots', '/unheard/image_raw/compressed', 'reliability best_effort',
                 'reliability reliable', 'image_qos.reliability'):
        assert part in text
    assert world.said().count('no image from') == 1
    # The other direction: detections are reliable but volatile.
    heard = world.robot('heard', qos=RELIABLE)
    heard.wait_heard()
    world.node.create_subscription(Detection2DArray, '/heard/detections', print, LATCHED)
    text = eventually(
        lambda: re.search('no detections for .*', world.said()), 'the other line').group()
    assert 'durability transient_local' in text and 'durability volatile' in text
    assert heard.ask().detections
    status = world.status(
        lambda s: s['robots'].get('unheard', {}).get('stale'), 'silence is noticed')
    assert status['robots']['unheard']['received'] == 0
    robot.leave()


def test_parameters_change_live_or_say_why_not(world: World) -> None:
    world.start_worker('a')
    world.start_worker('b')
    world.start_dispatcher(['a'])
    robot = world.robot('r')
    robot.wait_heard()
    robot.ask()
    assert world.set('lanes.lane.slo', 0.7) == (True, '')
    world.status(lambda s: s['lanes']['lane']['slo_s'] == 0.7, 'the SLO')
    for name, value, says in (
            ('lanes.lane.slo', -1.0, 'out of range'),
            ('lanes.lane.pools', ['edge', 'moon'], 'moon'),
            ('lanes.lane.model', 'yolov9000', 'yolov9000'),
            ('pools.edge.endpoints', ['http://a:1'], 'gRPC'),
            ('pools.edge.min_replicas', 7, 'max_replicas'),
            ('default_lane', 'fast', 'fast'),
            ('topics', ['/camera'], 'which robot')):
        taken, reason = world.set(name, value)
        assert not taken and says in reason, (name, reason)
    taken, reason = world.set('pool_names', ['other'])
    assert not taken
    assert world.statuses[-1]['lanes']['lane']['slo_s'] == 0.7
    # Scores of the emulated detector are 0.95, 0.725 and 0.5.
    assert len(robot.ask().detections) == 3
    assert world.set('score_threshold', 0.7) == (True, '')
    eventually(lambda: len(robot.ask().detections) == 2, 'the threshold')
    # This is how a bridge works: endpoints come and go.
    assert world.set('pools.edge.endpoints', [world.endpoint('b')]) == (True, '')
    world.status(lambda s: [link['endpoint'] for link in s['links'] if link['serving']]
                 == [world.endpoint('b')] and len(s['links']) == 1, 'the other worker')
    assert robot.ask().detections
    assert world.set('pools.edge.endpoints', []) == (True, '')
    world.status(lambda s: not s['links'], 'no worker')
    robot.send()
    counters = world.idle()
    assert adds_up(counters) and counters['expired'] >= 1
    assert world.set('pools.edge.endpoints', [world.endpoint('a')]) == (True, '')
    assert robot.ask().detections


def test_wrong_clocks_are_found_and_frames_live_on(world: World) -> None:
    world.start_worker('a')
    world.start_dispatcher(['a'], 'clock_max_age: 3.0')
    behind, ahead = world.robot('behind'), world.robot('ahead')
    for robot, age_s, offset in ((behind, 3600.0, 3600.0), (ahead, -60.0, -60.0)):
        robot.wait_heard()
        stamp = robot.send(age_s=age_s)
        eventually(lambda robot=robot, stamp=stamp: robot.answer(stamp), 'an answer all the same')
        status = world.status(
            lambda s, n=robot.name: s['robots'].get(n, {}).get('clock'), 'it is told')
        assert status['robots'][robot.name]['clock_offset_s'] == pytest.approx(offset, abs=1.0)
        eventually(lambda n=robot.name: world.diagnostics.get(
            f'dispatcher: robot {n}', (b'\0', '', {}))[1].startswith('its clock is')
            or world.diagnostics[f'dispatcher: robot {n}'][1].startswith('no frame'), 'diagnosis')
    assert world.idle()['expired'] == 0


def test_simulated_time_is_the_time_of_stamps(world: World) -> None:
    world.start_worker('a')
    world.start_dispatcher(['a'], 'use_sim_time: true')
    clock = world.node.create_publisher(Clock, '/clock', 10)
    robot = world.robot('r')
    robot.wait_heard()

    def tick() -> bool:
        # Clocks of simulations begin near zero; a stamp of the system's time would be far ahead.
        clock.publish(Clock(clock=Time(sec=1000)))
        message = CompressedImage(format='jpeg', data=jpeg())
        message.header.stamp.sec, message.header.stamp.nanosec = 999, 750_000_000
        robot.publisher.publish(message)
        time.sleep(0.05)
        state = world.statuses[-1]['robots'].get('r', {})
        return bool(state) and abs(state['clock_offset_s'] - 0.25) < 1e-6 and not state['clock']

    eventually(tick, 'the age is that of simulated time')
    eventually(lambda: robot.answer((999, 750_000_000)), 'an answer')


def test_replicas_are_asked_for_once_the_bridge_tells_what_there_is(world: World) -> None:
    world.start_worker('a', mean_s=0.05)
    world.start_dispatcher(['a'], """\
        bridge: /test_robots
        lanes.lane.slo: 0.3
        """, min_replicas=1, max_replicas=4)
    desired: list[int] = []
    world.node.create_subscription(
        UInt32, '/dispatcher/pools/edge/desired_replicas', lambda m: desired.append(m.data),
        LATCHED)
    robots = [world.robot(f'r{i}') for i in range(4)]
    for robot in robots:
        robot.wait_heard()
        robot.ask()
    # Nothing observed, nothing asked for.
    assert desired == []
    publishers = [
        world.node.create_publisher(kind, f'/test_robots/pools/edge/{name}', LATCHED)
        for name, kind in (('ready_replicas', UInt32), ('starting_replicas', UInt32),
                           ('start_up_time', Float64))]
    publishers[2].publish(Float64(data=1.5))
    publishers[1].publish(UInt32(data=0))
    publishers[0].publish(UInt32(data=2))
    eventually(lambda: desired, 'the first wish')
    assert desired[0] == 2, 'a restart changes nothing'
    world.status(lambda s: s['pools']['edge']['start_up_s'] == 1.5, 'start-up time')

    def load() -> bool:
        for robot in robots:
            robot.send()
        time.sleep(0.05)
        return desired[-1] > 2

    eventually(load, 'more are asked for')
    assert max(desired) <= 4 and all(a != b for a, b in itertools.pairwise(desired))


def test_with_the_local_bridge(world: World) -> None:
    file = world.base / 'bridge.yaml'
    file.write_text(textwrap.dedent(f"""\
        /**/local_bridge:
          ros__parameters:
            pool_names: [edge]
            socket_directory: {world.base}
            log_directory: {world.base}
            pools.edge.worker_params_file: {file}
            pools.edge.max_replicas: 3
        /**/worker:
          ros__parameters:
            model_names: [fake]
            models.fake.kind: emulated
            models.fake.options.mean_s: 0.05
        """))
    world.start_dispatcher([], """\
        lanes.lane.slo: 0.4
        stabilisation: 1.0
        slow_window: 4.0
        """, max_replicas=3)
    bridge = lifeline.spawn(
        [sys.executable, '-m', 'laimr_ros.nodes.entry', 'local_bridge', '--ros-args',
         '--params-file', str(file)], env={**os.environ, 'ROS_DOMAIN_ID': str(world.domain)})
    world.workers['bridge'] = bridge
    robots = [world.robot(f'r{i}') for i in range(5)]
    for robot in robots:
        robot.wait_heard()
    assert robots[0].ask().detections
    status = world.status(lambda s: s['pools']['edge']['desired'] is not None, 'a wish')
    assert status['pools']['edge']['desired'] >= 1
    world.status(lambda s: s['pools']['edge']['start_up_s'] != 5.0, 'start-up is measured')

    def load() -> bool:
        for robot in robots:
            robot.send()
        time.sleep(0.06)
        return bool(world.statuses[-1]['pools']['edge']['ready'] > 1)

    eventually(load, 'more replicas serve under load')
    # The bridge goes, and takes its workers along: frames wait for others, nothing breaks.
    bridge.send_signal(signal.SIGINT)
    assert bridge.wait(10.0) == 0
    world.status(lambda s: s['pools']['edge']['ready'] == 0, 'no replica')
    robots[0].send()
    counters = world.idle()
    assert adds_up(counters)
    assert world.stop_dispatcher() < 3.0
    assert len(world.records()) == world.statuses[-1]['counters']['received']


def test_a_stop_ends_every_frame(world: World) -> None:
    world.start_worker('a', mean_s=30.0)
    port = random.randint(20000, 60000)
    world.start_dispatcher(['a'], f"""\
        lanes.lane.slo: 60.0
        prometheus_port: {port}
        """)
    robots = [world.robot(f'r{i}') for i in range(3)]
    for robot in robots:
        robot.wait_heard()
    world.status(lambda s: s['pools']['edge']['ready'] == 1, 'ready')
    for robot in robots:
        robot.send()
    world.status(lambda s: s['counters']['in_flight'] == 3, 'all are in hand')
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=5.0) as response:
        text = response.read().decode()
    assert re.search(r'^laimr_frames_in_flight 3$', text, re.M)
    assert re.search(r'^laimr_robot_frames_received_total\{robot="r0"\} 1$', text, re.M)
    assert world.stop_dispatcher() < 3.0
    records = world.records()
    assert len(records) == 3
    assert all(r['outcome'] in ('failed', 'expired') for r in records)
    last = eventually(lambda: world.statuses[-1] if not world.statuses[-1]['counters']['in_flight']
                      else None, 'the last status')
    assert last['counters']['received'] == 3 and adds_up(last['counters'])


@pytest.mark.parametrize('parameters, says', [
    ('lanes.lane.pools: [moon]', 'moon'),
    ('topics: [/camera]', '/camera'),
    ('lanes.lane.slo: fast', 'lanes.lane.slo'),
    ('records_file: /proc/none/records', '/proc/none/records'),
])
def test_wrong_parameters_end_it_with_one_line(
        world: World, parameters: str, says: str) -> None:
    file = world.base / 'p.yaml'
    file.write_text(f'/**/dispatcher:\n  ros__parameters:\n    lane_names: [lane]\n'
                    f'    {parameters}\n')
    done = subprocess.run(
        [sys.executable, '-m', 'laimr_ros.nodes.entry', 'dispatcher', '--ros-args',
         '--params-file', str(file)], capture_output=True, text=True, timeout=30.0,
        env={**os.environ, 'ROS_DOMAIN_ID': str(world.domain)})
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith('dispatcher: ')]
    assert len(lines) == 1 and says in lines[0]
    assert 'Traceback' not in done.stderr
