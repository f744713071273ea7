"""``laimr testbed``: drawn CloudGripper cells behind the testbed's HTTP API."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
import contextlib
import os
import signal
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument('--host', default='127.0.0.1',
                        help='address to listen on; 0.0.0.0 for all (default: %(default)s)')
    parser.add_argument('--port', type=_number(int, 0, 65535), default=8000,
                        help='TCP port; 0 for any free one (default: %(default)s)')
    parser.add_argument('--robots', type=_number(int, 1, 32), default=6, metavar='N',
                        help='number of cells, robot1 to robotN, 1 to 32 (default: %(default)s)')
    parser.add_argument('--token-env', default='CLOUDGRIPPER_TOKEN', metavar='NAME',
                        help='environment variable with the token that clients must send '
                        '(default: %(default)s)')
    parser.add_argument('--fail-rate', type=_number(float, 0.0, 1.0), default=0.0, metavar='PART',
                        help='part of image requests answered with 404, as by a webcam that gives '
                        'no frame, 0 to 1 (default: %(default)s)')
    parser.add_argument('--delay', type=_number(float, 0.0, 60.0), default=0.0, metavar='SECONDS',
                        help='before each answer (default: %(default)s)')
    parser.add_argument('--camera-rate', type=_number(float, 0.1, 120.0), default=15.0,
                        metavar='HZ', help='pictures a second of each camera '
                        '(default: %(default)s)')
    parser.add_argument('--seed', type=_number(int, 0, 2**31), default=0,
                        help='of what happens in the cells (default: %(default)s)')


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return the exit status."""
    token = os.environ.get(args.token_env, '')
    if not token:
        print(f'laimr testbed: the environment variable {args.token_env} is empty; put the token '
              f'there that clients must send, for example `export {args.token_env}=secret`',
              file=sys.stderr)
        return 2
    try:
        asyncio.run(_serve(args, token))
    except OSError as error:
        print(f'laimr testbed: cannot listen on {args.host}:{args.port}: '
              f'{error.strerror or error}; choose another --host or --port', file=sys.stderr)
        return 2
    return 0


async def _serve(args: argparse.Namespace, token: str) -> None:
    from aiohttp import web
    from laimr_ros.cameras.testbed import Testbed, TestbedSpec

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Only the main thread of a process can do so.
        with contextlib.suppress(ValueError, RuntimeError):
            loop.add_signal_handler(number, stop.set)
    testbed = Testbed(TestbedSpec(
        robots=args.robots, token=token, fail_rate=args.fail_rate, delay_s=args.delay,
        camera_hz=args.camera_rate, seed=args.seed,
    ))
    runner = web.AppRunner(testbed.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, args.host, args.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        address = f'[{host}]' if ':' in host else host
        print(f'{args.robots} drawn cells at http://{address}:{port} '
              f'(/robot1/api/v1.1/robot/getImageBase, getImageTop, getState)', flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()


def _number(
    kind: Callable[[str], float], low: float, high: float
) -> Callable[[str], float]:
    """Return a converter for arguments that refuses what is out of range."""

    def convert(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f'{text!r} is not a number') from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f'{text} is out of range; give {low} to {high}')
        return value

    return convert
