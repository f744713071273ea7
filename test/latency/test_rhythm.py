"""Test the rhythm of one robot and of many together."""

from __future__ import annotations

from itertools import pairwise
import random
import sys

from laimr_ros.latency.rhythm import Rhythm, superposed_ca2
import pytest


def rhythm_of(gaps: list[float]) -> tuple[Rhythm, float]:
    """Return a rhythm after these gaps, and the time of the last frame."""
    rhythm, now = Rhythm(), 100.0
    rhythm.add(now)
    for gap in gaps:
        now += gap
        rhythm.add(now)
    return rhythm, now


@pytest.mark.parametrize('rate', [0.2, 1.0, 30.0])
def test_rate_of_a_beat(rate: float) -> None:
    rhythm, now = rhythm_of([1.0 / rate] * 50)
    assert rhythm.rate(now) == pytest.approx(rate)
    assert rhythm.rate(now + 0.9 / rate) == pytest.approx(rate)


@pytest.mark.parametrize('jitter', [0.0, 0.05, 0.2])
def test_a_camera_with_jitter_is_periodic_within_ten_frames(jitter: float) -> None:
    rng = random.Random(1)
    times = [k + rng.uniform(-jitter, jitter) for k in range(11)]
    rhythm, _ = rhythm_of([b - a for a, b in pairwise(times)])
    assert rhythm.periodic
    assert rhythm.scv < 0.4


def test_poisson_robots_are_rarely_taken_for_periodic() -> None:
    rng = random.Random(2)
    taken, total = 0, 0.0
    for _ in range(400):
        rhythm, _ = rhythm_of([rng.expovariate(2.0) for _ in range(40)])
        taken += rhythm.periodic
        total += rhythm.scv
    assert taken <= 12
    assert total / 400 == pytest.approx(1.0, abs=0.15)


def test_a_skipped_frame_does_not_make_it_irregular() -> None:
    rhythm, _ = rhythm_of(([0.5] * 19 + [1.0]) * 3)
    assert rhythm.periodic


def test_start_and_silence() -> None:
    rhythm = Rhythm()
    assert (rhythm.rate(5.0), rhythm.scv, rhythm.periodic) == (0.0, 1.0, False)
    rhythm.add(10.0)
    assert rhythm.rate(10.0) == 1.0
    assert rhythm.rate(15.0) == pytest.approx(0.2)
    assert rhythm.rate(20.1) == 0.0
    rhythm, now = rhythm_of([0.5] * 20)
    assert rhythm.rate(now + 1.0) == pytest.approx(2.0)
    assert rhythm.rate(now + 2.0) == pytest.approx(0.5)
    assert rhythm.rate(now + 5.1) == 0.0


def test_a_pause_is_not_part_of_the_rhythm() -> None:
    rhythm, now = rhythm_of([0.5] * 20)
    scv = rhythm.scv
    rhythm.add(now + 100.0)
    assert rhythm.rate(now + 100.0) == pytest.approx(2.0)
    assert rhythm.gaps < 20
    for k in range(1, 21):
        rhythm.add(now + 100.0 + 0.25 * k)
    assert rhythm.rate(now + 105.0) == pytest.approx(4.0, rel=0.25)
    assert rhythm.scv < scv + 0.4


def test_frames_at_the_same_instant_are_no_trouble() -> None:
    rhythm, now = rhythm_of([0.0] * 20)
    assert rhythm.rate(now) > 1000.0
    assert 0.0 <= rhythm.scv <= 1.0


def test_ten_thousand_robots_are_small() -> None:
    assert sys.getsizeof(Rhythm()) <= 96
    assert not hasattr(Rhythm(), '__dict__')


def test_superposition_of_one_stream_is_that_stream() -> None:
    assert superposed_ca2([(3.0, 0.2)], 0.5) == pytest.approx(0.2)


def test_many_beats_look_poisson_to_a_light_load_and_regular_to_a_heavy_one() -> None:
    streams = [(1.0, 0.0)] * 50
    values = [superposed_ca2(streams, rho) for rho in (0.1, 0.5, 0.9, 0.99, 1.0)]
    assert values[0] > 0.98
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0.0


def test_superposition_of_poisson_streams_is_poisson_and_none_is_taken_as_such() -> None:
    assert superposed_ca2([(1.0, 1.0), (7.0, 1.0), (0.1, 1.0)], 0.7) == pytest.approx(1.0)
    assert superposed_ca2([], 0.7) == 1.0
    assert superposed_ca2([(0.0, 0.1)], 0.7) == 1.0
