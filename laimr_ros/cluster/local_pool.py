"""How the workers of one pool are run on this host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class LocalPool:
    """
    How the workers of one pool are run.

    :param command: argument vector; ``{listen}`` in any argument becomes the listen address.
    :param min_replicas: never fewer.
    :param max_replicas: never more.
    :param listen: listen address; empty for a Unix socket of the replica's own. A TCP address
        needs port 0 (``127.0.0.1:0``): the worker says which port it got.
    :param environment: variables set on top of this process's own.
    :param log_directory: where each replica's output goes, bounded; ``None`` keeps none.
    :param log_max_bytes: size of one log file; one older generation is kept.
    :param start_timeout_s: a worker not ready by then is killed and counts as failed, in seconds.
    :param deregister_s: between taking a replica off the ready list and asking it to drain, in
        seconds, so that whoever sends to it has heard.
    :param drain_grace_s: from asking to drain to killing, in seconds.
    :param first_backoff_s: delay before the restart after a first failure, in seconds.
    :param max_backoff_s: longest delay before a restart, and the delay after a bad configuration,
        in seconds.
    :param stable_s: a replica ready for so long clears earlier failures, in seconds.
    """

    command: tuple[str, ...]
    min_replicas: int = 0
    max_replicas: int = 1
    listen: str = ''
    environment: Mapping[str, str] = field(default_factory=dict)
    log_directory: Path | None = None
    log_max_bytes: int = 1_000_000
    start_timeout_s: float = 120.0
    deregister_s: float = 0.3
    drain_grace_s: float = 10.0
    first_backoff_s: float = 0.5
    max_backoff_s: float = 30.0
    stable_s: float = 10.0

    def __post_init__(self) -> None:
        """Check. :raises ValueError: naming the field, its value and the fix."""
        if not self.command:
            raise ValueError("command is empty: give the worker's argument vector")
        if not any('{listen}' in argument for argument in self.command):
            raise ValueError(
                f'command {" ".join(self.command)!r} never says {{listen}}: '
                'the worker must be told where to serve'
            )
        if not 0 <= self.min_replicas <= self.max_replicas:
            raise ValueError(
                f'min_replicas {self.min_replicas}, max_replicas {self.max_replicas}: '
                'need 0 <= min_replicas <= max_replicas'
            )
        if self.listen and not self.listen.endswith(':0'):
            raise ValueError(
                f'listen {self.listen!r}: replicas would collide; use port 0, as in 127.0.0.1:0'
            )
