"""Frozen parameters are held against tuned ones, scenario by scenario, and by coverage."""

from __future__ import annotations

from laimr_ros.evaluation import frozen
from laimr_ros.evaluation.frozen import calibrated, findings, grid, PLACES, tasks, Unchanged
from laimr_ros.evaluation.tuning import GRIDS
import pytest


def _rows(**changed):
    rows = []
    for task in tasks([1, 2], 60.0):
        row = {'scenario': task.scenario, 'rate': task.rate, 'variant': task.variant,
               'seed': task.seed, 'measured': 60.0, 'quantile': 0.95, 'coverage': 0.95,
               'told_coverage': 0.8, 'on_time': 0.97, 'p99_s': 1.5, 'replica_seconds': 100.0,
               'settings_used': {'slo_margin': 0.9}, 'models_told': {'edge, m': 'a law'}}
        if (task.scenario, task.variant) == ('surge', 'frozen'):
            row |= changed
        rows.append(row)
    return rows


def _broken(**changed):
    return [claim.claim for claim in findings(_rows(**changed)).claims if not claim.holds]


def test_every_place_and_variant_is_run():
    made = tasks([1, 2], None)
    assert len({task.key() for task in made}) == len(made) == 2 * 3 * len(PLACES)


def test_claims_hold_where_they_should():
    assert _broken() == []
    assert _broken(on_time=0.961, coverage=0.941) == []


@pytest.mark.parametrize(('changed', 'text'), [
    ({'on_time': 0.959}, 'late more than'), ({'replica_seconds': 126.0}, 'x the cost'),
    ({'coverage': 0.939}, 'keep to the completion')])
def test_what_is_missed_is_said_to_be(changed, text):
    (claim,) = _broken(**changed)
    assert claim.startswith('surge 4/s')
    assert text in claim


def test_settings_are_of_the_grid_that_tunes_them():
    name, values = next(iter(GRIDS['laimr'].items()))
    assert grid() == [((name, value),) for value in values]


def test_a_trace_tells_the_service_times_of_its_pools(monkeypatch):
    calibrated.cache_clear()
    monkeypatch.setattr(frozen, '_TRACE_S', 120.0)
    laws = calibrated()
    calibrated.cache_clear()
    # On the idle instance 0.73 s, and 0.41 s in the cloud; on a full one twice as much.
    assert 'edge' in laws
    for name in laws:
        idle = {'edge': 0.73, 'cloud': 0.73 / 1.8}[name]
        assert 0.98 * idle < laws[name]['yolov5m'].mean(2.0, 4) < 2.0 * idle


def test_a_run_tells_what_it_was_told_and_how_well_it_kept_it(monkeypatch):
    calibrated.cache_clear()
    monkeypatch.setattr(frozen, '_TRACE_S', 60.0)
    monkeypatch.setattr(frozen, '_TUNED_S', 10.0)
    rows = [Unchanged('edge_only', 2.0, variant, 1, 20.0).run() for variant in frozen.VARIANTS]
    calibrated.cache_clear()
    frozen.tuned.cache_clear()
    assert all(0.5 < row['coverage'] <= 1.0 for row in rows)
    assert [bool(row['models_told']) for row in rows] == [True, True, False]
    assert 'yolov5m' in next(iter(rows[0]['models_told']))
