"""What diagnostics show of the controller, as plain values."""

from __future__ import annotations

import math
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from laimr_ros.control.controller import Controller


def _number(value: float) -> float | None:
    """Return a number that JSON knows: None for NaN and infinity."""
    return value if math.isfinite(value) else None


def take_snapshot(controller: Controller, now: float) -> dict[str, Any]:
    """
    Return counters, lanes, pools and cameras.

    Times are in seconds, rates in frames per second; None where nothing is known.

    :param now: present time in seconds of the controller's clock.
    """
    lanes: dict[str, Any] = {}
    for name, lane in controller.lanes.items():
        p50, p99 = lane.latencies.quantiles(now, 0.5, 0.99)
        config = lane.queue.lane
        counts = lane.counters.as_dict()
        ended = counts['received'] - counts['in_flight']
        lanes[name] = {
            **counts,
            'model': config.model,
            'pools': list(config.pools),
            'slo_s': config.slo,
            'p50_s': _number(p50),
            'p99_s': _number(p99),
            'on_time_share': counts['on_time'] / ended if ended else None,
            'rate': lane.arrivals.fast(now),
            'queued': len(lane.queue),
        }
    planner = controller._planner
    pools: dict[str, Any] = {}
    for name, pool in controller.pools.items():
        measured, = pool.latencies.quantiles(now, 0.99)
        pools[name] = {
            'rate': pool.sent.rate(now),
            'sent_total': pool.sent_total,
            'offloaded_total': pool.offloaded_total,
            'rho': _number(planner.rho[name]),
            'ready': pool.ready,
            'replicas': len(pool.replicas),
            'starting': pool.starting,
            'desired': planner.scalers[name].desired,
            'in_flight': sum(len(r.in_flight) for r in pool.replicas.values()),
            'start_up_s': pool.start_up,
            'predicted_p99_s': _number(pool.predicted),
            'measured_p99_s': _number(measured),
            'coverage': pool.covered / pool.judged if pool.judged else None,
            'models': {
                model: {'service_s': costs.service, 'network_s': costs.network,
                        'service_ratio': costs.service_correction.mean_ratio,
                        'service_cv': costs.cv,
                        'coverage': _number(costs.service_correction.recent_coverage)}
                for model, costs in pool.costs.items()},
        }
    cameras = {
        name: {
            **camera.counters.as_dict(),
            'lane': camera.lane,
            'rate': camera.arrivals.rate(now),
            'age_s': _number(now - camera.last_captured),
            'reasons': dict(camera.counters.reasons),
        }
        for name, camera in controller.cameras.items()}
    return {
        'counters': controller.counters.as_dict(),
        'lanes': lanes,
        'pools': pools,
        'cameras': cameras,
    }
