"""A simulated run of any policy in any world, for experiments beyond the named ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import math
from typing import Any

from laimr_ros.evaluation.runs import key_of, Row
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.result import nearest_rank
from laimr_ros.simulation.scenarios import Scenario
import numpy as np

# What deciding about a frame takes by the method, in frames decided about by a rule.
_DEAR = 10.0
#: What is told of each lane where there are several.
LANE_NUMBERS = ('frames', 'p50_s', 'p95_s', 'p99_s', 'on_time')


@dataclass(frozen=True)
class Simulated:
    """
    One simulated run.

    :param labels: what the run is known by in tables.
    :param scenario: the whole world, rate included.
    :param robot: number of a robot whose frames are told of apart; None for nobody's.
    """

    labels: Mapping[str, Any]
    scenario: Scenario
    policy: Policy
    seed: int
    robot: int | None = None

    def key(self) -> str:
        """Return what tells this run from any other."""
        return key_of(self, self.policy.configuration(self.scenario))

    def weight(self) -> float:
        """Return the frames it has, more where deciding takes long."""
        dear = 'laimr' in (self.policy.routing, self.policy.scaling)
        return self.scenario.rate * self.scenario.end * (_DEAR if dear else 1.0)

    def run(self) -> Row:
        """Simulate; return labels and numbers, those of a lane or pool under ``name:number``."""
        result = simulate(self.scenario, self.policy, self.seed)
        row = {'key': self.key(), **self.labels, 'rate': self.scenario.rate, 'seed': self.seed,
               'measured': self.scenario.measured, **result.summary(),
               'mean_s': _mean(result.latency)}
        if len(result.lanes) > 1:
            for lane in result.lanes:
                numbers = result.summary(lane)
                row |= {f'{lane}:{number}': numbers[number] for number in LANE_NUMBERS}
        row |= {f'{pool}:replica_seconds': spent
                for pool, spent in result.replica_seconds.items()}
        if self.robot is not None:
            own = result.latency[result.robot == self.robot]
            row |= {'robot_mean_s': _mean(own), 'robot_p95_s': nearest_rank(own, 0.95),
                    'robot_p99_s': nearest_rank(own, 0.99)}
        return row


def _mean(latency: np.ndarray[Any, Any]) -> float:
    return float(np.mean(latency)) if len(latency) else math.nan
