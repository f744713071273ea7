"""What every bridge does: numbers from the dispatcher to a holder of replicas, endpoints back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
import logging
import re
import socket
import sys
import threading
from typing import Any, Protocol

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from laimr_ros import lifeline
from laimr_ros.cluster.base import PoolStatus, ReplicaState
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
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Float64, UInt32

_DIAGNOSTICS_S = 1.0
# Time for the dispatcher to hear a goodbye.
_FAREWELL_S = 0.4

# The last value reaches whoever comes later.
LATCHED = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)

DISPATCHER = ParameterSpec(
    'dispatcher', 'dispatcher',
    'name of the dispatcher node, relative to the namespace unless it starts with /')


def limit_parameters(prefix: str) -> tuple[ParameterSpec, ...]:
    """Return the parameters that bound a pool."""
    return (
        ParameterSpec(
            prefix + 'min_replicas', 1, 'never fewer replicas', minimum=0, maximum=1000,
            live=True),
        ParameterSpec(
            prefix + 'max_replicas', 1, 'never more replicas', minimum=0, maximum=1000,
            live=True),
    )


class Holder(Protocol):
    """What holds the replicas; its methods return at once."""

    def observe(self, pool: str) -> PoolStatus:
        """Return the pool's present status."""

    def desired(self, pool: str) -> int:
        """Return the number of replicas that there should be."""

    def set_replicas(self, pool: str, count: int) -> None:
        """Ask for a number of replicas."""

    def set_limits(self, pool: str, min_replicas: int, max_replicas: int) -> None:
        """Change a pool's limits."""

    def close(self, timeout_s: float = ...) -> None:
        """Stop."""


class Bridge(Node):
    """
    Have as many replicas of each pool as the dispatcher asks for, and tell it where they serve.

    Without a dispatcher the replicas stay as they are: no news means no change.

    :param name: of the node.
    :param node_options: as for ``rclpy.node.Node``.
    :raises ParameterError: if the parameters cannot be used.
    """

    #: Parameters beside those of the pools; ``dispatcher`` and ``pool_names`` must be among them.
    general_parameters: Sequence[ParameterSpec] = ()
    #: Whether the replicas end with this node, so that the dispatcher must hear of it first.
    takes_replicas_along = False

    def __init__(self, name: str, **node_options: Any) -> None:
        super().__init__(name, **node_options)
        self.holder: Any = None
        try:
            self._set_up()
        except ValueError:
            self.close(0.0)
            self.destroy_node()
            raise

    # ----- what each bridge has of its own

    def parameters_of_pool(self, pool: str) -> Sequence[ParameterSpec]:
        """Return the parameters of one pool; its limits must be among them."""
        raise NotImplementedError

    def make_holder(self, values: Values, pools: Mapping[str, Values]) -> Holder:
        """
        Return what holds the replicas.

        It calls ``replicas_changed`` from any thread.

        :param values: of the general parameters.
        :param pools: values of the parameters of each pool.
        :raises ValueError: if they cannot be used.
        """
        raise NotImplementedError

    def first_number(self, pool: str, values: Values) -> int | None:
        """Return how many replicas to ask for before the dispatcher does; None for no change."""
        return None

    def knows(self, pool: str) -> bool:
        """Return whether the holder's status of a pool means something yet."""
        return True

    def tells_endpoints(self) -> bool:
        """Return whether it is this node that tells the dispatcher where replicas serve."""
        return True

    def judge(self, pool: str, status: PoolStatus) -> tuple[bytes, str]:
        """Return level and text of a pool's diagnostics."""
        ready = status.count(ReplicaState.READY)
        level, text = DiagnosticStatus.OK, f'{ready} of {self.holder.desired(pool)} ready'
        reasons = {r.reason for r in status.replicas if r.state is ReplicaState.FAILED}
        if reasons:
            level = DiagnosticStatus.WARN if ready else DiagnosticStatus.ERROR
            text += f': {sorted(reasons)[-1]}'
        elif not self.remote.present:
            level = DiagnosticStatus.WARN
            text += f'; no dispatcher named {self._dispatcher}: the replicas stay as they are'
        return level, text

    def further_facts(self, pool: str) -> dict[str, object]:
        """Return more key-value pairs for a pool's diagnostics."""
        return {}

    def further_diagnostics(self) -> list[DiagnosticStatus]:
        """Return diagnostics beside those of the pools."""
        return []

    def each_second(self) -> None:
        """Do what is to be done all the time, before diagnostics are told."""

    # ----- what is the same for all

    def _set_up(self) -> None:
        values = declare(self, self.general_parameters)
        self.pools: list[str] = values['pool_names']
        check_names(self.pools)
        per_pool: dict[str, dict[str, Any]] = {}
        for pool in self.pools:
            per_pool[pool] = declare(self, self.parameters_of_pool(pool))
        warn_unknown(self)
        for pool in self.pools:
            _check_limits(per_pool[pool], pool)
        self._limits = {pool: _limits(per_pool[pool], pool) for pool in self.pools}
        self._desired: dict[str, int] = {}
        self._bound_told: dict[str, tuple[str, int, int]] = {}
        self.heard: set[str] = set()
        self._said_goodbye = False
        self.farewell_done = threading.Event()
        self._published: dict[str, tuple[int, int, float]] = {}
        self._dispatcher: str = values['dispatcher']
        self.remote = RemoteParameters(self, self._dispatcher)
        self._numbers: dict[str, tuple[Publisher, Publisher, Publisher]] = {}
        for pool in self.pools:
            self._numbers[pool] = (
                self.create_publisher(UInt32, f'~/pools/{pool}/ready_replicas', LATCHED),
                self.create_publisher(UInt32, f'~/pools/{pool}/starting_replicas', LATCHED),
                self.create_publisher(Float64, f'~/pools/{pool}/start_up_time', LATCHED),
            )
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.holder = self.make_holder(values, per_pool)
        for pool in self.pools:
            first = self.first_number(pool, per_pool[pool])
            if first is not None:
                self._ask_for(pool, first)
            self.refresh(pool)
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
        self.remote.want({f'pools.{pool}.endpoints': () for pool in self.pools})
        self.create_timer(
            0.01, self._check_farewell, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def close(self, timeout_s: float = 3.0) -> None:
        """Close the holder. Safe to call twice."""
        if self.holder is not None:
            self.holder.close(timeout_s)

    def replicas_changed(self, pool: str) -> None:
        """Take note that the holder has news; from any thread."""
        # What the node does belongs to the executor's thread.
        executor = self.executor
        if executor is not None:
            executor.create_task(self.refresh, pool)

    def refresh(self, pool: str) -> None:
        """Publish what changed in a pool, and tell the dispatcher."""
        if not self.knows(pool):
            return
        status = self.holder.observe(pool)
        ready = status.count(ReplicaState.READY)
        starting = status.count(ReplicaState.STARTING)
        start_up_s = quantile(status, 0.9)
        before = self._published.get(pool, (-1, -1, 0.0))
        to_ready, to_starting, to_start_up = self._numbers[pool]
        if not self._said_goodbye and self.tells_endpoints():
            self.remote.want({f'pools.{pool}.endpoints': status.endpoints()})
        if ready != before[0]:
            to_ready.publish(UInt32(data=ready))
        if starting != before[1]:
            to_starting.publish(UInt32(data=starting))
        if start_up_s != before[2]:
            to_start_up.publish(Float64(data=start_up_s))
        self._published[pool] = (ready, starting, start_up_s)

    def status_message(
        self, level: bytes, name: str, text: str, facts: Mapping[str, object],
    ) -> DiagnosticStatus:
        """Return one diagnostic status of this node."""
        return DiagnosticStatus(
            level=level,
            name=f'{self.get_name()}: {name}',
            message=text,
            hardware_id=socket.gethostname(),
            values=[KeyValue(key=key, value=str(value)) for key, value in facts.items()],
        )

    def _check_farewell(self) -> None:
        if self.remote.settled or not self.remote.present:
            self.farewell_done.set()

    def _on_desired(self, pool: str, message: UInt32) -> None:
        if pool not in self.heard:
            self.heard.add(pool)
            self.get_logger().info(f'pool {pool}: the dispatcher asks for {message.data}')
        self._ask_for(pool, message.data)

    def _ask_for(self, pool: str, count: int) -> None:
        low, high = self._limits[pool]
        bound = 'max_replicas' if count > high else 'min_replicas' if count < low else ''
        # Once, not for each number beyond the bound.
        if bound and self._bound_told.get(pool) != (bound, low, high):
            who = 'the dispatcher asks' if pool in self.heard else 'initial_replicas asks'
            self.get_logger().warning(
                f'pool {pool}: {who} for {count}, {bound} here is '
                f'{high if count > high else low}: {max(low, min(high, count))} it is; set '
                f'pools.{pool}.{bound} alike on both sides'
            )
        if bound:
            self._bound_told[pool] = (bound, low, high)
        self._desired[pool] = count
        self.holder.set_replicas(pool, max(low, min(high, count)))

    def ask_again(self, pool: str) -> None:
        """Stand by the number that was asked for, if one was."""
        if pool in self._desired:
            self._ask_for(pool, self._desired[pool])

    def _validate_change(self, values: Values, names: Set[str]) -> None:
        for pool in self.pools:
            _check_limits(values, pool)

    def _apply_change(self, values: Values, names: Set[str]) -> None:
        for pool in self.pools:
            limits = _limits(values, pool)
            if limits != self._limits[pool]:
                self._limits[pool] = limits
                self.holder.set_limits(pool, *limits)
                self.ask_again(pool)

    def _publish_diagnostics(self) -> None:
        self.each_second()
        message = DiagnosticArray()
        message.header.stamp = self.get_clock().now().to_msg()
        message.status.extend(self.further_diagnostics())
        for pool in self.pools:
            # A change that came before the executor was there, or was lost, is caught up here.
            self.refresh(pool)
            message.status.append(self._diagnose(pool))
        self._diagnostics.publish(message)

    def _diagnose(self, pool: str) -> DiagnosticStatus:
        status = self.holder.observe(pool)
        count = {state: status.count(state) for state in ReplicaState}
        level, text = self.judge(pool, status)
        return self.status_message(level, f'pool {pool}', text, {
            'ready': count[ReplicaState.READY],
            'starting': count[ReplicaState.STARTING],
            'draining': count[ReplicaState.DRAINING],
            'failed': count[ReplicaState.FAILED],
            'desired': self.holder.desired(pool),
            'asked_for': self._desired[pool] if pool in self.heard else 'nothing yet',
            'min_replicas': self._limits[pool][0],
            'max_replicas': self._limits[pool][1],
            'start_up_p50_s': f'{quantile(status, 0.5):.3f}',
            'start_up_p90_s': f'{quantile(status, 0.9):.3f}',
            'dispatcher_present': self.remote.present,
            'endpoints_confirmed': self.remote.settled,
            'endpoints': ' '.join(status.endpoints()),
            **self.further_facts(pool),
        })


def check_names(pools: Sequence[str]) -> None:
    """Check the names of pools. :raises ParameterError: if one cannot be used."""
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


def quantile(status: PoolStatus, q: float) -> float:
    """Return a quantile of the recent start-up times in seconds; 0.0 before there is one."""
    return float(np.quantile(status.start_up_s, q)) if status.start_up_s else 0.0


def _limits(values: Values, pool: str) -> tuple[int, int]:
    return values[f'pools.{pool}.min_replicas'], values[f'pools.{pool}.max_replicas']


def _check_limits(values: Values, pool: str) -> None:
    low, high = _limits(values, pool)
    if low > high:
        raise ParameterError(
            f'parameter pools.{pool}.min_replicas: {low} is more than max_replicas, {high}; '
            'lower the one or raise the other'
        )


class _RosLogHandler(logging.Handler):
    """Pass on to the node's log what the rooms below say."""

    def __init__(self, node: Node) -> None:
        super().__init__(logging.INFO)
        self._node = node

    def emit(self, record: logging.LogRecord) -> None:
        # rclpy wants a fixed severity at each place it is called from.
        logger = self._node.get_logger()
        text = record.getMessage()
        if record.exc_info:
            text += '\n' + logging.Formatter().formatException(record.exc_info)
        if record.levelno >= logging.ERROR:
            logger.error(text)
        elif record.levelno >= logging.WARNING:
            logger.warning(text)
        else:
            logger.info(text)


def run_bridge(name: str, make: Callable[[], Bridge], args: list[str] | None) -> int:
    """
    Run a bridge until SIGINT or SIGTERM; return the process exit status.

    :param name: of the executable, for messages.
    :param make: makes the node.
    :param args: command line; None for this process's own.
    """
    lifeline.attach()
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    try:
        try:
            node = make()
        except ValueError as error:
            print(f'{name}: {error}', file=sys.stderr)
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
                if node.takes_replicas_along:
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
