"""The live table of a demonstration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text


def _seconds(value: float | None) -> str:
    return '-' if value is None else f'{value:.3f}'


def _percent(value: float | None) -> str:
    return '-' if value is None else f'{value:.1%}'


def offload_share(status: Mapping[str, Any], pool: str) -> float | None:
    """Return the share of sent frames that a pool got as an offload target."""
    sent = sum(p.get('sent_total', 0) for p in status['pools'].values())
    return status['pools'][pool].get('offloaded_total', 0) / sent if sent else None


def render(status: Mapping[str, Any], headline: str) -> Group:
    """Return the table of one status of the dispatcher."""
    lanes = Table('lane', 'frames', 'rate /s', 'queued', 'SLO s', 'P50 s', 'P99 s',
                  'on time', caption='P50 and P99: of answered frames; on time: of all frames')
    for name, lane in status['lanes'].items():
        late = lane['p99_s'] is not None and lane['p99_s'] > lane['slo_s']
        lanes.add_row(
            name, str(lane['received']), f'{lane["rate"]:.1f}', str(lane['queued']),
            f'{lane["slo_s"]:.2f}', _seconds(lane['p50_s']),
            Text(_seconds(lane['p99_s']), style='red' if late else 'green'),
            _percent(lane['on_time_share']))
    pools = Table('pool', 'ready', 'starting', 'desired', 'rho', 'P99 predicted s',
                  'P99 measured s', 'offloaded to it')
    for name, pool in status['pools'].items():
        rho = pool['rho']
        pools.add_row(
            name, str(pool['ready']), str(pool['starting']),
            '-' if pool['desired'] is None else str(pool['desired']),
            '-' if rho is None else f'{rho:.2f}', _seconds(pool['predicted_p99_s']),
            _seconds(pool['measured_p99_s']), _percent(offload_share(status, name)))
    counters = status['counters']
    totals = ', '.join(f'{counters[k]} {k.replace("_", " ")}' for k in (
        'received', 'answered', 'superseded', 'expired', 'rejected', 'failed', 'in_flight'))
    return Group(Text(headline, style='bold'), lanes, pools, Text(totals))


def line(status: Mapping[str, Any], headline: str) -> str:
    """Return one plain line of a status, for output that is no terminal."""
    lanes = '; '.join(
        f'{name} P99 {_seconds(lane["p99_s"])}/{lane["slo_s"]:g} s '
        f'on time {_percent(lane["on_time_share"])}'
        for name, lane in status['lanes'].items())
    pools = ', '.join(
        f'{name} {pool["ready"]}/{"-" if pool["desired"] is None else pool["desired"]}'
        for name, pool in status['pools'].items())
    return (f'{headline}: {status["counters"]["received"]} frames; {lanes}; '
            f'replicas ready/desired {pools}')
