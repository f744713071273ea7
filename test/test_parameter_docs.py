"""Test that docs/parameters.md says what the nodes do."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys


def test_the_parameter_tables_are_up_to_date() -> None:
    """The document is made from the tables that the nodes declare."""
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, 'tools/parameters.py', '--check'], cwd=root, capture_output=True,
        text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
