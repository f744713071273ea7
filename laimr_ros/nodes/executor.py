"""Which executor runs the nodes, and how it is spun."""

from __future__ import annotations

from collections.abc import Callable
import time

import rclpy
from rclpy.context import Context
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
import rclpy.logging
from rclpy.task import Future

# Long, so that it costs nothing; finite, because `EventsExecutor.spin()` without a deadline was
# measured to busy-loop and to starve its subscriptions.
_ROUND_S = 30.0
# Of rclpy's EventsExecutor, of a shut-down in the midst of a start.
_REMOVED = "Couldn't find sub-entities entry for removed"


def make_executor(context: Context | None = None) -> Executor:
    """
    Return rclpy's event-driven executor, or the single-threaded one where rclpy has none.

    The event-driven one costs the same CPU time a message at 1 and at 100 subscriptions; the other
    works everywhere but grows with their number, so its use is logged.

    :param context: the context of the nodes it will run; the default context if left out.
    """
    try:
        from rclpy.experimental import EventsExecutor
    except ImportError:
        rclpy.logging.get_logger('laimr_ros').warning(
            'this rclpy has no EventsExecutor: using SingleThreadedExecutor, which needs several '
            'times the CPU time a message with many robots; a newer rclpy mends it'
        )
        return SingleThreadedExecutor(context=context)
    return EventsExecutor(context=context)


def spin(executor: Executor, ending: Callable[[], bool] = lambda: False) -> None:
    """
    Run callbacks until the context or the executor is shut down, or until Ctrl-C; then return.

    Works in any thread. Exceptions of callbacks pass through.

    :param executor: the executor to run, with its nodes added.
    :param ending: returns whether it is about to be shut down.
    """
    context = executor.context
    try:
        while context.ok():
            began = time.monotonic()
            # A future of its own for each round: every round hangs a callback on it.
            executor.spin_until_future_complete(Future(), timeout_sec=_ROUND_S)
            if time.monotonic() - began < 0.9 * _ROUND_S:
                return  # Nothing but a shut-down ends a round early.
    except (ExternalShutdownException, KeyboardInterrupt):
        return
    except RuntimeError as error:
        # Entities that are destroyed while rclpy takes in that they were made.
        if _REMOVED not in str(error) or (context.ok() and not ending()):
            raise
