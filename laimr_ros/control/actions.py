"""What to do now. Actions come out of the controller, to be done in their order."""

from __future__ import annotations

from dataclasses import dataclass

from laimr_ros.control.nouns import Frame, Outcome


@dataclass(slots=True, eq=False)
class Prediction:
    """
    What was predicted when a frame was sent. All in seconds.

    :param wait: until the replica begins with it (behind what the replica has in flight).
    :param network: mean round trip.
    :param service: mean service time.
    :param completion: from sending to answer, at the routing quantile.
    """

    wait: float
    network: float
    service: float
    completion: float


@dataclass(slots=True, eq=False)
class Send:
    """
    Send a frame to a replica.

    :param timeout: cancel it on the wire after so many seconds.
    :param offloaded: whether the pool is not the lane's first choice.
    """

    frame: Frame
    pool: str
    replica: str
    model: str
    timeout: float
    prediction: Prediction
    offloaded: bool


@dataclass(slots=True, eq=False)
class Cancel:
    """Take back a frame from a replica; no answer to it is wanted any more."""

    frame: Frame
    replica: str


@dataclass(slots=True, eq=False)
class Ended:
    """
    A frame ended; publish its detections if and only if the outcome is ``ANSWERED``.

    Times are in seconds and 0 where they do not apply.

    :param reason: why, for people; empty when answered on time.
    :param on_time: answered by its deadline.
    :param latency: from capture to now.
    :param queued: from reception until it was last sent.
    :param network: round trip less what the worker accounts for.
    :param worker_queue: waiting time inside the worker.
    :param service: busy time of the worker.
    :param attempts: how often it was sent.
    """

    frame: Frame
    outcome: Outcome
    reason: str = ''
    on_time: bool = False
    pool: str = ''
    replica: str = ''
    offloaded: bool = False
    prediction: Prediction | None = None
    latency: float = 0.0
    queued: float = 0.0
    network: float = 0.0
    worker_queue: float = 0.0
    service: float = 0.0
    attempts: int = 0


@dataclass(slots=True, eq=False)
class Scale:
    """Ask for a number of replicas of a pool (the whole number, starting ones included)."""

    pool: str
    replicas: int


@dataclass(slots=True, eq=False)
class Wake:
    """Send a ``Tick`` at this time; replaces an earlier wish."""

    at: float


Action = Send | Cancel | Ended | Scale | Wake
