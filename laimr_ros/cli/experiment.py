"""``laimr experiment``: run a simulated experiment and report what it says of the claims."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import math
import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from laimr_ros.cli.interrupts import raise_at_stop, Stopped
from laimr_ros.cli.outputs import problem_with_directory

if TYPE_CHECKING:
    from laimr_ros.evaluation.experiments import Experiment
    from laimr_ros.evaluation.kept import Kept
    from laimr_ros.evaluation.runs import Run

_EPILOGUE = """
examples:
  laimr experiment --list
  laimr experiment table6-p99 --out out/table6

Finished runs are kept in OUT/runs.jsonl: the same command takes up where it stopped, or was
stopped with Ctrl-C. Runs whose scenario or policy has since changed in its settings are run again;
after a change of the code remove the file. OUT is of one experiment.

exit status: 0 if the report was written, whatever it says of the claims; 1 if a run or the report
failed; 2 for a wrong argument; 130 after Ctrl-C, 143 after SIGTERM.
"""
_MOST_SEEDS = 1000
# A number of no finite size is not the only one that never ends.
_MOST_MEASURED_S = 1e6


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOGUE
    parser.add_argument('name', nargs='?', metavar='NAME', help='experiment, see --list')
    parser.add_argument(
        '--list', action='store_true', help='list the experiments and leave; goes alone')
    parser.add_argument('--out', metavar='DIR', help='directory of the report')
    parser.add_argument(
        '--seeds', type=int, default=10, metavar='N',
        help=f'seeds 1 to N, at most {_MOST_SEEDS} (default: 10)')
    parser.add_argument(
        '--measured', type=float, metavar='S',
        help="simulated seconds that count, after warm-up (default: the scenario's)")
    parser.add_argument(
        '--workers', type=int, default=len(os.sched_getaffinity(0)), metavar='N',
        help='processes (default: as many as there are cores)')


def run(args: argparse.Namespace) -> int:
    """Run an experiment; return the exit status."""
    from laimr_ros.evaluation.directory import DirectoryError, occupy
    from laimr_ros.evaluation.experiments import EXPERIMENTS

    problem = _problem(args, list(EXPERIMENTS))
    if problem:
        return _say(problem, 2)
    if args.list:
        for name, experiment in EXPERIMENTS.items():
            print(f'{name:20} {experiment.title}')
        return 0
    try:
        kept = occupy(Path(args.out), args.name)
    except DirectoryError as error:
        return _say(str(error), 2)
    experiment = EXPERIMENTS[args.name]
    tasks: Sequence[Run] = ()
    keys: list[str] = []
    with kept:
        if kept.damaged:
            _warn(Path(args.out) / 'runs.jsonl', kept.damaged)
        try:
            with raise_at_stop():
                tasks = experiment.tasks(list(range(1, args.seeds + 1)), args.measured)
                keys = [task.key() for task in tasks]
                return _run(args, experiment, tasks, kept)
        except Stopped as stopped:
            done = sum(key in kept.rows for key in keys)
            count = f'{done} of {len(keys)} runs are' if keys else 'finished runs are'
            return _say(f'stopped; {count} kept in {args.out}/runs.jsonl; the same command goes '
                        'on from there', stopped.status)


def _run(
    args: argparse.Namespace, experiment: Experiment, tasks: Sequence[Run], kept: Kept
) -> int:
    """Do the runs and write the report; return the exit status."""
    from dataclasses import replace

    from laimr_ros.evaluation.caution import cautions, no_frames
    from laimr_ros.evaluation.report import write_report
    from laimr_ros.evaluation.runs import run_all, RunError
    from rich.console import Console
    from rich.progress import Progress

    workers = 1 if experiment.alone else args.workers
    try:
        with Progress(console=Console(stderr=True)) as bar:
            shown = bar.add_task(args.name)
            rows = run_all(tasks, kept, workers,
                           lambda done, of: bar.update(shown, completed=done, total=of))
        if no_frames(rows):
            told = '' if args.measured is None else f' of --measured {args.measured:g} s'
            return _say(f'not decided: 0 frames came in the time{told}; measure for longer', 2)
        findings = experiment.findings(rows)
        few = cautions(args.seeds, rows)
        findings = replace(findings, notes=[*few, *findings.notes])
        took = kept.took({row['key'] for row in rows})
        settings = {
            'seeds': list(range(1, args.seeds + 1)),
            'measured_s': args.measured or "the scenario's",
            # Whichever command did them: taking them up again does not change it.
            'run_s': 'not known of all runs' if math.isnan(took) else round(took, 1),
            'workers': workers}
        page = write_report(
            Path(args.out), args.name, experiment.title, settings, rows, findings)
    except RunError as error:
        return _say(str(error), 1)
    except OSError as error:
        return _say(f'{error.filename or args.out}: {error.strerror or error}; finished runs are '
                    f'kept in {args.out}/runs.jsonl', 1)
    for claim in findings.claims:
        verdict = 'DOES NOT HOLD' if claim.holds is False else claim.verdict
        print(f'{verdict:13}  {claim.claim}: {claim.ours} (paper: {claim.paper})')
    for note in few:
        print(f'note: {note}')
    print(f'report: {page}')
    return 0


def _say(text: str, status: int) -> int:
    print(f'laimr experiment: {text}', file=sys.stderr)
    return status


def _warn(file: Path, damaged: dict[int, str]) -> None:
    """Tell of lines that are of no use, in one line however many there are."""
    named = [f'{file}:{number}: {why}' for number, why in sorted(damaged.items())[:3]]
    more = f' and {len(damaged) - len(named)} lines more' * (len(damaged) > len(named))
    _say(f'left out {"; ".join(named)}{more}; a run that was there alone is done '
         'anew; remove the lines to hear no more of them', 0)


def _problem(args: argparse.Namespace, names: list[str]) -> str | None:
    """Return what is wrong with the arguments, if anything is."""
    if args.list:
        given = [text for text, there in (
            (args.name, args.name is not None), ('--out', args.out is not None),
            ('--measured', args.measured is not None)) if there]
        return f'--list goes alone; leave out {" and ".join(given)}' if given else None
    if args.name is None:
        return f'NAME is missing; give one of {", ".join(names)}'
    if args.name not in names:
        return f'experiment {args.name!r} is unknown; use one of {", ".join(names)}'
    if args.out is None:
        return '--out is missing; give a directory for the report'
    if not args.out:
        return "--out ''; give a directory for the report, . for this one"
    if not 1 <= args.seeds <= _MOST_SEEDS:
        return f'--seeds {args.seeds}; give 1 to {_MOST_SEEDS}'
    if args.workers < 1:
        return f'--workers {args.workers}; give 1 or more'
    if args.measured is not None and not 0.0 < args.measured <= _MOST_MEASURED_S:
        return f'--measured {args.measured}; give seconds > 0, at most {_MOST_MEASURED_S:g}'
    return problem_with_directory('--out', Path(args.out)) or None
