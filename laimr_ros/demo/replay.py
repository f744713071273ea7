"""
Play recorded frames to real nodes: ``python -m laimr_ros.demo.replay --help``.

The robots of a trace publish on real topics at the trace's times; a dispatcher, a local bridge
and its workers are started for them. Left in the directory: the dispatcher's ``records.jsonl``,
``replay.json`` with what was published and how many replicas there were, and logs.
"""

from __future__ import annotations

from laimr_ros import lifeline

if __name__ == '__main__':
    # Before the heavy imports: a parent may die while they run.
    lifeline.attach()

import argparse
import array
from collections.abc import Mapping, Sequence
import csv
import json
import os
from pathlib import Path
import random
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from laimr_ros.demo.processes import Processes, ros_environment, start_nodes
import numpy as np
import yaml

# Longest wait for the first workers.
_START_TIMEOUT = 120.0
# From everything being ready to the first frame.
_LEAD = 0.5
# Longest wait for the last frames after the trace is over.
_REST = 30.0
_LOOK = 0.05
# Nodes are looked after this often while frames are played.
_CHECK_PERIOD = 0.25
# Frames that one robot may have under way to the dispatcher.
_DEPTH = 100


class ReplayError(RuntimeError):
    """The frames cannot be played; the message says why and what to do."""


class Stopped(Exception):
    """Somebody asked it to end."""


def read_frames(path: Path) -> list[tuple[float, str]]:
    """
    Return time in seconds and robot of each frame of a trace.

    :param path: CSV file with columns ``time_s`` and ``robot``.
    :raises ReplayError: if it cannot be read.
    """
    try:
        with path.open(newline='') as stream:
            frames = [(float(row['time_s']), f'robot{row["robot"]}')
                      for row in csv.DictReader(stream)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ReplayError(
            f'trace {path} cannot be read ({error!r}); give a CSV file with columns time_s and '
            'robot') from None
    if not frames:
        raise ReplayError(f'trace {path} has no frame')
    return sorted(frames)


class Robots:
    """
    Publishes the frames of all robots, and hears what the dispatcher says of itself.

    :param names: of the robots.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Join the ROS domain of the environment."""
        import cv2
        from laimr_ros.nodes.executor import make_executor, spin
        import rclpy
        from rclpy.qos import DurabilityPolicy, QoSProfile
        from rclpy.signals import SignalHandlerOptions
        from sensor_msgs.msg import CompressedImage
        from std_msgs.msg import String

        self._context = rclpy.Context()
        # Ctrl-C is not rclpy's to handle here.
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        node = self._node = rclpy.create_node('replay', context=self._context)
        # Reliable: whatever is lost is to be lost by the dispatcher.
        self._publishers = {
            name: node.create_publisher(
                CompressedImage, f'/{name}/image_raw/compressed', QoSProfile(depth=_DEPTH))
            for name in names}
        picture = cv2.imencode('.jpg', np.zeros((48, 64, 3), np.uint8))[1].tobytes()
        self._message = CompressedImage(format='jpeg', data=array.array('B', picture))
        self._message.header.frame_id = 'camera'
        self.statuses: list[tuple[float, dict[str, Any]]] = []
        node.create_subscription(
            String, '/dispatcher/status',
            lambda message: self.statuses.append((time.time(), json.loads(message.data))),
            QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL))
        executor = make_executor(self._context)
        executor.add_node(node)
        self._thread = threading.Thread(target=spin, args=(executor,), daemon=True)
        self._thread.start()

    def heard(self) -> bool:
        """Return whether the dispatcher listens to every robot."""
        return all(each.get_subscription_count() for each in self._publishers.values())

    def publish(self, name: str) -> None:
        """Publish a frame of a robot, captured now."""
        now = time.time_ns()
        stamp = self._message.header.stamp
        stamp.sec, stamp.nanosec = divmod(now, 10**9)
        self._publishers[name].publish(self._message)

    def close(self) -> None:
        """Leave."""
        if self._context.ok():
            self._context.shutdown()
        self._thread.join(2.0)


class Replay:
    """
    One replay.

    :param params: file with the parameters of dispatcher and bridge.
    :param workers: by pool, the file with its workers' parameters.
    :param frames: time in seconds and robot of each, ascending.
    :param out: directory of what is left.
    """

    def __init__(
        self, params: Path, workers: Mapping[str, Path], frames: Sequence[tuple[float, str]],
        out: Path
    ) -> None:
        """Prepare; nothing is started yet."""
        self._params = params
        self._workers = workers
        self._frames = frames
        self._out = out
        self._stopped = False
        self._checked = 0.0
        settings = yaml.safe_load(params.read_text())
        bridge = settings['/**/local_bridge']['ros__parameters']
        self._initial = {pool: int(bridge['pools'][pool]['initial_replicas']) for pool in workers}

    def stop(self, number: int, frame: FrameType | None) -> None:
        """End soon; for signals."""
        # An event could deadlock with the very wait that it interrupts.
        self._stopped = True

    def run(self) -> None:
        """
        Play everything.

        :raises ReplayError: if nodes or workers do not come up.
        :raises Stopped: after :meth:`stop`.
        """
        self._out.mkdir(parents=True, exist_ok=True)
        # Whatever domain the caller is in: nobody else is to take part.
        environment = ros_environment(
            self._out / 'logs' / 'ros', random.SystemRandom().randint(1, 100))
        os.environ.update(environment)
        processes = Processes(self._out / 'logs', environment)
        robots = None
        try:
            start_nodes(processes, self._params, self._out / 'records.jsonl', self._workers)
            robots = Robots(sorted({robot for _, robot in self._frames}))
            self._wait_until_ready(processes, robots)
            start, late = self._play(processes, robots)
            self._wait_for_answers(processes, robots)
            # SIGINT makes the dispatcher end open frames and write the rest of its records.
            processes.interrupt(['dispatcher', 'local_bridge'])
            processes.wait(['dispatcher', 'local_bridge'], 8.0)
            (self._out / 'replay.json').write_text(json.dumps({
                'start_ns': start, 'published': len(self._frames), 'late_s': late,
                'pools': [{'time_s': at - start * 1e-9, **{
                    name: {key: pool[key] for key in ('ready', 'starting', 'start_up_s')}
                    for name, pool in status['pools'].items()}}
                    for at, status in list(robots.statuses)]}) + '\n')
        finally:
            processes.close()
            if robots is not None:
                robots.close()

    def _check(self, processes: Processes) -> None:
        self._checked = time.monotonic()
        if self._stopped:
            raise Stopped
        if obituary := processes.obituary():
            raise ReplayError(obituary)

    def _wait_until_ready(self, processes: Processes, robots: Robots) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            self._check(processes)
            if robots.statuses and robots.heard():
                pools = robots.statuses[-1][1]['pools']
                if all(pools[pool]['ready'] >= count for pool, count in self._initial.items()):
                    return
            if time.monotonic() > deadline:
                raise ReplayError(
                    f'dispatcher and workers are not ready after {_START_TIMEOUT:.0f} s; see the '
                    f'logs in {self._out / "logs"}')
            time.sleep(_LOOK)

    def _play(self, processes: Processes, robots: Robots) -> tuple[int, float]:
        """Publish all frames; return when time 0 was, in ns, and the longest delay of one."""
        begin = time.monotonic() + _LEAD
        start = time.time_ns() + int(_LEAD * 1e9)
        longest = 0.0
        for at, robot in self._frames:
            due = begin + at
            if time.monotonic() > self._checked + _CHECK_PERIOD:
                self._check(processes)
            while (left := due - time.monotonic()) > 0.0:
                if left > _LOOK:
                    self._check(processes)
                time.sleep(min(left, _CHECK_PERIOD))
            longest = max(longest, -left)
            robots.publish(robot)
        return start, longest

    def _wait_for_answers(self, processes: Processes, robots: Robots) -> None:
        deadline = time.monotonic() + _REST
        seen = len(robots.statuses)
        while time.monotonic() < deadline:
            self._check(processes)
            if len(robots.statuses) > seen + 1 and not (
                    robots.statuses[-1][1]['counters']['in_flight']):
                return
            time.sleep(_LOOK)


def main(argv: Sequence[str] | None = None) -> int:
    """Play a trace; return the exit status."""
    parser = argparse.ArgumentParser(prog='laimr_ros.demo.replay', description=__doc__)
    parser.add_argument('--params-file', type=Path, required=True, metavar='FILE',
                        help='parameters of dispatcher and local_bridge')
    parser.add_argument('--workers', action='append', default=[], metavar='POOL=FILE',
                        help="parameters of a pool's workers; once a pool")
    parser.add_argument('--trace', type=Path, required=True, metavar='FILE',
                        help='CSV file with columns time_s and robot')
    parser.add_argument('--out', type=Path, required=True, metavar='DIR')
    args = parser.parse_args(argv)
    try:
        import rclpy  # noqa: F401
    except ImportError as error:
        print(f'ROS is missing ({error}); run "make setup" or source your ROS 2 installation',
              file=sys.stderr)
        return 2
    workers = {}
    for text in args.workers:
        pool, _, path = text.partition('=')
        workers[pool] = Path(path)
    try:
        replay = Replay(args.params_file, workers, read_frames(args.trace), args.out)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, replay.stop)
        replay.run()
    except ReplayError as error:
        print(error, file=sys.stderr)
        return 1
    except Stopped:
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
