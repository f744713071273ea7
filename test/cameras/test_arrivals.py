"""Arrival processes against their laws."""

from __future__ import annotations

from laimr_ros.cameras.arrivals import Arrivals, ArrivalSpec, bounded_pareto_mean
import numpy as np
import numpy.typing as npt
import pytest
from scipy import integrate, stats


def intervals(spec: ArrivalSpec, count: int, seed: int = 7) -> npt.NDArray[np.float64]:
    """Return the first intervals of a process, in seconds."""
    arrivals = Arrivals(spec, seed)
    return np.diff([arrivals.next() for _ in range(count + 1)])


def test_periodic_is_exact() -> None:
    arrivals = Arrivals(ArrivalSpec('periodic', 8.0))
    assert [arrivals.next() for _ in range(4)] == pytest.approx([0.0, 0.125, 0.25, 0.375])


def test_jitter_moves_frames_and_keeps_the_beat() -> None:
    arrivals = Arrivals(ArrivalSpec('periodic', 10.0, jitter=0.3), seed=1)
    times = np.array([arrivals.next() for _ in range(5000)])
    off = times - np.arange(5000) / 10.0
    assert off[0] == 0.0
    assert np.abs(off).max() <= 0.03
    assert off.std() == pytest.approx(0.03 / np.sqrt(3), rel=0.05)
    assert (np.diff(times) > 0).all()


def test_poisson_intervals_are_exponential() -> None:
    gaps = intervals(ArrivalSpec('poisson', 4.0), 5000)
    assert stats.kstest(gaps, stats.expon(scale=0.25).cdf).pvalue > 0.01


@pytest.mark.parametrize(('shape', 'ratio'), [(0.7, 50.0), (1.0, 100.0), (1.5, 100.0), (3.0, 9.0)])
def test_bounded_pareto_law(shape: float, ratio: float) -> None:
    # scipy's truncated Pareto is the independent witness, for the mean and for the law.
    law = stats.truncpareto(shape, ratio)
    density = integrate.quad(lambda x: x * law.pdf(x), 1.0, ratio)[0]
    assert bounded_pareto_mean(shape, ratio) == pytest.approx(density, rel=1e-6)
    rate = 5.0
    gaps = intervals(ArrivalSpec('bounded_pareto', rate, pareto_shape=shape, pareto_ratio=ratio),
                     20000)
    assert gaps.max() / gaps.min() <= ratio * (1 + 1e-9)
    lower = 1.0 / rate / density
    assert stats.kstest(gaps / lower, law.cdf).pvalue > 0.01
    standard_error = law.std() * lower / np.sqrt(gaps.size)
    assert gaps.mean() == pytest.approx(1.0 / rate, abs=4 * standard_error)


def test_seed_decides() -> None:
    spec = ArrivalSpec('bounded_pareto', 5.0)
    assert (intervals(spec, 50, seed=3) == intervals(spec, 50, seed=3)).all()
    assert (intervals(spec, 50, seed=3) != intervals(spec, 50, seed=4)).any()


def test_the_law_can_change_on_the_way() -> None:
    arrivals = Arrivals(ArrivalSpec('periodic', 10.0))
    first = [arrivals.next() for _ in range(5)]
    arrivals.change(ArrivalSpec('periodic', 2.0), 0.45)
    later = [arrivals.next() for _ in range(3)]
    assert first == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert later == pytest.approx([0.95, 1.45, 1.95])


@pytest.mark.parametrize('process', ['periodic', 'poisson', 'bounded_pareto'])
def test_burst_multiplies_the_rate_while_it_lasts(process: str) -> None:
    spec = ArrivalSpec(process, 50.0, burst_start_s=100.0, burst_duration_s=60.0,
                       burst_factor=3.0)
    arrivals = Arrivals(spec, seed=5)
    times = np.array([arrivals.next() for _ in range(20000)])
    assert (np.diff(times) >= 0).all()

    def rate(begin: float, end: float) -> float:
        return float(((times >= begin) & (times < end)).sum() / (end - begin))

    tolerance = 0.002 if process == 'periodic' else 0.1
    assert rate(0, 100) == pytest.approx(50.0, rel=tolerance)
    assert rate(100, 160) == pytest.approx(150.0, rel=tolerance)
    assert rate(160, 260) == pytest.approx(50.0, rel=tolerance)


@pytest.mark.parametrize(('change', 'words'), [
    ({'process': 'posson'}, ('posson', 'poisson')),
    ({'rate_hz': 0.0}, ('rate_hz', '0.0')),
    ({'rate_hz': float('nan')}, ('rate_hz', 'nan')),
    ({'jitter': 0.9}, ('jitter', '0.9', '0.5')),
    ({'pareto_ratio': 1.0}, ('pareto_ratio', '1.0')),
    ({'burst_duration_s': -1.0}, ('burst_duration_s', '-1.0')),
])
def test_impossible_laws_are_refused(change: dict[str, object], words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as caught:
        ArrivalSpec(**change)  # type: ignore[arg-type]
    assert all(word in str(caught.value) for word in words)
