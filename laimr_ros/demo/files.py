"""Where the demonstration finds its parameters and leaves its results."""

from __future__ import annotations

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


def point_latest(out: Path, run: Path) -> None:
    """Let ``out/latest`` be the given run, in one step."""
    new = out / f'.latest-{os.getpid()}'
    new.unlink(missing_ok=True)
    new.symlink_to(run.name, target_is_directory=True)
    os.replace(new, out / 'latest')
