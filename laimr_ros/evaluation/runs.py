"""Runs of an experiment: over the cores, kept as they end, taken up again where they stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import contextlib
from dataclasses import asdict, dataclass, field
import hashlib
from pathlib import Path
from typing import Any, Protocol

from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.evaluation.crew import CrewError, results
from laimr_ros.evaluation.kept import Kept, Row
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario

__all__ = ['Row', 'Run', 'RunError', 'Task', 'key_of', 'run_all', 'too_short']


class RunError(RuntimeError):
    """A run cannot be done here; the message says why and what to do."""


def too_short(measured: float, error: ValueError) -> RunError:
    """Return what to raise where frames of that many seconds are too few to be fitted to."""
    return RunError(f'not decided: in {measured:g} s, {error}; measure for longer')


class Run(Protocol):
    """A run of an experiment; sent to another process, so it must be possible to pickle."""

    def key(self) -> str:
        """Return what tells this run from any other, whatever it depends on included."""

    def run(self) -> Row:
        """Do it; return its numbers, the key under ``key`` included."""

    def weight(self) -> float:
        """Return what it takes, in any unit: heavy ones are done first."""


def key_of(*parts: Any) -> str:
    """Return a short name of values whose text tells them apart."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Task:
    """
    One simulated run.

    :param rate: of all robots together, in frames per second.
    :param measured: seconds that count; the scenario's own if None.
    :param settings: of the policy, those that differ, as pairs of name and value.
    """

    scenario: str
    rate: float
    policy: str
    seed: int
    measured: float | None = None
    # Not in the text: the policy's own text, which the key is made of too, has them.
    settings: tuple[tuple[str, float], ...] = field(default=(), repr=False)

    def key(self) -> str:
        """Return what tells this run from any other, the text of scenario and policy included."""
        scenario, policy = self._scenario(), self._policy()
        # With what is not said of it: the defaults of the controller.
        return key_of(self, scenario, policy, policy.configuration(scenario))

    def weight(self) -> float:
        """Return the frames it has, more where deciding takes long."""
        return self.rate * (10.0 if self.policy == 'laimr' else 1.0)

    def run(self) -> Row:
        """Simulate; return its numbers."""
        result = simulate(self._scenario(), self._policy(), self.seed)
        told = asdict(self)
        told['settings'] = dict(self.settings)
        if not self.settings:
            del told['settings']
        return {'key': self.key(), **told, **result.summary()}

    def _policy(self) -> Policy:
        return POLICIES[self.policy].tuned(**dict(self.settings))

    def _scenario(self) -> Scenario:
        overrides = {'rate': self.rate}
        if self.measured is not None:
            overrides['measured'] = self.measured
        return load_scenario(self.scenario, overrides)


def run_all(
    tasks: Sequence[Run], kept: Path | Kept, workers: int,
    progress: Callable[[int, int], None] = lambda done, of: None
) -> list[Row]:
    """
    Return the rows of all tasks, in their order.

    :param kept: runs found in it are not run again, new ones are appended as they end.
    :param workers: processes.
    :param progress: told how many runs are done, of how many.
    :raises RunError: if a run cannot be done here.
    """
    if not isinstance(kept, Kept):
        with Kept(kept) as opened:
            return run_all(tasks, opened, workers, progress)
    keys = [task.key() for task in tasks]
    missing = [task for task, key in zip(tasks, keys) if key not in kept.rows]
    if workers > 1:
        # Long runs first, so that no core is left with one at the end.
        missing.sort(key=lambda task: -task.weight())
    done = len(tasks) - len(missing)
    progress(done, len(tasks))
    try:
        # Closed here, so that processes end before anybody is told of an error.
        with contextlib.closing(results(missing, workers)) as ended:
            for row, seconds in ended:
                kept.add(row, seconds)
                done += 1
                progress(done, len(tasks))
    except CrewError as error:
        raise RunError(str(error)) from None
    return [kept.rows[key] for key in keys]
