"""
The dispatcher's own cost: ``python -m benchmarks.dispatch [--json FILE] [--quick]``.

Real processes: robots (a publisher each, on real topics), the dispatcher alone on one core, a
worker with an emulated detector of zero service time that answers each frame with ten detections,
and a listener to all detections; the last three share the other core. Frames have 100 kB.

``frames_per_s_N``: highest rate offered by N robots of which at least 98 % was answered, measured
at the listener. ``added_p99_ms_N``: P99 from publishing a frame to receiving its detections, less
P99 of bare gRPC to the same worker from the dispatcher's core, in turns, both at half the goal.
``cpu_ms_per_frame_N``: CPU time of the dispatcher, all threads. ``frames_per_s_cpu_bound_N``: what
that allows on one core, were the others infinitely fast. ``load_core_busy_N``: how busy the
*other* core was at the highest rate; near 1 the load generators were the limit, not the
dispatcher.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import json
import os
from pathlib import Path
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.report import add_arguments, quantile, write

GOAL_PER_S = 1200.0
IMAGE_BYTES = 100_000
DETECTIONS = 10
MODEL = 'fake'
# Shares of the goal that are offered to find the highest rate.
STEPS = (0.5, 0.75, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0)


class Process:
    """
    A process that answers a line with a line of JSON.

    :param argv: its command line.
    :param cores: where it may run.
    """

    def __init__(self, argv: Sequence[str], cores: set[int], log: Path) -> None:
        self._log = open(log, 'w')  # noqa: SIM115 (closed in `end`)
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.pid = self._process.pid

    def read(self) -> dict[str, Any]:
        """Return its next line. :raises RuntimeError: if it has ended."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{'):
                return dict(json.loads(line))
        raise RuntimeError(f'a process of the benchmark has ended; see {self._log.name}')

    def ask(self, line: str = '') -> dict[str, Any]:
        """Send a line and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + '\n')
        self._process.stdin.flush()
        return self.read()

    def wait_for(self, text: str) -> None:
        """Wait for a line of output that begins with a text."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(text):
                return
        raise RuntimeError(f'a process of the benchmark has ended; see {self._log.name}')

    def cpu_s(self) -> float:
        """Return the CPU time it has used, in seconds."""
        with open(f'/proc/{self.pid}/stat') as file:
            fields = file.read().rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def rss_mb(self) -> float:
        """Return its resident memory in 10**6 bytes."""
        with open(f'/proc/{self.pid}/statm') as file:
            return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6

    def end(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def busy_s(core: int) -> float:
    """Return how long a core has been busy since the machine started, in seconds."""
    for line in Path('/proc/stat').read_text().splitlines():
        if line.startswith(f'cpu{core} '):
            user, nice, system, _, _, irq, softirq, steal = map(int, line.split()[1:9])
            return (user + nice + system + irq + softirq + steal) / os.sysconf('SC_CLK_TCK')
    return 0.0


class Stage:
    """
    All processes for one number of robots.

    :param robots: how many.
    :param directory: for sockets, parameters and logs.
    """

    def __init__(self, robots: int, directory: Path) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self.dispatcher_core, self.load_core = cores[0], cores[-1]
        self.robots = robots
        mine, others = {self.dispatcher_core}, set(cores[1:]) or {cores[0]}
        os.environ['ROS_DOMAIN_ID'] = str(random.randint(1, 230))
        endpoint = f'unix:{directory}/worker.sock'
        parameters = directory / 'dispatcher.yaml'
        parameters.write_text(_parameters(endpoint))
        load = [sys.executable, '-m', 'benchmarks.dispatch_load']
        self._processes: list[Process] = []

        def start(name: str, argv: Sequence[str], where: set[int]) -> Process:
            process = Process(argv, where, directory / f'{name}-{robots}.log')
            self._processes.append(process)
            return process

        worker = start('worker', [
            sys.executable, '-m', 'laimr_ros.cli.main', 'worker', '--model', f'{MODEL}=emulated',
            '--set', f'models.{MODEL}.options.detections={DETECTIONS}',
            '--set', 'max_queue=64', '--listen', endpoint], others)
        worker.wait_for('ready')
        self.worker = worker
        self.bare = start('bare', [*load, 'bare', endpoint, MODEL, str(IMAGE_BYTES)], mine)
        self.bare.read()
        self.listener = start('listener', [*load, 'listener', str(robots)], others)
        self.listener.read()
        self.dispatcher = start('dispatcher', [
            sys.executable, '-m', 'laimr_ros.nodes.dispatcher', '--ros-args', '--params-file',
            str(parameters)], mine)
        self.sender = start('robots', [*load, 'robots', str(robots), str(IMAGE_BYTES)], others)
        self.sender.read()
        # Discovery of the detections' publishers and the replica; then caches and buffers.
        deadline = time.monotonic() + 20.0
        while not self.offer(200.0, 200)['latencies_ms'] and time.monotonic() < deadline:
            pass
        found = self.offer(400.0, 800)
        if found['detections'] != DETECTIONS:
            raise RuntimeError(f'frames come back with {found["detections"]} detections, not '
                               f'{DETECTIONS}; see the logs in {directory}')

    def offer(self, rate: float, count: int) -> dict[str, Any]:
        """
        Have frames published at a rate; return what came of them.

        :param rate: frames per second, over all robots.
        :param count: how many frames.
        """
        self.listener.ask()
        cpu, busy, begin = self.dispatcher.cpu_s(), busy_s(self.load_core), time.monotonic()
        sent = self.sender.ask(f'{rate} {count}')
        took = time.monotonic() - begin
        cpu, busy = self.dispatcher.cpu_s() - cpu, busy_s(self.load_core) - busy
        time.sleep(0.3)
        got = self.listener.ask()
        latencies = got['latencies_ms']
        answered = len(latencies)
        return {
            'offered_per_s': sent['rate'],
            'answered_share': answered / count,
            'answered_per_s': sent['rate'] * answered / count,
            'latencies_ms': latencies,
            'detections': got['detections'],
            'cpu_ms': cpu / max(1, answered) * 1e3,
            'dispatcher_busy': cpu / took,
            'load_busy': busy / took,
        }

    def close(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.end()


def _parameters(endpoint: str) -> str:
    # Every frame counts here, so none supersedes another, and short bursts are let through.
    return f"""/**/dispatcher:
  ros__parameters:
    lane_names: [lane]
    lanes: {{lane: {{model: {MODEL}, slo: 2.0, supersede: false}}}}
    pool_names: [pool]
    pools:
      pool:
        endpoints: ['{endpoint}']
        max_in_flight: 32
        latency: {{{MODEL}: {{alpha: 0.0005}}}}
    image_qos: {{depth: 32}}
    bridge: ''
"""


def measure(robots: int, directory: Path, quick: bool) -> dict[str, float]:
    """Return the figures for one number of robots."""
    stage = Stage(robots, directory)
    try:
        seconds = 1.5 if quick else 4.0
        best: dict[str, Any] = {'answered_per_s': 0.0, 'load_busy': 0.0, 'dispatcher_busy': 0.0}
        for share in STEPS:
            rate = share * GOAL_PER_S
            # Twice, for one hiccup of the machine is not the end of what can be sustained.
            for _ in range(2):
                step = stage.offer(rate, int(rate * seconds))
                print(f'  {robots} robots: offered {step["offered_per_s"]:.0f}/s, answered '
                      f'{step["answered_share"]:.1%}, {step["cpu_ms"]:.3f} ms of CPU a frame, '
                      f'cores busy {step["dispatcher_busy"]:.0%} (dispatcher) '
                      f'{step["load_busy"]:.0%} (load)', flush=True)
                if step['answered_share'] >= 0.98:
                    break
            if step['answered_share'] < 0.98:
                break
            if step['answered_per_s'] > best['answered_per_s']:
                best = step
        half = 0.5 * GOAL_PER_S
        whole, bare, cpu = [], [], []
        for _ in range(2 if quick else 5):
            bare.append(quantile(stage.bare.ask(f'{half} {int(half * seconds)}')['latencies_ms'],
                                 0.99))
            step = stage.offer(half, int(half * seconds))
            whole.append(quantile(step['latencies_ms'], 0.99))
            cpu.append(step['cpu_ms'])
        added = statistics.median(whole) - statistics.median(bare)
        total = 5_000 if quick else 100_000
        rate = min(GOAL_PER_S, 0.8 * max(half, best['answered_per_s']))
        stage.offer(rate, 2_000 if quick else 10_000)
        before = stage.dispatcher.rss_mb()
        soak = stage.offer(rate, total)
        growth = stage.dispatcher.rss_mb() - before
        return {
            f'frames_per_s_{robots}': best['answered_per_s'],
            f'frames_per_s_cpu_bound_{robots}': 1e3 / soak['cpu_ms'],
            f'load_core_busy_{robots}': best['load_busy'],
            f'dispatcher_core_busy_{robots}': best['dispatcher_busy'],
            f'added_p99_ms_{robots}': added,
            f'p99_ms_{robots}': statistics.median(whole),
            f'bare_p99_ms_{robots}': statistics.median(bare),
            f'cpu_ms_per_frame_{robots}': soak['cpu_ms'],
            f'cpu_ms_per_frame_half_load_{robots}': statistics.median(cpu),
            f'rss_growth_mb_{robots}': growth,
            f'soak_frames_{robots}': float(total),
            f'soak_answered_share_{robots}': soak['answered_share'],
        }
    finally:
        stage.close()


def main() -> None:
    """Measure at 1 and at 100 robots; print and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument('--quick', action='store_true', help='two minutes instead of ten')
    parser.add_argument('--robots', type=int, nargs='+', default=[1, 100])
    args = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix='laimr-') as directory:
        for robots in args.robots:
            figures.update(measure(robots, Path(directory), args.quick))
    for name, worst in (
            ('frames_per_s', min), ('frames_per_s_cpu_bound', min), ('added_p99_ms', max),
            ('cpu_ms_per_frame', max), ('rss_growth_mb', max)):
        figures[name] = worst(figures[f'{name}_{robots}'] for robots in args.robots)
    write(figures, args)


if __name__ == '__main__':
    main()
