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
    yield from _plane()


@pytest.fixture
def own_plane() -> Iterator[object]:
    """
    Return a control plane that one test may harm.

    After its API server was killed the scheduler can count pods that are long gone, for ever.
    """
    yield from _plane()


def _plane() -> Iterator[object]:
    from control_plane import control_plane, make_node
    with control_plane() as plane:
        make_node(plane.admin, 'node-1', 100)
        yield plane
