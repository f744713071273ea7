"""The parameters of the dispatcher, and the controller's configuration made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
import re
from typing import Any

from laimr_ros.control.nouns import (
    Configuration,
    Instance,
    Lane,
    Limits,
    Network,
    POLICIES,
    Pool,
    PowerLaw,
)
from laimr_ros.nodes.parameters import declare, ParameterError, ParameterSpec
from laimr_ros.nodes.topics import parse_patterns
from laimr_ros.serving.endpoint import EndpointError
from laimr_ros.serving.endpoint import parse as parse_endpoint
from rclpy.node import Node

_GENERAL = (
    ParameterSpec(
        'topics', ['/{robot}/image_raw/compressed', '/{robot}/image_raw'],
        "patterns of image topics; {robot} stands for the robot's name, or 'name=/topic' gives "
        'it; where a robot has both, compressed is used', live=True),
    ParameterSpec('discovery_period', 1.0, 'time between looks for robots', 's', 0.1, 60.0,
                  live=True),
    ParameterSpec(
        'robot_timeout', 3.0, 'a robot without image publisher for so long has left; one without '
        'frames for so long is reported as stale', 's', 0.1, 3600.0, live=True),
    ParameterSpec('lane_names', ['balanced'], 'names of the lanes (quality classes)'),
    ParameterSpec('pool_names', ['edge'], 'names of the pools of equal replicas'),
    ParameterSpec('instance_names', [], 'names of the hardware tiers whose load pools share'),
    ParameterSpec('policy', 'laimr', 'who routes and scales: laimr, or laimr_paper for the '
                  "paper's Algorithm 1 with its mean model, to compare with", live=True,
                  choices=POLICIES),
    ParameterSpec('default_lane', '', 'lane of robots that no lanes.<lane>.robots names; empty '
                  'for the first lane', live=True),
    ParameterSpec('bridge', 'local_bridge', 'name of the bridge node that holds the replicas, '
                  'relative to our namespace or with a leading slash; empty for none'),
    ParameterSpec('clock_tolerance', 0.1, 'how far stamps may lie in the future before deadlines '
                  'count from reception', 's', 0.0, 3600.0, live=True),
    ParameterSpec('clock_max_age', 5.0, 'if the youngest of the last frames is older than this, '
                  'its clock is taken to be wrong and deadlines count from reception', 's', 0.1,
                  86400.0, live=True),
    ParameterSpec('score_threshold', 0.0, 'detections with a lower score are not published', '',
                  0.0, 1.0, live=True),
    ParameterSpec('max_image_bytes', 32_000_000, 'images of more bytes are rejected', 'bytes', 1,
                  128_000_000, live=True),
    ParameterSpec('image_qos.depth', 1, 'frames of a robot kept until they are taken; the newest '
                  'wins', '', 1, 1000),
    ParameterSpec('image_qos.reliability', 'best_effort', 'reliability asked of image publishers',
                  choices=('best_effort', 'reliable')),
    ParameterSpec('records_file', '', 'file that gets one JSON line a frame; empty for none'),
    ParameterSpec('state_file', '', 'file that keeps what was learned of workers over a restart; '
                  'empty for none'),
    ParameterSpec('records_max_mb', 200.0, 'most space that records take; beyond it the older '
                  'half is given up', 'MB', 0.1, 1e6, live=True),
    ParameterSpec('diagnostics_period', 1.0, 'time between diagnostics', 's', 0.1, 60.0,
                  live=True),
    ParameterSpec('prometheus_port', 0, 'TCP port for Prometheus metrics; 0 for none', '', 0,
                  65535),
)

_LIMITS = (
    ParameterSpec('quantile', 0.99, 'quantile of completion that scaling holds to the SLO', '',
                  0.5, 0.9999, live=True),
    ParameterSpec('routing_quantile', 0.95, 'quantile of completion that routing looks at', '',
                  0.5, 0.9999, live=True),
    ParameterSpec('slo_margin', 0.9, 'scale out above this share of the SLO', '', 0.05, 1.0,
                  live=True),
    ParameterSpec('scale_in_margin', 0.8, 'scale in only if one replica less stays under this '
                  'share of the SLO', '', 0.05, 0.99, live=True),
    ParameterSpec('scale_interval', 0.5, 'time between scaling decisions', 's', 0.05, 60.0,
                  live=True),
    ParameterSpec('stabilisation', 30.0, 'how long one replica less must have been enough', 's',
                  0.0, 3600.0, live=True),
    ParameterSpec('drain_time', 2.0, 'time within which a backlog is to be worked off', 's', 0.05,
                  600.0, live=True),
    ParameterSpec('fast_window', 2.0, 'fast window of arrival rates', 's', 0.1, 600.0, live=True),
    ParameterSpec('slow_window', 30.0, 'slow window of arrival rates', 's', 0.1, 3600.0,
                  live=True),
    ParameterSpec('max_attempts', 3, 'sends of one frame, the first included', '', 1, 20,
                  live=True),
    ParameterSpec('probe_interval', 5.0, 'a pool predicted to be too slow is tried again after so '
                  'long', 's', 0.1, 3600.0, live=True),
    ParameterSpec('suspend_after', 3, 'failures in a row after which a replica is left alone for '
                  'a while', '', 1, 1000, live=True),
    ParameterSpec('exploration', 0.005, 'share of frames that may go to a pool not preferred, if '
                  'they are on time there too, so that its latency stays known; 0 for none', '',
                  0.0, 0.5, live=True),
    ParameterSpec('hedge_share', 0.0, 'share of frames of which a second copy may be sent to '
                  'another replica; 0 for none', '', 0.0, 0.5, live=True),
    ParameterSpec('hedge_quantile', 0.95, "quantile of a lane's completions after which a second "
                  'copy is due', '', 0.5, 0.999, live=True),
    ParameterSpec('rho_low', 0.3, 'utilisation under which policy laimr_paper removes a replica',
                  '', 0.0, 0.99, live=True),
)


def _lane_specs(lane: str, pools: list[str]) -> Iterator[ParameterSpec]:
    prefix = f'lanes.{lane}.'
    yield ParameterSpec(f'{prefix}model', 'yolov5m', 'detection model of its frames', live=True)
    yield ParameterSpec(f'{prefix}slo', 1.0, 'time from capture within which a frame must be '
                        'answered', 's', 0.001, 3600.0, live=True)
    yield ParameterSpec(f'{prefix}pools', pools, 'pools that may serve it, the preferred first '
                        'if pool_order is "listed"', live=True)
    yield ParameterSpec(f'{prefix}pool_order', 'listed', '"listed" for the order of pools; '
                        '"cheapest" to prefer where a frame costs least: price of the pool times '
                        'time taken there', live=True)
    yield ParameterSpec(f'{prefix}robots', [], 'shell patterns of the robots in it (robot1*)',
                        live=True)
    yield ParameterSpec(f'{prefix}supersede', True, "whether a robot's newest frame replaces its "
                        'waiting one', live=True)
    yield ParameterSpec(f'{prefix}max_queue', 1000, 'frames that may wait', '', 1, 1_000_000,
                        live=True)
    yield ParameterSpec(f'{prefix}late_answers', False, 'whether a frame past its deadline is '
                        'still worth an answer', live=True)


def _pool_specs(pool: str, models: list[str]) -> Iterator[ParameterSpec]:
    prefix = f'pools.{pool}.'
    yield ParameterSpec(f'{prefix}endpoints', [], 'where its replicas serve: host:port or '
                        'unix:/path', live=True)
    yield ParameterSpec(f'{prefix}instance', '', 'hardware tier it runs on; empty for one of its '
                        'own', live=True)
    yield ParameterSpec(f'{prefix}models', models, 'models its replicas serve')
    yield ParameterSpec(f'{prefix}min_replicas', 1, 'fewest replicas to ask for', '', 0, 10_000,
                        live=True)
    yield ParameterSpec(f'{prefix}max_replicas', 1, 'most replicas to ask for', '', 0, 10_000,
                        live=True)
    yield ParameterSpec(f'{prefix}max_in_flight', 1, 'frames sent to one replica at a time', '',
                        1, 10_000, live=True)
    yield ParameterSpec(f'{prefix}start_up', 5.0, 'time a replica needs to start, until it is '
                        'measured', 's', 0.0, 3600.0, live=True)
    yield ParameterSpec(f'{prefix}network_mean', 0.001, 'mean network round trip', 's', 0.0, 60.0,
                        live=True)
    yield ParameterSpec(f'{prefix}price', 1.0, 'of a replica for a second, in any unit that all '
                        'pools share; for pool_order "cheapest"', '', 0.0, 1e9, live=True)
    yield ParameterSpec(f'{prefix}network_cv', 0.3, 'coefficient of variation of the round trip',
                        '', 0.0, 10.0, live=True)


def _latency_specs(pool: str, model: str) -> Iterator[ParameterSpec]:
    prefix = f'pools.{pool}.latency.{model}.'
    yield ParameterSpec(f'{prefix}alpha', 0.1, 'service time of an idle replica', 's', 1e-6,
                        3600.0, live=True)
    yield ParameterSpec(f'{prefix}beta', 0.0, 'slow-down at one frame/s per replica', 's', 0.0,
                        3600.0, live=True)
    yield ParameterSpec(f'{prefix}gamma', 1.0, 'exponent of the rate per replica', '', 0.0, 10.0,
                        live=True)
    yield ParameterSpec(f'{prefix}cv', 0.15, 'coefficient of variation of the service time', '',
                        0.0, 10.0, live=True)


def _instance_specs(instance: str) -> Iterator[ParameterSpec]:
    prefix = f'instances.{instance}.'
    yield ParameterSpec(f'{prefix}capacity', 1e9, 'resource it has, in CPUs or another unit', '',
                        1e-6, 1e12, live=True)
    yield ParameterSpec(f'{prefix}background', 0.0, 'load on it that is not ours, in that unit',
                        '', 0.0, 1e12, live=True)


def specifications(
    lane: str, pool: str, model: str, instance: str
) -> Iterator[ParameterSpec]:
    """Return every parameter there can be, for one lane, pool, model and instance."""
    yield from _GENERAL
    yield from _LIMITS
    yield from _lane_specs(lane, [pool])
    yield from _pool_specs(pool, [model])
    yield from _latency_specs(pool, model)
    yield from _instance_specs(instance)


def declare_parameters(node: Node) -> dict[str, Any]:
    """
    Declare all parameters of the dispatcher; return their values by name.

    :raises ParameterError: if a value cannot be used.
    """
    values = declare(node, _GENERAL + _LIMITS)
    for what in ('lane', 'pool', 'instance'):
        _check_names(what, values[f'{what}_names'])
    for lane in values['lane_names']:
        values.update(declare(node, _lane_specs(lane, values['pool_names'])))
    for pool in values['pool_names']:
        lanes = values['lane_names']
        # Of a pool that no lane uses yet, any model may be wanted later.
        users = [lane for lane in lanes if pool in values[f'lanes.{lane}.pools']] or lanes
        models = dict.fromkeys(values[f'lanes.{lane}.model'] for lane in users)
        values.update(declare(node, _pool_specs(pool, list(models))))
        for model in values[f'pools.{pool}.models']:
            values.update(declare(node, _latency_specs(pool, model)))
    for instance in values['instance_names']:
        values.update(declare(node, _instance_specs(instance)))
    return values


def _check_names(what: str, names: list[str]) -> None:
    for name in names:
        # They become parts of topic names.
        if not re.fullmatch('[A-Za-z][A-Za-z0-9_]*', name):
            raise ParameterError(
                f'{what}_names: {name!r} cannot be used; begin with a letter, and use letters, '
                'digits and _ only')
        if names.count(name) > 1:
            raise ParameterError(f'{what}_names: {name!r} is there twice; remove one')


def configuration(values: Mapping[str, Any]) -> Configuration:
    """
    Make the controller's configuration.

    :param values: of all parameters by name.
    :raises ValueError: if they do not fit together; the message names value and fix.
    """
    lanes = {}
    for name in values['lane_names']:
        get = _getter(values, f'lanes.{name}.')
        lanes[name] = Lane(
            name, get('model'), get('slo'), tuple(get('pools')), get('supersede'),
            get('max_queue'), get('late_answers'), pool_order=get('pool_order'))
    pools = {}
    for name in values['pool_names']:
        get = _getter(values, f'pools.{name}.')
        models = {}
        for model in get('models'):
            law = _getter(values, f'pools.{name}.latency.{model}.')
            models[model] = PowerLaw(law('alpha'), law('beta'), law('gamma'), law('cv'))
        pools[name] = Pool(
            name, models, get('instance'), Network(get('network_mean'), get('network_cv')),
            get('min_replicas'), get('max_replicas'), get('max_in_flight'), get('start_up'),
            get('price'))
    instances = {}
    for name in values['instance_names']:
        get = _getter(values, f'instances.{name}.')
        instances[name] = Instance(name, get('capacity'), get('background'))
    limits = Limits(**{f.name: values[f.name] for f in fields(Limits)})
    return Configuration(lanes, pools, instances, limits, values['policy'])


def check(values: Mapping[str, Any], namespace: str) -> None:
    """
    Check what the ranges of single parameters cannot.

    :param values: of all parameters by name.
    :param namespace: of the node.
    :raises ValueError: if they cannot be used; the message names value and fix.
    """
    configuration(values)
    parse_patterns(values['topics'], namespace)
    default = values['default_lane']
    if default and default not in values['lane_names']:
        raise ParameterError(
            f'default_lane is {default!r}, which is no lane; use one of {values["lane_names"]}')
    owner: dict[str, str] = {}
    for pool in values['pool_names']:
        for text in values[f'pools.{pool}.endpoints']:
            try:
                endpoint = str(parse_endpoint(text))
            except EndpointError as error:
                raise ParameterError(f'pools.{pool}.endpoints: {error}') from None
            if endpoint in owner:
                raise ParameterError(
                    f'pools.{pool}.endpoints: {text!r} is already in pool {owner[endpoint]}; '
                    'remove one of the two')
            owner[endpoint] = pool


def lane_patterns(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return, of each lane in its order, the patterns of its robots."""
    return {lane: values[f'lanes.{lane}.robots'] for lane in values['lane_names']}


def default_lane(values: Mapping[str, Any]) -> str:
    """Return the lane of robots that no pattern names."""
    return str(values['default_lane'] or values['lane_names'][0])


def _getter(values: Mapping[str, Any], prefix: str) -> Any:
    return lambda name: values[prefix + name]
