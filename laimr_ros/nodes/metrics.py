"""Metrics for Prometheus, in its text format, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import threading
from typing import Any

from laimr_ros.nodes.diagnostics import ENDINGS

_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

# Metric, type, help, and the key in a status.
_LANE_GAUGES = (
    ('laimr_lane_slo_seconds', 'time from capture to answer that is asked for', 'slo_s'),
    ('laimr_lane_p50_seconds', 'median time from capture to answer, last minute', 'p50_s'),
    ('laimr_lane_p99_seconds', 'P99 time from capture to answer, last minute', 'p99_s'),
    ('laimr_lane_queued', 'frames waiting for a replica', 'queued'),
    ('laimr_lane_rate', 'frames received per second', 'rate'),
)
_POOL_GAUGES = (
    ('laimr_pool_rate', 'frames sent per second', 'rate'),
    ('laimr_pool_utilisation', 'share of the capacity in use', 'rho'),
    ('laimr_pool_ready_replicas', 'replicas that serve', 'ready'),
    ('laimr_pool_starting_replicas', 'replicas that do not serve yet', 'starting'),
    ('laimr_pool_desired_replicas', 'replicas asked for', 'desired'),
    ('laimr_pool_in_flight', 'frames sent and not answered', 'in_flight'),
    ('laimr_pool_predicted_p99_seconds', 'predicted P99 of completion', 'predicted_p99_s'),
    ('laimr_pool_measured_p99_seconds', 'measured P99 of completion', 'measured_p99_s'),
)
_ROBOT_GAUGES = (
    ('laimr_robot_rate', 'frames received per second', 'rate'),
    ('laimr_robot_frame_age_seconds', 'age of the newest frame', 'age_s'),
)


def exposition(status: Mapping[str, Any]) -> str:
    """
    Return a status in Prometheus' text format.

    :param status: as on the dispatcher's topic ``~/status``.
    """
    lines: list[str] = []
    lines += _head('laimr_frames_in_flight', 'gauge', 'frames that have not ended')
    lines.append(f'laimr_frames_in_flight {status["counters"]["in_flight"]}')
    for what, group in (('lane', 'lanes'), ('robot', 'robots')):
        entries = status[group]
        lines += _head(f'laimr_{what}_frames_received_total', 'counter', 'frames received')
        lines += _samples(f'laimr_{what}_frames_received_total', what, entries, 'received')
        name = f'laimr_{what}_frames_total'
        lines += _head(name, 'counter', 'frames that ended, by outcome')
        for entry, values in entries.items():
            lines += [f'{name}{{{what}="{_escape(entry)}",outcome="{ending}"}} {values[ending]}'
                      for ending in ENDINGS]
        lines += _head(f'laimr_{what}_frames_on_time_total', 'counter', 'frames answered in time')
        lines += _samples(f'laimr_{what}_frames_on_time_total', what, entries, 'on_time')
    for what, group, gauges in (
            ('lane', 'lanes', _LANE_GAUGES), ('pool', 'pools', _POOL_GAUGES),
            ('robot', 'robots', _ROBOT_GAUGES)):
        for name, text, key in gauges:
            lines += _head(name, 'gauge', text)
            lines += _samples(name, what, status[group], key)
    return '\n'.join(lines) + '\n'


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f'# HELP {name} {text}'
    yield f'# TYPE {name} {kind}'


def _samples(
    name: str, label: str, entries: Mapping[str, Mapping[str, Any]], key: str,
) -> Iterator[str]:
    for entry, values in entries.items():
        # What is not known has no sample.
        if values.get(key) is not None:
            yield f'{name}{{{label}="{_escape(entry)}"}} {values[key]}'


def _escape(value: str) -> str:
    return value.replace('\\', '\\\\').replace('"', '\\"').replace('\n', '\\n')


class MetricsServer:
    """
    Serves ``/metrics`` from a thread of its own.

    :param port: TCP port; 0 for any free one.
    :param status: returns the latest status; None before there is one.
    :raises OSError: if the port cannot be used.
    """

    def __init__(self, port: int, status: Callable[[], Mapping[str, Any] | None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 5.0

            def do_GET(self) -> None:
                if self.path.partition('?')[0] not in ('/metrics', '/'):
                    self.send_error(404, 'there is /metrics only')
                    return
                latest = status()
                body = exposition(latest).encode() if latest is not None else b''
                self.send_response(200)
                self.send_header('Content-Type', _CONTENT_TYPE)
                self.send_header('Content-Length', str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(('', port), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(
            target=self._server.serve_forever, name='metrics', daemon=True).start()

    def close(self) -> None:
        """Stop to serve."""
        self._server.shutdown()
        self._server.server_close()
