"""Diagnostics: what the dispatcher tells of itself, for `rqt_robot_monitor` and the like."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
import itertools
import json
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

ENDINGS = ('answered', 'superseded', 'expired', 'rejected', 'failed')
# A lane that answers fewer of its frames on time is worth a look; one with none, a warning.
_ON_TIME = 0.95
# Robots a message.
_PORTION = 5


def adds_up(counters: Mapping[str, int]) -> bool:
    """Return whether every frame received is accounted for."""
    ended = sum(counters[name] for name in ENDINGS)
    return counters['received'] == ended + counters['in_flight'] and counters['in_flight'] >= 0


def diagnose(status: Mapping[str, Any], node: str) -> Iterator[list[DiagnosticStatus]]:
    """
    Yield diagnostic statuses for the whole, the lanes and the pools; then for robots, a few each.

    :param status: of the dispatcher, as on its topic ``~/status``.
    :param node: name of the node, which each name begins with.
    """
    yield [
        _overall(status, node),
        *(_lane(name, lane, node) for name, lane in status['lanes'].items()),
        *(_pool(name, pool, status, node) for name, pool in status['pools'].items()),
    ]
    robots = iter(status['robots'].items())
    while portion := list(itertools.islice(robots, _PORTION)):
        yield [_robot(name, robot, node) for name, robot in portion]


def to_json(status: Mapping[str, Any]) -> str:
    """Return a status as JSON; robot by robot, so that others get their turn between them."""
    robots = ', '.join([
        f'{json.dumps(name)}: {json.dumps(robot)}' for name, robot in status['robots'].items()])
    rest = json.dumps({key: value for key, value in status.items() if key != 'robots'})
    return f'{rest[:-1]}, "robots": {{{robots}}}}}'


def _overall(status: Mapping[str, Any], node: str) -> DiagnosticStatus:
    counters = status['counters']
    if not adds_up(counters):
        return _status(DiagnosticStatus.ERROR, f'{node}: frames',
                       'frames are unaccounted for: please report this', counters)
    level, text = DiagnosticStatus.OK, f'{counters["received"]} frames, all accounted for'
    if not status['robots']:
        level, text = DiagnosticStatus.WARN, 'no robot publishes images on the topics looked for'
    elif status['records_lost']:
        level, text = DiagnosticStatus.WARN, f'{status["records_lost"]} records are missing'
    return _status(level, f'{node}: frames', text, {
        **counters, 'robots': len(status['robots']), 'records_lost': status['records_lost']})


def _lane(name: str, lane: Mapping[str, Any], node: str) -> DiagnosticStatus:
    p99, slo = lane['p99_s'], lane['slo_s']
    share = lane['on_time_recent']
    level, text = DiagnosticStatus.OK, f'P99 {_number(p99)} s of {slo:g} s'
    if share is not None and share < _ON_TIME:
        level, text = DiagnosticStatus.WARN, f'{share:.1%} on time: {text}'
    return _status(level, f'{node}: lane {name}', text, lane)


def _pool(
    name: str, pool: Mapping[str, Any], status: Mapping[str, Any], node: str,
) -> DiagnosticStatus:
    links = [link for link in status['links'] if link['pool'] == name]
    bad = [f'{link["endpoint"]}: {link["reason"]}' for link in links if not link['serving']]
    level = DiagnosticStatus.OK
    text = f'{pool["ready"]} ready, {pool["starting"]} starting, {pool["desired"]} desired'
    if not pool['ready']:
        level = DiagnosticStatus.ERROR if links else DiagnosticStatus.WARN
        text = bad[0] if bad else f'no replica: set pools.{name}.endpoints, or start its bridge'
    elif bad:
        level, text = DiagnosticStatus.WARN, f'{text}; {bad[0]}'
    facts = {key: value for key, value in pool.items() if key != 'models'}
    for model, costs in pool['models'].items():
        facts.update({f'{model} {key}': value for key, value in costs.items()})
    facts['unavailable'] = '; '.join(bad)
    return _status(level, f'{node}: pool {name}', text, facts)


def _robot(name: str, robot: Mapping[str, Any], node: str) -> DiagnosticStatus:
    level, text = DiagnosticStatus.OK, f'{robot["rate"]:.1f} frames/s, lane {robot["lane"]}'
    if robot['stale']:
        level = DiagnosticStatus.WARN
        text = f'no frame for {robot["silent_s"]:.1f} s'
        if not robot['received']:
            text += ': nothing has come yet; compare the quality of service of both sides'
    elif robot['clock']:
        level, text = DiagnosticStatus.WARN, robot['clock']
    facts = {key: value for key, value in robot.items() if key not in ('reasons', 'stale')}
    facts.update({f'dropped, {reason}': count for reason, count in robot['reasons'].items()})
    return _status(level, f'{node}: robot {name}', text, facts)


def _status(
    level: bytes, name: str, text: str, facts: Mapping[str, Any],
) -> DiagnosticStatus:
    return DiagnosticStatus(
        level=level, name=name, message=text, hardware_id='laimr_ros',
        values=[KeyValue(key=key, value=_number(value)) for key, value in facts.items()])


def _number(value: Any) -> str:
    """Return a value as people read it; empty where nothing is known."""
    if value is None:
        return ''
    return f'{value:.6g}' if isinstance(value, float) else str(value)


class RecentShares:
    """
    Which share of each lane's frames ended on time lately, from counters that only grow.

    :param window: how far back to look, in seconds.
    """

    def __init__(self, window: float = 10.0) -> None:
        self._window = window
        self._past: dict[str, deque[tuple[float, int, int]]] = {}

    def update(self, now: float, lane: str, counters: Mapping[str, int]) -> float | None:
        """Return the share of one lane; None if no frame ended in the window."""
        ended = counters['received'] - counters['in_flight']
        past = self._past.setdefault(lane, deque(maxlen=1000))
        past.append((now, ended, counters['on_time']))
        while len(past) > 2 and past[1][0] <= now - self._window:
            past.popleft()
        _, ended_before, on_time_before = past[0]
        count = ended - ended_before
        return (counters['on_time'] - on_time_before) / count if count else None
