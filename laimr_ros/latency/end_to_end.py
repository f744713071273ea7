"""Wait, service and network put together: the quantile of one frame's whole time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
import math

from laimr_ros.latency.decay import Discipline
from laimr_ros.latency.model import Network, ServiceModel
from laimr_ros.latency.queueing import mean_wait, wait_quantile, wait_tail
from laimr_ros.latency.search import fewest, largest
from laimr_ros.latency.sums import sum_quantile

_MOST_REPLICAS = 100_000
_MOST_RATE = 1e9


@dataclass(frozen=True)
class Parts:
    """
    Where the time goes, in seconds.

    :param wait: in front of the replicas.
    :param service: in a replica.
    :param network: on the way there and back.
    """

    wait: float
    service: float
    network: float

    @property
    def total(self) -> float:
        """Return the sum."""
        return self.wait + self.service + self.network


@dataclass(frozen=True)
class LatencyModel:
    """
    One model on one pool, from end to end.

    A quantile is that of each part at a third of the error each, added: the union bound, which
    needs no independence and is usually far too careful; or, if the parts are taken to be
    independent of each other, that of their sum.

    :param service: service time, by rate and replicas.
    :param network: round trip of the pool.
    :param discipline: how frames find a replica.
    :param ca2: squared coefficient of variation of the gaps between frames.
    :param max_in_flight: frames sent to one replica at a time; with one, the replica idles while
        its answer travels, so that the round trip counts as occupancy.
    :param independent: whether to take wait, service and network as independent.
    """

    service: ServiceModel
    network: Network = field(default_factory=Network)
    discipline: Discipline = Discipline.POOLED
    ca2: float = 1.0
    max_in_flight: int = 1
    independent: bool = False

    def occupancy(self, rate: float, replicas: int) -> float:
        """Return the mean time in seconds that a frame keeps the next one from a replica."""
        mean = self.service.mean(rate, replicas)
        return max(mean, (mean + self.network.mean) / self.max_in_flight)

    def parts(self, p: float, rate: float, replicas: int) -> Parts:
        """
        Return what adds up to the union bound of the ``p`` quantile; never no number.

        :param p: quantile, 0 to 1 exclusive.
        :param rate: frames per second over all replicas.
        :param replicas: their number.
        """
        part = 1.0 - (1.0 - p) / 3.0
        service = self.service.quantile(part, rate, replicas)
        if not service < math.inf:
            return Parts(math.inf, math.inf, self.network.quantile(part))
        return Parts(
            wait_quantile(
                part, rate, self.occupancy(rate, replicas), replicas, ca2=self.ca2,
                cs2=self.service.cv ** 2, discipline=self.discipline),
            service, self.network.quantile(part))

    def quantile(self, p: float, rate: float, replicas: int) -> float:
        """Return the ``p`` quantile of the whole time in seconds; infinite when saturated."""
        if not self.independent:
            return self.parts(p, rate, replicas).total
        service = self.service.mean(rate, replicas)
        if not service < math.inf:
            return math.inf
        alpha, eta = wait_tail(
            rate, self.occupancy(rate, replicas), replicas, ca2=self.ca2,
            cs2=self.service.cv ** 2, discipline=self.discipline)
        return sum_quantile(
            p, alpha, eta, service, self.service.cv, self.network.mean, self.network.cv)

    def mean(self, rate: float, replicas: int) -> float:
        """Return the mean of the whole time in seconds; infinite when saturated."""
        service = self.service.mean(rate, replicas)
        if not service < math.inf:
            return math.inf
        wait = mean_wait(
            rate, self.occupancy(rate, replicas), replicas, ca2=self.ca2,
            cs2=self.service.cv ** 2, discipline=self.discipline)
        return wait + service + self.network.mean

    def g_lambda(self, replicas: int, p: float | None = None) -> Callable[[float], float]:
        """Return the time in seconds by rate, at fixed replicas; the mean without ``p``."""
        if p is None:
            return lambda rate: self.mean(rate, replicas)
        quantile = p
        return lambda rate: self.quantile(quantile, rate, replicas)

    def g_replicas(self, rate: float, p: float | None = None) -> Callable[[int], float]:
        """Return the time in seconds by replicas, at a fixed rate; the mean without ``p``."""
        if p is None:
            return lambda replicas: self.mean(rate, replicas)
        quantile = p
        return lambda replicas: self.quantile(quantile, rate, replicas)

    def replicas_needed(
        self, slo: float, rate: float, p: float = 0.99, *, most: int = _MOST_REPLICAS
    ) -> int | None:
        """
        Return the fewest replicas with the ``p`` quantile within the SLO.

        :param slo: in seconds.
        :param rate: frames per second.
        :param most: largest number to consider.
        :return: None if ``most`` are not enough.
        """
        latency = self.g_replicas(rate, p)
        return fewest(lambda replicas: latency(replicas) <= slo, 1, most)

    def rate_allowed(self, slo: float, replicas: int, p: float = 0.99) -> float:
        """
        Return the largest rate in frames/s with the ``p`` quantile within the SLO; 0 for none.

        :param slo: in seconds.
        :param replicas: their number.
        """
        latency = self.g_lambda(replicas, p)
        if not latency(0.0) <= slo:
            return 0.0
        alone = self.occupancy(0.0, replicas)
        most = replicas / alone if alone > 0.0 else _MOST_RATE
        return largest(lambda rate: latency(rate) <= slo, most)
