"""What came out of one run: a record of every frame, and the numbers made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
import math

from laimr_ros.control.nouns import Outcome
import numpy as np
import numpy.typing as npt

#: How a frame ended, by the codes in :attr:`RunResult.ending`; the last had not at the end.
ENDINGS = (*(outcome.value for outcome in Outcome), 'open')
ANSWERED = ENDINGS.index(Outcome.ANSWERED.value)
OPEN = len(ENDINGS) - 1


@dataclass(frozen=True)
class RunResult:
    """
    One policy in one scenario with one seed.

    Arrays have one entry a frame *received in the measured window*, in the order of arrival.

    :param created: when it was captured, in seconds since the start of the run.
    :param finished: when it was answered, in seconds; NaN if it was not.
    :param ending: index into :data:`ENDINGS`.
    :param lane: index into ``lanes``.
    :param pool: index into ``pools`` of the pool it was last sent to; -1 if it never was.
    :param robot: number of the robot.
    :param offloaded: whether it went to a pool that is not its lane's first.
    :param slo: deadline of each lane after capture, in seconds.
    :param replica_seconds: by pool, over the measured window: starting, serving or draining.
    :param replicas: by pool, how many there were: rows (time in seconds, ready, starting).
    :param received: frames of the whole run, warm-up included.
    :param ended: how they ended, by :data:`ENDINGS`.
    :param decision_s: wall-clock seconds of each call of the controller, by ``routing`` (frames
        and answers) and ``scaling`` (ticks); empty unless a clock was given.
    """

    scenario: str
    policy: str
    rate: float
    seed: int
    lanes: tuple[str, ...]
    pools: tuple[str, ...]
    slo: tuple[float, ...]
    measured_s: float
    created: npt.NDArray[np.float64]
    finished: npt.NDArray[np.float64]
    ending: npt.NDArray[np.int8]
    lane: npt.NDArray[np.int16]
    pool: npt.NDArray[np.int16]
    robot: npt.NDArray[np.int32]
    offloaded: npt.NDArray[np.bool_]
    replica_seconds: Mapping[str, float]
    replicas: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    received: int = 0
    ended: Mapping[str, int] = field(default_factory=dict)
    decision_s: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    @property
    def latency(self) -> npt.NDArray[np.float64]:
        """Return capture to answer in seconds; infinite for a frame that was not answered."""
        return np.where(np.isnan(self.finished), np.inf, self.finished - self.created)

    def of_lane(self, lane: str | None) -> npt.NDArray[np.bool_]:
        """Return which frames are of a lane; all for None."""
        if lane is None:
            return np.ones(len(self.created), bool)
        return np.asarray(self.lane == self.lanes.index(lane))

    def quantile(self, p: float, lane: str | None = None) -> float:
        """Return a quantile of latency over every frame received (nearest rank), in seconds."""
        return nearest_rank(self.latency[self.of_lane(lane)], p)

    def answered_quantile(self, p: float, lane: str | None = None) -> float:
        """Return a quantile of latency over answered frames only, in seconds."""
        latency = self.latency[self.of_lane(lane)]
        return nearest_rank(latency[np.isfinite(latency)], p)

    def on_time(self, lane: str | None = None) -> float:
        """Return the share of frames received that were answered by their deadline."""
        chosen = self.of_lane(lane)
        if not chosen.any():
            return math.nan
        deadline = np.asarray(self.slo)[self.lane]
        return float(np.mean(self.latency[chosen] <= deadline[chosen] + 1e-9))

    @property
    def cost(self) -> float:
        """Return replica-seconds of all pools over the measured window."""
        return sum(self.replica_seconds.values())

    @property
    def offload_share(self) -> float:
        """Return the share of frames received that went to a pool not their first."""
        return float(np.mean(self.offloaded)) if len(self.offloaded) else 0.0

    @property
    def dropped(self) -> int:
        """Return how many frames received were not answered."""
        return int(np.sum(self.ending != ANSWERED))

    def summary(self, lane: str | None = None) -> dict[str, float]:
        """Return the numbers of issue and paper; infinite quantiles where frames are missing."""
        # The difference of two infinities is taken for infinite: half the frames are missing.
        high, low = self.quantile(0.75, lane), self.quantile(0.25, lane)
        return {
            'frames': float(np.sum(self.of_lane(lane))),
            'p50_s': self.quantile(0.5, lane),
            'p95_s': self.quantile(0.95, lane),
            'p99_s': self.quantile(0.99, lane),
            'max_s': self.quantile(1.0, lane),
            'answered_p50_s': self.answered_quantile(0.5, lane),
            'answered_p95_s': self.answered_quantile(0.95, lane),
            'answered_p99_s': self.answered_quantile(0.99, lane),
            'iqr_s': high - low if high < math.inf else math.inf,
            'on_time': self.on_time(lane),
            'replica_seconds': self.cost,
            'offload_share': self.offload_share,
            'dropped': float(self.dropped),
        }


def nearest_rank(values: npt.NDArray[np.float64], p: float) -> float:
    """Return the smallest value that a share ``p`` of all does not exceed; NaN without values."""
    if not len(values):
        return math.nan
    rank = max(0, math.ceil(p * len(values) - 1e-9) - 1)
    return float(np.partition(values, rank)[rank])
