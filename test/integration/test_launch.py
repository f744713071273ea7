"""`ros2 launch` itself: the launch files come up, work and end; runs where launch exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import importlib.util
import os
from pathlib import Path
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any
import uuid

from laimr_ros.nodes.executor import make_executor, spin
import psutil
import pytest
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import CompressedImage
from vision_msgs.msg import Detection2DArray

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec('launch_ros') is None or shutil.which('ros2') is None,
    reason='launch is not installed: source ROS 2 Jazzy; everything else is tested without it')

ROOT = Path(__file__).parents[2]
UP_S = 90.0
# On a busy machine; `ros2 launch` itself interrupts, waits 5 s, terminates, waits 5 s and kills.
DOWN_S = 20.0
MARK = 'LAIMR_TEST_LAUNCH'
PARAMETERS = """
    /**/dispatcher:
      ros__parameters:
        topics: ['/{robot}/image_raw/compressed']
        lane_names: [balanced]
        lanes: {balanced: {model: emulated, slo: 2.0, pools: [edge]}}
        pool_names: [edge]
        pools: {edge: {latency: {emulated: {alpha: 0.02}}}}
    /**/local_bridge:
      ros__parameters:
        pool_names: [edge]
    /**/worker:
      ros__parameters:
        models: {emulated: {kind: emulated}}
    /**/camera:
      ros__parameters: {source: scene, rate: 2.0, width: 160, height: 120}
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """
    Return an environment in which `ros2 launch laimr_ros` finds the files of this checkout.

    Its processes bear a mark, by which those that are left behind can be found.
    """
    prefix = tmp_path / 'prefix'
    share = prefix / 'share' / 'laimr_ros'
    index = prefix / 'share' / 'ament_index' / 'resource_index' / 'packages'
    programs = prefix / 'lib' / 'laimr_ros'
    for folder in (share / 'launch', share / 'config', index, programs):
        folder.mkdir(parents=True)
    (index / 'laimr_ros').touch()
    shutil.copy(ROOT / 'package.xml', share)
    for folder, pattern in (('launch', '*.launch.py'), ('config', '*.yaml')):
        for file in (ROOT / folder).glob(pattern):
            (share / folder / file.name).symlink_to(file)
    for name in ('camera', 'dispatcher', 'worker', 'local_bridge'):
        program = programs / name
        program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m laimr_ros.nodes.entry {name} "$@"\n')
        program.chmod(0o755)
    return {
        **os.environ,
        'AMENT_PREFIX_PATH': os.pathsep.join(
            path for path in (str(prefix), os.environ.get('AMENT_PREFIX_PATH', '')) if path),
        'PYTHONPATH': os.pathsep.join(
            path for path in (str(ROOT), os.environ.get('PYTHONPATH', '')) if path),
        'ROS_DOMAIN_ID': str(random.SystemRandom().randint(1, 100)),
        'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
        'ROS_LOG_DIR': str(tmp_path / 'log'),
        MARK: uuid.uuid4().hex,
    }


def left_behind(mark: str) -> list[str]:
    """Return the command lines of the running processes that bear a mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if (process.environ().get(MARK) == mark
                    and process.status() != psutil.STATUS_ZOMBIE):
                found.append(' '.join(process.cmdline()))
        except psutil.Error:
            pass
    return found


class Launch:
    """
    One `ros2 launch laimr_ros`, in a session of its own and, as for a person, on a terminal.

    :param environment: of the fixture.
    :param words: the launch file and its arguments.
    """

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        """Start it; a thread reads what it says."""
        self._mark = environment[MARK]
        self.lines: list[str] = []
        # With a terminal as its input, launch leaves it to Ctrl-C to reach the nodes.
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            ['ros2', 'launch', 'laimr_ros', *words], env=environment, stdin=slave,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
            start_new_session=True)
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """Return all it has said."""
        return ''.join(list(self.lines))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_for(self, predicate: Callable[[], Any], what: str) -> None:
        """Wait until something holds."""
        end = time.monotonic() + UP_S
        while not predicate():
            assert self.process.poll() is None, f'launch ended before {what}:\n{self.output}'
            assert time.monotonic() < end, f'{what} did not happen:\n{self.output}'
            time.sleep(0.02)

    def press_ctrl_c(self) -> None:
        """Interrupt it and every process of its terminal."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self, timeout_s: float = DOWN_S) -> int:
        """Wait for its end; return its exit status."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f'launch is still there after {timeout_s:g} s:\n{self.output}')
        self._reader.join(5.0)
        return status

    def close(self) -> None:
        """Kill what is left."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self._mark:
                    process.kill()
            except psutil.Error:
                pass
        os.close(self._master)

    def assert_ended_cleanly(self, nodes: int) -> None:
        """Check that so many nodes have ended, each by itself and with status 0."""
        __tracebackhide__ = True
        output = self.output
        assert output.count('process has finished cleanly') == nodes, output
        assert 'process has died' not in output, output
        assert 'failed to terminate' not in output, output
        assert 'Traceback' not in output, output


@pytest.fixture
def launch(environment: dict[str, str]) -> Iterator[Callable[..., Launch]]:
    """Return a function that runs `ros2 launch laimr_ros`."""
    launches: list[Launch] = []

    def start(*words: str) -> Launch:
        launches.append(Launch(environment, *words))
        return launches[-1]
    yield start
    for one in launches:
        one.close()


@pytest.fixture
def params_file(tmp_path: Path) -> str:
    """Return a file with parameters of all nodes, with a worker that needs no model."""
    path = tmp_path / 'params.yaml'
    path.write_text(textwrap.dedent(PARAMETERS))
    return str(path)


class Listener:
    """A node that counts what comes on topics."""

    def __init__(self, environment: dict[str, str]) -> None:
        """Start to spin."""
        self.received: dict[str, list[Any]] = {}
        self.context = Context()
        rclpy.init(context=self.context, domain_id=int(environment['ROS_DOMAIN_ID']))
        self.node = Node('listener', context=self.context)
        self._executor = make_executor(self.context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=spin, args=(self._executor,), daemon=True)

    def listen(self, kind: type, topics: list[str]) -> None:
        """Take messages from topics."""
        for topic in topics:
            self.received[topic] = []
            self.node.create_subscription(
                kind, topic, self.received[topic].append, qos_profile_sensor_data)
        self._thread.start()

    def sees(self, *names: str) -> bool:
        """Return whether these, by their full names, are all the other nodes."""
        return self._names() == set(names)

    def _names(self) -> set[str]:
        return {
            f'{namespace.rstrip("/")}/{name}'
            for name, namespace in self.node.get_node_names_and_namespaces()
        } - {'/listener'}

    def close(self) -> None:
        """End."""
        self._executor.shutdown(timeout_sec=5.0)
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)


@pytest.fixture
def listener(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Listener]:
    """Return a listener in the domain of the launch."""
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    listener = Listener(environment)
    yield listener
    listener.close()


def test_demo_detects_and_ends_at_ctrl_c(
    launch: Callable[..., Launch], listener: Listener, params_file: str,
    environment: dict[str, str],
) -> None:
    topics = ['/robot1/detections', '/robot2/detections']
    listener.listen(Detection2DArray, topics)
    demo = launch('demo.launch.py', f'params_file:={params_file}', 'robots:=2')
    demo.wait_for(
        lambda: all(len(listener.received[topic]) >= 3 for topic in topics),
        'three detections of each robot')
    demo.wait_for(
        lambda: listener.sees(
            '/dispatcher', '/local_bridge', '/robot1/camera', '/robot2/camera'),
        'exactly the nodes of the demonstration')
    frames = {message.header.frame_id for message in listener.received['/robot1/detections']}
    assert frames == {'robot1/camera_optical_frame'}
    demo.press_ctrl_c()
    assert demo.wait() == 0, demo.output
    demo.assert_ended_cleanly(nodes=4)
    assert left_behind(environment[MARK]) == []


def test_demo_ends_as_a_whole_when_a_node_does(
    launch: Callable[..., Launch], params_file: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    demo = launch(
        'demo.launch.py', f'params_file:={params_file}', 'robots:=1', 'source:=directory',
        f'path:={tmp_path / "nowhere"}')
    demo.wait(UP_S)
    assert re.search(r"camera: '.*nowhere' is no directory", demo.output), demo.output
    assert left_behind(environment[MARK]) == [], demo.output


def test_robot_publishes_frames_in_its_namespace(
    launch: Callable[..., Launch], listener: Listener, environment: dict[str, str]
) -> None:
    topic = '/cell/robot19/image_raw/compressed'
    listener.listen(CompressedImage, [topic])
    robot = launch('robot.launch.py', 'namespace:=cell/robot19', 'rate:=20')
    robot.wait_for(lambda: len(listener.received[topic]) >= 3, f'three frames on {topic}')
    robot.wait_for(lambda: listener.sees('/cell/robot19/camera'), 'one camera, below its robot')
    assert 'no namespace' not in robot.output
    robot.press_ctrl_c()
    assert robot.wait() == 0, robot.output
    robot.assert_ended_cleanly(nodes=1)
    assert left_behind(environment[MARK]) == []


def test_robot_without_a_namespace_is_told_that_it_has_no_name(
    launch: Callable[..., Launch]
) -> None:
    robot = launch('robot.launch.py')
    robot.wait_for(lambda: 'no namespace is given' in robot.output, 'the hint')


def test_edge_goes_into_a_namespace_and_starts_its_workers(
    launch: Callable[..., Launch], listener: Listener, params_file: str,
    environment: dict[str, str],
) -> None:
    edge = launch('edge.launch.py', 'namespace:=site', f'params_file:={params_file}')
    edge.wait_for(
        lambda: re.search(r'\[site\.dispatcher\]: replica .* of pool edge', edge.output),
        'a worker known to the dispatcher')
    edge.wait_for(
        lambda: listener.sees('/site/dispatcher', '/site/local_bridge'),
        'both nodes, below the namespace')
    edge.press_ctrl_c()
    assert edge.wait() == 0, edge.output
    edge.assert_ended_cleanly(nodes=2)
    assert left_behind(environment[MARK]) == []


@pytest.mark.parametrize('file', ['robot', 'edge', 'demo'])
@pytest.mark.parametrize(('argument', 'error'), [
    ('params_file:=/no/such.yaml',
     "params_file: '/no/such.yaml' cannot be read: No such file or directory"),
    ('log_level:=loud', 'Argument "log_level" provided value "loud" is not valid'),
    ('namespace:=9x', 'must not have a token that starts with a number'),
])
def test_an_argument_that_cannot_be_used_is_said_and_starts_nothing(
    launch: Callable[..., Launch], environment: dict[str, str], file: str, argument: str,
    error: str,
) -> None:
    one = launch(f'{file}.launch.py', argument)
    assert one.wait() == 1, one.output
    assert error in one.output
    assert 'process started' not in one.output
    assert left_behind(environment[MARK]) == []


@pytest.mark.parametrize('file', ['robot', 'edge', 'demo'])
def test_arguments_are_shown(launch: Callable[..., Launch], file: str) -> None:
    shown = launch(f'{file}.launch.py', '--show-args')
    assert shown.wait() == 0, shown.output
    for argument in ('namespace', 'use_sim_time', 'params_file', 'log_level'):
        assert re.search(rf"'{argument}':\n +[A-Z].*\n +\(default: ", shown.output), argument
