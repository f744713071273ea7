"""A log file that never outgrows its limit."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import BinaryIO

_logger = logging.getLogger(__name__)


class BoundedLog:
    """
    Append bytes to a file; keep one older generation beside it (``NAME.1``).

    A full disk or a removed directory costs log lines, never the process that is logged: the first
    failure is reported, the rest is dropped.

    :param path: the file; its directory is made. ``None`` throws everything away.
    :param max_bytes: size at which the file becomes the older generation.
    """

    def __init__(self, path: Path | None, max_bytes: int = 1_000_000) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file: BinaryIO | None = None
        self._size = 0
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._open(path)
            except OSError as error:
                self._give_up(error)

    def write(self, data: bytes) -> None:
        """Append bytes, at once visible to whoever reads the file."""
        if self._file is None or self._path is None:
            return
        try:
            if self._size + len(data) > self._max_bytes and self._size:
                self._file.close()
                os.replace(self._path, self._path.with_name(self._path.name + '.1'))
                self._open(self._path)
            data = data[-self._max_bytes:]
            self._file.write(data)
            self._size += len(data)
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._give_up(error)
            self._file = None

    def _open(self, path: Path) -> None:
        # Unbuffered: when the host dies, the last lines are the ones that matter.
        self._file = open(path, 'ab', buffering=0)  # noqa: SIM115 - kept open
        self._size = self._file.seek(0, os.SEEK_END)

    def _give_up(self, error: OSError) -> None:
        self._file = None
        _logger.warning('no more log lines to %s: %s', self._path, error)
