"""A private directory for Unix sockets that goes when its owner goes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
import shutil
import tempfile

_PREFIX = 'laimr-'
_LOCK = '.lock'


def default_base() -> Path:
    """Return a short, writable place for sockets: the user's runtime directory, or /tmp."""
    for candidate in (os.environ.get('XDG_RUNTIME_DIR', ''), '/tmp'):
        if len(candidate) in range(1, 40) and os.access(candidate, os.W_OK | os.X_OK):
            return Path(candidate)
    return Path(tempfile.gettempdir())


class RuntimeDirectory:
    """
    Make a directory only this user can enter; remove those whose owner was killed.

    The owner holds a lock inside for as long as it lives. The kernel drops the lock however the
    owner dies, so a directory whose lock is free is left over and the next owner sweeps it.

    :param base: where to make it; it is made too if it is missing.
    """

    def __init__(self, base: Path) -> None:
        base.mkdir(parents=True, exist_ok=True)
        _sweep(base)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        new = self.path / (_LOCK + '.new')
        self._lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Named only once it is locked: a sweep next door leaves directories without it alone.
        new.rename(self.path / _LOCK)

    def close(self) -> None:
        """Remove the directory and what is in it. Safe to call twice."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _sweep(base: Path) -> None:
    """Remove our directories that nobody owns any more."""
    for directory in base.glob(_PREFIX + '*'):
        try:
            if directory.is_symlink() or directory.stat().st_uid != os.getuid():
                continue
            lock = os.open(directory / _LOCK, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            pass  # its owner lives
        finally:
            os.close(lock)
