"""Metrics must be what Prometheus reads, and diagnostics what the status says."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request

import pytest

pytest.importorskip('diagnostic_msgs', reason='no ROS here: run `make setup`')

from diagnostic_msgs.msg import DiagnosticStatus
from laimr_ros.nodes.diagnostics import adds_up, diagnose, RecentShares, to_json
from laimr_ros.nodes.metrics import exposition, MetricsServer

COUNTERS = {'received': 10, 'answered': 5, 'superseded': 1, 'expired': 1, 'rejected': 1,
            'failed': 1, 'in_flight': 1, 'on_time': 4}
# From the description of the format: name, labels with escapes, value.
SAMPLE = re.compile(
    r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_]\w*="([^"\\\n]|\\["\\n])*",?)*\})? [0-9.eE+-]+')


@pytest.fixture
def status():
    return {
        'counters': dict(COUNTERS),
        'lanes': {'la"ne\\\n': {
            **COUNTERS, 'model': 'm', 'slo_s': 0.5, 'p50_s': 0.1, 'p99_s': None,
            'on_time_share': 0.5, 'on_time_recent': 0.5, 'rate': 2.5, 'queued': 0}},
        'pools': {'edge': {
            'rate': 2.0, 'rho': 0.5, 'ready': 1, 'replicas': 1, 'starting': 0, 'desired': None,
            'in_flight': 1, 'start_up_s': 5.0, 'predicted_p99_s': 0.2, 'measured_p99_s': 0.3,
            'models': {'m': {'service_s': 0.1, 'network_s': 0.001, 'service_ratio': 1.0}}}},
        'robots': {'r/1': {
            **COUNTERS, 'lane': 'l', 'rate': 2.5, 'age_s': 0.4, 'reasons': {'expired: late': 1},
            'topic': '/r/1/image_raw', 'silent_s': 0.4, 'stale': False, 'clock': '',
            'clock_offset_s': 0.01}},
        'links': [{'endpoint': 'a:1', 'pool': 'edge', 'serving': True, 'in_flight': 1,
                   'reason': ''}],
        'records_lost': 0,
    }


def levels(status):
    return {s.name: (s.level, s.message) for part in diagnose(status, 'd') for s in part}


def test_every_line_is_prometheus(status):
    text = exposition(status)
    assert text.endswith('\n')
    typed = set()
    for line in text.splitlines():
        if line.startswith('#'):
            assert re.fullmatch(r'# (HELP|TYPE) \w+ .+', line)
            if line.startswith('# TYPE'):
                typed.add(line.split()[2])
        else:
            assert SAMPLE.fullmatch(line), line
            assert re.match(r'\w+', line).group() in typed
    assert 'laimr_robot_frames_total{robot="r/1",outcome="expired"} 1' in text
    assert 'laimr_lane_slo_seconds{lane="la\\"ne\\\\\\n"} 0.5' in text
    # What is not known has no sample.
    assert 'laimr_lane_p99_seconds{' not in text
    assert 'laimr_pool_desired_replicas{' not in text


def test_served_over_http(status):
    server = MetricsServer(0, lambda: status)
    try:
        address = f'http://127.0.0.1:{server.port}'
        with urllib.request.urlopen(f'{address}/metrics', timeout=5.0) as response:
            assert response.headers['Content-Type'].startswith('text/plain; version=0.0.4')
            assert response.read().decode() == exposition(status)
        with pytest.raises(urllib.error.HTTPError, match='404'):
            urllib.request.urlopen(f'{address}/secret', timeout=5.0)
    finally:
        server.close()


def test_levels(status):
    ok, warn, error = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
    found = levels(status)
    assert found['d: frames'][0] == ok
    assert found['d: pool edge'][0] == ok
    assert found['d: robot r/1'][0] == ok
    assert found['d: lane la"ne\\\n'][0] == warn and '50.0% on time' in found[
        'd: lane la"ne\\\n'][1]
    status['counters']['answered'] += 1
    status['robots']['r/1']['clock'] = 'its clock is 2 s behind ours'
    status['links'][0].update(serving=False, reason='connection refused')
    found = levels(status)
    assert found['d: frames'][0] == error
    assert found['d: robot r/1'] == (warn, 'its clock is 2 s behind ours')
    assert found['d: pool edge'][0] == warn and 'connection refused' in found['d: pool edge'][1]
    status['pools']['edge']['ready'] = 0
    status['robots']['r/1'].update(stale=True, silent_s=9.0)
    found = levels(status)
    assert found['d: pool edge'][0] == error
    assert found['d: robot r/1'] == (warn, 'no frame for 9.0 s')
    status['robots'].clear()
    status['links'].clear()
    found = levels(status)
    assert 'pools.edge.endpoints' in found['d: pool edge'][1]


def test_portions_and_json_hold_everything(status):
    status['robots'] = {f'r"{i}': status['robots']['r/1'] for i in range(23)}
    parts = list(diagnose(status, 'd'))
    assert [len(part) for part in parts] == [3, 5, 5, 5, 5, 3]
    assert json.loads(to_json(status)) == status
    status['robots'] = {}
    assert json.loads(to_json(status)) == status


def test_adding_up():
    assert adds_up(COUNTERS)
    assert not adds_up({**COUNTERS, 'failed': 2})
    assert not adds_up({**COUNTERS, 'in_flight': -1, 'answered': 7})


def test_recent_share_forgets_the_past():
    shares = RecentShares(10.0)

    def at(now, ended, on_time):
        return shares.update(now, 'l', {'received': ended + 3, 'in_flight': 3,
                                        'on_time': on_time})

    assert at(0.0, 0, 0) is None
    assert at(5.0, 100, 50) == 0.5
    assert at(10.0, 100, 50) == 0.5
    assert at(15.0, 200, 150) == 1.0
    assert at(40.0, 200, 150) is None
