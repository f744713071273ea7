"""A report says in every file what was found."""

from __future__ import annotations

import csv
import json
import math

from laimr_ros.evaluation.findings import Claim, Findings
from laimr_ros.evaluation.report import write_report

ROWS = [{'policy': 'one', 'rate': 1.0, 'p99_s': 1.5}, {'policy': 'one', 'rate': 2.0,
                                                       'p99_s': math.inf}]
FOUND = Findings(
    [Claim('sooner <than> before', '2 s', '3 s', False)], ['policy', 'rate', 'P99 s'],
    [['one', 1.0, 1.5], ['one', 2.0, math.inf]], {'P99 over rate': ('rate', 'P99 s')}, ['a note'])


def test_files(tmp_path):
    page = write_report(tmp_path, 'table', 'A title', {'seeds': [1, 2]}, ROWS, FOUND)
    text = page.read_text()
    assert 'does not hold' in text
    assert 'sooner &lt;than&gt; before' in text
    assert 'data:image/png;base64,' in text
    assert (tmp_path / 'p99_over_rate.png').read_bytes().startswith(b'\x89PNG')

    def refuse(word):
        raise AssertionError(f'{word} is no JSON')

    result = json.loads((tmp_path / 'result.json').read_text(), parse_constant=refuse)
    assert result['seeds'] == [1, 2]
    assert result['runs'][1]['p99_s'] == 'inf'
    assert result['claims'][0]['holds'] is False
    with (tmp_path / 'runs.csv').open() as file:
        assert [row['p99_s'] for row in csv.DictReader(file)] == ['1.5', 'inf']


def test_what_is_undecided_is_no_verdict(tmp_path):
    found = Findings([Claim('a claim', '2 s', '3 s', None)], ['policy'], [['one']])
    page = write_report(tmp_path, 'table', 'A title', {}, ROWS, found).read_text()
    assert 'undecided' in page
    assert 'hold<' not in page and 'holds<' not in page
    assert json.loads((tmp_path / 'result.json').read_text())['claims'][0]['holds'] is None


def test_columns_of_all_runs(tmp_path):
    rows = [ROWS[0], {**ROWS[1], 'settings': {'target': 0.5}}]
    write_report(tmp_path, 'table', 'A title', {}, rows, FOUND)
    with (tmp_path / 'runs.csv').open() as file:
        assert [row['settings'] for row in csv.DictReader(file)] == ['', "{'target': 0.5}"]


def test_a_curve_is_drawn_with_its_points(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    drawn = []
    plot = Axes.plot
    monkeypatch.setattr(
        Axes, 'plot', lambda self, *args, **style: drawn.append(style) or plot(
            self, *args, **style))
    found = Findings((), ['series', 'x', 'y'], [['seen', 1.0, 1.0], ['fitted', 1.0, 1.1]],
                     {'A chart': ('x', 'y')}, curves={'fitted': 'seen'})
    write_report(tmp_path, 'curve', 'A title', {}, ROWS, found)
    points, curve = drawn
    assert points['linestyle'] == 'none'
    assert 'marker' not in curve
    assert curve['color'] is not None
