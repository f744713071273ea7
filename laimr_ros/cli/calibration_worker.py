"""The worker that is calibrated: one that is there, or one started for it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
import contextlib
from contextlib import contextmanager
from pathlib import Path
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laimr_ros.serving.client import ReplicaClient

_START_S = 180.0
# How long a worker that is there may take to be ready.
_READY_S = 30.0


class CalibrateError(Exception):
    """It cannot be done; the message says why and what to do."""


@contextmanager
def worker_to_measure(args: argparse.Namespace) -> Iterator[str]:
    """
    Give the endpoint to measure; start a worker if only its description was given.

    :param args: with ``endpoint`` or ``params_file``, ``model`` and ``pool``, which is filled in.
    :raises ParametersError: if the file does not describe it.
    :raises CalibrateError: if it does not start.
    """
    from laimr_ros.cli.calibration_report import dispatcher_settings, ParametersError
    if args.endpoint is not None:
        yield args.endpoint
        return
    pools = dispatcher_settings(args.params_file).get('pools') or {}
    if not isinstance(pools, Mapping) or not all(
            isinstance(pool, Mapping) or pool is None for pool in pools.values()):
        raise ParametersError(f'{args.params_file} has pools {pools!r}; it must have settings by '
                              'name of the pool, as config/demo.yaml')
    if not any((pool or {}).get('endpoints') for pool in pools.values()):
        _check_model(args.params_file, args.model)
    if not args.pool:
        if len(pools) > 1:
            raise ParametersError(
                f'{args.params_file} has pools {", ".join(pools)}; choose one with --pool')
        args.pool = next(iter(pools), 'edge')
    if pools and args.pool not in pools:
        raise ParametersError(
            f'{args.params_file} has no pool {args.pool!r}, only {", ".join(pools)}')
    endpoints = (pools.get(args.pool) or {}).get('endpoints') or []
    if endpoints:
        yield str(endpoints[0])
        return
    with _started_worker(args.params_file, args.pool) as endpoint:
        yield endpoint


def _check_model(params_file: Path, model: str) -> None:
    """
    Check that the worker that a file describes serves a model.

    :raises ParametersError: if it does not.
    """
    from laimr_ros.cli.calibration_report import node_settings, ParametersError
    worker = node_settings(params_file, 'worker')
    served = worker.get('model_names') or list(worker.get('models') or {})
    if served and model not in served:
        raise ParametersError(
            f'{params_file} serves no model {model!r}, only {", ".join(map(str, served))}; give '
            'one of these with --model')


@contextmanager
def _started_worker(params_file: Path, pool: str) -> Iterator[str]:
    """Start a worker from a parameter file, as the local bridge would, and end it afterwards."""
    import subprocess
    import tempfile
    import threading

    from laimr_ros import lifeline
    from laimr_ros.cli.calibration_report import node_settings
    bridge = node_settings(params_file, 'local_bridge').get('pools') or {}
    extra = [str(word) for word in (bridge.get(pool) or {}).get('worker_args') or []]
    with tempfile.TemporaryDirectory(prefix='laimr-') as folder:
        child = lifeline.spawn(
            [sys.executable, '-m', 'laimr_ros.cli.main', 'worker', '--params-file',
             str(params_file), '--listen', f'unix:{folder}/w.sock', *extra],
            stdout=subprocess.PIPE, text=True)
        watchdog = threading.Timer(_START_S, child.kill)
        watchdog.start()
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            watchdog.cancel()
            if not line.startswith('ready '):
                raise CalibrateError('the worker did not start; see what it said above')
            yield line.split()[1]
        finally:
            watchdog.cancel()
            child.terminate()
            try:
                child.wait(15.0)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


async def wait_ready(client: ReplicaClient, args: argparse.Namespace) -> None:
    """
    Wait until the worker serves the model; say so if that takes a while.

    :raises ParametersError: if it has no such model.
    :raises InferenceError: if it does not serve it in time.
    """
    import asyncio

    from laimr_ros.cli.calibration_report import ParametersError
    from laimr_ros.serving.errors import InferenceError
    limit = min(_READY_S, args.timeout)
    ready = asyncio.ensure_future(client.wait_ready([args.model], limit))
    try:
        await asyncio.wait((ready,), timeout=1.0)
        if not ready.done():
            with contextlib.suppress(InferenceError):
                served = await client.served_models()
                if served and args.model not in served:
                    raise ParametersError(
                        f'{client.endpoint} serves no model {args.model!r}, only '
                        f'{", ".join(served)}; give one of these with --model')
        if not ready.done():
            print(f'laimr calibrate: waiting up to {limit:g} s for {client.endpoint} '
                  '(--timeout)', file=sys.stderr, flush=True)
        await ready
    finally:
        ready.cancel()
