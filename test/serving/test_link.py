"""The emulated link's delays."""

from __future__ import annotations

import asyncio
import time

from laimr_ros.serving.link import EmulatedLink
import numpy as np
import pytest


def test_mean_and_variation_are_those_asked_for():
    link = EmulatedLink(0.06, 0.5, seed=1)
    samples = np.array([link.sample() for _ in range(20_000)])
    assert samples.mean() == pytest.approx(0.06, rel=0.02)
    assert samples.std() / samples.mean() == pytest.approx(0.5, rel=0.05)
    assert samples.min() > 0.0


def test_no_variation_and_no_link():
    assert EmulatedLink(0.06).sample() == pytest.approx(0.06)
    assert EmulatedLink(0.0, 0.5).sample() == 0.0


def test_the_seed_decides():
    first, second = EmulatedLink(0.1, 0.3, 7), EmulatedLink(0.1, 0.3, 7)
    assert [first.sample() for _ in range(5)] == [second.sample() for _ in range(5)]


@pytest.mark.parametrize('rtt, cv', [(-1, 0), (float('nan'), 0), (1, -1), (float('inf'), 0)])
def test_wrong_numbers(rtt, cv):
    with pytest.raises(ValueError, match='emulated_rtt'):
        EmulatedLink(rtt, cv)


def test_half_the_time_is_one_way():
    async def measure():
        began = time.monotonic()
        await EmulatedLink(0.2).pass_half(0.2)
        return time.monotonic() - began

    assert 0.09 < asyncio.run(measure()) < 0.19
