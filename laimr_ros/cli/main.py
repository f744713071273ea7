"""Entry point of ``laimr``: one module a subcommand, imported only when it is used."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import importlib
import sys

from laimr_ros import __version__
from laimr_ros.cli.interrupts import INTERRUPTED, leave_at_interrupt

_ABOUT = ('LA-IMR for ROS 2: dispatch camera frames of robots to object detectors on edge and '
          'cloud by predicted latency. `laimr COMMAND --help` tells the options of a command.')
# subcommand -> its help. Module `laimr_ros.cli.<name>` has
# `configure(parser: argparse.ArgumentParser) -> None` and `run(args: argparse.Namespace) -> int`.
SUBCOMMANDS = {
    'demo': 'six robots, an edge and a cloud pool, on this machine',
    'worker': 'serve detectors over the Open Inference Protocol (no ROS needed)',
    'calibrate': 'measure a live worker and write its latency model for the dispatcher',
    'train': 'train the detectors of the demonstration on drawn cells',
    'evaluate': 'tell how well the detectors of each lane find what drawn cells show',
    'export': 'make of trained weights an engine that a CPU runs sooner',
    'experiment': 'run a simulated experiment and hold the claims against it',
    'testbed': 'serve drawn CloudGripper cells over the HTTP API of the testbed',
    'deploy': 'print the Kubernetes objects of a parameter file',
    'doctor': 'check this machine and say how to mend what is wrong',
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the process exit status: 130 if Ctrl-C ended it early."""
    try:
        with leave_at_interrupt():
            args = _parse(argv)
        return int(args.run(args))
    except KeyboardInterrupt:
        return INTERRUPTED


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((a for a in arguments if not a.startswith('-')), None)
    parser = argparse.ArgumentParser(prog='laimr', description=_ABOUT)
    parser.add_argument('--version', action='version', version=f'laimr_ros {__version__}')
    subparsers = parser.add_subparsers(dest='command', required=True, metavar='COMMAND')
    own = parser
    for name, text in SUBCOMMANDS.items():
        subparser = subparsers.add_parser(name, help=text, description=text)
        # Importing a subcommand can mean importing torch: only the one that was asked for.
        if name == chosen:
            module = importlib.import_module(f'laimr_ros.cli.{name}')
            module.configure(subparser)
            subparser.set_defaults(run=module.run)
            own = subparser
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        # By `parse_args` it would be told with the usage of `laimr`, which lists no options.
        own.error(f'unrecognized arguments: {" ".join(unknown)}')
    return args


if __name__ == '__main__':
    sys.exit(main())
