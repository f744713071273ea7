"""Where a file of weights is."""

from __future__ import annotations

from pathlib import Path

# As in ROS; the weights that come with the package are `package://laimr_ros/weights/...`.
_PACKAGE = 'package://laimr_ros/'


def find_file(weights: str) -> Path:
    """Return the path of a file of weights; ``package://laimr_ros/...`` is in this package."""
    if weights.startswith(_PACKAGE):
        return Path(__file__).parents[1] / weights[len(_PACKAGE):]
    return Path(weights).expanduser()
