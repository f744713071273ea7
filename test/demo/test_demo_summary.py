"""Test the summary of a demonstration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from laimr_ros.demo.summary import as_text, quantile, read_records, summarise
import pytest


def record(lane: str, stamp: float, outcome: str = 'answered', **more: Any) -> dict[str, Any]:
    """Return a record as the dispatcher writes it."""
    return {
        'lane': lane, 'stamp': stamp, 'outcome': outcome, 'on_time': outcome == 'answered',
        'pool': 'edge', 'offloaded': False, 'latency_s': 0.1, **more}


def status(received: int, answered: int, ready: int = 1, **more: int) -> dict[str, Any]:
    """Return a status as the dispatcher publishes it."""
    counters = dict.fromkeys(
        ('superseded', 'expired', 'rejected', 'failed', 'in_flight'), 0)
    counters.update(received=received, answered=answered, **more)
    return {
        'counters': counters,
        'lanes': {'fast': {'model': 'm', 'slo_s': 0.5}},
        'pools': {'edge': {'ready': ready}, 'cloud': {'ready': 1}}}


def test_shares_on_time_count_every_frame_received() -> None:
    """A frame that was dropped is as late as one that was answered too late."""
    records = [
        record('fast', 0.0), record('fast', 1.0, 'expired', pool=''),
        record('fast', 2.0, on_time=False, latency_s=0.7), record('fast', 3.0)]
    summary = summarise(records, [status(4, 3, expired=1)], None, 0.0)
    assert summary['on_time'] == pytest.approx(2 / 4)
    assert summary['lanes']['fast']['on_time'] == pytest.approx(2 / 4)
    assert summary['adds_up']


def test_the_burst_is_counted_apart() -> None:
    """Frames captured within the burst do not count outside it."""
    records = [record('fast', 100.0 + t, 'answered' if t != 6 else 'failed') for t in range(10)]
    summary = summarise(records, [status(10, 9, failed=1)], (5.0, 8.0), 100.0)
    assert summary['on_time_outside_burst'] == pytest.approx(1.0)
    assert summary['on_time_in_burst'] == pytest.approx(2 / 3)


def test_pools_show_most_replicas_and_offload() -> None:
    """The most replicas at any time; the share of all sent frames that was offloaded there."""
    records = [record('fast', t) for t in range(3)]
    records.append(record('fast', 3, pool='cloud', offloaded=True))
    summary = summarise(records, [status(0, 0), status(2, 2, 3), status(4, 4, 1)], None, 0.0)
    assert summary['pools']['edge']['replicas_max'] == 3
    assert summary['pools']['cloud']['offload_share'] == pytest.approx(1 / 4)
    assert summary['pools']['edge']['offload_share'] == 0.0


def test_counters_that_do_not_add_up_are_shown() -> None:
    """The summary checks the dispatcher, it does not believe it."""
    summary = summarise([], [status(4, 3)], None, 0.0)
    assert not summary['adds_up']
    assert '!=' in as_text(summary)


def test_nothing_at_all_gives_a_summary() -> None:
    """Ctrl-C before the first frame."""
    summary = summarise([], [], None, 0.0)
    assert summary['received'] == 0 and summary['on_time'] is None
    assert as_text(summary)


@pytest.mark.parametrize(('values', 'p', 'expected'), [
    ([], 0.5, None), ([3.0], 0.99, 3.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
    (list(range(1, 101)), 0.99, 99)])
def test_quantile_is_the_nearest_rank(
    values: list[float], p: float, expected: float | None
) -> None:
    """By hand."""
    assert quantile(values, p) == expected


def test_records_cut_short_by_a_kill_are_read(tmp_path: Path) -> None:
    """Half a last line is left out; half a line elsewhere is an error that names it."""
    path = tmp_path / 'records.jsonl'
    whole = json.dumps(record('fast', 1.0))
    path.write_text(f'{whole}\n{whole}\n{whole[:20]}')
    assert len(read_records(path)) == 2
    path.write_text(f'{whole}\n{whole[:20]}\n{whole}\n')
    with pytest.raises(ValueError, match='line 2'):
        read_records(path)
    assert read_records(tmp_path / 'missing') == []
