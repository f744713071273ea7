"""What can go wrong with an inference, and who should do something about it."""

from __future__ import annotations

from enum import Enum


class ErrorKind(Enum):
    """Why an inference has no reply."""

    BUSY = 'busy'
    UNAVAILABLE = 'unavailable'
    DEADLINE = 'deadline'
    CANCELLED = 'cancelled'
    UNKNOWN_MODEL = 'unknown model'
    BAD_IMAGE = 'bad image'
    BAD_REPLY = 'bad reply'
    INTERNAL = 'internal'


_RETRYABLE = frozenset({
    ErrorKind.BUSY, ErrorKind.UNAVAILABLE, ErrorKind.UNKNOWN_MODEL, ErrorKind.BAD_REPLY,
    ErrorKind.INTERNAL,
})
_AT_FAULT = frozenset({
    ErrorKind.UNAVAILABLE, ErrorKind.UNKNOWN_MODEL, ErrorKind.BAD_REPLY, ErrorKind.INTERNAL,
})


class InferenceError(Exception):
    """
    An inference has no reply.

    :param kind: why, for programs.
    :param message: why, for people; names the thing, the value and the fix.
    """

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def retryable(self) -> bool:
        """Return whether another replica may well answer the same frame."""
        return self.kind in _RETRYABLE

    @property
    def replica_at_fault(self) -> bool:
        """
        Return whether the replica should get no further frames until it is found well again.

        Not so for a missed deadline: one says nothing, for it may be the frame that came late.
        Several in a row are what a host that has vanished looks like.
        """
        return self.kind in _AT_FAULT
