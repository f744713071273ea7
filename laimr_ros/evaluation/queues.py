"""Equal servers simulated without a dispatcher: one queue, or a queue a server, chosen somehow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
import heapq
import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: How a frame finds its server. ``least_predicted``: pushed to the queue whose work, with mean
#: service times for what is not yet known, would end first.
DISCIPLINES = ('pooled', 'round_robin', 'random', 'least_predicted')


def waits(
    discipline: str, arrivals: Floats, services: Floats, servers: int, lots: np.random.Generator
) -> Floats:
    """
    Return how long each frame waits, first come first served in each queue.

    :param discipline: one of :data:`DISCIPLINES`.
    :param arrivals: moments, ascending, in mean service times.
    :param services: of each frame, in mean service times.
    :param lots: for ``random``.
    :raises ValueError: for an unknown discipline.
    """
    if discipline == 'pooled':
        return _pooled(arrivals, services, servers)
    if discipline == 'round_robin':
        return _split(arrivals, services, np.arange(len(arrivals)) % servers, servers)
    if discipline == 'random':
        return _split(arrivals, services, lots.integers(servers, size=len(arrivals)), servers)
    if discipline == 'least_predicted':
        return _least_predicted(arrivals, services, servers)
    raise ValueError(f'discipline {discipline!r} is unknown; use one of {list(DISCIPLINES)}')


def _pooled(arrivals: Floats, services: Floats, servers: int) -> Floats:
    """Kiefer and Wolfowitz: the next frame gets the server that is free first."""
    free_at = [0.0] * servers
    found = []
    for now, service in zip(arrivals.tolist(), services.tolist()):
        begin = max(now, free_at[0])
        found.append(begin - now)
        heapq.heapreplace(free_at, begin + service)
    return np.array(found)


def _split(
    arrivals: Floats, services: Floats, server: npt.NDArray[Any], servers: int
) -> Floats:
    """Lindley: each server by itself."""
    found = np.empty(len(arrivals))
    for number in range(servers):
        own = np.flatnonzero(server == number)
        steps = np.zeros(len(own))
        steps[1:] = services[own[:-1]] - np.diff(arrivals[own])
        walk = np.cumsum(steps)
        found[own] = walk - np.minimum.accumulate(np.minimum(walk, 0.0))
    return found


def _least_predicted(arrivals: Floats, services: Floats, servers: int) -> Floats:
    # Of each server: begin and end of the frames it has, the one being served first.
    queues: list[deque[tuple[float, float]]] = [deque() for _ in range(servers)]
    found = []
    for now, service in zip(arrivals.tolist(), services.tolist()):
        least, chosen = math.inf, queues[0]
        for queue in queues:
            while queue and queue[0][1] <= now:
                queue.popleft()
            if not queue:
                chosen = queue
                break
            # The served one is taken to last its mean, or to end now if it has lasted longer.
            work = len(queue) - 1 + max(0.0, 1.0 - (now - queue[0][0]))
            if work < least:
                least, chosen = work, queue
        begin = chosen[-1][1] if chosen else now
        chosen.append((begin, begin + service))
        found.append(begin - now)
    return np.array(found)


def unit_services(law: str, cv: float) -> Callable[[np.random.Generator, int], Floats]:
    """
    Return what draws service times of mean 1.

    :param law: ``exponential`` or ``lognormal``.
    :param cv: coefficient of variation; used by ``lognormal`` only.
    :raises ValueError: for an unknown law.
    """
    if law == 'exponential':
        return lambda random, count: random.exponential(1.0, count)
    if law != 'lognormal':
        raise ValueError(f"law {law!r} is unknown; use 'exponential' or 'lognormal'")
    variance = math.log1p(cv * cv)
    return lambda random, count: random.lognormal(-0.5 * variance, math.sqrt(variance), count)
