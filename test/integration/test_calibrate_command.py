"""The command ``laimr calibrate`` against a real worker, and its parameters in a dispatcher."""

from __future__ import annotations

import json
import os
from pathlib import Path
import random
import subprocess
import sys

from laimr_ros.cli.calibration_report import read_parameters
import pytest
import yaml

ROOT = Path(__file__).parents[2]
MEAN_S, CV = 0.02, 0.2

PARAMETERS = {
    'dispatcher': {'ros__parameters': {
        'pool_names': ['edge'], 'lane_names': ['balanced'],
        'lanes': {'balanced': {'model': 'fake', 'pools': ['edge']}},
        'pools': {'edge': {'max_replicas': 1}}}},
    'local_bridge': {'ros__parameters': {
        'pool_names': ['edge'], 'pools': {'edge': {'worker_args': ['--emulated-rtt', '0.004']}}}},
    'worker': {'ros__parameters': {
        'model_names': ['fake'], 'max_queue': 100,
        'models': {'fake': {'kind': 'emulated', 'options': {
            'law': 'lognormal', 'mean_s': MEAN_S, 'cv': CV, 'seed': 1}}}}},
}


def laimr(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``laimr``; a worker that it starts ends with it."""
    return subprocess.run(
        [sys.executable, '-m', 'laimr_ros.cli.main', *arguments], cwd=ROOT, text=True,
        capture_output=True, timeout=150.0, check=False)


@pytest.fixture(scope='module')
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """Calibrate once: a worker started from a file, 5 rates, about 15 seconds."""
    folder = tmp_path_factory.mktemp('calibrate')
    file = folder / 'params.yaml'
    file.write_text(yaml.safe_dump(PARAMETERS))
    done = laimr('calibrate', '--params-file', str(file), '--model', 'fake',
                 '--rates', '10,15,20,25,30', '--frames', '25', '--out', str(folder / 'out'))
    # Status 1: measured, but the host was too restless to trust it.
    assert done.returncode == ('WARNING' in done.stdout), done.stderr
    return file, folder / 'out' / 'latest', done.stdout


def test_service_and_network_are_measured_apart(calibrated) -> None:
    _, results, said = calibrated
    report = json.loads((results / 'report.json').read_text())
    # The worker sleeps; a busy host can only make that longer.
    assert 0.95 * MEAN_S < report['service']['alpha'] < 2.0 * MEAN_S
    alpha = report['intervals']['alpha']
    assert alpha['low'] <= alpha['value'] <= alpha['high']
    assert 0.0035 < report['network']['mean'] < 0.05
    assert report['held_out']['rule'] == 'rates above 20/s'
    assert [rate for rate, _ in report['held_out']['mean_errors']] == [25.0, 30.0]
    assert 'held out (rates above 20/s)' in said
    assert (results / 'plot.png').stat().st_size > 10_000
    records = [json.loads(line) for line in (results / 'frames.jsonl').read_text().splitlines()]
    counted = [record for record in records if not record['disturbed']]
    assert len(counted) == 5 * 3 * 25
    assert all(record['outcome'] == 'ok' for record in counted)


def test_the_dispatcher_loads_what_was_written(calibrated) -> None:
    rclpy = pytest.importorskip('rclpy', reason='ROS is missing: make setup')
    from laimr_ros.nodes import dispatcher_parameters
    from rclpy.context import Context
    from rclpy.node import Node
    file, results, _ = calibrated
    law, network, pool = read_parameters(results / 'parameters.yaml', 'fake')
    assert pool == 'edge'
    context = Context()
    rclpy.init(context=context, domain_id=random.randint(1, 230))
    try:
        node = Node(
            'dispatcher', context=context, enable_rosout=False, start_parameter_services=False,
            cli_args=['--ros-args', '--params-file', str(file), '--params-file',
                      str(results / 'parameters.yaml')])
        values = dispatcher_parameters.declare_parameters(node)
        dispatcher_parameters.check(values, '/')
        edge = dispatcher_parameters.configuration(values).pools['edge']
        node.destroy_node()
    finally:
        rclpy.shutdown(context=context)
    assert edge.models['fake'] == law
    assert edge.network == network
    assert edge.max_replicas == 1


def test_a_check_measures_anew_and_says_whether_it_holds(calibrated) -> None:
    file, results, _ = calibrated
    results = results.resolve()
    done = laimr('calibrate', '--params-file', str(file), '--model', 'fake', '--frames', '15',
                 '--check', str(results / 'parameters.yaml'), '--out', str(results.parent))
    report = json.loads((results.parent / 'latest' / 'report.json').read_text())
    assert report['about']['rates'] == '10, 15, 20, 25, 30 frames/s', 'those of the calibration'
    assert report['about']['frames'].endswith('seed 1000003'), 'other arrivals'
    # Whether it holds is up to the host's other work; that it says what it found is not.
    assert done.returncode == (0 if report['holds'] else 1), done.stderr
    assert ('does NOT hold' in done.stdout) != report['holds']
    assert report['holds'] == (report['median_error'] <= 0.1 and report['coverage'] >= 0.98)
    assert 0.0 < report['coverage_low'] <= report['coverage'] <= report['coverage_high']


def test_a_check_finds_a_model_that_is_wrong(calibrated, tmp_path: Path) -> None:
    file, _, _ = calibrated
    wrong = tmp_path / 'wrong.yaml'
    wrong.write_text('dispatcher: {ros__parameters: {pools: {edge: {latency: '
                     f'{{fake: {{alpha: {MEAN_S / 3}, cv: 0.1}}}}}}}}}}}}')
    done = laimr('calibrate', '--params-file', str(file), '--model', 'fake', '--rates', '15',
                 '--frames', '20', '--check', str(wrong), '--out', str(tmp_path / 'out'))
    assert done.returncode == 1, done.stderr
    assert 'the prediction does NOT hold' in done.stdout


def test_a_worker_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    broken = tmp_path / 'p.yaml'
    broken.write_text(yaml.safe_dump({'worker': {'ros__parameters': {'model_names': ['gone']}}}))
    done = laimr('calibrate', '--params-file', str(broken), '--model', 'gone', '--out',
                 str(tmp_path / 'out'))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith(
        'laimr calibrate: the worker did not start')
    assert not os.path.exists(tmp_path / 'out')
