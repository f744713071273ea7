"""The node ``camera``: publishes frames of a camera, or of what stands in for one."""

from __future__ import annotations

from laimr_ros import lifeline

if __name__ == '__main__':
    # Before the heavy imports: a parent may die while they run.
    lifeline.attach()

import array
from collections.abc import Mapping, Set
import io
import json
import math
import sys
from typing import Any, TextIO

from builtin_interfaces.msg import Time
import cv2
from laimr_ros.cameras.arrivals import Arrivals
from laimr_ros.cameras.lens import BASE_CAMERA
from laimr_ros.cameras.reader import Reader
from laimr_ros.cameras.sources.base import CameraError, Capture
from laimr_ros.nodes.background import BackgroundSpin
from laimr_ros.nodes.camera_parameters import arrival_spec, make_source, SPECS
from laimr_ros.nodes.executor import make_executor
from laimr_ros.nodes.parameters import declare, on_change, warn_unknown
import numpy as np
import rclpy
from rclpy.event_handler import PublisherEventCallbacks, QoSOfferedIncompatibleQoSInfo
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    qos_policy_name_from_kind,
    QoSProfile,
    ReliabilityPolicy,
)
from rclpy.qos_overriding_options import QoSOverridingOptions, QoSPolicyKind
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header

_OVERRIDABLE = (
    QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY,
    QoSPolicyKind.DURABILITY,
)


def sensor_qos() -> QoSProfile:
    """Return the sensor-data profile with depth 1: a camera's newest frame is the one wanted."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.VOLATILE,
    )


class Camera(Node):
    """
    Publishes ``image_raw/compressed``, ``camera_info`` and, if wanted, ``image_raw``.

    :param name: of the node.
    :param options: passed on to :class:`rclpy.node.Node`.
    :raises ValueError: for a parameter that cannot be used.
    :raises CameraError: if the source cannot be made.
    """

    def __init__(self, name: str = 'camera', **options: Any) -> None:
        super().__init__(name, **options)
        self._reader: Reader | None = None
        self._truth: TextIO | None = None
        try:
            self._begin()
        except BaseException:
            self.destroy_node()
            raise

    def _begin(self) -> None:
        self._values: Mapping[str, Any] = declare(self, SPECS)
        values = self._values
        self._frame_id = values['frame_id'] or (
            f'{self.get_namespace()}/camera_optical_frame'.strip('/'))
        self._compressed = self._publisher(CompressedImage, 'image_raw/compressed')
        self._raw = self._publisher(Image, 'image_raw')
        self._info = self._publisher(CameraInfo, 'camera_info')
        spec = arrival_spec(values)
        clock = self.get_clock()
        source = make_source(
            values, lambda: clock.now().nanoseconds * 1e-9, self.get_logger().warning)
        if values['truth_file']:
            try:
                self._truth = open(  # noqa: SIM115 - open as long as the node
                    values['truth_file'], 'a', encoding='utf-8', buffering=1)
            except OSError as error:
                raise CameraError(f'truth_file {values["truth_file"]} cannot be written: '
                                  f'{error.strerror}; name a file in a directory that exists'
                                  ) from error
        on_change(self, lambda proposed, changed: _check(proposed), self._apply)
        warn_unknown(self)
        self._reader = Reader(
            source, Arrivals(spec, values['seed']), self._publish, self._report,
            lambda: clock.now().nanoseconds * 1e-9, values['start_at'], self._simulated(),
        )
        self._reader.start()
        self.get_logger().info(
            f'{values["source"]} on {self._compressed.topic_name}, {spec.process}, '
            f'{spec.rate_hz:g} frames/s')

    @property
    def ended(self) -> bool:
        """Return whether the source has no more frames."""
        return self._reader is not None and self._reader.ended.is_set()

    def destroy_node(self) -> None:
        """Stop reading, then take the node down."""
        if self._reader is not None:
            self._reader.stop()
        if self._truth is not None:
            self._truth.close()
        super().destroy_node()

    def _publisher(self, kind: Any, topic: str) -> Publisher:
        resolved = self.resolve_topic_name(topic)

        def incompatible(info: QoSOfferedIncompatibleQoSInfo) -> None:
            policy = qos_policy_name_from_kind(info.last_policy_kind).lower()
            self.get_logger().warning(
                f'a subscription to {resolved} gets nothing: it asks for more than our {policy}. '
                f'Subscribe with sensor data quality (best effort, volatile), or set our '
                f'qos_overrides.{resolved}.publisher.{policy}')

        return self.create_publisher(
            kind, topic, sensor_qos(),
            event_callbacks=PublisherEventCallbacks(incompatible_qos=incompatible),
            qos_overriding_options=QoSOverridingOptions(_OVERRIDABLE),
        )

    def _simulated(self) -> bool:
        return bool(self.get_parameter('use_sim_time').value)

    def _apply(self, values: Mapping[str, Any], changed: Set[str]) -> None:
        spec, before = arrival_spec(values), arrival_spec(self._values)
        self._values = dict(values)
        if self._reader is not None and spec != before:
            self._reader.change(spec)

    def _report(self, text: str, trouble: bool) -> None:
        if trouble:
            self.get_logger().warning(text)
        else:
            self.get_logger().info(text)

    def _publish(self, capture: Capture) -> None:
        """Publish one frame; runs in the reader's thread."""
        values = self._values
        header = Header(stamp=_stamp(capture.stamp_s), frame_id=self._frame_id)
        if isinstance(capture.data, bytes):
            data, kind = capture.data, capture.format
        else:
            quality = [cv2.IMWRITE_JPEG_QUALITY, values['jpeg_quality']]
            data, kind = cv2.imencode('.jpg', capture.data, quality)[1].tobytes(), 'jpeg'
        message = CompressedImage(header=header, format=kind)
        message.data = array.array('B', data)
        # First the truth: who has the frame will look for it.
        self._write_truth(header.stamp, capture)
        self._compressed.publish(message)
        if self._info.get_subscription_count():
            self._info.publish(_camera_info(header, values['source'], _size(capture)))
        if values['publish_raw'] and self._raw.get_subscription_count():
            self._raw.publish(_raw_image(header, capture, values['encoding']))

    def _write_truth(self, stamp: Time, capture: Capture) -> None:
        if self._truth is None or capture.truth is None:
            return
        self._truth.write(json.dumps({
            'stamp': {'sec': stamp.sec, 'nanosec': stamp.nanosec},
            'boxes': [
                {'label': thing.label, 'box': thing.box,
                 'visible_fraction': round(thing.visible_fraction, 4)}
                for thing in capture.truth
            ],
        }) + '\n')


def _check(values: Mapping[str, Any]) -> None:
    arrival_spec(values)


def _stamp(seconds: float) -> Time:
    whole = math.floor(seconds)
    return Time(sec=whole, nanosec=min(int((seconds - whole) * 1e9), 999_999_999))


def _size(capture: Capture) -> tuple[int, int]:
    """Return width and height in pixels, from the file's header where it is not decoded."""
    if not isinstance(capture.data, bytes):
        return capture.data.shape[1], capture.data.shape[0]
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(capture.data)) as image:
            return image.size
    except (OSError, ValueError):
        return 0, 0


def _camera_info(header: Header, source: str, size: tuple[int, int]) -> CameraInfo:
    """Return the drawn cell's lens; other cameras are not calibrated, which is all zeros."""
    info = CameraInfo(header=header, width=size[0], height=size[1])
    if source == 'scene':
        lens = BASE_CAMERA.at_size(*size)
        info.distortion_model = 'equidistant'
        info.d = list(lens.distortion)
        info.k = [lens.fx, 0.0, lens.cx, 0.0, lens.fy, lens.cy, 0.0, 0.0, 1.0]
        info.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        info.p = [lens.fx, 0.0, lens.cx, 0.0, 0.0, lens.fy, lens.cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    return info


def _raw_image(header: Header, capture: Capture, encoding: str) -> Image:
    image = capture.data
    if isinstance(image, bytes):
        decoded = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
        if decoded is None:
            raise CameraError('a frame cannot be decoded for image_raw; set publish_raw to false')
        image = np.asarray(decoded, np.uint8)
    if encoding == 'rgb8':
        image = np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))
    elif encoding == 'mono8':
        image = np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))
    message = Image(
        header=header, height=image.shape[0], width=image.shape[1], encoding=encoding,
        step=image.shape[1] * (image.shape[2] if image.ndim == 3 else 1),
        is_bigendian=0,
    )
    message.data = array.array('B', image.tobytes())
    return message


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM, or its source ends; return the exit status."""
    lifeline.attach()
    # Drawing is quick; more threads would only take cores from the workers.
    cv2.setNumThreads(1)
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    try:
        executor = make_executor()
        # Made before the node: a signal that comes while the source is opened counts too.
        spinning = BackgroundSpin(executor)
        try:
            node = Camera()
        except (ValueError, CameraError) as error:
            print(f'camera: {error}', file=sys.stderr)
            return 2
        executor.add_node(node)
        try:
            with spinning:
                while not spinning.wait_for_signal(0.5):
                    if node.ended:
                        break
        finally:
            node.destroy_node()
    finally:
        rclpy.try_shutdown()
    return 0


if __name__ == '__main__':
    sys.exit(main())
