"""What is wrong with images: short reasons to count by, and a warning a minute for each robot."""

from __future__ import annotations

import re

_EVERY_S = 60.0
# Robots that are remembered as told; those that left make room.
_MAX_REMEMBERED = 1000
_MAX_CHARACTERS = 80


def grouped(text: str) -> str:
    """
    Return what single images of one kind of fault have in common.

    Advice, brackets and numbers go, so that counters by reason stay few.
    """
    text = text.split(';')[0]
    text = re.sub(r'\s*\([^)]*\)?', '', text)
    text = re.sub(r'\d+(?:\.\d+)?', 'N', text)
    return ' '.join(text.split())[:_MAX_CHARACTERS]


class ImageFaults:
    """Decides when to tell people of a robot's bad images again."""

    def __init__(self) -> None:
        """Start with nothing told."""
        self._told: dict[str, float] = {}

    def warning(self, now: float, robot: str, topic: str, text: str) -> str | None:
        """
        Return what to log of a bad image; None if this robot's were told of lately.

        :param now: a monotonic clock in seconds.
        :param text: what is wrong, in full.
        """
        told = self._told.get(robot)
        if told is not None and now - told < _EVERY_S:
            return None
        self._told.pop(robot, None)
        if len(self._told) >= _MAX_REMEMBERED:
            self._told.pop(next(iter(self._told)))
        self._told[robot] = now
        return (f'robot {robot} ({topic}): bad image: {text} '
                f'(further ones are counted, not logged, for {_EVERY_S:.0f} s)')
