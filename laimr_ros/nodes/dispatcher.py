"""The dispatcher node: every robot's frames in, detections before their deadline out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Set
from functools import partial
import gc
import math
import os
import sys
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from laimr_ros import lifeline
from laimr_ros.control import memory
from laimr_ros.control.events import PoolObserved
from laimr_ros.nodes import dispatcher_parameters as parameters
from laimr_ros.nodes.background import BackgroundSpin
from laimr_ros.nodes.clock_check import ClockCheck
from laimr_ros.nodes.diagnostics import diagnose, RecentShares, to_json
from laimr_ros.nodes.discovery import Discovery
from laimr_ros.nodes.dispatch_loop import DispatchLoop, Tuning
from laimr_ros.nodes.executor import make_executor
from laimr_ros.nodes.image_messages import COMPRESSED_TYPE, reader
from laimr_ros.nodes.metrics import MetricsServer
from laimr_ros.nodes.parameters import on_change, ParameterError, Values, warn_unknown
from laimr_ros.nodes.qos_check import QosWatch
from laimr_ros.nodes.records import Records
from laimr_ros.nodes.replicas import Level
from laimr_ros.nodes.robots import Robot
from laimr_ros.nodes.start_report import describe, Loneliness, Namesakes, unread_file
from laimr_ros.nodes.state_file import StateFile
from laimr_ros.nodes.topics import lane_of, parse_patterns, Source
import rclpy
from rclpy.clock import Clock, ClockType
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Float64, String, UInt32
from vision_msgs.msg import Detection2DArray, LabelInfo, VisionClass

LATCHED = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)

# Ending: open frames get this long; a process that hangs for longer than the other is killed.
_FINISH_S = 1.0
_HANG_S = 2.7
# Two Python threads share the interpreter; the default of 5 ms would show in every P99.
_SWITCH_INTERVAL_S = 0.0005
# What was learned since the last save is lost with a sudden death.
_SAVE_EVERY_S = 30.0
_PAUSE_S = 0.001


class Dispatcher(Node):
    """
    Finds robots, sends their frames where they will be on time, and publishes the detections.

    The executor's thread owns everything of ROS but publishing; :class:`DispatchLoop` owns the
    frames. A third thread reports.

    :param node_options: as for ``rclpy.node.Node``.
    :raises ValueError: if the parameters cannot be used.
    """

    def __init__(self, **node_options: Any) -> None:
        super().__init__('dispatcher', **node_options)
        self._records: Records | None = None
        self._metrics: MetricsServer | None = None
        self._dispatch: DispatchLoop | None = None
        self._state: StateFile | None = None
        self._closed = threading.Event()
        try:
            self._set_up()
        except BaseException:
            self.close()
            self.destroy_node()
            raise

    def _set_up(self) -> None:
        values = self._values = parameters.declare_parameters(self)
        warn_unknown(self)
        if warning := unread_file(
                sys.argv, self._parameter_overrides, self.get_fully_qualified_name()):
            self.get_logger().warning(warning)
        parameters.check(values, self.get_namespace())
        self._robots: dict[str, Robot] = {}
        self._gone: deque[Robot] = deque()
        self._status: dict[str, Any] | None = None
        self._shares = RecentShares()
        self._qos = QosWatch(self)
        self._ros_clock = self.get_clock()
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._discovery = Discovery(
            self, parse_patterns(values['topics'], self.get_namespace()),
            values['robot_timeout'], self.get_logger().warning)
        if values['records_file']:
            try:
                self._records = Records(
                    values['records_file'], values['records_max_mb'],
                    self.get_logger().warning)
            except OSError as error:
                raise ParameterError(
                    f'records_file: {values["records_file"]!r} cannot be written: '
                    f'{error.strerror}; name a file where this user may write') from None
        if values['prometheus_port']:
            try:
                self._metrics = MetricsServer(values['prometheus_port'], lambda: self._status)
            except OSError as error:
                raise ParameterError(
                    f'prometheus_port: {values["prometheus_port"]} cannot be used: '
                    f'{error.strerror}; choose another port, or 0 for none') from None
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self._status_publisher = self.create_publisher(String, '~/status', LATCHED)
        self._label_info = {
            lane: self.create_publisher(LabelInfo, f'~/lanes/{lane}/label_info', LATCHED)
            for lane in values['lane_names']}
        self._desired = {
            pool: self.create_publisher(UInt32, f'~/pools/{pool}/desired_replicas', LATCHED)
            for pool in values['pool_names']}
        self._asked: dict[str, int] = {}
        dispatch = self._dispatch = DispatchLoop(
            parameters.configuration(values), self._tuning(values), self, self._records)
        if values['state_file']:
            self._state = StateFile(values['state_file'], self.get_logger().warning)
            saved = self._state.load()
            if saved is not None:
                pools = memory.restore(
                    dispatch.controller, *saved, self.get_logger().warning)
                self.get_logger().info(
                    f'going on from what was learned {saved[1]:.0f} s ago of pools {pools}')
        dispatch.start()
        dispatch.call(dispatch.set_endpoints, self._endpoints(values))
        self._observed: dict[str, list[Any]] = {}
        if values['bridge']:
            for pool in values['pool_names']:
                self._observe(values['bridge'], pool)
        on_change(self, self._validate_change, self._apply_change)
        self._timer = self.create_timer(
            values['discovery_period'], self._look, clock=self._steady)
        bridge = values['bridge']
        for line in describe(
                values, self.resolve_service_name(bridge) if bridge else ''):
            self.get_logger().info(line)
        self._loneliness = Loneliness(time.monotonic())
        self._namesakes = Namesakes()
        self._look()
        self._reporter = threading.Thread(target=self._report, name='report', daemon=True)
        self._reporter.start()

    def close(self) -> None:
        """End open frames, report once more, write the records. Safe to call twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._dispatch is not None:
            self._dispatch.stop(_FINISH_S, self._last_report)
            if self._state is not None:
                self._state.save(memory.to_state(self._dispatch.controller))
        if self._records is not None:
            self._records.close()
        if self._metrics is not None:
            self._metrics.close()

    # ----- robots (executor's thread)

    def _look(self) -> None:
        """Find out which robots are there."""
        assert self._dispatch is not None
        self._simulated = self._ros_clock.ros_time_is_active
        while self._gone:
            self._destroy(self._gone.popleft())
        changes = self._discovery.look(time.monotonic())
        for name in changes.left:
            robot = self._robots.pop(name)
            self.get_logger().info(f'robot {name} has left')
            self._stop_listening(robot)
            self._dispatch.call(partial(self._dispatch.robot_left, robot, for_good=True))
        for source in changes.moved:
            robot = self._robots.pop(source.robot)
            self._stop_listening(robot)
            self._dispatch.call(partial(self._dispatch.robot_left, robot, for_good=False))
            self._welcome(source)
        for source in changes.arrived:
            self._welcome(source)
        for robot in self._robots.values():
            if not robot.received:
                self._qos.check_publishers(robot.source.topic, robot.entities[0].qos_profile)
        now = time.monotonic()
        for news in (
                self._loneliness.update(now, len(self._robots), self._values['topics'],
                                        self._discovery.unmatched),
                self._namesakes.update(now, self.get_fully_qualified_name(),
                                       self.get_node_names_and_namespaces())):
            if news is not None:
                self.say(news[0], 'warning' if news[1] else 'info')
        for pool, (ready, starting, _) in self._observed.items():
            # A bridge that does not tell how many are starting has none.
            if ready is not None and starting is None:
                self._on_observed(pool, 1, UInt32(data=0))

    def _welcome(self, source: Source) -> None:
        assert self._dispatch is not None
        values = self._values
        compressed = source.type == COMPRESSED_TYPE
        message_type = CompressedImage if compressed else Image
        offered = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
        publisher = self.create_publisher(
            Detection2DArray, source.detections_topic, offered,
            event_callbacks=PublisherEventCallbacks(
                incompatible_qos=lambda _: self._qos.check_subscriptions(
                    publisher.topic_name, publisher.qos_profile),
                use_default_callbacks=False),
            qos_overriding_options=QoSOverridingOptions.with_default_policies())
        robot = Robot(
            source, reader(message_type), self._make_publish(publisher),
            ClockCheck(values['clock_tolerance'], values['clock_max_age']),
            self._lane(source.robot, values), time.monotonic())
        subscription = self.create_subscription(
            message_type, source.topic, self._make_receive(robot),
            QoSProfile(
                depth=values['image_qos.depth'], history=HistoryPolicy.KEEP_LAST,
                reliability=ReliabilityPolicy[values['image_qos.reliability'].upper()]),
            event_callbacks=SubscriptionEventCallbacks(
                incompatible_qos=lambda _: self._qos.check_publishers(
                    source.topic, subscription.qos_profile),
                use_default_callbacks=False),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
            raw=True)
        robot.entities = (subscription, publisher)
        self._robots[source.robot] = robot
        self.get_logger().info(
            f'robot {source.robot}: images on {source.topic}, lane {robot.lane}, detections on '
            f'{source.detections_topic}')

    def _make_receive(self, robot: Robot) -> Any:
        """Return the subscription's callback, which runs for each frame: as little as possible."""
        assert self._dispatch is not None
        receive, clock = self._dispatch.receive, self._ros_clock
        monotonic, system_ns = time.monotonic, time.time_ns

        def on_image(message: bytes) -> None:
            # Asking the ROS clock costs as much as all the rest here, and this is what it says.
            receive(robot, message, monotonic(),
                    clock.now().nanoseconds if self._simulated else system_ns())

        return on_image

    def _make_publish(self, publisher: Publisher) -> Any:
        def publish(message: bytes) -> None:
            try:
                publisher.publish(message)
            except Exception as error:  # rclpy raises errors of its C++ part, unnamed.
                if not self._closed.is_set():
                    self.say(f'cannot publish on {publisher.topic}: {error}', 'error')

        return publish

    def _stop_listening(self, robot: Robot) -> None:
        subscription, publisher = robot.entities
        if subscription is not None:
            self.destroy_subscription(subscription)
            robot.entities = (None, publisher)

    def _destroy(self, robot: Robot) -> None:
        """Destroy what is left of a robot whose last frame has ended."""
        self._stop_listening(robot)
        publisher: Publisher | None = robot.entities[1]
        if publisher is not None:
            self.destroy_publisher(publisher)
            robot.entities = (None, None)

    @staticmethod
    def _lane(robot: str, values: Values) -> str:
        return lane_of(
            robot, parameters.lane_patterns(values), parameters.default_lane(values))

    # ----- parameters (executor's thread)

    @staticmethod
    def _tuning(values: Values) -> Tuning:
        return Tuning(values['score_threshold'], values['max_image_bytes'])

    @staticmethod
    def _endpoints(values: Values) -> dict[str, list[str]]:
        return {pool: values[f'pools.{pool}.endpoints'] for pool in values['pool_names']}

    def _validate_change(self, values: Values, names: Set[str]) -> None:
        parameters.check(values, self.get_namespace())

    def _apply_change(self, values: Values, names: Set[str]) -> None:
        assert self._dispatch is not None
        self._values = dict(values)
        dispatch = self._dispatch
        dispatch.call(dispatch.configure, parameters.configuration(values), self._tuning(values))
        if any(name.endswith('.endpoints') for name in names):
            dispatch.call(dispatch.set_endpoints, self._endpoints(values))
        for robot in self._robots.values():
            robot.lane = self._lane(robot.name, values)
            robot.clock.tolerance = values['clock_tolerance']
            robot.clock.max_age = values['clock_max_age']
        self._discovery.timeout = values['robot_timeout']
        if self._records is not None:
            self._records.max_mb = values['records_max_mb']
        if 'topics' in names:
            self._discovery.patterns = parse_patterns(values['topics'], self.get_namespace())
        if 'discovery_period' in names:
            self._timer.timer_period_ns = round(values['discovery_period'] * 1e9)

    # ----- the bridge (executor's thread)

    def _observe(self, bridge: str, pool: str) -> None:
        self._observed[pool] = [None, None, 0.0]
        for index, (name, kind) in enumerate((
                ('ready_replicas', UInt32), ('starting_replicas', UInt32),
                ('start_up_time', Float64))):
            self.create_subscription(
                kind, f'{bridge}/pools/{pool}/{name}', partial(self._on_observed, pool, index),
                LATCHED)

    def _on_observed(self, pool: str, index: int, message: Any) -> None:
        assert self._dispatch is not None
        observed = self._observed[pool]
        observed[index] = message.data
        ready, starting, start_up = observed
        # Half of the truth would read as a pool that is smaller than it is.
        if ready is not None and starting is not None:
            start_up = start_up if math.isfinite(start_up) else 0.0
            self._dispatch.call(
                self._dispatch.pool_observed, PoolObserved(pool, ready, starting, start_up))

    # ----- what the loop tells (its thread)

    def scale(self, pool: str, replicas: int) -> None:
        """Publish the desired number of replicas of a pool, if it changed."""
        if self._asked.get(pool) != replicas and not self._closed.is_set():
            self._asked[pool] = replicas
            self._desired[pool].publish(UInt32(data=replicas))

    def class_names(self, lane: str, names: Sequence[str]) -> None:
        """Publish the class names of a lane's model."""
        message = LabelInfo(threshold=self._values['score_threshold'])
        message.header.stamp = self._ros_clock.now().to_msg()
        message.class_map = [
            VisionClass(class_id=index, class_name=name)
            for index, name in enumerate(names[:65536])]
        self._label_info[lane].publish(message)

    def robot_gone(self, robot: Robot) -> None:
        """Have the rest of a robot destroyed, by the thread it belongs to."""
        self._gone.append(robot)

    def say(self, text: str, level: Level = 'info') -> None:
        """Log something."""
        # rclpy wants a fixed severity at each place it is called from.
        if level == 'error':
            self.get_logger().error(text)
        elif level == 'warning':
            self.get_logger().warning(text)
        else:
            self.get_logger().info(text)

    # ----- reports (the reporter's thread)

    def _report(self) -> None:
        assert self._dispatch is not None
        saved = time.monotonic()
        while not self._closed.wait(self._values['diagnostics_period']):
            if self._state is not None and time.monotonic() - saved >= _SAVE_EVERY_S:
                saved = time.monotonic()
                try:
                    self._state.save(
                        self._dispatch.ask(memory.to_state, self._dispatch.controller))
                except (TimeoutError, RuntimeError):
                    continue
            try:
                snapshot = self._dispatch.ask(self._snapshot)
            except (TimeoutError, RuntimeError):
                continue
            if not self._closed.is_set():
                self._publish_report(snapshot)

    def _last_report(self) -> None:
        try:
            self._publish_report(self._snapshot())
        except Exception as error:  # The context may be gone, and then so are the listeners.
            self.get_logger().debug(f'no last report: {error}')

    def _snapshot(self) -> tuple[float, dict[str, Any], list[dict[str, Any]]]:
        """Copy what is known; in the loop's thread, so as little as possible."""
        assert self._dispatch is not None
        now = time.monotonic()
        return now, self._dispatch.controller.snapshot(now), self._dispatch.links()

    def _publish_report(
        self, snapshot: tuple[float, dict[str, Any], list[dict[str, Any]]],
    ) -> None:
        now, status, links = snapshot
        cameras = status.pop('cameras')
        status['robots'] = {
            robot.name: self._robot_status(robot, cameras.get(robot.name), now)
            for robot in list(self._robots.values())}
        status['links'] = links
        status['records_lost'] = self._records.lost if self._records is not None else 0
        for name, lane in status['lanes'].items():
            lane['on_time_recent'] = self._shares.update(now, name, lane)
        self._status = status
        stamp = self._ros_clock.now().to_msg()
        # In portions: a hundred robots in one go would hold the interpreter for milliseconds, and
        # the frames that come meanwhile would be late.
        for statuses in diagnose(status, self.get_name()):
            message = DiagnosticArray(status=statuses)
            message.header.stamp = stamp
            self._diagnostics.publish(message)
            if not self._closed.is_set():
                time.sleep(_PAUSE_S)
        self._status_publisher.publish(String(data=to_json(status)))

    def _robot_status(
        self, robot: Robot, camera: dict[str, Any] | None, now: float,
    ) -> dict[str, Any]:
        clock = robot.clock
        silent = now - robot.last_received
        status = camera or {
            'received': 0, 'answered': 0, 'superseded': 0, 'expired': 0, 'rejected': 0,
            'failed': 0, 'in_flight': 0, 'on_time': 0, 'rate': 0.0, 'age_s': None, 'reasons': {}}
        return {
            **status,
            'lane': robot.lane,
            'topic': robot.source.topic,
            'silent_s': silent,
            'stale': silent > self._values['robot_timeout'],
            'clock': clock.problem,
            'clock_offset_s': clock.offset,
        }


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM; return the process exit status."""
    lifeline.attach()
    # Otherwise gRPC's core prints C++ source locations beside our own messages.
    os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    try:
        try:
            node = Dispatcher()
        except ValueError as error:
            print(f'dispatcher: {error}', file=sys.stderr)
            return 2
        executor = make_executor()
        executor.add_node(node)
        # What exists now lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        try:
            with BackgroundSpin(executor) as spinning:
                spinning.wait_for_signal()
                watchdog = threading.Timer(_HANG_S, os._exit, (1,))
                watchdog.daemon = True
                watchdog.start()
                node.close()
        finally:
            node.close()
            node.destroy_node()
    finally:
        rclpy.try_shutdown()
    return 0


if __name__ == '__main__':
    sys.exit(main())
