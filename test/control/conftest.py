"""Let the tests of control share their harness."""

from __future__ import annotations

from pathlib import Path
import sys

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# How long an example takes says more about the machine than about the code.
settings.register_profile('laimr', deadline=None)
settings.load_profile('laimr')
