"""Addresses to listen on, as text."""

from __future__ import annotations


def parse_listen(text: str, parameter: str) -> tuple[str, int]:
    """
    Return host and port.

    :param text: ``host:port``; port 0 for any free one.
    :param parameter: that holds it, for the message.
    :raises ValueError: naming the parameter, its value and the fix.
    """
    host, colon, port = text.rpartition(':')
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f'{parameter}: {text!r} is no address; write HOST:PORT')
    return host.strip('[]') or '0.0.0.0', int(port)
