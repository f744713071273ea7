"""The worker's lifecycle in a real process: transitions by service, frames by gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from laimr_ros.nodes.executor import make_executor, spin
from laimr_ros.serving.client import ReplicaClient
from laimr_ros.serving.codec import ImagePayload
from laimr_ros.serving.errors import InferenceError
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
import psutil
import pytest
from rcl_interfaces.srv import DescribeParameters, SetParameters
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
PARAMETERS = """
/**:
  worker:
    ros__parameters:
      autostart: {autostart}
      listen: ['unix:{socket}']
      models:
        lite:
          kind: {kind}
          options:
            detections: 3
            mean_s: {mean_s}
"""


def eventually(predicate: Callable[[], Any], what: str) -> Any:
    """Wait until something holds; return it."""
    end = time.monotonic() + DEADLINE_S
    while not (value := predicate()):
        assert time.monotonic() < end, f'never happened: {what}'
        time.sleep(0.01)
    return value


class WorkerProcess:
    """The process under test, and what ROS sees of it."""

    def __init__(self, base: Path, **settings: Any) -> None:
        """Start it, and a node beside it."""
        domain = random.randint(1, 230)
        self.endpoint = f'unix:{base}/w.sock'
        values = {'autostart': 'true', 'kind': 'emulated', 'mean_s': 0.0, **settings}
        path = base / 'worker.yaml'
        path.write_text(PARAMETERS.format(socket=f'{base}/w.sock', **values))
        self._log = base / 'log'
        with open(self._log, 'ab') as log:
            self.process = psutil.Popen(
                [sys.executable, '-m', 'laimr_ros.nodes.entry', 'worker',
                 '--ros-args', '--params-file', str(path), '-r', '__ns:=/cell'],
                env={**os.environ, 'ROS_DOMAIN_ID': str(domain), 'ROS_LOG_DIR': str(base / 'ros'),
                     'PYTHONPATH': f'{ROOT}:{os.environ.get("PYTHONPATH", "")}'},
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self._context = Context()
        rclpy.init(context=self._context, domain_id=domain)
        self._node = Node('manager', context=self._context, namespace='/cell')
        self.facts: dict[str, str] = {}
        self._node.create_subscription(DiagnosticArray, '/diagnostics', self._on_diagnostics, 10)
        self._executor = make_executor(self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=spin, args=(self._executor,), daemon=True)
        self._thread.start()

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.facts = {
                'level': str(status.level[0]), 'message': status.message,
                **{pair.key: pair.value for pair in status.values}}

    @property
    def log(self) -> str:
        """Return what the process wrote."""
        return self._log.read_text()

    def call(self, kind: Any, service: str, request: Any) -> Any:
        """Call a service of the worker."""
        client = self._node.create_client(kind, f'worker/{service}')
        eventually(client.service_is_ready, f'service {service}')
        # Asked again if the reply is lost: discovery may still be under way. Only what may be
        # asked twice goes through here before the first reply.
        reply = None
        while reply is None:
            future = client.call_async(request)
            end = time.monotonic() + DEADLINE_S / 4
            while not future.done() and time.monotonic() < end:
                time.sleep(0.005)
            reply = future.result() if future.done() else None
        self._node.destroy_client(client)
        return reply

    def state(self) -> str:
        """Return the label of the lifecycle state."""
        return self.call(GetState, 'get_state', GetState.Request()).current_state.label

    def change(self, transition: int) -> bool:
        """Ask for a transition; return whether it succeeded."""
        request = ChangeState.Request(transition=Transition(id=transition))
        return self.call(ChangeState, 'change_state', request).success

    def set(self, name: str, value: Any) -> Any:
        """Set a parameter; return the result."""
        request = SetParameters.Request(
            parameters=[Parameter(name, value=value).to_parameter_msg()])
        return self.call(SetParameters, 'set_parameters', request).results[0]

    def infer(self, image: bytes, timeout_s: float = 10.0) -> Any:
        """Have an image inferred."""
        async def ask() -> Any:
            client = ReplicaClient(self.endpoint)
            try:
                return await client.infer('lite', ImagePayload(image), timeout_s)
            finally:
                await client.close()
        return asyncio.run(ask())

    def close(self) -> None:
        """End all."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10.0)
        self._executor.shutdown(timeout_sec=5.0)
        self._thread.join(5.0)
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)


@pytest.fixture
def start() -> Iterator[Callable[..., WorkerProcess]]:
    """Return a maker of worker processes."""
    made: list[WorkerProcess] = []
    with tempfile.TemporaryDirectory(prefix='t', dir='/tmp') as directory:
        def make(**settings: Any) -> WorkerProcess:
            made.append(WorkerProcess(Path(directory), **settings))
            return made[-1]

        yield make
        for worker in made:
            worker.close()
            print(worker.log)


@pytest.fixture(scope='module')
def jpeg() -> bytes:
    """Return a small picture."""
    cv2 = pytest.importorskip('cv2', reason='needs OpenCV to write a JPEG: run `make setup`')
    import numpy as np
    ok, data = cv2.imencode('.jpg', np.full((48, 64, 3), 127, np.uint8))
    assert ok
    return bytes(data)


def test_the_whole_lifecycle(start, jpeg):
    """Configure, activate, a frame, deactivate, activate again, cleanup, shutdown."""
    worker = start(autostart='false')
    assert worker.state() == 'unconfigured'
    assert worker.change(Transition.TRANSITION_CONFIGURE)
    assert worker.state() == 'inactive'
    with pytest.raises(InferenceError):
        worker.infer(jpeg, timeout_s=0.5)
    for _ in range(2):
        assert worker.change(Transition.TRANSITION_ACTIVATE)
        assert worker.state() == 'active'
        reply = worker.infer(jpeg)
        assert len(reply.scores) == 3
        assert worker.change(Transition.TRANSITION_DEACTIVATE)
        assert worker.state() == 'inactive'
        with pytest.raises(InferenceError):
            worker.infer(jpeg, timeout_s=0.5)
    assert not Path(worker.endpoint.removeprefix('unix:')).exists()
    assert worker.change(Transition.TRANSITION_CLEANUP)
    assert worker.state() == 'unconfigured'
    assert worker.change(Transition.TRANSITION_UNCONFIGURED_SHUTDOWN)
    worker.process.terminate()
    assert worker.process.wait(10.0) == 0


def test_starts_by_itself_and_drains_at_the_end(start, jpeg):
    """Without a manager it serves; diagnostics say how; SIGTERM lets a frame finish."""
    # Longer than the second between two diagnostics, shorter than the time to drain.
    worker = start(mean_s=1.5)
    eventually(lambda: worker.facts.get('state') == 'active', 'active')
    worker.infer(jpeg)
    with pytest.raises(InferenceError):
        worker.infer(b'this is no picture')
    eventually(lambda: worker.facts.get('lite.served') == '1', 'a frame in diagnostics')
    eventually(lambda: worker.facts.get('bad_images') == '1', 'a bad image in diagnostics')
    facts = worker.facts
    assert facts['level'] == '0' and facts['message'] == 'active'
    assert facts['endpoints'] == worker.endpoint
    assert 1.45 < float(facts['lite.service_p50_s']) < 5.0
    assert float(facts['lite.service_p99_s']) >= float(facts['lite.service_p50_s'])
    assert (facts['rejected'], facts['queue_length']) == ('0', '0')

    replies: list[Any] = []
    thread = threading.Thread(target=lambda: replies.append(worker.infer(jpeg)))
    thread.start()
    eventually(lambda: worker.facts.get('in_progress') == '1', 'a frame in progress')
    worker.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert worker.process.wait(10.0) == 0
    assert time.monotonic() - began < 5.0
    thread.join(10.0)
    assert len(replies) == 1 and len(replies[0].scores) == 3
    assert not Path(worker.endpoint.removeprefix('unix:')).exists()


def test_a_model_that_cannot_be_loaded_leaves_it_unconfigured_and_alive(start):
    """One clear line; the parameter is mended while it lives; then it loads."""
    worker = start(kind='efficientdet')
    eventually(lambda: worker.facts.get('level') == '2', 'an error in diagnostics')
    assert worker.state() == 'unconfigured'
    assert 'detections' in worker.facts['message']
    errors = [line for line in worker.log.splitlines() if '[ERROR]' in line]
    assert len(errors) == 1 and 'Traceback' not in worker.log
    assert worker.set('models.lite.kind', 'emulated').successful
    assert worker.change(Transition.TRANSITION_CONFIGURE)
    assert worker.change(Transition.TRANSITION_ACTIVATE)
    eventually(lambda: worker.facts.get('level') == '0', 'all well in diagnostics')
    refused = worker.set('max_queue', 9)
    assert not refused.successful and 'cleanup' in refused.reason


def test_an_address_that_is_taken_leaves_it_inactive(start, jpeg):
    """It can be activated once the address is free."""
    first = start()
    eventually(lambda: first.facts.get('state') == 'active', 'the first is active')
    second = start()
    eventually(lambda: second.facts.get('level') == '2', 'an error in diagnostics')
    assert second.state() == 'inactive'
    assert 'another process listens there' in second.facts['message']
    first.process.terminate()
    first.process.wait(10.0)
    assert second.change(Transition.TRANSITION_ACTIVATE)
    assert len(second.infer(jpeg).scores) == 3


def test_parameters_are_described(start):
    """Each with a description and a type."""
    worker = start(autostart='false')
    names = ['autostart', 'listen', 'max_queue', 'models.lite.kind', 'models.lite.options.mean_s']
    reply = worker.call(
        DescribeParameters, 'describe_parameters', DescribeParameters.Request(names=names))
    assert [d.name for d in reply.descriptors] == names
    assert all(d.description and d.type for d in reply.descriptors)
