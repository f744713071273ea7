"""A node that asks a bridge for replicas and has the parameters that the bridge keeps."""

from __future__ import annotations

import threading
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from laimr_ros.nodes.bridge import LATCHED
from laimr_ros.nodes.executor import make_executor, spin
from rcl_interfaces.msg import ParameterDescriptor, ParameterType
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from std_msgs.msg import Float64, UInt32


class PlayedDispatcher:
    """
    Stands in for the dispatcher.

    :param domain: of ROS.
    :param bridge: name of the bridge's node.
    :param pools: names.
    """

    def __init__(
        self, domain: int, bridge: str = 'kubernetes_bridge', pools: tuple[str, ...] = ('edge',),
    ) -> None:
        """Start to spin."""
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = Node('dispatcher', context=self.context)
        self.ready: dict[str, list[int]] = {pool: [] for pool in pools}
        self.starting: dict[str, list[int]] = {pool: [] for pool in pools}
        self.start_up_s: dict[str, list[float]] = {pool: [] for pool in pools}
        self.diagnostics: dict[str, dict[str, Any]] = {}
        self._desired: dict[str, Any] = {}
        for pool in pools:
            self.node.declare_parameter(
                f'pools.{pool}.endpoints', ['none'],
                ParameterDescriptor(type=ParameterType.PARAMETER_STRING_ARRAY))
            self._desired[pool] = self.node.create_publisher(
                UInt32, f'~/pools/{pool}/desired_replicas', LATCHED)
            for name, kind, into in (
                    ('ready_replicas', UInt32, self.ready[pool]),
                    ('starting_replicas', UInt32, self.starting[pool]),
                    ('start_up_time', Float64, self.start_up_s[pool])):
                self.node.create_subscription(
                    kind, f'{bridge}/pools/{pool}/{name}',
                    lambda message, into=into: into.append(message.data), LATCHED)
        self.node.create_subscription(DiagnosticArray, '/diagnostics', self._diagnose, 10)
        self.executor = make_executor(self.context)
        self.executor.add_node(self.node)
        self._thread = threading.Thread(target=spin, args=(self.executor,), daemon=True)
        self._thread.start()

    def _diagnose(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.diagnostics[status.name.split(': ', 1)[1]] = {
                'level': status.level, 'message': status.message,
                **{pair.key: pair.value for pair in status.values}}

    def ask(self, count: int, pool: str = 'edge') -> None:
        """Publish the desired number."""
        self._desired[pool].publish(UInt32(data=count))

    def endpoints(self, pool: str = 'edge') -> list[str]:
        """Return what the bridge has set."""
        return list(self.node.get_parameter(f'pools.{pool}.endpoints').value or [])

    def says(self, what: str) -> str:
        """Return the text of one of the bridge's diagnostics."""
        return str(self.diagnostics.get(what, {}).get('message', ''))

    def close(self) -> None:
        """End."""
        self.executor.shutdown(timeout_sec=5.0)
        self._thread.join(5.0)
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)
