"""The processes of a demonstration: started together, ended in order, none left behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import time

from laimr_ros.lifeline import Child, spawn


class Processes:
    """
    Named child processes with a log file each.

    :param logs: directory of the log files.
    :param environment: their environment.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        """Start without processes."""
        self._logs = logs
        self._environment = dict(environment)
        self._children: dict[str, Child] = {}

    def start(self, name: str, argv: Sequence[str]) -> None:
        """Start one process on a lifeline. :raises OSError: if it cannot be run."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with open(self._logs / f'{name}.log', 'wb') as log:
            self._children[name] = spawn(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=self._environment)

    def dead(self) -> list[tuple[str, int]]:
        """Return the processes that ended by themselves, with their exit status."""
        ended = []
        for name, child in self._children.items():
            status = child.poll()
            if status is not None:
                ended.append((name, status))
        return ended

    def obituary(self) -> str:
        """Return how a process ended by itself and what it said last, or '' if none did."""
        for name, status in self.dead():
            lines = ' | '.join(self.lines(name)[-3:]) or 'no output'
            return (f'{name} ended with status {status}: {lines} (whole log: '
                    f'{self._logs / f"{name}.log"})')
        return ''

    def lines(self, name: str) -> list[str]:
        """Return the lines of a process's log, without the blank ones."""
        path = self._logs / f'{name}.log'
        text = path.read_text(errors='replace') if path.exists() else ''
        return [line for line in text.splitlines() if line.strip()]

    def interrupt(self, names: Iterable[str]) -> None:
        """Ask processes to end."""
        for name in names:
            child = self._children.get(name)
            if child is not None and child.poll() is None:
                child.send_signal(signal.SIGINT)

    def wait(self, names: Iterable[str], seconds: float) -> None:
        """Wait for processes to end; kill those that have not within ``seconds``."""
        deadline = time.monotonic() + seconds
        for name in names:
            child = self._children.pop(name, None)
            if child is None:
                continue
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                # Cutting the lifeline, too, so that its own children end with it.
                child.cut()
                child.kill()
                child.wait()

    def close(self) -> None:
        """End whatever is left, at once."""
        names = list(self._children)
        self.interrupt(names)
        self.wait(names, 1.0)


def ros_environment(logs: Path, domain: int | None = None) -> dict[str, str]:
    """
    Return an environment for nodes of this host alone.

    :param logs: directory of ROS' own logs, unless the environment names one.
    :param domain: ROS domain; that of the environment if None, or else a random one.
    """
    environment = dict(os.environ)
    if domain is not None:
        environment['ROS_DOMAIN_ID'] = str(domain)
    elif not environment.get('ROS_DOMAIN_ID'):
        # Not the default domain: robots on the network shall not join by chance.
        environment['ROS_DOMAIN_ID'] = str(random.SystemRandom().randint(1, 100))
    environment.setdefault('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    environment.setdefault('ROS_LOG_DIR', str(logs.absolute()))
    environment['PYTHONUNBUFFERED'] = '1'
    return environment


def start_nodes(
    processes: Processes, params: Path, records: Path, workers: Mapping[str, Path]
) -> None:
    """
    Start dispatcher and local bridge.

    :param params: file with the parameters of both.
    :param records: file for the dispatcher's records.
    :param workers: by pool, the file with its workers' parameters.
    """
    def start(name: str, parameters: Mapping[str, Path]) -> None:
        command = [sys.executable, '-m', 'laimr_ros.nodes.entry', name, '--ros-args',
                   '--params-file', str(params.absolute())]
        for parameter, path in parameters.items():
            command += ['-p', f'{parameter}:={path.absolute()}']
        processes.start(name, command)

    start('dispatcher', {'records_file': records})
    start('local_bridge', {
        f'pools.{pool}.worker_params_file': path for pool, path in workers.items()})
