"""Small scenarios whose outcome can be worked out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from laimr_ros.simulation.scenario_files import from_values
from laimr_ros.simulation.scenarios import Scenario


def one_pool(
    *, robots: int = 4, rate: float = 8.0, replicas: int = 2, service: float = 0.1,
    law: str = 'lognormal', cv: float = 0.0, capacity: float = 1e9, gamma: float = 1.0,
    network: float = 0.0, measured: float = 100.0, lane: Mapping[str, Any] | None = None,
    pool: Mapping[str, Any] | None = None, **values: Any
) -> Scenario:
    """Return a scenario of one lane, one pool and Poisson arrivals."""
    return from_values('small', {
        'robots': robots, 'rate': rate, 'measured': measured,
        'arrivals': {'process': 'poisson'},
        'models': {'m': {'idle': service, 'cv': cv, 'gamma': gamma, 'law': law}},
        'instances': {'host': {'capacity': capacity}},
        'pools': {'edge': {
            'instance': 'host', 'min_replicas': 1, 'max_replicas': 50,
            'initial_replicas': replicas, 'network': {'mean': network, 'cv': 0.0},
            'start_up': {'mean': 1.0, 'cv': 0.0},
            'models': {'m': {'alpha': service, 'cv': cv}}, **(pool or {})}},
        'lanes': {'lane': {
            'model': 'm', 'slo': 1.0, 'pools': ['edge'], 'late_by': 1000.0, **(lane or {})}},
        **values})
