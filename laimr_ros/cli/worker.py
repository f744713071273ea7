"""``laimr worker``: detectors over the Open Inference Protocol, without ROS."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from laimr_ros import lifeline

if TYPE_CHECKING:
    from laimr_ros.serving.config import WorkerConfig
    from laimr_ros.serving.server import InferenceServer

_EPILOGUE = """
examples:
  laimr worker --params-file config/edge.yaml
  laimr worker --model small=yolo:yolov5n.yaml:320 --listen 0.0.0.0:8500
  laimr worker --model fake=emulated --set models.fake.options.mean_s=0.1 --listen 127.0.0.1:0

It says "ready ENDPOINT SECONDS" on standard output when it serves; SECONDS are those since the
process was started. SIGTERM and SIGINT drain it: no new frames, those in progress are finished,
exit status 0. A second signal ends it at once. Status 2 means a wrong setting, 1 a failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOGUE
    parser.add_argument(
        '--params-file', metavar='FILE', action='append', default=[],
        help='YAML parameters, of ROS ("worker: ros__parameters:") or plain; may be repeated')
    parser.add_argument(
        '--model', metavar='NAME=KIND[:WEIGHTS[:INPUT_PX]]', action='append', default=[],
        help='a model to serve; KIND is yolo, efficientdet or emulated; may be repeated')
    parser.add_argument(
        '--listen', metavar='ADDRESS', action='append', default=[],
        help='host:port (port 0 for any free one) or unix:/path; may be repeated '
             '(default: 0.0.0.0:8500)')
    parser.add_argument('--device', help='for all models: auto, cpu, cuda or cuda:N')
    parser.add_argument('--threads', type=int, metavar='N', help='for all models: CPU threads')
    parser.add_argument(
        '--emulated-rtt', type=float, metavar='SECONDS',
        help='mean round-trip time of an emulated network link in front of the worker')
    parser.add_argument(
        '--set', metavar='KEY=VALUE', action='append', default=[], dest='settings',
        help='any setting of the parameter file, value in YAML, for example max_queue=2')
    parser.add_argument(
        '--ready-file', metavar='FILE',
        help='write endpoints, service times and start-up time to it, in JSON, when it serves')
    parser.add_argument(
        '--log-level', default='warning', choices=('debug', 'info', 'warning', 'error'),
        help='least severity that is logged, on standard error (default: warning)')


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; return the exit status."""
    lifeline.attach()
    # Otherwise gRPC's core prints C++ source locations beside our own messages.
    os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
    import asyncio
    import logging

    from laimr_ros.serving.config import ConfigError
    logging.basicConfig(
        stream=sys.stderr, level=args.log_level.upper(),
        format='%(asctime)s %(levelname)s %(name)s: %(message)s')
    try:
        config = _read_config(args)
        from laimr_ros.serving.server import InferenceServer
        server = InferenceServer(config.models, config.server)
    except (ConfigError, ValueError) as error:
        return _complain(error, 2)
    return asyncio.run(_serve(server, config, args.ready_file))


def _complain(error: object, status: int) -> int:
    print(f'laimr worker: {error}', file=sys.stderr, flush=True)
    return status


def _read_config(args: argparse.Namespace) -> WorkerConfig:
    """Put together files and options; options win. :raises ConfigError: if any is wrong."""
    from laimr_ros.serving.config import ConfigError, from_mapping, node_settings
    import yaml
    settings: dict[str, object] = {}
    for name in args.params_file:
        try:
            with open(name, encoding='utf-8') as file:
                settings.update(node_settings(yaml.safe_load(file)))
        except OSError as error:
            raise ConfigError(f'parameter file {name!r}: {error.strerror}') from None
        except UnicodeDecodeError:
            raise ConfigError(f'parameter file {name!r} is not UTF-8 text') from None
        except yaml.YAMLError as error:
            raise ConfigError(
                f'parameter file {name!r} is no YAML: {" ".join(str(error).split())}') from None
    for text in args.model:
        settings.update(_read_model(text))
    if args.model and not args.params_file:
        settings.pop('model_names', None)
    elif args.model and settings.get('model_names'):
        names = list(settings['model_names'])  # type: ignore[call-overload]
        names += [n for n in (text.split('=', 1)[0] for text in args.model) if n not in names]
        settings['model_names'] = names
    for text in args.settings:
        key, separator, value = text.partition('=')
        if not separator:
            raise ConfigError(f'--set {text!r} is not understood; use KEY=VALUE')
        try:
            settings[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(f'--set {text!r}: the value is no YAML') from None
    if args.listen:
        settings['listen'] = args.listen
    if args.emulated_rtt is not None:
        settings['emulated_rtt_s'] = args.emulated_rtt
    names = {key.split('.')[1] for key in settings if key.startswith('models.') and '.' in key}
    for name in names:
        if args.device is not None:
            settings[f'models.{name}.device'] = args.device
        if args.threads is not None:
            settings[f'models.{name}.threads'] = args.threads
    return from_mapping(settings)


def _read_model(text: str) -> dict[str, object]:
    """Read ``NAME=KIND[:WEIGHTS[:INPUT_PX]]`` into settings."""
    from laimr_ros.serving.config import ConfigError
    name, separator, rest = text.partition('=')
    kind, _, weights = rest.partition(':')
    if not separator or not name or not kind or '.' in name:
        raise ConfigError(
            f'--model {text!r} is not understood; use NAME=KIND[:WEIGHTS[:INPUT_PX]], for example '
            'small=yolo:yolov5n.yaml:320 (no dot in the name)')
    settings: dict[str, object] = {f'models.{name}.kind': kind}
    head, _, tail = weights.rpartition(':')
    if tail.isascii() and tail.isdigit() and ':' in weights:
        weights = head
        settings[f'models.{name}.input_px'] = int(tail)
    if weights:
        settings[f'models.{name}.weights'] = weights
    return settings


async def _serve(server: InferenceServer, config: WorkerConfig, ready_file: str | None) -> int:
    import asyncio
    import signal

    from laimr_ros.detectors.base import DetectorError
    from laimr_ros.serving.endpoint import EndpointError
    from laimr_ros.serving.loaded_model import LoadFailure
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def on_signal(number: int) -> None:
        if asked.is_set():
            os._exit(128 + number)  # Asked twice: whoever asks is in a hurry.
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        # Listening first: who asks meanwhile hears that it is loading, and a wrong address is
        # found before minutes are spent on a model.
        endpoints = await server.start(config.listen)
    except EndpointError as error:
        return _complain(error, 2)
    ended = asyncio.ensure_future(asked.wait())
    loading = asyncio.wrap_future(server.begin_load())
    await asyncio.wait((loading, ended), return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        # Nothing can stop a library that is loading, and nobody needs what it loads.
        await server.stop()
        _leave(0)
    try:
        service_times_s = loading.result()
    except DetectorError as error:
        await server.stop()
        # Whoever holds replicas tries again after 1, and asks a person after 2.
        _leave(_complain(error, 1 if isinstance(error, LoadFailure) else 2))
    start_up_s = _process_age_s()
    if ready_file:
        _write_ready_file(ready_file, endpoints, service_times_s, start_up_s)
    print(f'ready {endpoints[0]} {start_up_s:.3f}', flush=True)

    broken = asyncio.ensure_future(server.failed.wait())
    await asyncio.wait((ended, broken), return_when=asyncio.FIRST_COMPLETED)
    status = 0
    if broken.done():
        status = _complain(server.why_not_ready(), 1)
    if not await server.drain(config.drain_grace_s if not status else 0.0):
        _complain(f'{config.drain_grace_s:g} s were not enough to finish all frames', 0)
    await server.stop()
    if ready_file:
        try:
            os.unlink(ready_file)
        except OSError:
            pass
    _leave(status)
    return status


def _leave(status: int) -> None:
    """
    End the process without taking the interpreter apart.

    A thread may be within a library's C++ code, which does not survive that; everything that
    others can see (sockets, files) has been cleared away.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _write_ready_file(
    name: str, endpoints: tuple[str, ...], service_times_s: dict[str, float], start_up_s: float,
) -> None:
    import json
    # Renamed into place: whoever sees the file sees all of it.
    temporary = f'{name}.{os.getpid()}'
    with open(temporary, 'w', encoding='utf-8') as file:
        json.dump({
            'endpoints': endpoints, 'pid': os.getpid(), 'start_up_s': round(start_up_s, 3),
            'service_times_s': service_times_s}, file)
    os.replace(temporary, name)


def _process_age_s() -> float:
    """Return the seconds since this process was started, by the kernel's account."""
    with open('/proc/self/stat', encoding='ascii', errors='replace') as file:
        # The command's name, in parentheses, may hold anything.
        started_ticks = int(file.read().rsplit(')', 1)[1].split()[19])
    started_s = started_ticks / os.sysconf('SC_CLK_TCK')
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
