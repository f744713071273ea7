"""Addresses to listen on: bound with one clear error when that is not possible."""

from __future__ import annotations

from collections.abc import Sequence
import errno
import os
from pathlib import Path
import socket
import stat

import grpc
from laimr_ros.serving.endpoint import Endpoint, EndpointError, parse


def bind(server: grpc.aio.Server, listen: Sequence[str]) -> tuple[Endpoint, ...]:
    """
    Bind a server to all its addresses.

    :param server: a server that has not been started.
    :param listen: endpoints; port 0 lets the system choose.
    :return: the endpoints, with the ports that were chosen.
    :raises EndpointError: if an address cannot be read or bound.
    """
    if not listen:
        raise EndpointError('no address to listen on; give one, for example 0.0.0.0:8500')
    bound = []
    for text in listen:
        endpoint = parse(text, listening=True)
        if endpoint.path:
            _prepare_path(endpoint)
        else:
            _check_port(endpoint)
        try:
            port = server.add_insecure_port(str(endpoint))
        except RuntimeError as error:
            port, reason = 0, str(error)
        else:
            reason = 'gRPC does not say why'
        if not port:
            raise EndpointError(f'cannot listen on {endpoint}: {reason}')
        bound.append(endpoint if endpoint.path else endpoint.with_port(port))
    return tuple(bound)


def release(endpoints: Sequence[Endpoint]) -> None:
    """Remove the files of Unix sockets."""
    for endpoint in endpoints:
        if endpoint.path:
            Path(endpoint.path).unlink(missing_ok=True)


def _check_port(endpoint: Endpoint) -> None:
    """Try the port with a plain socket, because gRPC does not tell why it cannot have it."""
    try:
        candidates = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise EndpointError(
            f'cannot listen on {endpoint}: host {endpoint.host!r} is unknown ({error.strerror}); '
            'give an address of this machine, or 0.0.0.0 for all') from None
    last: OSError | None = None
    for family, kind, protocol, _, address in candidates:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # As gRPC does, so that connections of an earlier process do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen(1)
            return
        except OSError as error:
            last = error
    assert last is not None
    if last.errno == errno.EADDRINUSE:
        advice = 'another process has it; stop that, or choose another port (0 for any)'
    elif last.errno == errno.EADDRNOTAVAIL:
        advice = 'it is no address of this machine; use one of its own, or 0.0.0.0 for all'
    elif last.errno in (errno.EACCES, errno.EPERM):
        advice = 'ports below 1024 need a privilege; use a higher one'
    else:
        advice = last.strerror or str(last)
    raise EndpointError(f'cannot listen on {endpoint}: {advice}')


def _prepare_path(endpoint: Endpoint) -> None:
    """Make way for a Unix socket: remove the one a killed process has left, and only that."""
    path = Path(endpoint.path)
    if not path.parent.is_dir():
        raise EndpointError(
            f'cannot listen on {endpoint}: directory {path.parent} does not exist; make it')
    if not os.access(path.parent, os.W_OK):
        raise EndpointError(
            f'cannot listen on {endpoint}: no permission to write to {path.parent}')
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise EndpointError(
            f'cannot listen on {endpoint}: there is something that is no socket; '
            'remove it, or choose another path')
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(endpoint.path)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)  # Nobody listens: it is stale.
            return
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            reason = 'another process listens there'
    raise EndpointError(f'cannot listen on {endpoint}: {reason}; stop it, or choose another path')
