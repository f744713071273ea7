"""Run a demonstration from start to summary."""

from __future__ import annotations

import argparse
from datetime import datetime
import json
import os
from pathlib import Path
import signal
import sys
import time
from types import FrameType
from typing import Any

from laimr_ros.demo import summary as summaries
from laimr_ros.demo.files import configuration_file, point_latest, Results
from laimr_ros.demo.observer import Observer
from laimr_ros.demo.plot import plot_run
from laimr_ros.demo.processes import Processes, ros_environment, start_nodes
from laimr_ros.demo.scores import Scores
from laimr_ros.demo.screen import Screen
from laimr_ros.detectors.files import find_file
from laimr_ros.serving.config import ConfigError, from_mapping, node_settings
import yaml

# Longest wait for the first worker of every pool: torch alone can take half a minute on a cold
# disk.
_START_TIMEOUT = 180.0
# Cameras begin together so long after they were started, when their own start is over.
_CAMERA_LEAD = 4.0
# A worker that ends so is misconfigured: waiting does not help.
_BAD_CONFIGURATION = 'status 2'
_REFRESH = 0.5


class DemoError(RuntimeError):
    """The demonstration cannot go on; the message says why and what to do."""


class Demo:
    """
    One demonstration.

    :param args: the arguments of ``laimr demo``.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        """Prepare; nothing is started yet."""
        self._args = args
        self._stop = False
        self._params = args.params_file or configuration_file('demo.yaml')
        if not self._params.is_file():
            raise DemoError(f'parameter file {self._params} does not exist; give --params-file')
        self._out = args.out / datetime.now().strftime('%Y%m%d-%H%M%S')
        self._robots = [f'robot{i}' for i in range(1, args.robots + 1)]
        self._burst: tuple[float, float] | None = None
        if args.burst_factor != 1.0:
            length = min(12.0, args.duration / 4.0)
            begin = (args.duration - length) / 2.0
            self._burst = (begin, begin + length)
        self._start = 0.0
        self._random, self._emulated = self._find_nothing()
        self._scores = Scores({robot: self._truth_file(robot) for robot in self._robots})

    def run(self) -> int:
        """Run to the end or to Ctrl-C; write the summary; return the exit status."""
        try:
            self._out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DemoError(
                f'cannot make the directory {self._out} for results '
                f'({error.strerror or error}); give one that can be made with --out') from None
        previous = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGINT, signal.SIGTERM)}
        environment = ros_environment(self._out / 'logs' / 'ros', self._args.domain)
        os.environ.update(environment)
        processes = Processes(self._out / 'logs', environment)
        screen = Screen()
        observer = None
        try:
            screen.say(f'results in {self._out}, ROS_DOMAIN_ID={environment["ROS_DOMAIN_ID"]}')
            self._start_nodes(processes)
            observer = Observer(self._robots, self._scores)
            self._wait_for_workers(processes, observer, screen)
            if not self._stop:
                self._show_warnings(processes, screen)
                self._start_cameras(processes)
                self._watch(processes, observer, screen)
            return self._finish(processes, observer, screen)
        finally:
            screen.close()
            if observer is not None:
                observer.close()
            processes.close()
            self._scores.close()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # An event could deadlock with the very wait that it interrupts.
        self._stop = True

    def _truth_file(self, robot: str) -> Path:
        return Path(self._out / f'truth-{robot}.jsonl').absolute()

    def _start_nodes(self, processes: Processes) -> None:
        start_nodes(
            processes, self._params, self._out / 'records.jsonl',
            {'edge': self._params, 'cloud': self._params})

    def _start_cameras(self, processes: Processes) -> None:
        args = self._args
        self._start = time.time() + _CAMERA_LEAD
        for number, robot in enumerate(self._robots):
            parameters: dict[str, Any] = {
                'seed': args.seed * 1000 + number,
                'start_at': self._start,
                'truth_file': str(self._truth_file(robot)),
            }
            if args.rate is not None:
                parameters['rate'] = args.rate
            if self._burst is not None:
                parameters['burst_start_s'] = self._burst[0]
                parameters['burst_duration_s'] = self._burst[1] - self._burst[0]
                parameters['burst_factor'] = args.burst_factor
            for kind, option in (('directory', args.images), ('video', args.video)):
                if option is not None:
                    parameters['source'] = kind
                    parameters['path'] = str(option.absolute())
            command = [
                sys.executable, '-m', 'laimr_ros.nodes.entry', 'camera', '--ros-args',
                '--params-file', str(self._params.absolute()), '-r', f'__ns:=/{robot}']
            for name, value in parameters.items():
                command += ['-p', f'{name}:={value}']
            processes.start(robot, command)

    def _check(self, processes: Processes) -> None:
        if obituary := processes.obituary():
            raise DemoError(obituary)

    def _wait_for_workers(
        self, processes: Processes, observer: Observer, screen: Screen
    ) -> None:
        begun = time.monotonic()
        while not self._stop:
            self._check(processes)
            status = observer.status()
            waited = time.monotonic() - begun
            if status is not None:
                screen.show(status, f'starting workers, {waited:.0f} s')
                if all(pool['ready'] for pool in status['pools'].values()):
                    return
            troubles = observer.troubles()
            hopeless = [text for text in troubles if _BAD_CONFIGURATION in text]
            if hopeless:
                raise DemoError(f'no worker can start: {hopeless[0]}')
            if waited > _START_TIMEOUT:
                links = [] if status is None else [
                    f'{link["endpoint"]}: {link["reason"]}' for link in status['links']
                    if link['reason']]
                lines = ' | '.join(troubles + links) or 'nothing; see their logs'
                raise DemoError(
                    f'no worker of every pool serves within {_START_TIMEOUT:.0f} s; bridge and '
                    f'dispatcher say: {lines} (logs: {self._out / "logs"})')
            time.sleep(_REFRESH)

    def _show_warnings(self, processes: Processes, screen: Screen) -> None:
        """Show what the nodes warned of while they started: a mistyped parameter, most often."""
        for name in ('dispatcher', 'local_bridge'):
            for line in processes.lines(name):
                if line.startswith('[WARN]'):
                    screen.say(f'{name} warns: {line.split("]: ", 1)[-1]}')

    def _watch(self, processes: Processes, observer: Observer, screen: Screen) -> None:
        end = self._start + self._args.duration
        while not self._stop and time.time() < end:
            self._check(processes)
            status = observer.status()
            elapsed = time.time() - self._start
            if status is not None:
                phase = ''
                if self._burst is not None and self._burst[0] <= elapsed < self._burst[1]:
                    phase = f', burst: {self._args.burst_factor:g} times the frames'
                recall = observer.scored().recall
                if recall is not None and not (self._random or self._emulated):
                    phase += f', {recall:.0%} of objects found'
                screen.show(
                    status, f'{max(0.0, elapsed):.0f} of {self._args.duration:g} s{phase}')
            time.sleep(_REFRESH)

    def _finish(self, processes: Processes, observer: Observer, screen: Screen) -> int:
        screen.say('ending')
        processes.interrupt(self._robots)
        processes.wait(self._robots, 1.5)
        observer.wait_idle(1.0)
        # SIGINT makes the dispatcher publish its last status, end open frames, flush records.
        processes.interrupt(['dispatcher', 'local_bridge'])
        processes.wait(['dispatcher'], 2.0)
        records = self._read_records(screen)
        history = observer.history()
        summary = summaries.summarise(records, history, self._burst, self._start)
        summaries.add_scores(
            summary, self._scores.by_lane(records), [*self._random, *self._emulated])
        summary['duration_s'] = self._args.duration
        summary['burst_s'] = list(self._burst) if self._burst else None
        summary['random_weights'] = self._random
        results = Results(self._out)
        results.write('summary.json', lambda path: path.write_text(
            json.dumps(summary, indent=2) + '\n'))
        results.write('status.jsonl', lambda path: path.write_text(
            ''.join(json.dumps(status) + '\n' for status in history)))
        results.write('frame-*.jpg', lambda path: observer.save_pictures(path.parent))
        results.write('plot.png', lambda path: plot_run(
            path, records, history, self._burst, self._start))
        processes.wait(['local_bridge'], 3.0)
        if summary['received'] or not (self._args.out / 'latest').exists():
            # One that was stopped before its first frame does not hide an earlier result.
            results.write('../latest', lambda path: point_latest(self._args.out, self._out))
        screen.close()
        print(summaries.as_text(summary))
        lost = summary['received'] - summary['records']
        if lost > 0:
            print(f'\n{lost} frames have no record: shares and times above are without them')
        if self._random:
            print(f'\nweights are random ({", ".join(self._random)}): times are real, boxes '
                  'mean nothing')
        print(f'\nsummary, plot, pictures, records and logs: {self._out}', flush=True)
        if results.missing:
            print(f'laimr demo: {results.complaint()}', file=sys.stderr)
        return 0 if summary['adds_up'] and not results.missing else 1

    def _read_records(self, screen: Screen) -> list[dict[str, Any]]:
        try:
            return summaries.read_records(self._out / 'records.jsonl')
        except (OSError, ValueError) as error:
            # A full disk may cut a line in two; the dispatcher's own counts are still there.
            screen.say(f'the records cannot be used: {error}')
            return []

    def _find_nothing(self) -> tuple[list[str], list[str]]:
        """Return the models that were never trained, and those that are emulated."""
        try:
            models = from_mapping(node_settings(yaml.safe_load(self._params.read_text()))).models
        except (ConfigError, yaml.YAMLError):
            return [], []  # The worker will say what is wrong with the file.
        emulated = sorted(name for name, spec in models.items() if spec.kind == 'emulated')
        return sorted(
            name for name, spec in models.items()
            if name not in emulated and not find_file(spec.weights).exists()), emulated
