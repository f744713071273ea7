"""One robot as the dispatcher sees it, shared between the executor and the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from laimr_ros.nodes.clock_check import ClockCheck
from laimr_ros.nodes.image_messages import ImageMessage
from laimr_ros.nodes.topics import Source


class Robot:
    """
    A robot that is there, or that has left and still has frames on their way.

    :param source: its name and image topic.
    :param read: reads its serialised messages.
    :param publish: publishes its serialised detections.
    :param clock: judges its stamps.
    :param lane: the lane its frames are in.
    :param now: a monotonic clock in seconds.
    """

    __slots__ = ('arrived', 'clock', 'entities', 'lane', 'last_received', 'left', 'name', 'open',
                 'overrun', 'overrun_told', 'publish', 'read', 'received', 'source')

    def __init__(
        self, source: Source, read: Callable[[bytes], ImageMessage],
        publish: Callable[[bytes], None], clock: ClockCheck, lane: str, now: float,
    ) -> None:
        self.name = source.robot
        self.source = source
        self.read = read
        self.publish = publish
        self.clock = clock
        self.lane = lane
        self.arrived = now
        #: When its last frame came, in seconds of the monotonic clock.
        self.last_received = now
        self.received = 0
        #: Frames that have not ended.
        self.open = 0
        #: Frames that came faster than they could be taken in; and as many as have been counted.
        self.overrun = 0
        self.overrun_told = 0
        #: Whether it is gone; then it is forgotten with its last frame.
        self.left = False
        #: Its subscription and publisher; whoever made them destroys them.
        self.entities: Any = None
