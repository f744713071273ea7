"""The bridge's metrics for Prometheus, and whether it lives, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import threading
from typing import Any

_GAUGES = (
    ('laimr_bridge_acting', 'whether this bridge is the one that acts', 'acting'),
    ('laimr_bridge_api_server_away_seconds', 'since when the API server is away', 'away_s'),
)
_POOL_GAUGES = (
    ('laimr_bridge_ready_replicas', 'replicas that serve', 'ready'),
    ('laimr_bridge_starting_replicas', 'replicas that do not serve yet', 'starting'),
    ('laimr_bridge_draining_replicas', 'replicas that leave', 'draining'),
    ('laimr_bridge_failed_replicas', 'replicas that are not counted on', 'failed'),
    ('laimr_bridge_desired_replicas', 'replicas that there should be', 'desired'),
    ('laimr_bridge_start_up_seconds', '0.9 quantile of recent start-up times', 'start_up_s'),
)


def exposition(status: Mapping[str, Any]) -> str:
    """
    Return a status in Prometheus' text format.

    :param status: keys as in the tables above, those of pools under ``pools``.
    """
    return '\n'.join(_lines(status)) + '\n'


def _lines(status: Mapping[str, Any]) -> Iterator[str]:
    for name, text, key in _GAUGES:
        yield f'# HELP {name} {text}'
        yield f'# TYPE {name} gauge'
        yield f'{name} {float(status[key]):g}'
    for name, text, key in _POOL_GAUGES:
        yield f'# HELP {name} {text}'
        yield f'# TYPE {name} gauge'
        for pool, values in status['pools'].items():
            # Names of pools are words; nothing in them needs an escape.
            yield f'{name}{{pool="{pool}"}} {float(values[key]):g}'


class BridgePages:
    """
    Serve ``/metrics`` and ``/healthz``.

    :param port: 0 for any free one.
    :param status: returns what ``exposition`` takes; called in threads.
    :param healthy: whether the bridge works; called in threads.
    :raises OSError: if the port cannot be listened on.
    """

    def __init__(
        self, port: int, status: Callable[[], Mapping[str, Any]], healthy: Callable[[], bool],
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 5.0

            def do_GET(self) -> None:
                if self.path == '/metrics':
                    self._answer(200, exposition(status()), 'text/plain; version=0.0.4')
                elif self.path == '/healthz':
                    well = healthy()
                    self._answer(200 if well else 503, 'ok' if well else 'it hangs', 'text/plain')
                else:
                    self._answer(404, 'there are /metrics and /healthz', 'text/plain')

            def _answer(self, code: int, text: str, kind: str) -> None:
                content = text.encode()
                self.send_response(code)
                self.send_header('Content-Type', f'{kind}; charset=utf-8')
                self.send_header('Content-Length', str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(('', port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name='pages', daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
