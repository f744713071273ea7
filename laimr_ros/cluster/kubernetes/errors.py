"""What an API server can answer instead of what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import json
from typing import Any


@dataclass(eq=False)
class ApiError(Exception):
    """
    A request did not succeed.

    :param status: HTTP status; 0 if there was no answer at all.
    :param message: what is wrong, in one line for people.
    :param reason: the server's machine-readable word, such as ``Conflict``.
    :param retry_after_s: how long the server wants to be left alone, in seconds; 0 if it does not
        say.
    """

    status: int
    message: str
    reason: str = ''
    retry_after_s: float = 0.0

    def __str__(self) -> str:
        """Return the message."""
        return self.message

    @property
    def unreachable(self) -> bool:
        """Return whether the server cannot serve at all now, whatever was asked."""
        return self.status == 0 or self.status >= 500


class CredentialsError(ValueError):
    """The credentials or the cluster they lead to cannot be used; the message says what to do."""


def from_reply(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error that an unsuccessful reply stands for."""
    try:
        found: Any = json.loads(body)
    except ValueError:
        found = None
    message = reason = ''
    retry_after_s = 0.0
    if isinstance(found, dict) and found.get('kind') == 'Status':
        message = str(found.get('message') or '')
        reason = str(found.get('reason') or '')
        details = found.get('details') or {}
        retry_after_s = _seconds(details.get('retryAfterSeconds'))
    if not message:
        message = body[:200].decode('utf-8', 'replace')
    retry_after_s = max(retry_after_s, _seconds(headers.get('Retry-After')))
    text = ' '.join(message.split()) or 'no reason given'
    return ApiError(status, f'{text} (HTTP {status})', reason, retry_after_s)


def _seconds(value: object) -> float:
    # The header may also be a date, which API servers do not send; it counts as absent.
    try:
        # Bounded: a typing error in a proxy must not stop us for a day.
        return min(max(float(str(value)), 0.0), 60.0)
    except ValueError:
        return 0.0
