"""Files of an experiment: result.json, CSV, charts and one HTML page."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
import csv
from dataclasses import asdict
import html
import json
import math
from pathlib import Path
from typing import Any

from laimr_ros.evaluation.findings import Findings
from laimr_ros.evaluation.kept import plain, Row
import yaml

_STYLE = ('body{font:15px sans-serif;max-width:75em;margin:2em auto}'
          'table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.2em .6em}')


def write_report(
    out: Path, name: str, title: str, settings: Mapping[str, Any], rows: Sequence[Row],
    findings: Findings
) -> Path:
    """
    Write all files of an experiment; return the path of the page.

    :param settings: what it was run with, seeds included.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / 'result.json').write_text(json.dumps(plain({
        'experiment': name, 'title': title, **settings,
        'claims': [asdict(claim) for claim in findings.claims],
        'notes': list(findings.notes), 'runs': list(rows)}), indent=1) + '\n')
    with (out / 'runs.csv').open('w', newline='') as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    if findings.tuned is not None:
        (out / 'tuned.yaml').write_text(
            f'# Made by: laimr experiment {name} ({_told(settings)})\n'
            + yaml.safe_dump({policy: dict(values) for policy, values in findings.tuned.items()}))
    charts = [_chart(out / f'{_slug(text)}.png', text, axes, findings)
              for text, axes in findings.charts.items()]
    page = out / 'report.html'
    page.write_text(_page(title, settings, findings, charts))
    return page


def _chart(path: Path, title: str, axes: tuple[str, ...], findings: Findings) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 5.5), layout='constrained')
    FigureCanvasAgg(figure)
    plot = figure.add_subplot()
    colours: dict[str, Any] = {}
    x, y, *ends = (list(findings.columns).index(axis) for axis in axes)
    for series in dict.fromkeys(row[0] for row in findings.table):
        points = sorted(
            (row[x], row[y], *(row[end] for end in ends)) for row in findings.table
            if row[0] == series and math.isfinite(row[x]) and math.isfinite(row[y]))
        if points:
            across, up, *bounds = zip(*points)
            if series in findings.curves:
                plot.plot(across, up, color=colours.get(findings.curves[series]))
                continue
            style = 'none' if series in findings.curves.values() else '-'
            (line,) = plot.plot(across, up, marker='o', linestyle=style, label=series)
            colours[series] = line.get_color()
            if bounds and style == 'none':
                plot.vlines(across, *bounds, color=line.get_color(), alpha=0.5)
            elif bounds:
                low, high = bounds
                plot.fill_between(across, low, high, color=line.get_color(), alpha=0.15)
    plot.set(title=title, xlabel=axes[0], ylabel=axes[1])
    plot.grid(alpha=0.3)
    if plot.lines:
        plot.legend()
    figure.savefig(path, dpi=110)
    return path


def _page(
    title: str, settings: Mapping[str, Any], findings: Findings, charts: Sequence[Path]
) -> str:
    claims = [[claim.claim, claim.paper, claim.ours, claim.verdict] for claim in findings.claims]
    pictures = ''.join(
        '<p><img alt="chart" src="data:image/png;base64,'
        f'{base64.b64encode(chart.read_bytes()).decode()}"></p>' for chart in charts)
    return (
        f'<!doctype html><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<style>{_STYLE}</style><h1>{html.escape(title)}</h1><p>{html.escape(_told(settings))}</p>'
        + ''.join(f'<p>{html.escape(note)}</p>' for note in findings.notes)
        + _table(['claim', 'paper', 'here', ''], claims) + pictures
        + _table(findings.columns, findings.table) + '\n')


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    def line(cells: Sequence[Any], tag: str) -> str:
        texts = (f'{cell:.4g}' if isinstance(cell, float) else str(cell) for cell in cells)
        return '<tr>' + ''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in texts) + '</tr>'

    return ('<table>' + line(columns, 'th') + ''.join(line(row, 'td') for row in rows)
            + '</table>')


def _told(settings: Mapping[str, Any]) -> str:
    return '; '.join(f'{key}: {value}' for key, value in settings.items())


def _slug(text: str) -> str:
    return '_'.join(text.lower().replace(',', '').split())
