"""Real nodes are told what is simulated, and their records are read for what they say."""

from __future__ import annotations

import json
import math
import subprocess
import sys

from laimr_ros.detectors.base import DetectorSpec
from laimr_ros.detectors.emulated import EmulatedDetector
from laimr_ros.evaluation import live_nodes
from laimr_ros.evaluation.live_nodes import (
    LiveError,
    node_parameters,
    play,
    read_result,
    worker_parameters,
)
from laimr_ros.evaluation.live_table6 import LiveRun, policy
from laimr_ros.serving.config import flatten, from_mapping
from laimr_ros.simulation.things import InstanceWorld, ServiceLaw
from laimr_ros.simulation.workload import workload_of
import numpy as np
import pytest

RUN = LiveRun(4.0, 1, (1,), 20.0)


def test_the_dispatcher_is_configured_as_the_simulated_controller():
    pytest.importorskip('vision_msgs', reason='no ROS or vision_msgs here: run `make setup`')
    from laimr_ros.nodes.dispatcher_parameters import configuration

    scenario = RUN.scenario()
    told = policy().configuration(scenario)
    values = flatten(node_parameters(told, scenario)['dispatcher'])
    assert configuration(values) == told


@pytest.mark.parametrize('pool', ['edge', 'cloud'])
def test_workers_follow_the_law_that_is_simulated(pool, tmp_path):
    scenario = RUN.scenario()
    config = from_mapping(flatten({
        **worker_parameters(scenario, pool, tmp_path / 'load'), 'listen': ['127.0.0.1:0']}))
    spec = config.models['yolov5m']
    detector = EmulatedDetector(DetectorSpec(
        kind=spec.kind, options={**spec.options, 'load_s': 0.0}))
    instance = InstanceWorld(scenario.instances[scenario.pools[pool].instance])
    law = ServiceLaw(scenario.models['yolov5m'], instance)
    cpus = scenario.pools[pool].cpus
    # The mean with one, three and all replicas of the instance at work.
    for running in (1, 3, round(instance.law.capacity / cpus)):
        instance.held = running * cpus
        load = running / spec.options['cores']
        assert spec.options['mean_s'] * detector._slow_down(load) == pytest.approx(law.mean())
    assert config.server.emulated_rtt_s == scenario.pools[pool].network.mean


def _record(at, outcome='answered', pool='edge', latency=1.0, **more):
    return {'stamp': 1000.0 + at, 'outcome': outcome, 'pool': pool, 'latency_s': latency,
            'age_s': 0.25, 'network_s': 0.01, 'service_s': 0.7, 'lane': 'balanced',
            # Of a dispatcher that prefers the cloud.
            'offloaded': pool == 'edge', **more}


def test_records_of_the_measured_window_are_read(tmp_path):
    scenario = RUN.scenario()
    workload = workload_of(scenario, 1)
    pool = {'ready': 2, 'starting': 1, 'start_up_s': 1.5}
    (tmp_path / 'replay.json').write_text(json.dumps({
        'start_ns': 1000 * 10**9, 'late_s': 0.002, 'pools': [
            {'time_s': at, 'edge': {**pool, 'ready': ready}, 'cloud': pool}
            for at, ready in ((1.0, 8), (16.0, 2), (17.0, 4), (40.0, 8))]}))
    records = [_record(1.0, latency=9.0), _record(16.0), _record(17.0, latency=2.0),
               _record(20.0, pool='cloud', network_s=0.06),
               _record(21.0, 'expired', pool=''), _record(36.0, latency=9.0)]
    (tmp_path / 'records.jsonl').write_text(''.join(json.dumps(r) + '\n' for r in records))
    result = read_result(scenario, workload, tmp_path)
    # Three answers, from reception on; every other frame of the trace counts as infinitely late.
    assert sorted(result.latency.tolist())[:3] == [0.75, 0.75, 1.75]
    expected = int(np.sum((workload.time >= 15.0) & (workload.time < 35.0)))
    assert len(result.latency) == expected
    assert sum(map(math.isinf, result.latency)) == expected - 3
    assert result.network_s == {'cloud': 0.06, 'edge': 0.01}
    # The edge is what the lane lists first.
    assert result.offload_share == pytest.approx(1 / 3)
    assert result.replicas == pytest.approx((2 + 4) / 2 + 1 + 3)
    assert result.start_up_s == 1.5
    assert result.lost == len(workload.time) - len(records)


@pytest.mark.parametrize(('script', 'told'), [
    ("print('much', file=sys.stderr); sys.exit('ROS is missing; run make setup')",
     '^ROS is missing; run make setup$'),
    ('sys.exit(3)', 'ended with 3')])
def test_what_fails_is_told_in_one_line(script, told, tmp_path, monkeypatch):
    spawn = live_nodes.lifeline.spawn
    monkeypatch.setattr(
        live_nodes.lifeline, 'spawn',
        lambda argv, **options: spawn([sys.executable, '-c', f'import sys; {script}'], **options))
    scenario = RUN.scenario()
    with pytest.raises(LiveError, match=told):
        play(scenario, policy().configuration(scenario), workload_of(scenario, 1), tmp_path)


def test_a_child_that_hangs_is_ended(tmp_path, monkeypatch):
    children = []
    spawn = live_nodes.lifeline.spawn

    def hang(argv, **options):
        children.append(spawn([sys.executable, '-c', (
            'from laimr_ros import lifeline; import time; lifeline.attach(0.1); time.sleep(60)'
        )], **options))
        return children[0]

    monkeypatch.setattr(live_nodes.lifeline, 'spawn', hang)
    monkeypatch.setattr(live_nodes, '_PATIENCE', 0.5 - RUN.scenario().end)
    scenario = RUN.scenario()
    with pytest.raises(LiveError, match='have not ended'):
        play(scenario, policy().configuration(scenario), workload_of(scenario, 1), tmp_path)
    assert children[0].poll() is not None
    assert isinstance(children[0], subprocess.Popen)
