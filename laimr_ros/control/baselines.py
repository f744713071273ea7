"""
Other people's ways to say how many replicas one pool should have, to compare with.

Each rule looks at what is measured of its pool and returns a number; bounds, and what goes to
the next pool, are the planner's business (:mod:`laimr_ros.control.baseline_planner`). Nothing
here predicts latency. Sources, as of their present documentation: the Horizontal Pod Autoscaler
of Kubernetes, Ray Serve's autoscaler, Knative's pod autoscaler (KPA).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
import itertools
import math
from typing import Protocol

from laimr_ros.latency.staffing import square_root_servers

# Errors of the last digit must not cost a replica.
_ROUND = 1e-9


@dataclass(slots=True)
class Reading:
    """
    What is measured of one pool now.

    :param desired: what was last asked for.
    :param ready: replicas that serve.
    :param ongoing: frames on its replicas, and those that wait for it.
    :param busy: share of its ready replicas that have a frame.
    :param rate: frames per second it is there for.
    :param service: mean service time of an idle replica, in seconds.
    :param slo: deadline of its frames in seconds.
    :param latencies: received-to-answered times of the last so many seconds.
    """

    now: float
    desired: int
    ready: int
    ongoing: float
    busy: float
    rate: float
    service: float
    slo: float
    latencies: Callable[[float], Sequence[float]]


class Rule(Protocol):
    """Says how many replicas one pool should have; called a few times a second."""

    def wish(self, reading: Reading) -> int:
        """Return the number wished for, bounds left aside."""


class Recent:
    """Samples of the last ``span`` seconds."""

    __slots__ = ('_samples', '_span', '_sum')

    def __init__(self, span: float) -> None:
        """Start empty."""
        self._span = span
        self._samples: deque[tuple[float, float]] = deque()
        self._sum = 0.0

    def add(self, now: float, value: float) -> None:
        """Take a sample."""
        samples = self._samples
        samples.append((now, value))
        self._sum += value
        while samples[0][0] < now - self._span:
            self._sum -= samples.popleft()[1]

    def mean(self) -> float:
        """Return their mean; 0 without samples."""
        return self._sum / len(self._samples) if self._samples else 0.0

    def most(self) -> float:
        """Return the largest one; minus infinity without samples."""
        return max((value for _, value in self._samples), default=-math.inf)


class Autoscaler:
    """
    The rule of the Horizontal Pod Autoscaler: ``ceil(ready * metric / target)``.

    :param period: time between decisions, in seconds.
    :param tolerance: a ratio this near to 1 changes nothing.
    :param stabilisation: the largest recommendation of so many seconds counts.
    :param up_pods: most replicas added within 15 s,
    :param up_share: or, if more, this part of those there were.
    """

    _LIMIT_PERIOD = 15.0

    def __init__(
        self, period: float, *, tolerance: float = 0.1, stabilisation: float = 300.0,
        up_pods: int = 4, up_share: float = 1.0
    ) -> None:
        """Start without a past."""
        self._period = period
        self._tolerance = tolerance
        self._stabilisation = stabilisation
        self._up_pods = int(up_pods)
        self._up_share = up_share
        self._due = -math.inf
        self._recommended: deque[tuple[float, int]] = deque()
        self._added: deque[tuple[float, int]] = deque()

    def due(self, now: float) -> bool:
        """Return whether it is time to decide, and take note of it."""
        if now < self._due - _ROUND:
            return False
        self._due = now + self._period
        return True

    def decide(self, now: float, desired: int, ready: int, ratio: float) -> int:
        """
        Return the number to ask for.

        :param ratio: metric over target.
        """
        wish = desired
        if abs(ratio - 1.0) > self._tolerance + _ROUND:
            wish = math.ceil(ratio * ready - _ROUND)
        recommended = self._recommended
        recommended.append((now, wish))
        while recommended[0][0] < now - self._stabilisation:
            recommended.popleft()
        if wish < desired:
            wish = min(desired, max(number for _, number in recommended))
        added = self._added
        while added and added[0][0] <= now - self._LIMIT_PERIOD:
            added.popleft()
        if wish > desired:
            before = desired - sum(number for _, number in added)
            most = max(before + self._up_pods, math.ceil(before * (1.0 + self._up_share)))
            wish = max(desired, min(wish, most))
            added.append((now, wish - desired))
        return wish


class ReactiveLatency:
    """
    The autoscaler's rule on the measured P95 latency.

    :param target: of the P95, as a part of the SLO.
    :param window: of the measurement, in seconds.
    """

    def __init__(
        self, target: float = 0.8, window: float = 30.0, period: float = 5.0,
        tolerance: float = 0.1, stabilisation: float = 300.0
    ) -> None:
        """Start without a past."""
        self._target = target
        self._window = window
        self._scaler = Autoscaler(period, tolerance=tolerance, stabilisation=stabilisation)

    def wish(self, reading: Reading) -> int:
        """Return the number wished for."""
        if not self._scaler.due(reading.now):
            return reading.desired
        values = sorted(reading.latencies(self._window))
        if not values and reading.ongoing > 0.0:
            return reading.desired  # Nothing measured yet: no news means no change.
        p95 = values[math.ceil(0.95 * len(values)) - 1] if values else 0.0
        return self._scaler.decide(
            reading.now, reading.desired, reading.ready, p95 / (self._target * reading.slo))


class CpuUtilisation:
    """
    The autoscaler's rule on CPU utilisation, averaged as its metrics are.

    :param target: share of its CPUs that a replica is to use.
    """

    def __init__(
        self, target: float = 0.8, period: float = 15.0, tolerance: float = 0.1,
        stabilisation: float = 300.0
    ) -> None:
        """Start without a past."""
        self._target = target
        self._busy = Recent(period)
        self._scaler = Autoscaler(period, tolerance=tolerance, stabilisation=stabilisation)

    def wish(self, reading: Reading) -> int:
        """Return the number wished for."""
        self._busy.add(reading.now, reading.busy)
        if not self._scaler.due(reading.now):
            return reading.desired
        return self._scaler.decide(
            reading.now, reading.desired, reading.ready, self._busy.mean() / self._target)


class QueueLength:
    """
    Ray Serve's rule: frames in the house over ``target``, once that has been so for a while.

    :param target: frames a replica is to have, waiting ones included.
    :param window: over which they are averaged, in seconds.
    :param up_delay: for so many seconds more were wished for before more are asked for,
    :param down_delay: and fewer.
    """

    def __init__(
        self, target: float = 2.0, window: float = 30.0, up_delay: float = 30.0,
        down_delay: float = 600.0
    ) -> None:
        """Start without a past."""
        self._target = target
        self._ongoing = Recent(window)
        self._delays = {1: up_delay, -1: down_delay}
        self._direction = 0
        self._since = 0.0
        self._wish: int | None = None

    def wish(self, reading: Reading) -> int:
        """Return the number wished for."""
        if self._wish is None:
            self._wish = reading.desired
        self._ongoing.add(reading.now, reading.ongoing)
        wish = math.ceil(self._ongoing.mean() / self._target - _ROUND)
        direction = (wish > self._wish) - (wish < self._wish)
        if direction != self._direction:
            self._direction, self._since = direction, reading.now
        if direction and reading.now - self._since >= self._delays[direction] - _ROUND:
            self._direction = 0
            self._wish = wish
        return self._wish


class TwoWindow:
    """
    Knative's rule: concurrency over a stable window, over a tenth of it in a panic.

    In a panic (the short window asks for ``panic_threshold`` times what is ready) the number
    never falls; the panic ends a stable window after its last cause.

    :param target: frames a replica is to have at a time.
    :param down_rate: at most divided by this in one decision.
    """

    def __init__(
        self, target: float = 0.7, stable: float = 60.0, panic_share: float = 0.1,
        panic_threshold: float = 2.0, up_rate: float = 1000.0, down_rate: float = 2.0,
        period: float = 2.0
    ) -> None:
        """Start without a past."""
        self._target = target
        self._stable_window = stable
        self._stable, self._panic = Recent(stable), Recent(stable * panic_share)
        self._threshold = panic_threshold
        self._up_rate, self._down_rate = up_rate, down_rate
        self._period = period
        self._due = -math.inf
        self._panic_until = -math.inf
        self._panic_most = 0
        self._wish = 0

    def wish(self, reading: Reading) -> int:
        """Return the number wished for."""
        now = reading.now
        self._stable.add(now, reading.ongoing)
        self._panic.add(now, reading.ongoing)
        if now >= self._due - _ROUND:
            self._due = now + self._period
            self._wish = self._decide(now, reading)
        return self._wish

    def _decide(self, now: float, reading: Reading) -> int:
        ready = max(1, reading.ready)
        stable, panic = (
            min(math.ceil(window.mean() / self._target - _ROUND), math.ceil(ready * self._up_rate))
            for window in (self._stable, self._panic))
        least = math.floor(ready / self._down_rate)
        stable, panic = max(stable, least), max(panic, least)
        if panic / ready >= self._threshold:
            if now >= self._panic_until:
                self._panic_most = reading.desired
            self._panic_until = now + self._stable_window
        if now < self._panic_until:
            self._panic_most = max(self._panic_most, panic, stable)
            return self._panic_most
        return stable


class _DownLater:
    """Up at once, down to the most that was wished for within ``span`` seconds."""

    def __init__(self, span: float) -> None:
        self._recent = Recent(span)

    def settle(self, now: float, wish: int) -> int:
        """Return the number to ask for."""
        self._recent.add(now, wish)
        return int(self._recent.most())


class CapacityRule:
    """
    The plain capacity rule: ``ceil(rate * service / utilisation)``.

    :param utilisation: that a replica is to have.
    :param stabilisation: the most wished for within so many seconds counts.
    """

    def __init__(self, utilisation: float = 0.7, stabilisation: float = 30.0) -> None:
        """Start without a past."""
        self._utilisation = utilisation
        self._later = _DownLater(stabilisation)

    def wish(self, reading: Reading) -> int:
        """Return the number wished for."""
        load = reading.rate * reading.service
        return self._later.settle(
            reading.now, math.ceil(load / self._utilisation - _ROUND))


class SquareRootStaffing:
    """
    Square-root staffing (Halfin and Whitt 1981).

    :param waiting: share of frames that may wait.
    :param stabilisation: the most wished for within so many seconds counts.
    """

    def __init__(self, waiting: float = 0.1, stabilisation: float = 30.0) -> None:
        """Start without a past."""
        self._waiting = waiting
        self._later = _DownLater(stabilisation)

    def wish(self, reading: Reading) -> int:
        """Return the number wished for."""
        return self._later.settle(
            reading.now, square_root_servers(reading.rate * reading.service, self._waiting))


class Foreseen:
    """
    How many frames of one lane will be in service at a time, were each to begin on its arrival.

    :param arrivals: times in seconds, ascending.
    :param service: that a frame occupies a replica of the lane's first pool for, in seconds.
    :param before: of them, those that the pools before this one have replicas for.
    :param ratio: this pool's service time over the first one's.
    """

    def __init__(
        self, arrivals: Sequence[float], service: float, before: int = 0, ratio: float = 1.0
    ) -> None:
        """Work the future out."""
        events = sorted(
            [(at, 1) for at in arrivals] + [(at + service, -1) for at in arrivals])
        self._times = [at for at, _ in events]
        self._counts = list(itertools.accumulate(change for _, change in events))
        self._before = before
        self._ratio = ratio

    def most(self, begin: float, end: float) -> float:
        """Return the most replicas of this pool that are busy at a time in a span."""
        first = max(0, bisect_left(self._times, begin) - 1)
        last = bisect_left(self._times, end)
        most = max(self._counts[first:last], default=0)
        return max(0, most - self._before) * self._ratio


class Clairvoyant:
    """
    Knows every arrival to come: no rule without a crystal ball does better.

    Enough replicas for all that will be in service at a time until one asked for now is ready.

    :param lanes: that the pool may serve.
    :param hold: looks so far beyond the start-up, in seconds.
    :param slack: replicas for each frame in service.
    """

    def __init__(
        self, lanes: Sequence[Foreseen], start_up: float, *, hold: float = 5.0,
        slack: float = 1.0
    ) -> None:
        """Look at these lanes."""
        self._lanes = lanes
        self._lead = start_up + hold
        self._slack = slack

    def wish(self, reading: Reading) -> int:
        """Return the number wished for."""
        most = sum(lane.most(reading.now, reading.now + self._lead) for lane in self._lanes)
        return math.ceil(self._slack * most - _ROUND)


class Fixed:
    """Changes nothing."""

    def wish(self, reading: Reading) -> int:
        """Return what there is."""
        return reading.desired


#: The rules by name, those that must be told the future left out.
RULES: dict[str, Callable[..., Rule]] = {
    'reactive_latency': ReactiveLatency,
    'cpu_hpa': CpuUtilisation,
    'queue_length': QueueLength,
    'two_window': TwoWindow,
    'capacity_rule': CapacityRule,
    'sqrt_staffing': SquareRootStaffing,
    'fixed': Fixed,
}
