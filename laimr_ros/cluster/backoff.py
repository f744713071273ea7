"""How long to wait before trying again."""

from __future__ import annotations


class Backoff:
    """
    Double the delay at every failure in a row, up to a limit.

    :param first_s: delay after the first failure, in seconds.
    :param max_s: longest delay, in seconds.
    """

    def __init__(self, first_s: float = 0.5, max_s: float = 30.0) -> None:
        self.max_s = max_s
        self.failures = 0
        self._first_s = first_s

    def failed(self) -> float:
        """Count one failure; return the delay before the next attempt, in seconds."""
        self.failures += 1
        # The exponent is bounded: after days of failures the power would overflow a float.
        return min(self.max_s, self._first_s * 2.0 ** min(self.failures - 1, 30))

    def reset(self) -> None:
        """Forget the failures: it works again."""
        self.failures = 0
