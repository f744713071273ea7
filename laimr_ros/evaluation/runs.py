"""Runs of an experiment: over the cores, kept as they end, taken up again where they stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
import hashlib
import json
import math
import multiprocessing
from pathlib import Path
from typing import Any, Protocol

from laimr_ros.evaluation.comparison import POLICIES
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.scenario_files import load_scenario
from laimr_ros.simulation.scenarios import Scenario

#: A run as kept: what it was of, and its numbers.
Row = dict[str, Any]


class RunError(RuntimeError):
    """A run cannot be done here; the message says why and what to do."""


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
        return key_of(self, self._scenario(), self._policy())

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
    tasks: Sequence[Run], kept: Path, workers: int,
    progress: Callable[[int, int], None] = lambda done, of: None
) -> list[Row]:
    """
    Return the rows of all tasks, in their order.

    :param kept: file of JSON lines; runs found in it are not run again, new ones are appended.
    :param workers: processes.
    :param progress: told how many runs are done, of how many.
    """
    keys = [task.key() for task in tasks]
    rows = {row['key']: row for row in _read(kept)}
    missing = [task for task, key in zip(tasks, keys) if key not in rows]
    progress(len(tasks) - len(missing), len(tasks))
    if missing:
        kept.parent.mkdir(parents=True, exist_ok=True)
        # A last line that was cut short must not swallow the next one.
        text = kept.read_text() if kept.exists() else ''
        with kept.open('a') as file:
            if text and not text.endswith('\n'):
                file.write('\n')
            for row in _results(missing, workers):
                rows[row['key']] = row
                file.write(json.dumps(plain(row)) + '\n')
                file.flush()
                progress(sum(key in rows for key in keys), len(tasks))
    return [rows[key] for key in keys]


def plain(value: Any) -> Any:
    """Return a value with infinities as text and NaN as null, which JSON has no numbers for."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ('inf' if value > 0 else '-inf')
    return value


def _results(tasks: Sequence[Run], workers: int) -> Iterator[Row]:
    if workers <= 1:
        yield from (task.run() for task in tasks)
        return
    # Long runs first, so that no core is left with one at the end.
    tasks = sorted(tasks, key=lambda task: -task.weight())
    context = multiprocessing.get_context('spawn')
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(task.run) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def _read(kept: Path) -> Iterator[Row]:
    if not kept.exists():
        return
    for line in kept.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # Cut short when the run was stopped.
        if isinstance(row, dict) and 'key' in row:
            yield {name: value if name == 'measured' else _number(value)
                   for name, value in row.items()}


def _number(value: Any) -> Any:
    if value is None:
        return math.nan
    return float(value) if value in ('inf', '-inf') else value
