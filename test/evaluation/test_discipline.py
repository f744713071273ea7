"""What formulas and dispatcher are held against, and that failing is said."""

from __future__ import annotations

from laimr_ros.evaluation import discipline
from laimr_ros.evaluation.discipline import cells_of, Dispatched, findings, Queue, tasks
from laimr_ros.evaluation.report import write_report
from laimr_ros.evaluation.runs import run_all
import pytest


def _rows(change=lambda row: None):
    """Return rows that are as the formulas say, and a dispatcher that does what it should."""
    rows = []
    for task in tasks([1], None):
        if isinstance(task, Queue):
            row = {'way': task.discipline, 'law': task.law}
        else:
            row = {'way': f'dispatcher: {task.way}', 'law': 'lognormal'}
        row |= {'replicas': task.replicas, 'load': task.load, 'seed': 1, 'mean_wait': 0.0,
                'p99_wait': 0.0, 'alike_mean': 0.5, 'alike_p99': 5.0}
        rows.append(row)
    for row, cell in zip(rows, cells_of(rows)):
        known = row['way'].startswith('dispatcher')
        row['mean_wait'] = 0.5 if known else cell.formula_mean
        row['p99_wait'] = 5.0 if known else cell.formula_p99
        change(row)
    return rows


def _verdicts(rows):
    return {claim.claim: claim.holds for claim in findings(rows).claims}


def test_what_is_as_told_holds_and_a_split_queue_is_not_one():
    for claim, holds in _verdicts(_rows()).items():
        assert holds is ('the formula of one queue says' not in claim), claim


@pytest.mark.parametrize('way', ['pooled', 'dispatcher: laimr'])
@pytest.mark.parametrize('number', ['mean_wait', 'p99_wait'])
def test_one_bad_cell_breaks_the_claim(way, number):
    def change(row):
        if row['way'] == way and row['replicas'] == 8 and row['load'] == 0.9:
            row[number] = 1.2 * (row[number] + 1.0)

    name = f'The dispatcher ({way[12:]})' if way[0] == 'd' else way
    broken = [claim for claim, holds in _verdicts(_rows(change)).items()
              if not holds and 'says' not in claim]
    assert len(broken) == 1
    assert broken[0].startswith(name)


def test_the_right_formula_of_a_split_queue_is_not_that_of_one():
    (cell,) = cells_of([{'way': 'random', 'law': 'exponential', 'replicas': 2, 'load': 0.5,
                         'mean_wait': 1.0, 'p99_wait': 1.0}])
    assert cell.formula_mean == pytest.approx(1.0)  # M/M/1: rho / (1 - rho).
    assert cell.pooled_mean == pytest.approx(0.25 / 0.75)  # M/M/2.


@pytest.mark.parametrize(('way', 'same'), [
    ('overflow', True), ('laimr', True), ('round_robin', True), ('laimr, SLO 1.8 s', False)])
def test_the_dispatcher_is_the_queue_it_is_said_to_be(way, same):
    row = Dispatched(way, 4, 0.9, 1, 300.0).run()
    assert row['alike_p99'] > 0.5
    assert (row['p99_wait'] == pytest.approx(row['alike_p99'])) is same
    assert row['frames'] > 1000


def test_every_cell_is_run_once(monkeypatch):
    keys = [task.key() for task in tasks([1, 2], 5.0)]
    assert len(keys) == len(set(keys))


def test_real_runs_are_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(discipline, '_FRAMES', 2000)
    monkeypatch.setattr(discipline, '_FRAMES_EACH', 100)
    monkeypatch.setattr(discipline, 'REPLICAS', (4, 8))
    rows = run_all(tasks([1], 10.0), tmp_path / 'runs.jsonl', 1)
    page = write_report(tmp_path, 'discipline', 'Discipline', {}, rows, findings(rows))
    assert 'taken for granted' in page.read_text()
    assert (tmp_path / 'p99_wait_lognormal_over_utilisation.png').exists()
