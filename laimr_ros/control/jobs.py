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


class Job:
    """
    One frame on its way through the controller.

    :ivar deadline: capture plus SLO, in seconds of the controller's clock.
    :ivar limit: when it is given up: the deadline, or later where late answers are wanted.
    :ivar urgency: place in the queue, earliest first; the deadline, or that of the oldest
        frame of its camera since one was sent.
    :ivar review_at: when it must be looked at again while it waits.
    :ivar timer_at: when its timer goes off, infinite without one; never after ``review_at``.
    """

    __slots__ = ('attempts', 'deadline', 'frame', 'lane', 'limit', 'offloaded', 'prediction',
                 'replica', 'review_at', 'sent_at', 'stage', 'timer_at', 'urgency')

    def __init__(self, frame: Frame, lane: Lane) -> None:
        """Take a frame in."""
        self.frame = frame
        self.lane = lane
        self.deadline = frame.captured + lane.slo
        self.limit = self.deadline + (lane.slo if lane.late_answers else 0.0)
        self.urgency = self.deadline
        self.stage = Stage.QUEUED
        self.replica: Replica | None = None
        self.sent_at = 0.0
        self.prediction: Prediction | None = None
        self.offloaded = False
        self.attempts = 0
        self.review_at = math.inf
        self.timer_at = math.inf
