"""What a controller learned, as plain values: so that a restart need not learn it anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from laimr_ros.control.controller import Controller

VERSION = 1


def to_state(controller: Controller) -> dict[str, Any]:
    """Return what was learned of each pool, fit for JSON."""
    return {
        'version': VERSION,
        'pools': {name: pool.to_state() for name, pool in controller.pools.items()},
    }


def restore(controller: Controller, state: Mapping[str, Any], age_s: float) -> list[str]:
    """
    Go on from what was saved, where it is young and sound; elsewhere from the calibration.

    Pools and models that the state does not know, or that were calibrated otherwise since, stay
    as calibrated. A damaged state never raises.

    :param state: as :func:`to_state` returned it.
    :param age_s: how long ago it was saved, in seconds.
    :return: the pools that the state knows.
    """
    pools = state.get('pools')
    if state.get('version') != VERSION or not isinstance(pools, Mapping):
        return []
    known = [name for name in controller.pools if isinstance(pools.get(name), Mapping)]
    for name in known:
        controller.pools[name].restore(pools[name], age_s)
    return known
