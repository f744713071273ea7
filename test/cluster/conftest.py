"""Lets the tests of this room share a stand-in for an API server."""

from __future__ import annotations

from pathlib import Path
import sys

sys.path.insert(0, str(Path(__file__).parent))
