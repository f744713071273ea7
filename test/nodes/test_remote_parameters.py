"""Parameters of another node, kept current across its absence, its restart and its refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import random
import threading
import time
from typing import Any

from laimr_ros.nodes.executor import make_executor, spin
from laimr_ros.nodes.remote_parameters import RemoteParameters
import pytest
from rcl_interfaces.msg import ParameterDescriptor, ParameterType, SetParametersResult
import rclpy
from rclpy.context import Context
from rclpy.node import Node

NAME = 'pools.edge.endpoints'
DEADLINE_S = 20.0


def eventually(predicate: Callable[[], Any], what: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + DEADLINE_S
    while not predicate():
        assert time.monotonic() < end, f'never happened: {what}'
        time.sleep(0.01)


class Ros:
    """A context of its own and an executor that spins in a thread."""

    def __init__(self, domain: int) -> None:
        """Start to spin."""
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.executor = make_executor(self.context)
        self._nodes: list[Node] = []
        self._thread = threading.Thread(target=spin, args=(self.executor,), daemon=True)
        self._thread.start()

    def node(self, name: str) -> Node:
        """Return a node that is spun."""
        node = Node(name, context=self.context, namespace='/cell')
        self.executor.add_node(node)
        self._nodes.append(node)
        return node

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the executor's thread; return its result."""
        done = threading.Event()
        result = []

        def run() -> None:
            result.append(function(*arguments))
            done.set()

        self.executor.create_task(run)
        assert done.wait(DEADLINE_S)
        return result[0]

    def close(self) -> None:
        """Stop all."""
        self.executor.shutdown(timeout_sec=5.0)
        self._thread.join(5.0)
        for node in self._nodes:
            node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def domain() -> int:
    """Return a domain nobody else uses."""
    return random.randint(1, 230)


@pytest.fixture
def ros(domain) -> Iterator[Ros]:
    """Return where the node under test runs."""
    ros = Ros(domain)
    yield ros
    ros.close()


def dispatcher(ros: Ros, default: list[str] | None = None) -> Node:
    """Return a node with the parameter that is kept."""
    node = ros.node('dispatcher')
    node.declare_parameter(
        NAME, default or ['none'],
        ParameterDescriptor(type=ParameterType.PARAMETER_STRING_ARRAY))
    return node


def value(node: Node) -> list[str]:
    """Return what a node has."""
    return list(node.get_parameter(NAME).value or [])


def test_sets_what_is_wanted_and_what_changes(ros):
    """At once when the node is there; an empty list too; other values are left alone."""
    remote = ros.call(RemoteParameters, ros.node('bridge'), 'dispatcher')
    other = dispatcher(ros)
    other.declare_parameter('slo', 1.0)
    ros.call(remote.want, {NAME: ('unix:/a', 'unix:/b')})
    eventually(lambda: value(other) == ['unix:/a', 'unix:/b'], 'two endpoints')
    ros.call(remote.want, {NAME: ()})
    eventually(lambda: value(other) == [], 'no endpoints')
    eventually(lambda: remote.settled, 'settled')
    assert other.get_parameter('slo').value == 1.0


def test_waits_for_a_node_that_comes_later_and_again_after_it_restarts(ros, domain):
    """Neither an absent node nor one that forgot its values needs anybody's help."""
    remote = ros.call(RemoteParameters, ros.node('bridge'), 'dispatcher')
    ros.call(remote.want, {NAME: ('unix:/a',)})
    assert not remote.present and not remote.settled
    for _ in range(2):
        other_side = Ros(domain)
        try:
            other = dispatcher(other_side)
            eventually(lambda other=other: value(other) == ['unix:/a'], 'the endpoint')
            assert remote.present
        finally:
            other_side.close()
        eventually(lambda: not remote.present, 'absence noticed')


def test_reads_back_and_mends(ros, capfd):
    """A value that somebody else changed, or a node restarted too fast to be missed."""
    remote = ros.call(RemoteParameters, ros.node('bridge'), 'dispatcher')
    other = dispatcher(ros)
    ros.call(remote.want, {NAME: ('unix:/a',)})
    eventually(lambda: value(other) == ['unix:/a'], 'the endpoint')
    ros.call(other.set_parameters, [rclpy.parameter.Parameter(NAME, value=['unix:/x'])])
    eventually(lambda: value(other) == ['unix:/a'], 'mended')
    said = capfd.readouterr().err
    assert f'{NAME} of dispatcher was changed by somebody else' in said
    assert 'it is this node (/cell/bridge) that sets it' in said


def test_a_refusal_is_tried_again(ros):
    """What the other node refuses today it may take tomorrow."""
    remote = ros.call(RemoteParameters, ros.node('bridge'), 'dispatcher')
    other = dispatcher(ros)
    refusals = []

    def refuse_twice(parameters: list[Any]) -> SetParametersResult:
        refusals.append(time.monotonic())
        return SetParametersResult(successful=len(refusals) > 2, reason='not yet')

    other.add_on_set_parameters_callback(refuse_twice)
    ros.call(remote.want, {NAME: ('unix:/a',)})
    eventually(lambda: value(other) == ['unix:/a'], 'taken at last')
    assert len(refusals) == 3
    # 0.2 s, then 0.4 s: not a storm of calls.
    assert refusals[1] - refusals[0] > 0.15 and refusals[2] - refusals[1] > 0.35
