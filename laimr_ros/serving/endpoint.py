"""Where a replica serves: a TCP port or a Unix socket."""

from __future__ import annotations

from dataclasses import dataclass

# `sockaddr_un.sun_path` holds 108 bytes on Linux, the last of them a zero.
MAX_SOCKET_PATH_BYTES = 107

_FORMS = 'host:port, grpc://host:port, [ipv6]:port or unix:/path'


class EndpointError(ValueError):
    """An address cannot be used; the message names it and says what can."""


@dataclass(frozen=True)
class Endpoint:
    """
    One address, of a replica or to listen on.

    :param host: name or number of the host, without brackets; empty for a Unix socket.
    :param port: TCP port, 0 to let the system choose when listening.
    :param path: absolute path of a Unix socket; empty for TCP.
    """

    host: str = ''
    port: int = 0
    path: str = ''

    def __str__(self) -> str:
        """Return the form that ``parse`` reads, and that gRPC takes as a target."""
        if self.path:
            return f'unix:{self.path}'
        return f'[{self.host}]:{self.port}' if ':' in self.host else f'{self.host}:{self.port}'

    def with_port(self, port: int) -> Endpoint:
        """Return the same endpoint with another TCP port."""
        return Endpoint(self.host, port, self.path)


def parse(text: str, *, listening: bool = False) -> Endpoint:
    """
    Read an endpoint from text.

    :param text: ``host:port``, ``grpc://host:port``, ``[ipv6]:port`` or ``unix:/path``.
    :param listening: whether port 0, "any free one", makes sense.
    :raises EndpointError: if it is none of these.
    """
    if text.startswith('unix:'):
        return _parse_path(text)
    scheme, separator, rest = text.partition('://')
    if not separator:
        rest = text
    elif scheme != 'grpc':
        raise EndpointError(
            f'endpoint {text!r} has scheme {scheme!r}, but replicas speak gRPC; use {_FORMS}')
    host, separator, port_text = rest.rstrip('/').rpartition(':')
    if host.startswith('[') and host.endswith(']'):
        host = host[1:-1]
    elif ':' in host:
        raise EndpointError(f'endpoint {text!r} has several colons; use {_FORMS}')
    if not separator or not host or any(c in host for c in '/[] \t'):
        raise EndpointError(f'endpoint {text!r} is not understood; use {_FORMS}')
    lowest = 0 if listening else 1
    if not (port_text.isascii() and port_text.isdigit() and lowest <= int(port_text) <= 65535):
        raise EndpointError(
            f'endpoint {text!r} has port {port_text!r}; give a number from {lowest} to 65535')
    return Endpoint(host, int(port_text))


def _parse_path(text: str) -> Endpoint:
    path = text.removeprefix('unix:')
    if path.startswith('//'):
        path = '/' + path.lstrip('/')
    if not path.startswith('/') or path == '/':
        raise EndpointError(
            f'endpoint {text!r} has no absolute path; use unix:/path, for example '
            'unix:/run/laimr/worker.sock')
    size = len(path.encode())
    if size > MAX_SOCKET_PATH_BYTES:
        raise EndpointError(
            f'the path of endpoint {text!r} has {size} bytes, and a Unix socket can have '
            f'{MAX_SOCKET_PATH_BYTES}; use a shorter directory')
    return Endpoint(path=path)
