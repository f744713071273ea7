"""The node that holds replicas as worker processes on this host."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial
import logging
from pathlib import Path
import re
import socket
import sys
import threading
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from laimr_ros import lifeline
from laimr_ros.cluster.base import PoolStatus, ReplicaState
from laimr_ros.cluster.local import LocalPool, LocalReplicas
from laimr_ros.nodes.background import BackgroundSpin
from laimr_ros.nodes.executor import make_executor
from laimr_ros.nodes.parameters import (
    declare,
    on_change,
    ParameterError,
    ParameterSpec,
    Values,
    warn_unknown,
)
from laimr_ros.nodes.remote_parameters import RemoteParameters
import numpy as np
import rclpy
from rclpy.clock import Clock, ClockType
import rclpy.logging
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Float64, UInt32

# Time for the workers to drain when the node ends, and before it for the dispatcher to hear that
# they go; together with the rest well under the 5 s after which `ros2 launch` loses patience.
_CLOSE_S = 3.0
_FAREWELL_S = 0.4
_DIAGNOSTICS_S = 1.0

# The last value reaches whoever comes later.
LATCHED = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)

PARAMETERS = (
    ParameterSpec(
        'dispatcher', 'dispatcher',
        'name of the dispatcher node, relative to the namespace unless it starts with /'),
    ParameterSpec('pool_names', [], 'pools whose workers run on this host'),
    ParameterSpec(
        'max_starting', 2, 'workers that may start at once, over all pools', minimum=1),
    ParameterSpec(
        'start_nice', 0,
        'nice level of a worker until it is ready; needs the right to set it back',
        minimum=0, maximum=19),
    ParameterSpec(
        'socket_directory', '',
        'where the private directory of Unix sockets is made, a short path; empty for the '
        'runtime directory of the user or /tmp'),
    ParameterSpec(
        'log_directory', '',
        'where the output of the workers is kept, at most 2 MB a replica; empty for a directory '
        'named like this node under the log directory of ROS'),
)


def pool_parameters(pool: str) -> tuple[ParameterSpec, ...]:
    """Return the parameters of one pool."""
    prefix = f'pools.{pool}.'
    return (
        ParameterSpec(
            prefix + 'worker_params_file', '', 'YAML file with the parameters of the workers'),
        ParameterSpec(
            prefix + 'worker_args', [], 'further arguments of the command "laimr worker"'),
        ParameterSpec(
            prefix + 'min_replicas', 1, 'never fewer replicas', minimum=0, maximum=1000,
            live=True),
        ParameterSpec(
            prefix + 'max_replicas', 1, 'never more replicas', minimum=0, maximum=1000,
            live=True),
        ParameterSpec(
            prefix + 'initial_replicas', -1,
            'replicas until the dispatcher asks for a number; -1 for min_replicas',
            minimum=-1, maximum=1000),
        ParameterSpec(
            prefix + 'start_timeout', 120.0,
            'a worker not ready by then is killed and counts as failed', unit='s',
            minimum=0.1, maximum=3600.0),
        ParameterSpec(
            prefix + 'drain_grace', 10.0, 'time to drain before a worker is killed', unit='s',
            minimum=0.0, maximum=3600.0),
        ParameterSpec(
            prefix + 'deregister_delay', 0.3,
            'from telling the dispatcher that a replica goes to asking it to drain', unit='s',
            minimum=0.0, maximum=60.0),
    )


class LocalBridge(Node):
    """
    Hold as many workers of each pool as the dispatcher asks for, and tell it where they serve.

    Without a dispatcher the replicas stay as they are: no news means no change.

    :param node_options: as for ``rclpy.node.Node``.
    :raises ParameterError: if the parameters cannot be used.
    """

    def __init__(self, **node_options: Any) -> None:
        super().__init__('local_bridge', **node_options)
        self._holder: LocalReplicas | None = None
        try:
            self._set_up()
        except ValueError:
            self.close(0.0)
            self.destroy_node()
            raise

    def _set_up(self) -> None:
        values = declare(self, PARAMETERS)
        self._pools: list[str] = values['pool_names']
        _check_names(self._pools)
        per_pool = {}
        for pool in self._pools:
            per_pool[pool] = declare(self, pool_parameters(pool))
        warn_unknown(self)
        for pool in self._pools:
            _check_limits(per_pool[pool], pool)
        log_directory = Path(
            values['log_directory']
            or rclpy.logging.get_logging_directory() / _file_name(self.get_fully_qualified_name())
        ).expanduser()
        configurations = {
            pool: _local_pool(per_pool[pool], pool, log_directory) for pool in self._pools
        }
        self._limits = {
            pool: (config.min_replicas, config.max_replicas)
            for pool, config in configurations.items()
        }
        self._desired: dict[str, int] = {}
        self._heard: set[str] = set()
        self._said_goodbye = False
        self.farewell_done = threading.Event()
        self._published: dict[str, tuple[int, int, float]] = {}
        self._dispatcher = values['dispatcher']
        self._remote = RemoteParameters(self, self._dispatcher)
        self._numbers: dict[str, tuple[Publisher, Publisher, Publisher]] = {}
        for pool in self._pools:
            self._numbers[pool] = (
                self.create_publisher(UInt32, f'~/pools/{pool}/ready_replicas', LATCHED),
                self.create_publisher(UInt32, f'~/pools/{pool}/starting_replicas', LATCHED),
                self.create_publisher(Float64, f'~/pools/{pool}/start_up_time', LATCHED),
            )
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        try:
            self._holder = LocalReplicas(
                configurations,
                directory=(
                    Path(values['socket_directory']).expanduser()
                    if values['socket_directory'] else None
                ),
                max_starting=values['max_starting'],
                start_nice=values['start_nice'],
                on_change=self._on_replicas_changed,
            )
        except OSError as error:
            raise ParameterError(
                f'parameter socket_directory: {values["socket_directory"]!r} cannot be used: '
                f'{error}; name a short path where this user may write'
            ) from None
        for pool in self._pools:
            initial = per_pool[pool][f'pools.{pool}.initial_replicas']
            self._ask_for(pool, self._limits[pool][0] if initial < 0 else initial)
            self._refresh(pool)
            # Last: a message may come at once.
            self.create_subscription(
                UInt32, f'{self._dispatcher}/pools/{pool}/desired_replicas',
                partial(self._on_desired, pool), LATCHED)
        on_change(self, self._validate_change, self._apply_change)
        self.create_timer(
            _DIAGNOSTICS_S, self._publish_diagnostics,
            clock=Clock(clock_type=ClockType.STEADY_TIME))

    def say_goodbye(self) -> None:
        """Tell the dispatcher that all replicas go; ``farewell_done`` is set when it has heard."""
        self._said_goodbye = True
        self._remote.want({f'pools.{pool}.endpoints': () for pool in self._pools})
        self.create_timer(
            0.01, self._check_farewell, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Drain the workers; kill those that do not end in time. Safe to call twice."""
        if self._holder is not None:
            self._holder.close(timeout_s)

    def _check_farewell(self) -> None:
        if self._remote.settled or not self._remote.present:
            self.farewell_done.set()

    def _on_desired(self, pool: str, message: UInt32) -> None:
        if pool not in self._heard:
            self._heard.add(pool)
            self.get_logger().info(f'pool {pool}: the dispatcher asks for {message.data}')
        self._ask_for(pool, message.data)

    def _ask_for(self, pool: str, count: int) -> None:
        assert self._holder is not None
        low, high = self._limits[pool]
        if not low <= count <= high and self._desired.get(pool) != count:
            self.get_logger().warning(
                f'pool {pool}: {count} replicas are wanted, but min_replicas is {low} and '
                f'max_replicas is {high}'
            )
        self._desired[pool] = count
        self._holder.set_replicas(pool, max(low, min(high, count)))

    def _validate_change(self, values: Values, names: Set[str]) -> None:
        for pool in self._pools:
            _check_limits(values, pool)

    def _apply_change(self, values: Values, names: Set[str]) -> None:
        assert self._holder is not None
        for pool in self._pools:
            limits = (
                values[f'pools.{pool}.min_replicas'], values[f'pools.{pool}.max_replicas'])
            if limits != self._limits[pool]:
                self._limits[pool] = limits
                self._holder.set_limits(pool, *limits)
                self._ask_for(pool, self._desired[pool])

    def _on_replicas_changed(self, pool: str) -> None:
        # In the holder's thread; what the node does belongs to the executor's.
        executor = self.executor
        if executor is not None:
            executor.create_task(self._refresh, pool)

    def _refresh(self, pool: str) -> None:
        """Publish what changed in a pool, and tell the dispatcher."""
        assert self._holder is not None
        status = self._holder.observe(pool)
        ready = status.count(ReplicaState.READY)
        starting = status.count(ReplicaState.STARTING)
        start_up_s = _quantile(status, 0.9)
        before = self._published.get(pool, (-1, -1, 0.0))
        to_ready, to_starting, to_start_up = self._numbers[pool]
        if not self._said_goodbye:
            self._remote.want({f'pools.{pool}.endpoints': status.endpoints()})
        if ready != before[0]:
            to_ready.publish(UInt32(data=ready))
        if starting != before[1]:
            to_starting.publish(UInt32(data=starting))
        if start_up_s != before[2]:
            to_start_up.publish(Float64(data=start_up_s))
        self._published[pool] = (ready, starting, start_up_s)

    def _publish_diagnostics(self) -> None:
        message = DiagnosticArray()
        message.header.stamp = self.get_clock().now().to_msg()
        for pool in self._pools:
            # A change that came before the executor was there, or was lost, is caught up here.
            self._refresh(pool)
            message.status.append(self._diagnose(pool))
        self._diagnostics.publish(message)

    def _diagnose(self, pool: str) -> DiagnosticStatus:
        assert self._holder is not None
        status = self._holder.observe(pool)
        desired = self._holder.desired(pool)
        count = {state: status.count(state) for state in ReplicaState}
        ready = count[ReplicaState.READY]
        reasons = {r.reason for r in status.replicas if r.state is ReplicaState.FAILED}
        level, text = DiagnosticStatus.OK, f'{ready} of {desired} ready'
        if reasons:
            level = DiagnosticStatus.WARN if ready else DiagnosticStatus.ERROR
            text += f': {sorted(reasons)[-1]}'
        elif not self._remote.present:
            level = DiagnosticStatus.WARN
            text += f'; no dispatcher named {self._dispatcher}: the replicas stay as they are'
        facts = {
            'ready': ready,
            'starting': count[ReplicaState.STARTING],
            'draining': count[ReplicaState.DRAINING],
            'failed': count[ReplicaState.FAILED],
            'desired': desired,
            'asked_for': self._desired[pool] if pool in self._heard else 'nothing yet',
            'min_replicas': self._limits[pool][0],
            'max_replicas': self._limits[pool][1],
            'start_up_p50_s': f'{_quantile(status, 0.5):.3f}',
            'start_up_p90_s': f'{_quantile(status, 0.9):.3f}',
            'dispatcher_present': self._remote.present,
            'endpoints_confirmed': self._remote.settled,
            'endpoints': ' '.join(status.endpoints()),
        }
        return DiagnosticStatus(
            level=level,
            name=f'{self.get_name()}: pool {pool}',
            message=text,
            hardware_id=socket.gethostname(),
            values=[KeyValue(key=key, value=str(value)) for key, value in facts.items()],
        )


def _check_names(pools: Sequence[str]) -> None:
    if not pools:
        raise ParameterError(
            "parameter pool_names: [] names no pool; list those whose workers run here, "
            "for example ['edge']"
        )
    for pool in pools:
        if not re.fullmatch(r'[A-Za-z][A-Za-z0-9_]*', pool) or '__' in pool:
            raise ParameterError(
                f'parameter pool_names: {pool!r} cannot be part of a topic name; use letters, '
                'digits and single "_", a letter first'
            )
    if len(set(pools)) < len(pools):
        raise ParameterError(
            f'parameter pool_names: {list(pools)} names a pool twice; once will do'
        )


def _check_limits(values: Values, pool: str) -> None:
    low, high = values[f'pools.{pool}.min_replicas'], values[f'pools.{pool}.max_replicas']
    if low > high:
        raise ParameterError(
            f'parameter pools.{pool}.min_replicas: {low} is more than max_replicas, {high}; '
            'lower the one or raise the other'
        )


def _local_pool(values: Values, pool: str, log_directory: Path) -> LocalPool:
    """Return the configuration of a pool for its holder."""
    prefix = f'pools.{pool}.'
    path = Path(values[prefix + 'worker_params_file']).expanduser()
    if not values[prefix + 'worker_params_file']:
        raise ParameterError(
            f'parameter {prefix}worker_params_file: is not set; name the YAML file with the '
            'parameters of the workers'
        )
    try:
        path.open('rb').close()
    except OSError as error:
        raise ParameterError(
            f'parameter {prefix}worker_params_file: {str(path)!r} cannot be read: '
            f'{error.strerror}; name the YAML file with the parameters of the workers'
        ) from None
    return LocalPool(
        command=(
            sys.executable, '-m', 'laimr_ros.cli.main', 'worker',
            '--params-file', str(path.absolute()), '--listen', '{listen}',
            *values[prefix + 'worker_args'],
        ),
        min_replicas=values[prefix + 'min_replicas'],
        max_replicas=values[prefix + 'max_replicas'],
        log_directory=log_directory,
        start_timeout_s=values[prefix + 'start_timeout'],
        deregister_s=values[prefix + 'deregister_delay'],
        drain_grace_s=values[prefix + 'drain_grace'],
    )


def _quantile(status: PoolStatus, q: float) -> float:
    """Return a quantile of the recent start-up times in seconds; 0.0 before there is one."""
    return float(np.quantile(status.start_up_s, q)) if status.start_up_s else 0.0


def _file_name(node_name: str) -> str:
    return node_name.strip('/').replace('/', '.')


class _RosLogHandler(logging.Handler):
    """Pass on to the node's log what the rooms below say."""

    def __init__(self, node: Node) -> None:
        super().__init__(logging.INFO)
        self._node = node

    def emit(self, record: logging.LogRecord) -> None:
        # rclpy wants a fixed severity at each place it is called from.
        logger = self._node.get_logger()
        if record.levelno >= logging.ERROR:
            logger.error(record.getMessage())
        elif record.levelno >= logging.WARNING:
            logger.warning(record.getMessage())
        else:
            logger.info(record.getMessage())


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM; return the process exit status."""
    lifeline.attach()
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    try:
        try:
            node = LocalBridge()
        except ValueError as error:
            print(f'local_bridge: {error}', file=sys.stderr)
            return 2
        handler = _RosLogHandler(node)
        cluster_log = logging.getLogger('laimr_ros.cluster')
        cluster_log.addHandler(handler)
        cluster_log.setLevel(logging.INFO)
        try:
            executor = make_executor()
            executor.add_node(node)
            with BackgroundSpin(executor) as spinning:
                spinning.wait_for_signal()
                executor.create_task(node.say_goodbye)
                node.farewell_done.wait(_FAREWELL_S)
                node.close()
        finally:
            cluster_log.removeHandler(handler)
            node.close()
            node.destroy_node()
    finally:
        rclpy.try_shutdown()
    return 0


if __name__ == '__main__':
    sys.exit(main())
