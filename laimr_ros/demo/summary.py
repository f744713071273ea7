"""What a demonstration comes to: totals, lanes and pools, from records and status history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import json
import math
from pathlib import Path
from typing import Any

from laimr_ros.training.matching import Tally

# Weights trained for the drawn cells find more than this.
_LOW_RECALL = 0.85

COUNTERS = (
    'received', 'answered', 'superseded', 'expired', 'rejected', 'failed', 'in_flight')


def read_records(path: Path) -> list[dict[str, Any]]:
    """
    Read a records file, one JSON object a line.

    A last line cut short by a kill is left out.

    :raises ValueError: for any other line that is not JSON, naming it.
    """
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except ValueError:
            if number == len(lines):
                break
            raise ValueError(
                f'{path}, line {number} is no JSON: {line[:80]!r}; remove the line') from None
    return records


def quantile(values: Iterable[float], p: float) -> float | None:
    """Return the ``p`` quantile by nearest rank; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(p * len(ordered)) - 1)]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _on_time(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share answered on time of *all* frames received, dropped ones too."""
    return _share(sum(bool(r['on_time']) for r in records), len(records))


def summarise(
    records: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]],
    burst: tuple[float, float] | None, start: float
) -> dict[str, Any]:
    """
    Return the summary of one run.

    Shares on time are of every frame received, so that dropping frames cannot improve them.

    :param records: the dispatcher's records of all frames.
    :param history: the dispatcher's status over time, oldest first; the last is the final one.
    :param burst: begin and end of the burst in seconds after ``start``, if there was one.
    :param start: epoch time of the first frame in seconds.
    """
    final = history[-1] if history else {}
    counters = dict(final.get('counters', {}))
    summary: dict[str, Any] = {name: int(counters.get(name, 0)) for name in COUNTERS}
    summary['adds_up'] = summary['received'] == sum(summary[name] for name in COUNTERS[1:])
    summary['records'] = len(records)

    def in_burst(record: Mapping[str, Any]) -> bool:
        return burst is not None and burst[0] <= record['stamp'] - start < burst[1]

    calm = [r for r in records if not in_burst(r)]
    surge = [r for r in records if in_burst(r)]
    summary['on_time'] = _on_time(records)
    summary['on_time_outside_burst'] = _on_time(calm)
    summary['on_time_in_burst'] = _on_time(surge)

    lanes: dict[str, Any] = {}
    for name, state in final.get('lanes', {}).items():
        mine = [r for r in records if r['lane'] == name]
        answered = [r['latency_s'] for r in mine if r['outcome'] == 'answered']
        lanes[name] = {
            'model': state.get('model'),
            'received': len(mine),
            'p50_s': quantile(answered, 0.5),
            'p99_s': quantile(answered, 0.99),
            'slo_s': state.get('slo_s'),
            'on_time': _on_time(mine),
            'on_time_outside_burst': _on_time([r for r in calm if r['lane'] == name]),
        }
    summary['lanes'] = lanes

    sent = [r for r in records if r.get('pool')]
    pools: dict[str, Any] = {}
    for name in final.get('pools', {}):
        mine = [r for r in sent if r['pool'] == name]
        pools[name] = {
            'frames': len(mine),
            'replicas_max': max(
                (int(s['pools'][name]['ready']) for s in history if name in s.get('pools', {})),
                default=0),
            'offload_share': _share(sum(bool(r['offloaded']) for r in mine), len(sent)),
        }
    summary['pools'] = pools
    return summary


def add_scores(
    summary: dict[str, Any], scores: Mapping[str, Tally], untrained: Sequence[str],
) -> None:
    """
    Add recall and precision to each lane of a summary, of frames answered on time.

    :param scores: counts by lane; lanes without any get None.
    :param untrained: models with random weights or emulated, whose boxes mean nothing.
    """
    for name, lane in summary['lanes'].items():
        tally = Tally() if lane['model'] in untrained else scores.get(name, Tally())
        lane['recall'], lane['precision'] = tally.recall, tally.precision
        lane['objects'] = tally.objects


def as_text(summary: Mapping[str, Any]) -> str:
    """Return the summary for people."""
    def number(value: float | None, form: str = '{:.3f}') -> str:
        return '-' if value is None else form.format(value)

    percent = '{:.1%}'
    parts = ' + '.join(f'{summary[name]} {name.replace("_", " ")}' for name in COUNTERS[1:])
    sign = '=' if summary['adds_up'] else '!='
    lines = [
        f'frames      {summary["received"]} received {sign} {parts}',
        f'on time     {number(summary["on_time"], percent)} of all frames, '
        f'{number(summary["on_time_outside_burst"], percent)} outside the burst',
        '',
        f'{"lane":<14}{"model":<24}{"SLO s":>7}{"P50 s":>8}{"P99 s":>8}{"on time":>9}'
        f'{"recall":>8}{"precision":>11}',
    ]
    for name, lane in summary['lanes'].items():
        lines.append(
            f'{name:<14}{lane["model"] or "-":<24}{number(lane["slo_s"], "{:.2f}"):>7}'
            f'{number(lane["p50_s"]):>8}{number(lane["p99_s"]):>8}'
            f'{number(lane["on_time"], percent):>9}'
            f'{number(lane.get("recall"), percent):>8}'
            f'{number(lane.get("precision"), percent):>11}')
    lines.append('(P50 and P99 are of answered frames, on time is of all frames, recall and '
                 'precision are of frames answered on time)')
    for name, lane in summary['lanes'].items():
        if lane.get('recall') is not None and lane['recall'] < _LOW_RECALL:
            lines.append(f'lane {name} finds little: {lane["recall"]:.1%} of {lane["objects"]} '
                         f'objects; are the weights of {lane["model"]} made for these pictures?')
    lines += ['', f'{"pool":<14}{"frames":>8}{"most replicas":>15}{"offloaded to it":>17}']
    for name, pool in summary['pools'].items():
        lines.append(
            f'{name:<14}{pool["frames"]:>8}{pool["replicas_max"]:>15}'
            f'{number(pool["offload_share"], percent):>17}')
    return '\n'.join(lines)
