"""
A first-come-first-served queue simulated step by step, the judge of the formulas.

Independent of ``laimr_ros``: Lindley's recursion for one server, the Kiefer-Wolfowitz recursion
for several. Distributions are given by their squared coefficient of variation alone, in the way
that is usual in the literature (Whitt, The Queueing Network Analyzer, 1983): gamma below 1 (an
Erlang where ``1 / scv`` is whole), exponential at 1, two-phase hyper-exponential with balanced
means above 1; or log-normal throughout, to see what more than two moments matter.
"""

from __future__ import annotations

from dataclasses import dataclass
import heapq
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
DISCIPLINES = ('pooled', 'random', 'round_robin')


def draw(
    random: np.random.Generator, scv: float, count: int, family: str = 'usual'
) -> Floats:
    """Return samples with mean 1 and a given squared coefficient of variation."""
    if scv == 0.0:
        return np.ones(count)
    if family == 'lognormal':
        variance = math.log1p(scv)
        return random.lognormal(-0.5 * variance, math.sqrt(variance), count)
    if scv == 1.0:
        return random.exponential(1.0, count)
    if scv < 1.0:
        return random.gamma(1.0 / scv, scv, count)
    share = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
    quick = random.random(count) < share
    return random.exponential(1.0, count) * np.where(
        quick, 0.5 / share, 0.5 / (1.0 - share))


def single_waits(gaps: Floats, services: Floats) -> Floats:
    """
    Return the waits in front of one server (Lindley 1952).

    :param gaps: from the arrival before to this one, shape (n,).
    :param services: service time of each, shape (n,).
    """
    steps = np.empty(len(gaps))
    steps[0] = 0.0
    np.subtract(services[:-1], gaps[1:], out=steps[1:])
    walk = np.cumsum(steps)
    return walk - np.minimum.accumulate(np.minimum(walk, 0.0))


def pooled_waits(gaps: Floats, services: Floats, servers: int) -> Floats:
    """Return the waits in front of several servers that share one queue."""
    if servers == 1:
        return single_waits(gaps, services)
    free_at = [0.0] * servers
    waits = []
    keep = waits.append
    replace = heapq.heapreplace
    for now, service in zip(np.cumsum(gaps).tolist(), services.tolist()):
        wait = free_at[0] - now
        if wait > 0.0:
            keep(wait)
            replace(free_at, free_at[0] + service)
        else:
            keep(0.0)
            replace(free_at, now + service)
    return np.array(waits)


def waits(
    random: np.random.Generator, discipline: str, servers: int, rho: float, ca2: float,
    cs2: float, count: int, family: str = 'usual',
) -> tuple[Floats, Floats]:
    """
    Simulate one run, empty at first; the warm-up is left to the caller.

    :param discipline: ``pooled``; ``random`` or ``round_robin`` for a queue a server.
    :param count: arrivals altogether; of a split stream, those at one server.
    :return: waits and service times, in mean service times.
    """
    services = draw(random, cs2, count, family)
    if discipline == 'pooled':
        gaps = draw(random, ca2, count, family) / (rho * servers)
        return pooled_waits(gaps, services, servers), services
    if discipline == 'round_robin':
        gaps = draw(random, ca2, count * servers, family) / (rho * servers)
        gaps = gaps.reshape(count, servers).sum(axis=1)
    else:
        gaps = draw(random, ca2, count * servers, family) / (rho * servers)
        moments = np.cumsum(gaps)[random.random(count * servers) < 1.0 / servers]
        gaps = np.diff(moments, prepend=0.0)
        services = services[:len(gaps)] if len(gaps) <= count else np.concatenate(
            [services, draw(random, cs2, len(gaps) - count, family)])
    return single_waits(gaps, services), services


@dataclass(frozen=True)
class Estimate:
    """
    What a simulation says, in mean service times.

    :param wait: its 0.99 quantile (or another).
    :param error: half of its 95 % confidence interval, from batches.
    :param sojourn: the same quantile of wait and service together.
    :param mean: mean wait.
    :param mean_error: half of the mean wait's 95 % confidence interval.
    :param waiting: share of arrivals that wait at all.
    """

    wait: float
    error: float
    sojourn: float
    mean: float
    mean_error: float
    waiting: float


def estimate(
    discipline: str, servers: int, rho: float, ca2: float, cs2: float, *, count: int,
    batches: int = 10, seed: int = 1, p: float = 0.99, family: str = 'usual',
) -> Estimate:
    """Simulate ``batches`` independent runs, the first tenth of each left out."""
    quantiles, means, sojourns, waiting = [], [], [], []
    for batch in range(batches):
        random = np.random.default_rng([seed, batch])
        wait, service = waits(
            random, discipline, servers, rho, ca2, cs2, count // batches, family)
        wait, service = wait[len(wait) // 10:], service[len(wait) // 10:]
        quantiles.append(float(np.quantile(wait, p)))
        sojourns.append(float(np.quantile(wait + service, p)))
        means.append(float(wait.mean()))
        waiting.append(float((wait > 1e-12).mean()))
    # Student's t at 97.5 % for 10 batches is 2.26; for other numbers it is near enough.
    half = 2.26 / math.sqrt(batches)
    return Estimate(
        float(np.mean(quantiles)), half * float(np.std(quantiles, ddof=1)),
        float(np.mean(sojourns)), float(np.mean(means)), half * float(np.std(means, ddof=1)),
        float(np.mean(waiting)))
