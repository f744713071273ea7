"""Growth is judged by the runs, predictions by their errors."""

from __future__ import annotations

import math

from laimr_ros.evaluation import fig3
from laimr_ros.evaluation.fig3 import findings, forms, predicted, saturation, scenario_of, tasks
from laimr_ros.evaluation.report import write_report
from laimr_ros.evaluation.runs import run_all
from laimr_ros.latency.burstiness import Burstiness
import pytest


def _rows(mean=1.0, tail=1.0, growth=3.0, capacity=1.0):
    """Return rows as predicted by the exact form, but for factors on them."""
    rows = []
    for process in fig3.PROCESSES:
        for replicas in fig3.REPLICAS:
            exact, _ = forms(scenario_of(process, replicas, 1.0, None))
            most = saturation(scenario_of(process, replicas, 1.0, None), exact) * capacity
            for rate in (*fig3.RATES, fig3.OVERLOAD):
                scenario = scenario_of(process, replicas, rate, None)
                seen = fig3.measured_burstiness(scenario)
                told = predicted(scenario, seen)
                own = 1.0 + rate ** growth
                rows.append({
                    'process': process, 'replicas': replicas, 'rate': rate, 'seed': 1,
                    'measured': 600.0, 'frames': rate * 600.0,
                    'dropped': max(0.0, rate - most) * 600.0 if rate == fig3.OVERLOAD else 0.0,
                    'mean_s': told.mean * mean, 'p95_s': 1.0, 'p99_s': told.p99 * tail,
                    'robot_mean_s': own, 'robot_p95_s': own, 'robot_p99_s': own})
    return rows


def _verdicts(rows):
    return {claim.claim: claim.holds for claim in findings(rows).claims}


def _of(verdicts, text):
    return {holds for claim, holds in verdicts.items() if text in claim}


def test_what_is_as_predicted_holds():
    verdicts = _verdicts(_rows())
    for text in ('One robot', 'by the exact form within', 'union bound', 'by the exact form'):
        assert _of(verdicts, text) == {True}
    # A power law in the rate of a replica is another function.
    assert _of(verdicts, "mean by the paper's fit within") == {False}


@pytest.mark.parametrize(('changed', 'broken'), [
    ({'mean': 1.2}, 'mean by the exact form'), ({'tail': 1.2}, 'P99 by the exact form'),
    ({'tail': 2.0}, 'union bound'), ({'growth': 0.5}, 'One robot'),
    ({'capacity': 1.1}, 'Saturation by the exact form')])
def test_what_is_not_is_said(changed, broken):
    assert _of(_verdicts(_rows(**changed)), broken) == {False}


def test_a_straight_line_is_not_super_linear():
    assert _of(_verdicts(_rows(growth=1.0)), 'One robot') == {False}


def test_saturation_is_where_the_mean_becomes_infinite():
    scenario = scenario_of('poisson', 4, 1.0, None)
    for form in forms(scenario):
        most = saturation(scenario, form)
        occupied = form.mean(most, 4) + scenario.pools['edge'].network.mean
        assert most * occupied == pytest.approx(4.0, rel=1e-6)


def test_burstiness_of_poisson_arrivals_is_one():
    seen = fig3.measured_burstiness(scenario_of('poisson', 4, 5.0, None))
    assert seen.ca2() == pytest.approx(1.0, abs=0.2)
    assert Burstiness().ca2() == 1.0


def test_every_cell_is_run_once():
    keys = [task.key() for task in tasks([1, 2], 5.0)]
    assert len(keys) == len(set(keys)) == 2 * 4 * (12 * 2 + 1)


def test_real_runs_are_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(fig3, 'REPLICAS', (4,))
    monkeypatch.setattr(fig3, 'RATES', (0.5, 1.0, 2.0))
    rows = run_all(tasks([1], 60.0), tmp_path / 'runs.jsonl', 1)
    found = findings(rows)
    write_report(tmp_path, 'fig3', 'Growth', {}, rows, found)
    assert (tmp_path / 'p99_s_poisson_over_arrival_rate.png').exists()
    # Four replicas, about 1 s a frame when all are busy: an independent look at the capacity.
    over = next(row for row in rows if row['rate'] == fig3.OVERLOAD)
    busy = 0.73 * (1.0 + 0.5 ** 1.49) + 0.004
    assert (over['frames'] - over['dropped']) / 60.0 == pytest.approx(4.0 / busy, rel=0.1)
    assert all(math.isfinite(row['mean_s']) for row in rows if row['rate'] < 3.0)
