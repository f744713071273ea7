"""Real nodes for a scenario: their parameters, a run of them, and what its records say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
import json
from pathlib import Path
import subprocess
import sys
from typing import Any

from laimr_ros import lifeline
from laimr_ros.control.nouns import Configuration, Limits
from laimr_ros.evaluation.runs import RunError
from laimr_ros.simulation.result import nearest_rank
from laimr_ros.simulation.scenarios import Scenario
from laimr_ros.simulation.workload import Workload, write_trace
import numpy as np
import yaml

# Workers that may start at once: each takes a core for a second.
_STARTING = 4
# Loading a network, which an emulated one does not: about what the paper's pods take in all.
_LOAD_S = 1.0
_STATUS_PERIOD = 0.25
# Starting and ending, beside the frames themselves.
_PATIENCE = 240.0


class LiveError(RunError):
    """Real nodes cannot be run; the message says why and what to do."""


@dataclass(frozen=True)
class LiveResult:
    """
    What came out of frames played to real nodes, in the measured window.

    :param latency: of every frame of the trace from its reception to its result, in seconds;
        infinite without one.
    :param network_s: by pool, what answers took beyond waiting and service, in seconds.
    :param offload_share: to another pool than their lane lists first, of the frames sent.
    :param replicas: mean number of replicas, ready or starting, both pools together.
    :param start_up_s: what the last start-ups took, in seconds.
    :param lost: frames published that the dispatcher has no record of.
    :param late_s: how late the most belated frame was published.
    """

    latency: Any
    network_s: Mapping[str, float]
    service_s: Mapping[str, float]
    offload_share: float
    replicas: float
    start_up_s: float
    lost: int
    late_s: float


def node_parameters(
    configuration: Configuration, scenario: Scenario
) -> dict[str, dict[str, Any]]:
    """Return the parameters of dispatcher and bridge that make them what is simulated."""
    dispatcher: dict[str, Any] = {
        'topics': ['/{robot}/image_raw/compressed'],
        'image_qos': {'depth': 100, 'reliability': 'reliable'},
        'discovery_period': 0.2,
        'diagnostics_period': _STATUS_PERIOD,
        'policy': configuration.policy,
        **{f.name: getattr(configuration.limits, f.name) for f in fields(Limits)},
        'lane_names': list(configuration.lanes),
        'lanes': {name: {
            'model': lane.model, 'slo': lane.slo, 'pools': list(lane.pools),
            'supersede': lane.supersede, 'max_queue': lane.max_queue,
            'late_answers': lane.late_answers,
            'pool_order': lane.pool_order} for name, lane in configuration.lanes.items()},
        'instance_names': list(configuration.instances),
        'instances': {name: {'capacity': instance.capacity, 'background': instance.background}
                      for name, instance in configuration.instances.items()},
        'pool_names': list(configuration.pools),
        'pools': {name: {
            'instance': pool.instance, 'models': list(pool.models),
            'min_replicas': pool.min_replicas, 'max_replicas': pool.max_replicas,
            'max_in_flight': pool.max_in_flight, 'start_up': pool.start_up,
            'price': pool.price,
            'network_mean': pool.network.mean, 'network_cv': pool.network.cv,
            'latency': {model: {key: getattr(law, key)
                                for key in ('alpha', 'beta', 'gamma', 'cv')}
                        for model, law in pool.models.items()}}
            for name, pool in configuration.pools.items()}}
    bridge = {
        'pool_names': list(scenario.pools), 'max_starting': _STARTING,
        'pools': {name: {
            'min_replicas': pool.min_replicas, 'max_replicas': pool.max_replicas,
            'initial_replicas': pool.initial_replicas} for name, pool in scenario.pools.items()}}
    return {'dispatcher': dispatcher, 'local_bridge': bridge}


def worker_parameters(scenario: Scenario, pool: str, load_file: Path) -> dict[str, Any]:
    """
    Return the parameters of a pool's workers, whose emulated detectors follow the scenario's law.

    :param load_file: through which the workers of one instance know of each other.
    """
    law = scenario.pools[pool]
    instance = scenario.instances[law.instance]
    return {
        'model_names': list(law.models),
        'emulated_rtt_s': law.network.mean, 'emulated_rtt_cv': law.network.cv,
        # A push policy's queues are in the workers.
        'max_queue': 10_000,
        'models': {model: {'kind': 'emulated', 'options': {
            'law': 'power_law', 'mean_s': scenario.models[model].idle / instance.speed_up,
            'cv': scenario.models[model].cv, 'gamma': scenario.models[model].gamma,
            'background': instance.background / instance.capacity,
            # One inference holds a replica's CPUs: so many fill the instance.
            'cores': instance.capacity / law.cpus, 'instance': law.instance, 'load_s': _LOAD_S,
            'load_file': str(load_file)}} for model in law.models}}


def play(
    scenario: Scenario, configuration: Configuration, workload: Workload, directory: Path
) -> LiveResult:
    """
    Play frames to real nodes.

    :param directory: for parameters, logs and records; an absolute path.
    :raises LiveError: if they cannot be run.
    """
    directory.mkdir(parents=True, exist_ok=True)
    parameters = directory / 'nodes.yaml'
    parameters.write_text(yaml.safe_dump({
        f'/**/{node}': {'ros__parameters': values}
        for node, values in node_parameters(configuration, scenario).items()}))
    command = [sys.executable, '-m', 'laimr_ros.demo.replay', '--params-file', str(parameters),
               '--trace', str(directory / 'trace.csv'), '--out', str(directory)]
    for pool in scenario.pools:
        path = directory / f'workers_{pool}.yaml'
        load_file = directory / f'load_{scenario.pools[pool].instance}'
        path.write_text(yaml.safe_dump({'/**/worker': {
            'ros__parameters': worker_parameters(scenario, pool, load_file)}}))
        command += ['--workers', f'{pool}={path}']
    write_trace(workload, directory / 'trace.csv')
    # What an earlier run left would be added to.
    (directory / 'records.jsonl').unlink(missing_ok=True)
    child = lifeline.spawn(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True)
    try:
        _, errors = child.communicate(timeout=scenario.end + _PATIENCE)
    except subprocess.TimeoutExpired:
        raise LiveError(
            f'real nodes have not ended {_PATIENCE:.0f} s after their last frame; see the logs '
            f'in {directory / "logs"}') from None
    finally:
        child.cut()
        child.wait()
    if child.returncode:
        lines = errors.strip().splitlines()
        raise LiveError(lines[-1] if lines else f'real nodes ended with {child.returncode}')
    return read_result(scenario, workload, directory)


def read_result(scenario: Scenario, workload: Workload, directory: Path) -> LiveResult:
    """Return what dispatcher and replay have written."""
    told = json.loads((directory / 'replay.json').read_text())
    records = [json.loads(line) for line in (directory / 'records.jsonl').read_text().splitlines()]
    measured = [record for record in records
                if scenario.warm_up <= record['stamp'] - told['start_ns'] * 1e-9 < scenario.end]
    answered = [record for record in measured if record['outcome'] == 'answered']
    # Not what the dispatcher calls offloaded: it may prefer another pool than is listed first.
    away = [record['pool'] != scenario.lanes[record['lane']].pools[0]
            for record in measured if record['pool']]
    expected = int(np.sum((workload.time >= scenario.warm_up) & (workload.time < scenario.end)))
    latency = [record['latency_s'] - record['age_s'] for record in answered]
    latency += [np.inf] * max(0, expected - len(answered))
    history = [entry for entry in told['pools']
               if scenario.warm_up <= entry['time_s'] < scenario.end]
    start_ups = [entry[pool]['start_up_s'] for entry in told['pools'][-1:]
                 for pool in scenario.pools]
    return LiveResult(
        np.array(latency), _by_pool(answered, 'network_s'), _by_pool(answered, 'service_s'),
        float(np.mean(away)) if away else 0.0,
        float(np.mean([sum(entry[pool]['ready'] + entry[pool]['starting']
                           for pool in scenario.pools) for entry in history])),
        float(np.mean(start_ups)), len(workload.time) - len(records), told['late_s'])


def _by_pool(records: list[dict[str, Any]], what: str) -> dict[str, float]:
    """Return the median of something, by pool."""
    pools = sorted({record['pool'] for record in records})
    return {pool: nearest_rank(np.array(
        [record[what] for record in records if record['pool'] == pool]), 0.5) for pool in pools}
