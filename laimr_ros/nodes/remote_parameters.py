"""Parameters of another node, kept at the values this one wants."""

from __future__ import annotations

from collections.abc import Mapping
import time
from typing import Any

from laimr_ros.cluster.backoff import Backoff
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.client import Client
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.task import Future

# How often to look whether the other node still has what it was given: it may have restarted.
_CHECK_S = 1.0
# First wait for a reply, doubled with every failure: a node that dies with a call in hand never
# answers, and a reply can be lost while the two sides are still finding each other.
_REPLY_S = 0.5
_REPLY_MAX_S = 5.0
_TICK_S = 0.1


class RemoteParameters:
    """
    Keep string-array parameters of another node at given values.

    Level-triggered: a value that could not be set is tried again, ever more slowly, until the
    other node is there and takes it; a value that changed meanwhile replaces the one before; what
    the other node has is read back every second, so that one which restarted gets them again.
    All methods belong to the executor's thread.

    :param node: the node that wants.
    :param remote: name of the other node, relative to this one's namespace unless it starts with
        ``/``.
    """

    def __init__(self, node: Node, remote: str) -> None:
        self._node = node
        self._remote = remote
        self._wanted: dict[str, tuple[str, ...]] = {}
        self._confirmed: dict[str, tuple[str, ...]] = {}
        self._set: Client = node.create_client(SetParameters, f'{remote}/set_parameters')
        self._get: Client = node.create_client(GetParameters, f'{remote}/get_parameters')
        self._backoff = Backoff(0.2, 10.0)
        self._not_before = 0.0
        self._checked_at = 0.0
        self._call: tuple[Client, Future, float] | None = None
        self._complaint = ''
        self._timer = node.create_timer(
            _TICK_S, self._tick, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )

    @property
    def present(self) -> bool:
        """Return whether the other node is there."""
        return bool(self._set.service_is_ready())

    @property
    def settled(self) -> bool:
        """Return whether the other node has confirmed every value."""
        return self._wanted == self._confirmed

    def want(self, values: Mapping[str, tuple[str, ...]]) -> None:
        """Set values that the other node's parameters shall have, beside those wanted before."""
        if any(self._wanted.get(name) != value for name, value in values.items()):
            self._wanted.update(values)
            # News goes out at once, even if the last attempt failed.
            self._not_before = 0.0
            self._tick()

    def forget(self) -> None:
        """Want nothing any more: another node looks after these parameters."""
        self._wanted.clear()
        self._confirmed.clear()
        if self._call is not None:
            client, future, _ = self._call
            client.remove_pending_request(future)
            self._call = None

    def _tick(self) -> None:
        now = time.monotonic()
        if self._call is not None:
            client, future, deadline = self._call
            if now < deadline and self.present:
                return
            client.remove_pending_request(future)
            self._call = None
            if self.present:
                self._failed(now, 'it does not reply')
        if now < self._not_before or not self._wanted:
            return
        if not self.present:
            # Whatever comes back is another process and knows nothing.
            self._confirmed.clear()
            return
        if not self.settled:
            self._send(now)
        elif now >= self._checked_at + _CHECK_S and self._get.service_is_ready():
            self._check(now)

    def _send(self, now: float) -> None:
        sent = {
            name: value for name, value in self._wanted.items()
            if self._confirmed.get(name) != value
        }
        request = SetParameters.Request(parameters=[
            Parameter(name=name, value=ParameterValue(
                type=ParameterType.PARAMETER_STRING_ARRAY, string_array_value=list(value)))
            for name, value in sent.items()
        ])

        def done(future: Future) -> None:
            reply = self._reply(future)
            if reply is None:
                return
            refused = ''
            for (name, value), result in zip(sent.items(), reply.results, strict=False):
                if result.successful:
                    self._confirmed[name] = value
                else:
                    refused = f'{name}: {result.reason or "refused without a reason"}'
            if refused:
                self._failed(time.monotonic(), refused)
                return
            if self._complaint:
                self._node.get_logger().info(f'{self._remote} takes its parameters again')
            self._complaint = ''
            self._backoff.reset()
            self._checked_at = time.monotonic()
            self._tick()

        self._start(self._set, request, done, now)

    def _check(self, now: float) -> None:
        names = list(self._wanted)

        def done(future: Future) -> None:
            reply = self._reply(future)
            if reply is None:
                return
            self._checked_at = time.monotonic()
            before = dict(self._confirmed)
            for name, value in zip(names, reply.values, strict=False):
                is_list = value.type == ParameterType.PARAMETER_STRING_ARRAY
                self._confirmed.pop(name, None)
                if is_list:
                    self._confirmed[name] = tuple(value.string_array_value)
            if not self.settled:
                changed = [name for name in names
                           if name in before and self._confirmed.get(name) != before[name]]
                self._node.get_logger().warning(
                    f'{", ".join(changed or names)} of {self._remote} was changed by somebody '
                    'else, or lost in a restart: it is this node '
                    f'({self._node.get_fully_qualified_name()}) that sets it, and does so again; '
                    'to set it by hand, stop this node first'
                )
                self._tick()

        self._start(self._get, GetParameters.Request(names=names), done, now)

    def _start(self, client: Client, request: Any, done: Any, now: float) -> None:
        future = client.call_async(request)
        patience_s = min(_REPLY_MAX_S, _REPLY_S * 2.0 ** min(self._backoff.failures, 10))
        self._call = (client, future, now + patience_s)
        future.add_done_callback(done)

    def _reply(self, future: Future) -> Any:
        """Return the reply, or None if it came too late or not at all."""
        if self._call is None or self._call[1] is not future:
            return None
        self._call = None
        if future.exception() is not None:
            self._failed(time.monotonic(), str(future.exception()))
            return None
        return future.result()

    def _failed(self, now: float, why: str) -> None:
        delay = self._backoff.failed()
        self._not_before = now + delay
        # A single lost reply is no news.
        if why != self._complaint and self._backoff.failures > 1:
            self._complaint = why
            self._node.get_logger().warning(
                f'cannot set parameters of {self._remote}: {why}; trying again'
            )
