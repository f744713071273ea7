"""An emulated network link, for demonstrations and tests on one machine."""

from __future__ import annotations

import asyncio
import math

import numpy as np


class EmulatedLink:
    """
    Delay what passes by half a round-trip time each way, without occupying anybody.

    Round-trip times are log-normal. Calls are delayed independently, so that a short delay may
    overtake a long one, as between the streams of several robots.

    :param rtt_s: mean round-trip time in seconds; 0 for no link.
    :param cv: coefficient of variation (standard deviation over mean); 0 for always the mean.
    :param seed: of the round-trip times; None for others each time.
    :raises ValueError: if a time or a variation is negative or not finite.
    """

    def __init__(self, rtt_s: float, cv: float = 0.0, seed: int | None = None) -> None:
        for name, value in (('emulated_rtt_s', rtt_s), ('emulated_rtt_cv', cv)):
            if not math.isfinite(value) or value < 0.0:
                raise ValueError(f'{name} is {value:g}; give a number that is not negative')
        variance = math.log1p(cv * cv)
        self._sigma = math.sqrt(variance)
        self._mu = math.log(rtt_s) - variance / 2.0 if rtt_s > 0.0 else -math.inf
        self._random = np.random.default_rng(seed)

    def sample(self) -> float:
        """Return the round-trip time of one call in seconds."""
        if self._mu == -math.inf:
            return 0.0
        return math.exp(self._mu + self._sigma * float(self._random.standard_normal()))

    async def pass_half(self, rtt_s: float) -> None:
        """Wait for one way of a round trip."""
        if rtt_s > 0.0:
            await asyncio.sleep(rtt_s / 2.0)
