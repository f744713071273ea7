"""A simulated run of which every answer is kept, beside what was predicted of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from laimr_ros.control.actions import Action, Ended, Send
from laimr_ros.control.controller import Controller
from laimr_ros.control.events import Event
from laimr_ros.control.nouns import Outcome
from laimr_ros.simulation.engine import Books, Run
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.result import RunResult
from laimr_ros.simulation.scenarios import Scenario
from laimr_ros.simulation.workload import workload_of
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """
    Frames captured in the measured window that were sent and answered, or proved late.

    Arrays have one entry a frame; times in seconds.

    :param pool: name of the pool that answered.
    :param created: when it was captured.
    :param service: time the replica was busy with it; NaN if it was given up.
    :param latency: from capture to answer; infinite if it was given up.
    :param took: from its last sending to the answer; infinite if it was given up.
    :param load: frames per second and replica of its pool when it was sent, as the controller saw.
    :param promised: the completion that the controller predicted, at its routing quantile.
    :param told: the same quantile of what it was told alone: nothing learned, no wait.
    """

    pool: npt.NDArray[np.str_]
    created: Floats
    service: Floats
    latency: Floats
    took: Floats
    load: Floats
    promised: Floats
    told: Floats

    def coverage(self) -> float:
        """Return the share of frames that kept to the promised completion."""
        return float(np.mean(self.took <= self.promised)) if len(self.took) else float('nan')

    def told_coverage(self) -> float:
        """Return the same of what the controller was told, before it learned anything."""
        return float(np.mean(self.took <= self.told)) if len(self.took) else float('nan')


def simulate_answers(
    scenario: Scenario, policy: Policy, seed: int
) -> tuple[RunResult, Answers]:
    """
    Run a policy in a scenario of one dispatcher; return what came out, and its answers.

    A frame given up counts as later than promised if it was out that long; else it says nothing.

    :raises ValueError: for a scenario of several dispatchers.
    """
    if scenario.dispatchers != 1:
        raise ValueError(
            f'scenario {scenario.name} has {scenario.dispatchers} dispatchers: give one of 1')
    workload = workload_of(scenario, seed)
    books = Books(workload, scenario)
    run = Run(scenario, policy, seed, workload, np.arange(len(workload.time)), books)
    watch = _Watch(run.controller, scenario.warm_up, scenario.end)
    run.controller = cast(Controller, watch)
    run.run()
    return books.result(scenario, policy, seed, [run]), watch.answers()


class _Watch:
    """Stands before a controller and takes note of what it does."""

    def __init__(self, controller: Controller, begin: float, end: float) -> None:
        self._controller = controller
        self._begin = begin
        self._end = end
        self._sent: dict[int, tuple[float, float, float]] = {}
        self._rows: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._controller, name)

    def handle(self, now: float, event: Event) -> Sequence[Action]:
        actions = self._controller.handle(now, event)
        for action in actions:
            if isinstance(action, Send):
                self._sent[action.frame.id] = now, *self._told(now, action)
            elif isinstance(action, Ended):
                self._note(now, action)
        return actions

    def _told(self, now: float, send: Send) -> tuple[float, float]:
        """Return the load, and the quantile of service and network as configured."""
        pool = self._controller.pools[send.pool]
        p = self._controller.configuration.limits.routing_quantile
        rate, ready = pool.sent.rate(now), max(1, pool.ready)
        service = pool.config.models[send.model].quantile(p, rate, ready)
        return rate / ready, service + pool.config.network.quantile(p)

    def _note(self, now: float, ended: Ended) -> None:
        sent = self._sent.pop(ended.frame.id, None)
        if sent is None or ended.prediction is None or (
                not self._begin <= ended.frame.captured < self._end):
            return
        at, load, told = sent
        answered = ended.outcome is Outcome.ANSWERED
        promised = ended.prediction.completion
        if answered or now - at > promised:
            self._rows.append((
                ended.pool, ended.frame.captured, ended.service if answered else np.nan,
                ended.latency if answered else np.inf, now - at if answered else np.inf, load,
                promised, told))

    def answers(self) -> Answers:
        """Return what was noted."""
        pool, *numbers = zip(*self._rows) if self._rows else [()] * 8
        return Answers(np.array(pool, np.str_), *(np.array(n, np.float64) for n in numbers))
