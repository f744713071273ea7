"""Run the controller in a simulated world."""

from __future__ import annotations

from collections.abc import Callable

from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.result import RunResult
from laimr_ros.simulation.scenarios import Scenario


def simulate(
    scenario: Scenario, policy: Policy, seed: int, *, clock: Callable[[], float] | None = None
) -> RunResult:
    """
    Run one policy in one scenario.

    :param seed: of everything random; arrivals, service and network times of the k-th frame of a
        robot and start-up times are functions of it alone, whatever the policy does.
    :param clock: wall clock in seconds that the controller's calls are timed by; None not to.
    """
    raise NotImplementedError
