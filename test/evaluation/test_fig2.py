"""The calibration of Fig. 2 is held against the paper by its own intervals."""

from __future__ import annotations

from laimr_ros.evaluation import fig2
from laimr_ros.evaluation.fig2 import findings, SERIES, Sweep, tasks
from laimr_ros.evaluation.runs import RunError
from laimr_ros.evaluation.sweep import PAPER
from laimr_ros.latency.model import PowerLaw
import pytest

EDGE = 'edge, 8 replicas'


def _mean(series, rate):
    law = PowerLaw(**{'alpha': 0.7, 'beta': 1.0, **series.expected})
    return law.mean(rate, 2)


def _rows(changed=None, seeds=(1, 2, 3, 4, 5)):
    rows = []
    for series, content in SERIES.items():
        for seed in seeds:
            row = {'series': series, 'seed': seed, 'measured': 60.0, 'worst_error': 0.04,
                   'mean_error': 0.01, 'told': 2, 'held_out_error': 0.02,
                   'points': [[2.0, rate, 60.0 * rate, _mean(content, rate),
                               1.1 * _mean(content, rate)] for rate in (1.0, 2.0)]}
            for name in ('alpha', 'beta', 'gamma'):
                value = content.expected.get(name, 1.0)
                row |= {name: value, f'{name}_low': value - 0.01, f'{name}_high': value + 0.01}
            if changed is not None and series == EDGE:
                row |= changed(seed)
            rows.append(row)
    return rows


def _broken(changed=None):
    return [claim.claim for claim in findings(_rows(changed)).claims if not claim.holds]


def test_every_series_and_seed_is_run_once():
    made = tasks([1, 2], None)
    assert len({task.key() for task in made}) == len(made) == 2 * len(SERIES)


def test_all_claims_hold_where_they_should():
    assert _broken() == []


def test_a_parameter_outside_of_most_intervals_does_not_agree():
    assert _broken(lambda seed: {'beta_low': 1.3 if seed > 3 else 1.0}) == [
        f"{EDGE}: fitted beta agrees with the paper's 1.29"]
    # One of five is what an interval of 95 % may miss by bad luck.
    assert _broken(lambda seed: {'beta_low': 1.3 if seed > 4 else 1.0}) == []


def test_an_interval_that_holds_anything_agrees_with_nothing():
    assert _broken(lambda seed: {'gamma_low': 0.5, 'gamma_high': 2.5}) == [
        f"{EDGE}: fitted gamma agrees with the paper's 1.49"]


def test_a_curve_that_is_off_is_no_fit():
    (claim,) = _broken(lambda seed: {'worst_error': 0.06})
    assert claim.startswith(f'{EDGE}: one power law')


def test_chart_has_points_and_curve_with_intervals():
    found = findings(_rows())
    ((_, axes),) = found.charts.items()
    assert set(axes) <= set(found.columns)
    for name, series in SERIES.items():
        low, high = [row for row in found.table if row[0] == name]
        mean = _mean(series, 1.0)
        assert low[1:5] == [0.5, *[pytest.approx(mean)] * 3]
        assert high[1] == 1.0
        curve = [row for row in found.table if row[0] == f'{name}, fitted']
        assert curve[0][2] == pytest.approx(1.1 * mean)
        assert found.curves[f'{name}, fitted'] == name


def test_a_law_that_is_off_as_it_is_is_said_to_be():
    (claim,) = _broken(lambda seed: {'points': [[2.0, 1.0, 60.0, 1.06 * _mean(
        SERIES[EDGE], 1.0), 1.0]]})
    assert 'parameters is within' in claim


def test_the_paper_s_law_is_found_again():
    row = Sweep("the paper's law", 1, 300.0).run()
    for name in ('alpha', 'beta', 'gamma'):
        assert row[f'{name}_low'] <= getattr(PAPER, name) <= row[f'{name}_high']
    assert row['told'] == 2
    assert row['worst_error'] < 0.1


def test_a_shared_instance_is_no_function_of_the_rate_of_a_replica():
    # One and eight replicas at the same rate each: the instance is an eighth or much more full.
    row = Sweep('edge, 1 to 8 replicas', 1, 30.0).run()
    assert row['worst_error'] > 2 * fig2.CLOSE


def test_too_few_frames_to_fit_to_are_told():
    with pytest.raises(RunError, match='in 1 s, .*; measure for longer'):
        Sweep(EDGE, 1, 1.0).run()
