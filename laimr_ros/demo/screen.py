"""What a person sees meanwhile: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
import time
from typing import Any

from laimr_ros.demo.table import line, render
from rich.console import Console
from rich.live import Live

_PLAIN_PERIOD = 5.0


class Screen:
    """Shows the dispatcher's status; works without a terminal, too."""

    def __init__(self) -> None:
        """Show nothing yet."""
        self._console = Console()
        self._live: Live | None = None
        self._next_line = 0.0

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, status: Mapping[str, Any], headline: str) -> None:
        """Show a status."""
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False)
                self._live.start()
            self._live.update(render(status, headline), refresh=True)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _PLAIN_PERIOD
            self.say(line(status, headline))

    def close(self) -> None:
        """Leave the last table where it is."""
        if self._live is not None:
            self._live.stop()
            self._live = None
