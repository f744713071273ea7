"""Arrival streams whose true rate is known at every time."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator
import math
import random

Rate = Callable[[float], float]


def poisson(rng: random.Random, rate: Rate, most: float, until: float) -> Iterator[float]:
    """Yield Poisson arrivals of a varying rate, by thinning."""
    now = 0.0
    while True:
        now += rng.expovariate(most)
        if now > until:
            return
        if rng.random() * most < rate(now):
            yield now


def bounded_pareto(rng: random.Random, rate: float, until: float) -> Iterator[float]:
    """Yield a renewal stream of bounded-Pareto gaps: shape 1.5, longest over shortest 100."""
    mean = 3.0 * (1.0 - 100.0 ** -0.5) / (1.0 - 100.0 ** -1.5)
    now = 0.0
    while True:
        u = rng.random()
        now += (1.0 - u * (1.0 - 100.0 ** -1.5)) ** (-1.0 / 1.5) / mean / rate
        if now > until:
            return
        yield now


def beats(rng: random.Random, robots: int, until: float, jitter: float = 0.05) -> list[float]:
    """Return the frames of robots that each send one a second, each in its own phase."""
    phases = [rng.random() for _ in range(robots)]
    return sorted(p + k + rng.uniform(-jitter, jitter)
                  for p in phases for k in range(1, int(until)))


def stream(kind: str, seed: int, until: float) -> tuple[Rate, Iterator[float]]:
    """Return the true rate as a function of time, and arrivals."""
    rng = random.Random(seed)

    def varying(rate: Rate, most: float) -> tuple[Rate, Iterator[float]]:
        return rate, poisson(rng, rate, most, until)

    if kind == 'poisson':
        return varying(lambda _: 6.0, 6.0)
    if kind == 'slow poisson':
        return varying(lambda _: 1.0, 1.0)
    if kind == 'fast poisson':
        return varying(lambda _: 60.0, 60.0)
    if kind == 'bounded pareto':
        return (lambda _: 6.0), bounded_pareto(rng, 6.0, until)
    if kind == 'periodic robots':
        return (lambda _: 6.0), iter(beats(rng, 6, until))
    if kind == 'steps':
        return varying(lambda t: 3.0 if int(t / 100.0) % 2 == 0 else 9.0, 9.0)
    if kind == 'ramp':
        return varying(lambda t: 3.0 + 0.1 * (t % 100.0), 13.0)
    if kind == 'sine':
        return varying(lambda t: 6.0 + 4.0 * math.sin(2.0 * math.pi * t / 120.0), 10.0)
    assert kind == 'mmpp'
    switches = [0.0]
    while switches[-1] < until:
        switches.append(switches[-1] + rng.expovariate(1.0 / 60.0))
    return varying(lambda t: 2.0 if bisect(switches, t) % 2 else 8.0, 8.0)
