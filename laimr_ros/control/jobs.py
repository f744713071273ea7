"""A frame while the controller has it."""

from __future__ import annotations

from enum import Enum
import math
from typing import TYPE_CHECKING

from laimr_ros.control.actions import Prediction
from laimr_ros.control.nouns import Frame, Lane

if TYPE_CHECKING:
    from laimr_ros.control.pools import Replica


class Stage(Enum):
    """Where a frame stands on its way."""

    QUEUED = 'queued'
    SENT = 'sent'
    ENDED = 'ended'


class Copy:
    """Where a frame was sent, and what was predicted of it there."""

    __slots__ = ('offloaded', 'prediction', 'replica', 'sent_at')

    def __init__(
        self, replica: Replica, sent_at: float, prediction: Prediction, offloaded: bool
    ) -> None:
        """Take note."""
        self.replica = replica
        self.sent_at = sent_at
        self.prediction = prediction
        self.offloaded = offloaded


class Job:
    """
    One frame on its way through the controller.

    :ivar deadline: capture plus SLO, in seconds of the controller's clock.
    :ivar limit: when it is given up: the deadline, or later where late answers are wanted.
    :ivar urgency: place in the queue, earliest first; the deadline, or that of the oldest
        frame of its camera since one was sent.
    :ivar other: a second copy of it that is out beside the one at ``replica``.
    :ivar review_at: when it must be looked at again while it waits; once sent, when a second
        copy is due.
    :ivar last_chance: whether then it is too late to wait for a busy pool.
    :ivar refusals: how often a busy worker sent it back.
    :ivar timer_at: when its timer goes off, infinite without one; never after ``review_at``.
    """

    __slots__ = ('attempts', 'deadline', 'frame', 'lane', 'last_chance', 'limit', 'offloaded',
                 'other', 'prediction', 'refusals', 'replica', 'review_at', 'sent_at', 'stage',
                 'timer_at', 'urgency')

    def __init__(self, frame: Frame, lane: Lane) -> None:
        """Take a frame in."""
        self.frame = frame
        self.lane = lane
        self.deadline = frame.captured + lane.slo
        self.limit = self.deadline + lane.grace
        self.urgency = self.deadline
        self.stage = Stage.QUEUED
        self.replica: Replica | None = None
        self.other: Copy | None = None
        self.sent_at = 0.0
        self.prediction: Prediction | None = None
        self.offloaded = False
        self.attempts = 0
        self.refusals = 0
        self.review_at = math.inf
        self.last_chance = True
        self.timer_at = math.inf

    def set_aside(self) -> None:
        """Make the copy that is out the other one; the next one sent takes its place."""
        assert self.replica is not None and self.prediction is not None and self.other is None
        self.other = Copy(self.replica, self.sent_at, self.prediction, self.offloaded)

    def turn_to(self, replica: Replica) -> None:
        """Look at the copy at a replica, if it is the other one."""
        if self.other is not None and self.other.replica is replica:
            other = self.other
            self.other = None
            self.set_aside()
            self._use(other)

    def fall_back(self) -> bool:
        """Forget the copy looked at; return whether there is another one."""
        other = self.other
        if other is None:
            return False
        self.other = None
        self._use(other)
        return True

    def _use(self, copy: Copy) -> None:
        self.replica, self.sent_at = copy.replica, copy.sent_at
        self.prediction, self.offloaded = copy.prediction, copy.offloaded
