"""Lets integration tests share helpers, and a control plane that takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
import sys

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope='session')
def plane() -> Iterator[object]:
    """Return a control plane, with one node that has room for 100 CPUs."""
    from control_plane import control_plane, make_node
    with control_plane() as plane:
        make_node(plane.admin, 'node-1', 100)
        yield plane
