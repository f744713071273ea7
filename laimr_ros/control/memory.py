"""What a controller learned, as plain values: so that a restart need not learn it anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from laimr_ros.control.controller import Controller
from laimr_ros.control.pools import PoolState
from laimr_ros.latency.correction import Correction
from laimr_ros.latency.model import PowerLaw
from laimr_ros.latency.refit import PowerLawRefit

VERSION = 1


def to_state(controller: Controller) -> dict[str, Any]:
    """Return what was learned of each pool, fit for JSON."""
    return {
        'version': VERSION,
        'pools': {name: pool.to_state() for name, pool in controller.pools.items()},
    }


def restore(
    controller: Controller, state: Mapping[str, Any], age_s: float,
    warn: Callable[[str], None] | None = None,
) -> list[str]:
    """
    Go on from what was saved, where it is young and sound; elsewhere from the calibration.

    Pools and models that the state does not know, or that were calibrated otherwise since, stay
    as calibrated. A damaged state never raises.

    :param state: as :func:`to_state` returned it.
    :param age_s: how long ago it was saved, in seconds.
    :param warn: gets one message if anything in the state was damaged.
    :return: the pools that the state knows, without damaged ones.
    """
    pools = state.get('pools')
    if state.get('version') != VERSION or not isinstance(pools, Mapping):
        return []
    known = [name for name in controller.pools if isinstance(pools.get(name), Mapping)]
    sound, damaged = [], []
    for name in known:
        # All of a pool or nothing: its parts were learned on top of each other.
        reason = _damage(controller.pools[name], pools[name], age_s)
        if reason:
            damaged.append(f'pool {name}: {reason}')
        else:
            controller.pools[name].restore(pools[name], age_s)
            sound.append(name)
    if damaged and warn is not None:
        warn(f'what was learned is damaged ({"; ".join(damaged[:3])}): starting from the '
             'calibration there; it will be written anew')
    return sound


def _damage(pool: PoolState, state: Mapping[str, Any], age_s: float) -> str:
    """Return what is wrong with the state of one pool; empty if nothing is."""
    reason = Correction.from_state(_table(state, 'network'), age_s, 0.99, 1.0).damage
    if reason:
        return f'network, {reason}'
    models = _table(state, 'models')
    for name, costs in pool.costs.items():
        learned = _table(models, name)
        reason = Correction.from_state(
            _table(learned, 'correction'), age_s, 0.99, 1.0).damage
        if not reason and isinstance(costs.model, PowerLaw):
            reason = PowerLawRefit.from_state(
                _table(learned, 'refit'), age_s, costs.model).damage
        if reason:
            return f'model {name}, {reason}'
    return ''


def _table(state: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = state.get(key)
    return value if isinstance(value, Mapping) else {}
