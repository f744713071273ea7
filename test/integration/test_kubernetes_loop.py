"""Cameras, dispatcher, bridge, API server, pods as real workers, detections: the whole loop."""

from __future__ import annotations

from collections.abc import Iterator
import json
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from control_plane import ControlPlane, eventually, WorkerContainer
import pytest

pytest.importorskip('vision_msgs', reason='no ROS or vision_msgs here: run `make setup`')

from kubernetes_cell import BridgeProcess, Cell, cell, ReplicaRecorder, ROOT
from laimr_ros.nodes.bridge import LATCHED
from laimr_ros.nodes.executor import make_executor, spin
from rcl_interfaces.srv import SetParameters
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter
from std_msgs.msg import String
from vision_msgs.msg import Detection2DArray
import yaml

SLO_S = 1.0
ROBOTS = ('arm1', 'arm2', 'arm3', 'arm4')
ENDINGS = ('answered', 'superseded', 'expired', 'rejected', 'failed')
PARAMETERS = {
    '/**/dispatcher': {'ros__parameters': {
        'lane_names': ['balanced'],
        'lanes': {'balanced': {'model': 'yolov5m', 'slo': SLO_S, 'pools': ['edge']}},
        'pool_names': ['edge'],
        'pools': {'edge': {
            'min_replicas': 1, 'max_replicas': 6, 'start_up': 3.0,
            'latency': {'yolov5m': {'alpha': 0.1}}}},
        'bridge': 'kubernetes_bridge', 'stabilisation': 3.0, 'slow_window': 6.0,
        'diagnostics_period': 0.2}},
    '/**/camera': {'ros__parameters': {
        'width': 64, 'height': 48, 'rate': 1.0, 'arrivals': 'poisson'}},
}


class Loop:
    """Everything but the cluster."""

    def __init__(self, home: Cell, directory: Path) -> None:
        """Start the processes, and listen."""
        self.domain = random.randint(1, 230)
        self.home = home
        self.directory = directory
        (directory / 'loop.yaml').write_text(yaml.safe_dump(PARAMETERS))
        self._processes: list[subprocess.Popen[bytes]] = []
        self.bridge = BridgeProcess(home, self.domain, directory)
        self.start('dispatcher')
        for robot in ROBOTS:
            self.start('camera', '-r', f'__ns:=/{robot}')
        self._context = Context()
        rclpy.init(context=self._context, domain_id=self.domain)
        self._node = Node('listener', context=self._context)
        self.status: dict[str, Any] = {}
        self.late_at: float | None = None
        self.detections: dict[str, int] = dict.fromkeys(ROBOTS, 0)
        self._node.create_subscription(String, '/dispatcher/status', self._hear, LATCHED)
        for robot in ROBOTS:
            self._node.create_subscription(
                Detection2DArray, f'/{robot}/detections',
                lambda _, robot=robot: self._count(robot), 10)
        self._clients = [
            self._node.create_client(SetParameters, f'/{robot}/camera/set_parameters')
            for robot in ROBOTS]
        self._executor = make_executor(self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=spin, args=(self._executor,), daemon=True)
        self._thread.start()

    def start(self, node: str, *arguments: str) -> None:
        """Start a node."""
        with (self.directory / f'{node}.log').open('ab') as log:
            self._processes.append(subprocess.Popen(
                [sys.executable, '-m', f'laimr_ros.nodes.{node}', '--ros-args',
                 '--params-file', str(self.directory / 'loop.yaml'), *arguments],
                env={**os.environ, 'ROS_DOMAIN_ID': str(self.domain),
                     'PYTHONPATH': f'{ROOT}:{os.environ.get("PYTHONPATH", "")}'},
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True))

    def set_rate(self, rate: float) -> None:
        """Set the frames a second of every camera."""
        for client in self._clients:
            eventually(client.service_is_ready, 'a camera is there')
            reply = client.call_async(SetParameters.Request(parameters=[
                Parameter('rate', value=rate).to_parameter_msg()]))
            eventually(reply.done, 'a camera takes its rate')
            assert reply.result().results[0].successful, reply.result()

    def counters(self) -> dict[str, int]:
        """Return the dispatcher's counters."""
        return dict(self.status.get('counters') or {})

    def pool(self, key: str) -> Any:
        """Return what the dispatcher tells of the pool."""
        return (self.status.get('pools') or {}).get('edge', {}).get(key)

    def explain(self) -> str:
        """Return what to print when something never happens."""
        return (
            f'{self.status}\n{self.bridge.log.read_text()[-3000:]}\n'
            f'{(self.directory / "dispatcher.log").read_text()[-3000:]}')

    def close(self) -> None:
        """End everything, cameras first."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
        assert self.bridge.close() == 0
        self._executor.shutdown(timeout_sec=5.0)
        self._thread.join(5.0)
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)

    def _count(self, robot: str) -> None:
        self.detections[robot] += 1

    def _hear(self, message: String) -> None:
        self.status = json.loads(message.data)
        p99 = self.status['lanes']['balanced']['p99_s']
        if p99 is not None and p99 > SLO_S and self.late_at is None:
            self.late_at = time.monotonic()


@pytest.fixture
def home(own_plane: ControlPlane) -> Iterator[Cell]:
    """Return a cell whose pods are worker processes."""
    with cell(own_plane, container=WorkerContainer, pre_stop_s=0.5) as home:
        yield home


@pytest.fixture
def loop(home: Cell, tmp_path: Path) -> Iterator[Loop]:
    """Return a loop that runs with one worker."""
    loop = Loop(home, tmp_path)
    try:
        eventually(
            lambda: min(loop.detections.values()) >= 3, 'every robot gets detections', 60.0,
            explain=loop.explain)
        yield loop
    finally:
        loop.close()


def all_accounted(loop: Loop) -> dict[str, int]:
    """Check that every frame received has ended in one way or is in flight; return the counts."""
    counts = loop.counters()
    assert counts['received'] == sum(counts[e] for e in ENDINGS) + counts['in_flight'], counts
    return counts


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_replicas_follow_the_load_and_no_frame_is_lost(loop: Loop, home: Cell) -> None:
    """More before it is late, fewer when the load falls, drained, every frame accounted for."""
    recorder = ReplicaRecorder(home)
    eventually(lambda: loop.pool('ready') == 1, 'one replica', explain=loop.explain)
    # What came while everything started is not the matter here.
    loop.late_at = None
    for rate in (1.5, 2.0, 3.0, 4.0, 5.0):
        loop.set_rate(rate)
        time.sleep(4.0)
    peak = eventually(lambda: home.replicas >= 2 and home.replicas, 'more replicas',
                      explain=loop.explain)
    eventually(lambda: loop.pool('ready') >= 3, 'they serve', explain=loop.explain)
    rose_at = next(at for at, number in recorder.numbers if number > 1)
    assert loop.late_at is None or rose_at < loop.late_at, (rose_at, loop.late_at)
    loop.set_rate(0.5)
    eventually(lambda: home.replicas == 1, 'one again', 60.0, explain=loop.explain)
    eventually(lambda: len(home.kubelet.containers) == 1, 'the others have ended', 40.0,
               explain=loop.explain)
    numbers = recorder.close()
    counts = all_accounted(loop)
    print(f'replicas {numbers}, peak {peak}, counters {counts}')
    assert counts['failed'] == counts['rejected'] == 0, counts
    assert counts['answered'] > 0.7 * counts['received'], counts


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_api_server_is_killed_for_half_a_minute_under_load(
    loop: Loop, home: Cell, own_plane: ControlPlane,
) -> None:
    """No detection is lost for it; what is wanted is applied within 5 s after it is back."""
    loop.set_rate(2.0)
    eventually(lambda: loop.pool('ready') >= 2, 'two replicas', 60.0, explain=loop.explain)
    time.sleep(3.0)
    before = all_accounted(loop)
    replicas = home.replicas
    own_plane.kill_api_server()
    try:
        killed = time.monotonic()
        time.sleep(15.0)
        ready = loop.pool('ready')
        during = all_accounted(loop)
        # More is wanted while nobody can be asked for it.
        loop.set_rate(4.0)
        time.sleep(max(0.0, killed + 30.0 - time.monotonic()))
        wanted = loop.pool('desired')
        after = all_accounted(loop)
    finally:
        own_plane.start_api_server()
    back = time.monotonic()
    eventually(lambda: home.replicas == loop.pool('desired') > replicas, 'applied', 20.0,
               explain=loop.explain)
    took = time.monotonic() - back
    print(
        f'{replicas} replicas, {wanted} wanted meanwhile, applied {took:.2f} s after it is back; '
        f'{before} -> {after}')
    assert took <= 5.0
    assert ready is not None and ready >= replicas
    # With the load as before, nothing shows that the server is away.
    assert all(during[e] == before[e] for e in ('failed', 'rejected', 'expired')), during
    assert during['answered'] - before['answered'] > 50
    assert after['failed'] == before['failed'] and after['rejected'] == before['rejected']
    assert after['answered'] - before['answered'] > 100
    all_accounted(loop)
