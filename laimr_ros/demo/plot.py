"""The picture of a demonstration: latency and replicas over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def plot_run(
    path: Path, records: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]],
    burst: tuple[float, float] | None, start: float
) -> None:
    """
    Draw latency of every frame by lane, and replicas by pool, over time.

    :param path: PNG file to write.
    :param burst: begin and end of the burst in seconds after ``start``.
    :param start: epoch time of the first frame in seconds.
    """
    import matplotlib
    matplotlib.use('Agg')  # works without a display
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(
        2, 1, sharex=True, figsize=(10, 7), height_ratios=(2, 1), layout='constrained')
    lanes = history[-1].get('lanes', {}) if history else {}
    colours = {name: f'C{i}' for i, name in enumerate(lanes)}
    for name, lane in lanes.items():
        mine = [r for r in records if r['lane'] == name]
        answered = [r for r in mine if r['outcome'] == 'answered']
        above.scatter(
            [r['stamp'] - start for r in answered], [r['latency_s'] for r in answered],
            s=9, color=colours[name], label=f'{name} (SLO {lane["slo_s"]:g} s)')
        above.axhline(lane['slo_s'], color=colours[name], linestyle=':', linewidth=1)
        lost = [r for r in mine if r['outcome'] != 'answered']
        above.scatter(
            [r['stamp'] - start for r in lost], [r['latency_s'] for r in lost], s=22, marker='x',
            linewidth=0.8, color=colours[name])
    above.set_ylabel('capture to detections, s\n(x: not answered)')
    above.set_ylim(bottom=0.0)
    if lanes:
        above.legend(loc='upper left', fontsize='small')
    names = list(history[-1].get('pools', {})) if history else []
    times = [s['time'] - start for s in history]
    for i, name in enumerate(names):
        states = [s.get('pools', {}).get(name, {}) for s in history]
        below.step(times, [s.get('ready') or 0 for s in states], where='post', color=f'C{i}',
                   label=f'{name}, ready')
        below.step(times, [s.get('desired') or 0 for s in states], where='post', color=f'C{i}',
                   linestyle=':', label=f'{name}, desired')
    below.set_ylabel('replicas')
    below.set_xlabel('time, s')
    below.set_ylim(bottom=0.0)
    if names:
        below.legend(loc='upper left', fontsize='small')
    if burst is not None:
        for axes in (above, below):
            axes.axvspan(*burst, color='0.9', zorder=-1)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
