"""The spin loop: runs callbacks at little cost, and returns for every kind of end."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import random
import threading
import time

import pytest

rclpy = pytest.importorskip('rclpy', reason='needs rclpy: run `make setup`, or source ROS 2')

from laimr_ros.nodes.executor import make_executor, spin  # noqa: E402
from rclpy.context import Context  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.node import Node  # noqa: E402


@pytest.fixture()
def context() -> Iterator[Context]:
    """Give a context of its own, in a domain of its own."""
    context = Context()
    rclpy.init(context=context, domain_id=random.SystemRandom().randint(1, 100))
    yield context
    context.try_shutdown()


@pytest.mark.parametrize('make', [make_executor, SingleThreadedExecutor])
@pytest.mark.parametrize('end', ['context', 'executor'])
def test_runs_callbacks_until_shut_down(context: Context, make: object, end: str) -> None:
    executor = make(context=context)  # type: ignore[operator]
    node = Node('ticking', context=context)
    ticks: list[float] = []
    enough = threading.Event()

    def tick() -> None:
        ticks.append(time.monotonic())
        if len(ticks) == 10:
            enough.set()

    node.create_timer(0.01, tick)
    executor.add_node(node)
    thread = threading.Thread(target=spin, args=(executor,), daemon=True)
    thread.start()
    assert enough.wait(20.0)
    if end == 'context':
        context.shutdown()
    else:
        executor.shutdown()
    thread.join(20.0)
    assert not thread.is_alive()
    node.destroy_node()


def test_idles_without_burning_cpu(context: Context) -> None:
    executor = make_executor(context)
    executor.add_node(Node('idle', context=context))
    used: list[float] = []

    def run() -> None:
        before = time.thread_time()
        spin(executor)
        used.append(time.thread_time() - before)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    time.sleep(1.0)
    executor.shutdown()
    thread.join(20.0)
    assert used[0] < 0.3


@pytest.mark.parametrize('text, ending, raises', [
    ("Couldn't find sub-entities entry for removed Waitable", True, False),
    ("Couldn't find sub-entities entry for removed Waitable", False, True),
    ('something else', True, True),
])
def test_what_a_shut_down_in_a_start_leaves_is_quiet(
        context: Context, text: str, ending: bool, raises: bool) -> None:
    executor = SingleThreadedExecutor(context=context)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(text)

    executor.spin_until_future_complete = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match=text) if raises else contextlib.nullcontext():
        spin(executor, lambda: ending)


def test_exceptions_of_callbacks_pass_through(context: Context) -> None:
    executor = make_executor(context)
    node = Node('failing', context=context)

    def fail() -> None:
        raise ZeroDivisionError

    node.create_timer(0.01, fail)
    executor.add_node(node)
    with pytest.raises(ZeroDivisionError):
        spin(executor)
    node.destroy_node()
