"""``laimr experiment``: run a simulated experiment and report what it says of the claims."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
import sys
import time

_EPILOGUE = """
examples:
  laimr experiment --list
  laimr experiment table6-p99 --out out/table6

Finished runs are kept in OUT/runs.jsonl: the same command takes up where it stopped. Runs whose
scenario or policy has since changed in its settings are run again; after a change of the code
remove the file.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOGUE
    parser.add_argument('name', nargs='?', metavar='NAME', help='experiment, see --list')
    parser.add_argument('--list', action='store_true', help='list the experiments and leave')
    parser.add_argument('--out', type=Path, metavar='DIR', help='directory of the report')
    parser.add_argument(
        '--seeds', type=int, default=10, metavar='N', help='seeds 1 to N (default: 10)')
    parser.add_argument(
        '--measured', type=float, metavar='S',
        help="simulated seconds that count, after warm-up (default: the scenario's)")
    parser.add_argument(
        '--workers', type=int, default=len(os.sched_getaffinity(0)), metavar='N',
        help='processes (default: as many as there are cores)')


def run(args: argparse.Namespace) -> int:
    """Run an experiment; return the exit status."""
    from laimr_ros.evaluation.experiments import EXPERIMENTS
    from laimr_ros.evaluation.report import write_report
    from laimr_ros.evaluation.runs import run_all, RunError

    if args.list:
        for name, experiment in EXPERIMENTS.items():
            print(f'{name:20} {experiment.title}')
        return 0
    problem = _problem(args, list(EXPERIMENTS))
    if problem:
        print(f'laimr experiment: {problem}', file=sys.stderr)
        return 2
    from rich.progress import Progress

    experiment = EXPERIMENTS[args.name]
    seeds = list(range(1, args.seeds + 1))
    workers = 1 if experiment.alone else args.workers
    began = time.perf_counter()
    try:
        with Progress() as bar:
            shown = bar.add_task(args.name)
            rows = run_all(
                experiment.tasks(seeds, args.measured), args.out / 'runs.jsonl', workers,
                lambda done, of: bar.update(shown, completed=done, total=of))
    except RunError as error:
        print(f'laimr experiment: {error}', file=sys.stderr)
        return 1
    findings = experiment.findings(rows)
    settings = {'seeds': seeds, 'measured_s': args.measured or "the scenario's",
                'wall_s': round(time.perf_counter() - began, 1), 'workers': workers}
    page = write_report(args.out, args.name, experiment.title, settings, rows, findings)
    for claim in findings.claims:
        print(f'{"holds        " if claim.holds else "DOES NOT HOLD"}  {claim.claim}: '
              f'{claim.ours} (paper: {claim.paper})')
    print(f'report: {page}')
    return 0


def _problem(args: argparse.Namespace, names: list[str]) -> str | None:
    """Return what is wrong with the arguments, if anything is."""
    if args.name not in names:
        return f'experiment {args.name!r} is unknown; use one of {names}'
    if args.out is None:
        return '--out is missing; give a directory for the report'
    if args.seeds < 1:
        return f'--seeds {args.seeds}; give 1 or more'
    if args.workers < 1:
        return f'--workers {args.workers}; give 1 or more'
    if args.measured is not None and not 0.0 < args.measured < float('inf'):
        return f'--measured {args.measured}; give seconds > 0'
    return None
