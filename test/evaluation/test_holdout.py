"""Held-out frames judge a fit: its means, and the share of them under its quantiles."""

from __future__ import annotations

import math

from laimr_ros.evaluation import holdout
from laimr_ros.evaluation.holdout import findings, FORMS, HoldOut, PLACES, sensible, tasks
from laimr_ros.evaluation.kept import plain
from laimr_ros.evaluation.runs import RunError
import pytest


def _rows(**changed):
    rows = []
    for task in tasks([1, 2, 3], 60.0):
        row = {'world': task.world, 'split': task.split, 'form': task.form, 'seed': task.seed,
               'measured': 60.0, 'frames': 100.0, 'error': 0.05, 'error_5': 0.05, 'error_6': -0.05,
               'error_saturated': math.nan, 'whole_sharp_99': 0.97, 'whole_careful_99': 0.99,
               'whole_ratio': 1.1}
        for p in holdout.QUANTILES:
            row |= {f'coverage_{100 * p:g}': p, f'seen_{100 * p:g}': p}
        if (task.world, task.split) == ('edge', 'rates'):
            row |= changed
        rows.append(row)
    return rows


def _broken(**changed):
    return [claim.claim for claim in findings(_rows(**changed)).claims if not claim.holds]


def test_every_run_is_another():
    made = tasks([1, 2], None)
    assert len({task.key() for task in made}) == len(made)
    assert {task.world for task in made} == set(PLACES)
    assert {task.form for task in made} == set(FORMS)


def test_what_cannot_be_fitted_or_tested_is_left_out():
    assert not sensible('law', 'rates', 'exact')
    assert not sensible('drift', 'rates', 'told')
    assert sensible('edge', 'rates', 'exact')


def test_claims_hold_where_they_should():
    assert _broken() == []


@pytest.mark.parametrize(('changed', 'broken'), [
    ({'error': 0.11}, ['mean service times within 10%']),
    ({'coverage_99': 0.979}, ['98% of service times', 'corrected online']),
    ({'whole_careful_99': 0.9}, ['98% of whole times'])])
def test_what_is_missed_is_said_to_be(changed, broken):
    found = _broken(**changed)
    assert len(found) == len(broken)
    for claim, text in zip(found, broken):
        assert claim.startswith('edge, rates above')
        assert text in claim


def test_a_law_that_bends_is_told_from_its_lower_rates():
    row = HoldOut('law', 'rates', 'power', 1, 200.0).run()
    assert row['error'] < 0.06
    assert row['error_1'] != row['error_1']
    assert row['coverage_99'] == pytest.approx(0.99, abs=0.015)
    assert row['coverage_50'] == pytest.approx(0.5, abs=0.15)
    assert plain(row)['whole_ratio'] is None


def test_what_changes_after_the_fit_is_missed_unless_learned():
    told, online = (HoldOut('drift', 'time', form, 1, 100.0).run() for form in ('told', 'online'))
    assert told['coverage_99'] < 0.7 < 0.9 < online['coverage_99']
    assert told['error'] > 0.3 > online['error']


def test_rates_beyond_what_replicas_serve_are_apart():
    row = HoldOut('edge', 'rates', 'told', 1, 40.0).run()
    assert row['error_saturated'] == pytest.approx(abs(row['error_6']))
    assert row['error'] == pytest.approx(abs(row['error_5']))
    assert 0.0 < row['whole_sharp_99'] <= row['whole_careful_99'] <= 1.0


def test_too_few_frames_to_fit_to_are_told():
    with pytest.raises(RunError, match='in 1 s, .*; measure for longer'):
        HoldOut(next(iter(PLACES)), 'time', 'told', 1, 1.0).run()
