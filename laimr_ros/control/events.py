"""What can happen. Events go into the controller with the time at which they happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from laimr_ros.control.nouns import Configuration, Frame


class Cause(Enum):
    """Why a sent frame came back without an answer."""

    BUSY = 'worker queue full'
    UNAVAILABLE = 'worker unavailable'
    DEADLINE = 'deadline passed'
    CANCELLED = 'cancelled'
    BAD_FRAME = 'bad image'
    INTERNAL = 'worker error'


@dataclass(slots=True, eq=False)
class FrameArrived:
    """
    A frame was received.

    :param defect: why it cannot be used at all (an empty image, say); empty if it can.
    """

    frame: Frame
    defect: str = ''


@dataclass(slots=True, eq=False)
class FrameDone:
    """
    A replica answered.

    :param queue: time the frame waited inside the worker, in seconds.
    :param service: time the worker was busy with it (decode to boxes), in seconds; 0 if the
        worker does not say, then the round trip stands for it.
    """

    frame_id: int
    replica: str
    queue: float = 0.0
    service: float = 0.0


@dataclass(slots=True, eq=False)
class FrameFailed:
    """A sent frame came back without an answer."""

    frame_id: int
    replica: str
    cause: Cause
    detail: str = ''


@dataclass(slots=True, eq=False)
class ReplicaReady:
    """A replica serves. Replica names are unique over all pools (the endpoint will do)."""

    pool: str
    replica: str


@dataclass(slots=True, eq=False)
class ReplicaDraining:
    """A replica takes no more frames, but finishes those it has."""

    replica: str


@dataclass(slots=True, eq=False)
class ReplicaLost:
    """A replica is gone; what it had in flight goes elsewhere."""

    replica: str
    reason: str = ''


@dataclass(slots=True, eq=False)
class PoolObserved:
    """
    What the holder of a pool's replicas says of it.

    :param ready: replicas that serve.
    :param starting: replicas asked for that do not serve yet.
    :param start_up: measured time to start one, in seconds; 0 if not measured.
    """

    pool: str
    ready: int
    starting: int
    start_up: float = 0.0


@dataclass(slots=True, eq=False)
class CameraLeft:
    """A camera is gone; its state may be forgotten once its last frame has ended."""

    camera: str


@dataclass(slots=True, eq=False)
class ConfigurationChanged:
    """Use another configuration from now on."""

    configuration: Configuration


@dataclass(slots=True, eq=False)
class Tick:
    """Time has passed. Due at least once every ``scale_interval`` and at each ``Wake``."""


Event = (
    FrameArrived | FrameDone | FrameFailed | ReplicaReady | ReplicaDraining | ReplicaLost
    | PoolObserved | CameraLeft | ConfigurationChanged | Tick
)
