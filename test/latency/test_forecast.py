"""Test the upper forecast against the rate that came."""

from __future__ import annotations

from collections.abc import Callable

from arrival_streams import stream
from laimr_ros.latency.arrivals import Arrivals
from laimr_ros.latency.forecast import RateForecast
import pytest

LEAD = 3.0


def forecasts(kind: str, until: float = 600.0) -> tuple[float, float, float]:
    """
    Return how good forecasts were: of three seeds together.

    :return: the share that covered the true rate, forecast over true rate on average, and the
        share that was not significantly exceeded, as the forecast itself counts it.
    """
    asked, covered, over, own = 0, 0, 0.0, 0.0
    for seed in (1, 2, 3):
        rate, times = stream(kind, seed, until)
        arrivals = Arrivals()
        ask = 30.0
        for now in times:
            while ask < now:
                upper, future = arrivals.upper(ask, LEAD), rate(ask + LEAD)
                asked += 1
                covered += upper >= future
                over += upper / future
                ask += 0.5
            arrivals.add(now)
        own += arrivals.coverage / 3.0
    return covered / asked, over / asked, own


@pytest.mark.parametrize(('kind', 'coverage', 'cost'), [
    # 0.95 is aimed at; readings of one window are one observation, so 0.03 is noise.
    ('poisson', 0.92, 1.30),
    ('slow poisson', 0.90, 1.65),
    ('fast poisson', 0.90, 1.12),
    ('periodic robots', 0.99, 1.10),
    ('bounded pareto', 0.89, 1.45),
    # Nobody foresees a step or a switch: what is left to miss is the lead and the delay.
    ('steps', 0.92, 1.70),
    ('mmpp', 0.92, 2.00),
    # Sawtooth and sine: the rise is followed with a delay.
    ('ramp', 0.78, 1.70),
    ('sine', 0.84, 1.80),
])
def test_coverage_of_the_true_future_rate(
    kind: str, coverage: float, cost: float, record_property: Callable[[str, object], None]
) -> None:
    covered, over, own = forecasts(kind)
    record_property('coverage', round(covered, 3))
    record_property('forecast_over_true', round(over, 2))
    print(f'{kind}: coverage {covered:.3f}, forecast/true {over:.2f}, own count {own:.3f}')
    assert covered >= coverage
    assert over <= cost
    # Significant misses are what the forecast itself keeps at 5 %.
    assert own >= 0.92


@pytest.mark.parametrize('kind', ['poisson', 'bounded pareto', 'steps', 'sine', 'mmpp'])
def test_it_covers_more_than_the_point_forecast(kind: str) -> None:
    rate, times = stream(kind, 2, 500.0)
    arrivals = Arrivals()
    upper, point, ask = 0, 0, 30.0
    for now in times:
        while ask < now:
            future = rate(ask + LEAD)
            upper += arrivals.upper(ask, LEAD) >= future
            point += arrivals.forecast(ask, LEAD) >= future
            ask += 0.5
        arrivals.add(now)
    assert upper > point


def test_a_step_is_covered_within_two_seconds() -> None:
    arrivals = Arrivals()
    now = 0.0
    while now < 60.0:
        now += 1.0 / 3.0
        arrivals.add(now)
    begun = now
    while arrivals.upper(now, LEAD) < 9.0:
        now += 1.0 / 9.0
        arrivals.add(now)
    assert now - begun < 2.0


def test_no_traffic_needs_nothing_and_the_bound_is_bounded() -> None:
    forecast = RateForecast()
    assert forecast.upper(0.0, 5.0, ((0.0, 2.0), (0.0, 8.0), (0.0, 30.0))) == 0.0
    rising = ((20.0, 2.0), (10.0, 8.0), (2.0, 30.0))
    assert forecast.upper(0.0, 1e6, rising) == 40.0


def test_steady_traffic_is_averaged_long_and_a_change_is_followed() -> None:
    forecast = RateForecast()
    steady = forecast.upper(0.0, 3.0, ((7.0, 2.0), (6.2, 8.0), (6.0, 30.0)))
    assert 6.0 < steady < 7.5
    changed = forecast.upper(0.0, 3.0, ((15.0, 2.0), (7.0, 8.0), (5.0, 30.0)))
    assert changed > 15.0
    fallen = forecast.upper(0.0, 3.0, ((0.5, 2.0), (6.0, 8.0), (9.0, 30.0)))
    assert fallen < 9.0


def test_misses_widen_it_and_hits_narrow_it_again() -> None:
    forecast = RateForecast()
    windows = ((6.0, 2.0), (6.0, 8.0), (6.0, 30.0))
    before = forecast.upper(0.0, 0.0, windows)
    now = 0.0
    for _ in range(40):
        forecast.upper(now, 0.0, windows)
        now += 1.0
        forecast.review(now, 15.0, 8.0)
    assert 1.3 < forecast.factor <= 2.0
    assert forecast.coverage < 0.5
    assert before < forecast.upper(now, 0.0, windows) <= 12.0
    for _ in range(1000):
        forecast.upper(now, 0.0, windows)
        now += 1.0
        forecast.review(now, 6.0, 8.0)
    assert forecast.factor == 1.0


def test_forecasts_that_nobody_could_check_are_dropped() -> None:
    forecast = RateForecast()
    windows = ((6.0, 2.0), (6.0, 8.0), (6.0, 30.0))
    for k in range(1000):
        forecast.upper(2.0 * k, 1e5, windows)
    assert len(forecast._pending) <= 128
    forecast.review(1e9, 100.0, 8.0)
    assert (forecast.forecasts, forecast.coverage, len(forecast._pending)) == (0, 1.0, 0)
