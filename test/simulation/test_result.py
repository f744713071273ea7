"""Quantiles over every frame received."""

from __future__ import annotations

from laimr_ros.simulation.result import ANSWERED, ENDINGS, nearest_rank, RunResult
import numpy as np
import pytest


def result_of(latencies: list[float]) -> RunResult:
    """Return a result of frames captured once a second; NaN for one that was dropped."""
    count = len(latencies)
    created = np.arange(count, dtype=np.float64)
    missing = np.isnan(latencies)
    return RunResult(
        'small', 'p', 1.0, 1, ('a', 'b'), ('edge', 'cloud'), (1.0, 3.0), float(count),
        created, created + np.array(latencies),
        np.where(missing, ENDINGS.index('expired'), ANSWERED).astype(np.int8),
        (np.arange(count) % 2).astype(np.int16), np.where(missing, -1, 1).astype(np.int16),
        np.zeros(count, np.int32), ~missing, {'edge': 10.0, 'cloud': 5.0})


def test_a_frame_not_answered_counts_as_later_than_any_answer() -> None:
    result = result_of([0.5, 2.0, 0.7, 4.0, float('nan')])
    assert result.quantile(0.5) == pytest.approx(2.0)
    assert result.quantile(0.8) == pytest.approx(4.0)
    assert result.quantile(0.99) == np.inf
    assert result.answered_quantile(0.99) == pytest.approx(4.0)
    assert result.dropped == 1
    assert result.offload_share == pytest.approx(0.8)
    assert result.cost == 15.0
    # Lane a: 0.5, 0.7 and one missing within 1 s; lane b: 2.0 within 3 s, 4.0 not.
    assert result.on_time() == pytest.approx(0.6)
    assert result.on_time('a') == pytest.approx(2 / 3)
    assert result.on_time('b') == pytest.approx(0.5)
    assert result.quantile(0.5, 'b') == pytest.approx(2.0)


def test_the_summary_has_what_the_experiments_list() -> None:
    summary = result_of([0.5, 2.0, 0.7, 4.0]).summary()
    assert {'p50_s', 'p95_s', 'p99_s', 'max_s', 'iqr_s', 'on_time', 'replica_seconds',
            'offload_share', 'dropped', 'answered_p99_s'} <= set(summary)
    assert summary['iqr_s'] == pytest.approx(2.0 - 0.5)
    assert result_of([0.5, *[float('nan')] * 3]).summary()['iqr_s'] == np.inf


def test_nearest_ranks() -> None:
    values = np.arange(1.0, 101.0)
    assert nearest_rank(values, 0.99) == 99.0
    assert nearest_rank(values, 1.0) == 100.0
    assert nearest_rank(values, 0.0) == 1.0
    assert np.isnan(nearest_rank(np.empty(0), 0.5))
