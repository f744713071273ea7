"""The local bridge as a process: real workers, and a dispatcher that asks and goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from laimr_ros.nodes.executor import make_executor, spin
from laimr_ros.nodes.local_bridge import LATCHED
import psutil
import pytest
from rcl_interfaces.msg import ParameterDescriptor, ParameterType
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from std_msgs.msg import Float64, UInt32

ROOT = Path(__file__).parents[2]
NAMESPACE = '/cell'
ENDPOINTS = 'pools.edge.endpoints'
DEADLINE_S = 60.0
WORKER = """
    worker:
      ros__parameters:
        models:
          lite:
            kind: emulated
"""


def eventually(predicate: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait until something holds; return it."""
    end = time.monotonic() + deadline_s
    while not (value := predicate()):
        assert time.monotonic() < end, f'never happened: {what}'
        time.sleep(0.01)
    return value


class Dispatcher:
    """A node that asks for replicas and has the parameter that the bridge keeps."""

    def __init__(self, domain: int) -> None:
        """Start to spin."""
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = Node('dispatcher', namespace=NAMESPACE, context=self.context)
        self.node.declare_parameter(
            ENDPOINTS, ['none'], ParameterDescriptor(type=ParameterType.PARAMETER_STRING_ARRAY))
        self._desired = self.node.create_publisher(
            UInt32, '~/pools/edge/desired_replicas', LATCHED)
        self.ready: list[int] = []
        self.starting: list[int] = []
        self.start_up_s: list[float] = []
        self.diagnostics: dict[str, Any] = {}
        pool = f'{NAMESPACE}/local_bridge/pools/edge'
        self.node.create_subscription(
            UInt32, f'{pool}/ready_replicas', lambda m: self.ready.append(m.data), LATCHED)
        self.node.create_subscription(
            UInt32, f'{pool}/starting_replicas', lambda m: self.starting.append(m.data), LATCHED)
        self.node.create_subscription(
            Float64, f'{pool}/start_up_time', lambda m: self.start_up_s.append(m.data), LATCHED)
        self.node.create_subscription(DiagnosticArray, '/diagnostics', self._diagnose, 10)
        self.executor = make_executor(self.context)
        self.executor.add_node(self.node)
        self._thread = threading.Thread(target=spin, args=(self.executor,), daemon=True)
        self._thread.start()

    def _diagnose(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.diagnostics = {
                'name': status.name, 'level': status.level, 'message': status.message,
                **{pair.key: pair.value for pair in status.values}}

    def ask(self, count: int) -> None:
        """Publish the desired number."""
        self._desired.publish(UInt32(data=count))

    @property
    def endpoints(self) -> list[str]:
        """Return what the bridge has set."""
        return list(self.node.get_parameter(ENDPOINTS).value or [])

    def wait(self, count: int) -> list[str]:
        """Wait for a number of endpoints; return them."""
        try:
            eventually(
                lambda: len(self.endpoints) == count and 'none' not in self.endpoints,
                f'{count} endpoints')
        finally:
            print(self.endpoints, self.diagnostics)
        return self.endpoints

    def close(self) -> None:
        """End."""
        self.executor.shutdown(timeout_sec=5.0)
        self._thread.join(5.0)
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


class Bridge:
    """The process under test."""

    def __init__(self, domain: int, base: Path, *parameters: str) -> None:
        """Start it with further ``name:=value``."""
        params_file = base / 'worker.yaml'
        params_file.write_text(textwrap.dedent(WORKER))
        self.sockets = base / 's'
        settings = (
            'pool_names:=[edge]',
            f'pools.edge.worker_params_file:={params_file}',
            'pools.edge.min_replicas:=0',
            'pools.edge.max_replicas:=3',
            f'socket_directory:={self.sockets}',
            f'log_directory:={base / "log"}',
            *parameters,
        )
        arguments = [word for setting in settings for word in ('-p', setting)]
        self.output = (base / 'bridge.log').open('ab')
        self.process = psutil.Popen(
            [sys.executable, '-m', 'laimr_ros.nodes.entry', 'local_bridge', '--ros-args',
             '-r', f'__ns:={NAMESPACE}', *arguments],
            env={**os.environ, 'ROS_DOMAIN_ID': str(domain), 'ROS_LOG_DIR': str(base / 'ros'),
                 'PYTHONPATH': f'{ROOT}:{os.environ.get("PYTHONPATH", "")}'},
            stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True)

    def workers(self) -> list[psutil.Process]:
        """Return the workers that live, wherever they hang in the tree of processes."""
        found = []
        for process in psutil.process_iter():
            try:
                listens_here = any(str(self.sockets) in word for word in process.cmdline())
                if (listens_here and process.pid != self.process.pid
                        and process.status() != psutil.STATUS_ZOMBIE):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                pass
        return found

    def close(self) -> None:
        """End whatever is left."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10.0)
            except psutil.TimeoutExpired:
                self.process.kill()
                self.process.wait(10.0)
        self.output.close()


@pytest.fixture
def domain() -> int:
    """Return a domain nobody else uses."""
    return random.randint(1, 230)


@pytest.fixture
def base() -> Iterator[Path]:
    """Return a directory short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix='t', dir='/tmp') as directory:
        yield Path(directory)


@pytest.fixture
def start_bridge(domain: int, base: Path) -> Iterator[Callable[..., Bridge]]:
    """Return a maker of bridges; after each, no worker may be left."""
    made: list[Bridge] = []

    def start(*parameters: str) -> Bridge:
        made.append(Bridge(domain, base, *parameters))
        return made[-1]

    yield start
    for bridge in made:
        bridge.close()
    print((base / 'bridge.log').read_text())
    assert made[0].workers() == []


@pytest.fixture
def dispatcher(domain: int) -> Iterator[Dispatcher]:
    """Return a dispatcher that is there."""
    dispatcher = Dispatcher(domain)
    yield dispatcher
    dispatcher.close()


def is_socket(endpoint: str) -> bool:
    """Return whether something has bound the endpoint."""
    return Path(endpoint.removeprefix('unix:')).is_socket()


def test_follows_the_desired_number_and_ends_in_order(start_bridge, dispatcher):
    """0, 2, 1: endpoints and counts follow; SIGTERM drains all and ends with 0 within 5 s."""
    bridge = start_bridge()
    dispatcher.wait(0)
    assert bridge.workers() == []
    dispatcher.ask(2)
    two = dispatcher.wait(2)
    assert all(map(is_socket, two))
    assert len(bridge.workers()) == 2
    eventually(lambda: dispatcher.ready[-1:] == [2], 'ready_replicas 2')
    eventually(lambda: dispatcher.starting[-1:] == [0], 'starting_replicas 0')
    assert 0 in dispatcher.ready and 2 in dispatcher.starting
    eventually(lambda: dispatcher.start_up_s, 'start_up_time')
    assert 0.0 < dispatcher.start_up_s[-1] < DEADLINE_S
    dispatcher.ask(1)
    assert dispatcher.wait(1) == two[:1]
    eventually(lambda: dispatcher.ready[-1] == 1, 'ready_replicas 1')
    eventually(lambda: len(bridge.workers()) == 1, 'one worker gone')
    eventually(lambda: dispatcher.diagnostics.get('ready') == '1', 'diagnostics')
    facts = dispatcher.diagnostics
    assert facts['name'] == 'local_bridge: pool edge'
    assert (facts['desired'], facts['asked_for'], facts['failed']) == ('1', '1', '0')
    assert facts['level'] == b'\0' and facts['message'] == '1 of 1 ready'
    assert float(facts['start_up_p50_s']) > 0.0
    # More than may be: as many as may.
    dispatcher.ask(1000)
    dispatcher.wait(3)
    began = time.monotonic()
    bridge.process.terminate()
    assert bridge.process.wait(10.0) == 0
    assert time.monotonic() - began < 5.0
    assert dispatcher.endpoints == []
    assert bridge.workers() == []
    assert list(bridge.sockets.iterdir()) == []


def test_a_killed_worker_is_replaced(start_bridge, dispatcher):
    """The dispatcher loses the dead endpoint and gets a new one."""
    bridge = start_bridge('pools.edge.initial_replicas:=2')
    before = dispatcher.wait(2)
    victim = next(w for w in bridge.workers() if before[0] in w.cmdline())
    victim.kill()
    eventually(
        lambda: before[0] not in dispatcher.endpoints and len(dispatcher.endpoints) == 2,
        'a replacement')
    assert before[1] in dispatcher.endpoints


def test_replicas_outlive_the_dispatcher(start_bridge, domain):
    """Without it nothing changes; the next one is told the same endpoints."""
    bridge = start_bridge('pools.edge.min_replicas:=1')
    eventually(bridge.workers, 'a worker without any dispatcher')
    first = Dispatcher(domain)
    first.ask(2)
    two = first.wait(2)
    first.close()
    second = Dispatcher(domain)
    try:
        # It asks for nothing, so nothing changes.
        assert second.wait(2) == two
        assert len(bridge.workers()) == 2
    finally:
        second.close()


def test_sigkill_of_the_bridge_leaves_no_orphan_and_the_next_one_starts_clean(
    start_bridge, dispatcher
):
    """Workers see their lifeline end; leftover sockets are swept."""
    bridge = start_bridge('pools.edge.initial_replicas:=2')
    before = dispatcher.wait(2)
    bridge.process.kill()
    bridge.process.wait(10.0)
    eventually(lambda: not bridge.workers(), 'no orphans', 10.0)
    start_bridge('pools.edge.initial_replicas:=1')
    eventually(
        lambda: len(dispatcher.endpoints) == 1 and dispatcher.endpoints[0] not in before,
        'endpoints of the new bridge')
    assert len(list(bridge.sockets.iterdir())) == 1


def test_a_worker_that_cannot_be_configured_is_said_in_diagnostics(
    start_bridge, dispatcher, base
):
    """Level ERROR, and the worker's own words."""
    start_bridge('pools.edge.initial_replicas:=1', "pools.edge.worker_args:=['--no-such-option']")
    eventually(lambda: dispatcher.diagnostics.get('failed') == '1', 'a failure in diagnostics')
    assert dispatcher.diagnostics['level'] == b'\2'
    assert 'status 2' in dispatcher.diagnostics['message']
    assert '--no-such-option' in dispatcher.diagnostics['message']
    assert '--no-such-option' in (base / 'log' / 'edge_0.log').read_text()


def test_ctrl_c_ends_a_bridge_that_is_starting_workers(start_bridge, dispatcher):
    """SIGINT while workers load: status 0 within 5 s, nothing left."""
    bridge = start_bridge('pools.edge.initial_replicas:=3')
    eventually(bridge.workers, 'workers that load')
    began = time.monotonic()
    bridge.process.send_signal(signal.SIGINT)
    assert bridge.process.wait(10.0) == 0
    assert time.monotonic() - began < 5.0
    assert bridge.workers() == []
