"""Watches a demonstration from outside, as any ROS tool could: topics only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
import json
from pathlib import Path
import threading
import time
from typing import Any

import cv2
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from laimr_ros.demo.scores import Scores
from laimr_ros.nodes.executor import make_executor, spin
from laimr_ros.training.matching import Found, Tally
import numpy as np
import rclpy
from rclpy.qos import DurabilityPolicy, qos_profile_sensor_data, QoSProfile
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import String
from vision_msgs.msg import Detection2D, Detection2DArray

# Images kept a robot until their detections come.
_IMAGES = 20
_GREEN, _BLACK = (60, 200, 60), (0, 0, 0)


class _Robot:
    """The images of one robot that wait for detections, and the last pair."""

    def __init__(self) -> None:
        self.images: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self.pair: tuple[bytes, Detection2DArray] | None = None


class Observer:
    """
    Subscribes to the dispatcher's status and to the robots' images and detections.

    :param robots: names of the robots.
    :param scores: gets every picture's detections.
    """

    def __init__(self, robots: Sequence[str], scores: Scores) -> None:
        """Subscribe, and spin in a thread."""
        self._lock = threading.Lock()
        self._scores = scores
        self._history: list[dict[str, Any]] = []
        self._troubles: dict[str, str] = {}
        self._robots = {name: _Robot() for name in robots}
        self._context = rclpy.Context()
        # Ctrl-C is the demonstration's to handle, not rclpy's.
        self._context.init(args=None)
        self._node = rclpy.create_node('demo_observer', context=self._context)
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._node.create_subscription(String, '/dispatcher/status', self._on_status, latched)
        self._node.create_subscription(
            DiagnosticArray, '/diagnostics', self._on_diagnostics, 10)
        for name in robots:
            self._node.create_subscription(
                CompressedImage, f'/{name}/image_raw/compressed',
                lambda message, name=name: self._on_image(name, message),
                qos_profile_sensor_data)
            self._node.create_subscription(
                Detection2DArray, f'/{name}/detections',
                lambda message, name=name: self._on_detections(name, message), 10)
        self._executor = make_executor(self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(
            target=spin, args=(self._executor,), name='observer', daemon=True)
        self._thread.start()

    def _on_status(self, message: String) -> None:
        status = json.loads(message.data)
        status['time'] = time.time()
        with self._lock:
            self._history.append(status)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        with self._lock:
            for status in message.status:
                if not status.name.startswith('local_bridge: pool '):
                    continue
                if status.level == DiagnosticStatus.ERROR:
                    self._troubles[status.name] = status.message
                else:
                    self._troubles.pop(status.name, None)

    def _on_image(self, robot: str, message: CompressedImage) -> None:
        stamp = message.header.stamp
        with self._lock:
            images = self._robots[robot].images
            images[stamp.sec, stamp.nanosec] = bytes(message.data)
            while len(images) > _IMAGES:
                images.popitem(last=False)

    def _on_detections(self, robot: str, message: Detection2DArray) -> None:
        stamp = message.header.stamp
        found = [_found(detection) for detection in message.detections]
        with self._lock:
            self._scores.score(robot, (stamp.sec * 10**9 + stamp.nanosec) / 1e9, found)
            image = self._robots[robot].images.pop((stamp.sec, stamp.nanosec), None)
            if image is not None:
                self._robots[robot].pair = (image, message)

    def scored(self) -> Tally:
        """Return the counts of all pictures scored so far."""
        with self._lock:
            total = self._scores.total
            return Tally(total.found, total.missed, total.wrong)

    def status(self) -> dict[str, Any] | None:
        """Return the dispatcher's last status."""
        with self._lock:
            return self._history[-1] if self._history else None

    def troubles(self) -> list[str]:
        """Return why pools have no worker, as the bridge says."""
        with self._lock:
            return list(self._troubles.values())

    def history(self) -> list[dict[str, Any]]:
        """Return every status, oldest first."""
        with self._lock:
            return list(self._history)

    def wait_idle(self, seconds: float) -> None:
        """Wait until the dispatcher says that no frame is in flight."""
        deadline = time.monotonic() + seconds
        seen = len(self.history())
        while time.monotonic() < deadline:
            history = self.history()
            if len(history) > seen and not history[-1]['counters']['in_flight']:
                return
            time.sleep(0.05)

    def save_pictures(self, directory: Path) -> int:
        """
        Write the last answered frame of each robot with its detections; return how many.

        :raises OSError: if one cannot be written; it is left out, like those after it.
        """
        with self._lock:
            pairs = {name: robot.pair for name, robot in self._robots.items()}
        count = 0
        for name, pair in pairs.items():
            if pair is None:
                continue
            image = cv2.imdecode(
                np.frombuffer(pair[0], np.uint8),
                cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
            if image is None:
                continue
            _annotate(image, pair[1])
            done, encoded = cv2.imencode('.jpg', image)
            if not done:
                continue
            path = directory / f'frame-{name}.jpg'
            try:
                # Not `imwrite`: it does not say why it fails, if it says so at all.
                path.write_bytes(encoded.tobytes())
            except OSError:
                path.unlink(missing_ok=True)
                raise
            count += 1
        return count

    def close(self) -> None:
        """Stop watching."""
        if self._context.ok():
            self._context.shutdown()
        self._thread.join(2.0)


def _found(detection: Detection2D) -> Found:
    centre, box = detection.bbox.center.position, detection.bbox
    best = detection.results[0].hypothesis
    return best.class_id, best.score, (
        centre.x - box.size_x / 2, centre.y - box.size_y / 2,
        centre.x + box.size_x / 2, centre.y + box.size_y / 2)


def _annotate(image: np.ndarray, detections: Detection2DArray) -> None:
    for detection in detections.detections:
        name, score, corners = _found(detection)
        x1, y1, x2, y2 = (round(value) for value in corners)
        cv2.rectangle(image, (x1, y1), (x2, y2), _GREEN, 2)
        text = f'{name} {score:.2f}'
        for colour, width in ((_BLACK, 3), (_GREEN, 1)):
            cv2.putText(image, text, (x1, max(12, y1 - 4)), cv2.FONT_HERSHEY_SIMPLEX, 0.5,
                        colour, width, cv2.LINE_AA)
    cv2.putText(image, f'{len(detections.detections)} detections', (8, 20),
                cv2.FONT_HERSHEY_SIMPLEX, 0.6, _GREEN, 1, cv2.LINE_AA)
