"""Where the demonstration finds its parameters and leaves its results."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import os
from pathlib import Path


def configuration_file(name: str) -> Path:
    """
    Return a file of ``config/``: of this checkout, or as installed with the package.

    The path need not exist.
    """
    checkout = Path(__file__).resolve().parents[2] / 'config' / name
    if checkout.is_file():
        return checkout
    try:
        from ament_index_python.packages import get_package_share_directory
        return Path(get_package_share_directory('laimr_ros')) / 'config' / name
    except (ImportError, LookupError):
        return checkout


class Results:
    """
    Writes the results of a run, each as well as it goes: a full disk costs files, not the rest.

    :param directory: where they go.
    :ivar missing: names of what could not be written.
    """

    def __init__(self, directory: Path) -> None:
        """Begin with nothing missing."""
        self._directory = directory
        self.missing: list[str] = []
        self._reason = ''

    def write(self, name: str, write: Callable[[Path], object]) -> None:
        """
        Write one result; what fails is left out, whole.

        :param name: of the file in the directory.
        :param write: writes to a path. :raises OSError: if it cannot.
        """
        path = self._directory / name
        try:
            write(path)
        except OSError as error:
            self.missing.append(name)
            self._reason = self._reason or str(error.strerror or error)
            if path.is_file() and not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.unlink()

    def complaint(self) -> str:
        """Return one line about what is missing; empty if nothing is."""
        if not self.missing:
            return ''
        return (f'cannot write {", ".join(self.missing)} in {self._directory} ({self._reason}); '
                'free some space, or give another directory with --out')


def point_latest(out: Path, run: Path) -> None:
    """Let ``out/latest`` be the given run, in one step."""
    new = out / f'.latest-{os.getpid()}'
    new.unlink(missing_ok=True)
    new.symlink_to(run.name, target_is_directory=True)
    os.replace(new, out / 'latest')
