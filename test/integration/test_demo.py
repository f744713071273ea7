"""The whole demonstration as a process, with emulated detectors so that it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
import json
from pathlib import Path
import signal
import subprocess
import sys
import time

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PARAMETERS = """
/**/dispatcher:
  ros__parameters:
    topics: ['/{robot}/image_raw/compressed']
    lane_names: [fast, careful]
    lanes:
      fast: {model: lite, slo: 0.8, pools: [edge, cloud], robots: ['*[135]']}
      careful: {model: lite, slo: 1.5, pools: [edge, cloud], robots: ['*[246]']}
    pool_names: [edge, cloud]
    pools:
      edge: {max_replicas: 3, latency: {lite: {alpha: 0.1}}}
      cloud: {max_replicas: 3, max_in_flight: 2, network_mean: 0.06, latency: {lite: {alpha: 0.1}}}
    slow_window: 4.0
    diagnostics_period: 0.25
/**/local_bridge:
  ros__parameters:
    pool_names: [edge, cloud]
    pools:
      edge: {min_replicas: 1, max_replicas: 3}
      cloud: {min_replicas: 1, max_replicas: 3, worker_args: ['--emulated-rtt', '0.06']}
/**/worker:
  ros__parameters:
    model_names: [lite]
    models:
      lite: {kind: emulated, options: {law: lognormal, mean_s: 0.1, cv: 0.2, detections: 3}}
/**/camera:
  ros__parameters: {rate: 1.0}
"""


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return every process that a process has started."""
    return psutil.Process(process.pid).children(recursive=True)


def assert_gone(processes: list[psutil.Process], seconds: float) -> None:
    """Check that processes end within a bound."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    assert not alive, f'left behind: {[p.cmdline() for p in alive]}'


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a demonstration of many seconds."""
    params = tmp_path / 'params.yaml'
    params.write_text(PARAMETERS)
    process = subprocess.Popen(
        [sys.executable, '-m', 'laimr_ros.cli.main', 'demo', '--duration', '600', '--robots', '2',
         '--params-file', str(params), '--out', str(tmp_path / 'out')],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    yield process
    if process.poll() is None:
        process.kill()
    process.wait(10)


def wait_for_frames(process: subprocess.Popen[str]) -> None:
    """Read the output until frames flow."""
    assert process.stdout is not None
    deadline = time.monotonic() + 120.0
    seen = []
    for line in process.stdout:
        seen.append(line)
        if ' of 600 s' in line and ' 0 frames' not in line:
            return
        assert time.monotonic() < deadline, ''.join(seen)
    pytest.fail(f'ended early: {"".join(seen)}')


def test_a_demonstration_ends_with_a_summary_that_adds_up(tmp_path: Path) -> None:
    """From nothing to summary, plot and pictures; nothing is left running."""
    params = tmp_path / 'params.yaml'
    params.write_text(PARAMETERS)
    out = tmp_path / 'out'
    done = subprocess.run(
        [sys.executable, '-m', 'laimr_ros.cli.main', 'demo', '--duration', '8', '--rate', '2',
         '--burst-factor', '5', '--params-file', str(params), '--out', str(out)],
        cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = out / 'latest'
    summary = json.loads((run / 'summary.json').read_text())
    names = ('answered', 'superseded', 'expired', 'rejected', 'failed', 'in_flight')
    assert summary['received'] == sum(summary[name] for name in names) > 50
    assert summary['in_flight'] == 0
    assert summary['answered'] > 0.5 * summary['received']
    assert summary['records'] == summary['received']
    assert set(summary['lanes']) == {'fast', 'careful'}
    for lane in summary['lanes'].values():
        assert 0.0 < lane['p50_s'] <= lane['p99_s']
        assert {'slo_s', 'on_time'} <= set(lane)
    assert summary['pools']['edge']['replicas_max'] >= 1
    assert 0.0 <= summary['pools']['cloud']['offload_share'] <= 1.0
    assert (run / 'plot.png').stat().st_size > 10_000
    assert len(list(run.glob('frame-robot*.jpg'))) == 6
    assert 'on time' in done.stdout


def test_ctrl_c_ends_it_within_five_seconds_with_the_summary(
    demo: subprocess.Popen[str], tmp_path: Path
) -> None:
    """At any moment; here in the middle."""
    wait_for_frames(demo)
    children = descendants(demo)
    assert len(children) >= 6
    begun = time.monotonic()
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=30)
    took = time.monotonic() - begun
    assert demo.returncode == 0, output
    assert took < 5.0
    summary = json.loads((tmp_path / 'out' / 'latest' / 'summary.json').read_text())
    assert summary['adds_up'] and summary['received'] > 0
    assert_gone(children, 1.0)


def test_nothing_survives_its_sudden_death(demo: subprocess.Popen[str]) -> None:
    """SIGKILL of the demonstration: nodes and workers end by themselves."""
    wait_for_frames(demo)
    children = descendants(demo)
    demo.kill()
    assert_gone(children, 15.0)


def test_a_node_that_cannot_start_ends_it_with_its_words(tmp_path: Path) -> None:
    """A mistyped parameter value: one clear line, no waiting for workers."""
    params = tmp_path / 'params.yaml'
    params.write_text(PARAMETERS.replace('slo: 0.8', 'slo: -0.8'))
    done = subprocess.run(
        [sys.executable, '-m', 'laimr_ros.cli.main', 'demo', '--params-file', str(params),
         '--out', str(tmp_path / 'out')],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert 'lanes.fast.slo' in done.stderr and '-0.8' in done.stderr
