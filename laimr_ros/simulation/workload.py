"""When frames arrive, and what chance has in store for each: common to every policy."""

from __future__ import annotations

from collections.abc import Callable
import csv
from dataclasses import dataclass
import functools
import math
from pathlib import Path

from laimr_ros.cameras.arrivals import Arrivals, ArrivalSpec
from laimr_ros.simulation.scenarios import Modulation, Scenario, ScenarioError
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
# What each stream of random numbers is for; part of its seed.
_PHASE, _MODULATION, _SERVICE, _NETWORK, _START_UP, _FAULT = range(6)
# From here on streams belong to further sendings of a frame.
_FURTHER = 100

# Mean intervals that robots have been on for when the run begins.
_INTERVALS_BEFORE = 20


def generator(seed: int, purpose: int, number: int = 0) -> np.random.Generator:
    """Return the random numbers for one purpose and, say, one robot."""
    return np.random.default_rng([seed % 2 ** 32, purpose, number])


@dataclass(frozen=True)
class Workload:
    """
    All frames of one run in the order of their arrival.

    :param time: in seconds.
    :param robot: its number.
    :param lane: index into ``lanes``.
    :param count: how many frames its robot had sent before: a frame's name, with the robot.
    """

    time: Floats
    robot: npt.NDArray[np.int32]
    lane: npt.NDArray[np.int16]
    count: npt.NDArray[np.int32]
    lanes: tuple[str, ...]

    def of_lane(self, lane: str) -> list[float]:
        """Return the times of one lane's frames."""
        times: list[float] = self.time[self.lane == self.lanes.index(lane)].tolist()
        return times


def make_workload(scenario: Scenario, seed: int) -> Workload:
    """
    Return the frames of a scenario, the same for the same seed.

    :raises ScenarioError: if a recorded trace cannot be read.
    """
    if scenario.arrivals.process == 'trace':
        return read_trace(Path(scenario.arrivals.trace), scenario)
    warp = _warp(scenario.modulation, scenario.end, seed)
    operational_end = warp.operational(scenario.end)
    mean = scenario.robots / scenario.rate
    spec = ArrivalSpec(
        scenario.arrivals.process, 1.0 / mean, scenario.arrivals.jitter,
        scenario.arrivals.pareto_shape, scenario.arrivals.pareto_ratio)
    phases = generator(seed, _PHASE).random(scenario.robots)
    times = []
    for robot in range(scenario.robots):
        arrivals = Arrivals(spec, seed * 1_000_003 + robot)
        # Switched on long ago, one after another: at 0 each is somewhere in an interval, and
        # the short ones do not come first.
        begin = (float(phases[robot]) - _INTERVALS_BEFORE) * mean
        own = []
        while (at := begin + arrivals.next()) < operational_end:
            if at >= 0.0:
                own.append(at)
        times.append(np.sort(np.array(own, np.float64)))
    lanes = _lanes_of_robots(scenario)
    return _merge(
        [warp.real(own) for own in times], lanes, tuple(scenario.lanes))


def _lanes_of_robots(scenario: Scenario) -> list[int]:
    """Return each robot's lane, in proportion to the shares, spread evenly over the robots."""
    shares = np.array([lane.share for lane in scenario.lanes.values()], np.float64)
    shares /= shares.sum()
    given = np.zeros(len(shares))
    lanes = []
    for robot in range(1, scenario.robots + 1):
        lane = int(np.argmax(shares * robot - given))
        given[lane] += 1
        lanes.append(lane)
    return lanes


def _merge(times: list[Floats], lanes: list[int], names: tuple[str, ...]) -> Workload:
    time = np.concatenate(times) if times else np.empty(0)
    robot = np.repeat(np.arange(len(times), dtype=np.int32), [len(t) for t in times])
    count = (np.concatenate([np.arange(len(t), dtype=np.int32) for t in times])
             if times else np.empty(0, np.int32))
    order = np.lexsort((robot, time))
    return Workload(
        time[order], robot[order], np.asarray(lanes, np.int16)[robot[order]], count[order],
        names)


class _Warp:
    """
    Real time against operational time, in which robots have their usual rate.

    :param starts: when each factor begins to hold, in seconds; the first is 0.
    """

    def __init__(self, starts: Floats, factors: Floats) -> None:
        self._starts = starts
        self._factors = factors
        self._passed = np.concatenate(([0.0], np.cumsum(np.diff(starts) * factors[:-1])))

    def operational(self, real: float) -> float:
        k = int(np.searchsorted(self._starts, real, 'right')) - 1
        return float(self._passed[k] + (real - self._starts[k]) * self._factors[k])

    def real(self, operational: Floats) -> Floats:
        # Of those with the same operational start, the last is the one in which time passes.
        k = np.searchsorted(self._passed, operational, 'right') - 1
        return np.asarray(
            self._starts[k] + (operational - self._passed[k]) / self._factors[k])


def _warp(modulation: Modulation, end: float, seed: int) -> _Warp:
    starts, factors = [0.0], [1.0]
    if modulation.kind == 'surge':
        # In the middle of each period, so that warm-up sees one as well.
        begin = 0.5 * (modulation.period - modulation.duration)
        while begin < end:
            starts += [begin, begin + modulation.duration]
            factors += [modulation.factor, 1.0]
            begin += modulation.period
    elif modulation.kind == 'mmpp':
        random = generator(seed, _MODULATION)
        states = len(modulation.factors)
        stays = np.array(modulation.sojourns)
        state = int(random.choice(states, p=stays / stays.sum()))
        factors[0] = modulation.factors[state]
        now = 0.0
        while now < end:
            now += float(random.exponential(modulation.sojourns[state]))
            state = (state + 1) % states
            starts.append(now)
            factors.append(modulation.factors[state])
    if not all(factor > 0.0 for factor in factors):
        raise ScenarioError(f'modulation has a factor of {min(factors)}: give numbers > 0')
    return _Warp(np.array(starts), np.array(factors))


def read_trace(path: Path, scenario: Scenario) -> Workload:
    """
    Return recorded frames up to the scenario's end.

    :param path: CSV file with columns ``time_s, robot, lane``.
    :raises ScenarioError: if it cannot be used.
    """
    names = tuple(scenario.lanes)
    robots: dict[str, int] = {}
    times: list[list[float]] = []
    lanes: list[int] = []
    try:
        with path.open(newline='') as stream:
            for number, row in enumerate(csv.DictReader(stream), 2):
                at, robot, lane = float(row['time_s']), row['robot'], row['lane']
                if lane not in names:
                    raise ScenarioError(
                        f'{path}, line {number}: lane {lane!r} is unknown; there are '
                        f'{list(names)}')
                if not 0.0 <= at < scenario.end:
                    continue
                if robot not in robots:
                    robots[robot] = len(robots)
                    times.append([])
                    lanes.append(names.index(lane))
                elif lanes[robots[robot]] != names.index(lane):
                    raise ScenarioError(
                        f'{path}, line {number}: robot {robot!r} changes its lane; give it '
                        'one')
                times[robots[robot]].append(at)
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ScenarioError):
            raise
        raise ScenarioError(
            f'trace {str(path)!r} cannot be read ({error!r}); give a CSV file with columns '
            'time_s, robot, lane') from None
    if not times:
        raise ScenarioError(f'trace {str(path)!r} has no frame before {scenario.end:g} s')
    return _merge([np.sort(np.array(t)) for t in times], lanes, names)


def write_trace(workload: Workload, path: Path) -> None:
    """Write frames so that :func:`read_trace` reads them."""
    with path.open('w', newline='') as stream:
        writer = csv.writer(stream)
        writer.writerow(['time_s', 'robot', 'lane'])
        for at, robot, lane in zip(
                workload.time.tolist(), workload.robot.tolist(), workload.lane.tolist()):
            writer.writerow([repr(at), robot, workload.lanes[lane]])


class Draws:
    """
    What chance has in store for each sending of each frame.

    Standard normal numbers, functions of seed, robot, the frame's count and how often it was
    sent before; and of seed, pool and count for start-ups. So they are the same whatever the
    policy does.
    """

    def __init__(self, seed: int) -> None:
        """Draw nothing yet."""
        self._seed = seed
        self._streams: dict[tuple[int, int], tuple[list[float], np.random.Generator]] = {}

    def service(self, robot: int, count: int, sending: int = 0) -> float:
        """Return the number that decides a service time."""
        return self._number(_SERVICE + _FURTHER * sending, robot, count)

    def network(self, robot: int, count: int, sending: int = 0) -> float:
        """Return the number that decides a round trip."""
        return self._number(_NETWORK + _FURTHER * sending, robot, count)

    def start_up(self, pool: int, count: int) -> float:
        """Return the number that decides a start-up time."""
        return self._number(_START_UP, pool, count)

    def _number(self, purpose: int, number: int, index: int) -> float:
        key = (purpose, number)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = ([], generator(self._seed, purpose, number))
        values, random = stream
        while index >= len(values):
            values.extend(random.standard_normal(256).tolist())
        return values[index]


def fault_times(seed: int, fault: int, every: float, end: float) -> list[tuple[float, float]]:
    """Return when replicas die, and a number from 0 to 1 that says which one."""
    random = generator(seed, _FAULT, fault)
    times = []
    now = float(random.exponential(every))
    while now < end:
        times.append((now, float(random.random())))
        now += float(random.exponential(every))
    return times


def lognormal_law(mean: float, cv: float) -> Callable[[float], float]:
    """Return what turns standard normal numbers into lognormal ones of a mean."""
    if mean <= 0.0 or cv <= 0.0:
        return lambda normal: mean
    variance = math.log1p(cv * cv)
    shift, sigma = math.log(mean) - 0.5 * variance, math.sqrt(variance)
    return lambda normal: math.exp(shift + sigma * normal)


@functools.lru_cache(maxsize=4)
def _cached(scenario: _Hashable, seed: int) -> Workload:
    return make_workload(scenario.scenario, seed)


class _Hashable:
    """A scenario as a key: equal if what decides its frames is equal."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._key = (
            scenario.arrivals, scenario.modulation, scenario.rate, scenario.robots, scenario.end,
            tuple((name, lane.share) for name, lane in scenario.lanes.items()))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashable) and other._key == self._key


def workload_of(scenario: Scenario, seed: int) -> Workload:
    """Return the frames of a scenario as :func:`make_workload` does, the last few remembered."""
    return _cached(_Hashable(scenario), seed)
