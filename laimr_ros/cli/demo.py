"""``laimr demo``: robots, dispatcher, local replicas and a live table, on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
import sys

from laimr_ros.cli.interrupts import leave_at_interrupt


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``laimr demo``."""
    parser.add_argument('--duration', type=_seconds, default=60.0, metavar='S',
                        help='seconds that frames flow (default %(default)g)')
    parser.add_argument('--robots', type=_count, default=6, metavar='N',
                        help='number of robots (default %(default)d)')
    parser.add_argument('--rate', type=_seconds, metavar='HZ',
                        help='mean frames per second of each robot (default: params file)')
    parser.add_argument('--burst-factor', type=_factor, default=6.0, metavar='X',
                        help='rate multiplier of the burst in the middle; 1 for no burst '
                             '(default %(default)g)')
    parser.add_argument('--images', type=Path, metavar='DIR',
                        help='use the images of a directory instead of the drawn scene')
    parser.add_argument('--video', type=Path, metavar='FILE',
                        help='use the frames of a video file instead of the drawn scene')
    parser.add_argument('--seed', type=int, default=0, metavar='N',
                        help='seed of scenes and arrivals (default %(default)d)')
    parser.add_argument('--params-file', type=Path, metavar='FILE',
                        help='parameters of all nodes (default: config/demo.yaml)')
    parser.add_argument('--out', type=Path, default=Path('out'), metavar='DIR',
                        help='results go to DIR/<time> and DIR/latest (default %(default)s)')
    parser.add_argument('--domain', type=_domain, metavar='ID',
                        help='ROS domain (default: ROS_DOMAIN_ID, or a random one)')


def run(args: argparse.Namespace) -> int:
    """Run the demonstration; return the exit status."""
    # Until the demonstration has handlers of its own there is nothing to bring to an end.
    with leave_at_interrupt():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    for option in ('images', 'video'):
        path = getattr(args, option)
        if path is not None and not path.exists():
            print(f'laimr demo: --{option} {path} does not exist; give an existing path',
                  file=sys.stderr)
            return 2
    if args.images is not None and args.video is not None:
        print('laimr demo: give --images or --video, not both', file=sys.stderr)
        return 2
    from laimr_ros.cameras.sources.base import CameraError
    from laimr_ros.cameras.sources.files import DirectorySource, VideoSource
    try:
        if args.images is not None:
            DirectorySource(str(args.images), warn=_say).read()
        if args.video is not None:
            VideoSource(str(args.video)).read()
    except CameraError as error:
        print(f'laimr demo: {error}', file=sys.stderr)
        return 2
    try:
        import rclpy  # noqa: F401
    except ImportError as error:
        print(f'laimr demo: ROS is missing ({error}); run "make setup" or source your ROS 2 '
              'installation', file=sys.stderr)
        return 2
    from laimr_ros.demo.run import Demo, DemoError
    try:
        return Demo(args).run()
    except DemoError as error:
        print(f'laimr demo: {error}', file=sys.stderr)
        return 1
    except OSError as error:
        print(f'laimr demo: cannot go on ({error}); results go to {args.out}: free some space, '
              'or give another directory with --out', file=sys.stderr)
        return 1


def _say(text: str) -> None:
    print(f'laimr demo: {text}', file=sys.stderr)


def _number(text: str, low: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r} is no number; give {what}') from None
    if not low < value < float('inf'):
        raise argparse.ArgumentTypeError(f'{text} is out of range; give {what}')
    return value


def _seconds(text: str) -> float:
    return _number(text, 0.0, 'a number > 0')


def _factor(text: str) -> float:
    return _number(text, 0.0, 'a factor > 0')


def _count(text: str) -> int:
    value = _number(text, 0.0, 'a whole number from 1 to 100')
    if value != int(value) or not 1 <= value <= 100:
        raise argparse.ArgumentTypeError(f'{text} is out of range; give a whole number 1-100')
    return int(value)


def _domain(text: str) -> int:
    if not text.isdecimal() or int(text) > 232:
        raise argparse.ArgumentTypeError(f'{text!r} is no ROS domain; give 0 to 232')
    return int(text)
