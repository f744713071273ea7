"""Frames of a drawn CloudGripper cell."""

from __future__ import annotations

import time

from laimr_ros.cameras.scene import Scene
from laimr_ros.cameras.sources.base import Capture, Clock


class DrawnSource:
    """
    A drawn cell, at the present time.

    :param scene: what is drawn.
    :param clock: gives the time that is drawn and stamped.
    """

    def __init__(self, scene: Scene, clock: Clock = time.time) -> None:
        self._scene = scene
        self._clock = clock

    def read(self) -> Capture:
        """Draw the cell as it is now."""
        now_s = self._clock()
        frame = self._scene.draw(now_s)
        return Capture(frame.image, 'bgr8', now_s, frame.objects)

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""
