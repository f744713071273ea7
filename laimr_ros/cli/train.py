"""``laimr train``: train the detectors of the demonstration on drawn cells."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import replace
import os
from pathlib import Path
import platform
import shlex
import sys

from laimr_ros import __version__
from laimr_ros.cli.interrupts import leave_at_interrupt
from laimr_ros.cli.outputs import named_path, problem_with_directory, problem_with_file
from laimr_ros.cli.ranges import MOST_FRAMES, most_threads, out_of_range

_EPILOGUE = """
examples:
  laimr train                             all models, one after the other, into out/train
  laimr train yolov5n --threads 2
  laimr train yolov5n --share 0.01        a short one, to see that it works

Stop it at any time (Ctrl-C): what was learned is kept, and the same command goes on where it was.
Weights and model card are written at the end. To use them name the file in a parameter file:
models.NAME.weights.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOGUE
    parser.add_argument(
        'models', metavar='MODEL', nargs='*',
        help='efficientdet_lite0, yolov5n, yolov5n_512 (default: all)')
    parser.add_argument(
        '--out', type=named_path, default=Path('out/train'), metavar='DIR',
        help='where weights, model cards and what is needed to go on are kept '
             '(default: out/train)')
    parser.add_argument(
        '--threads', type=int, default=0, metavar='N',
        help='CPU threads of the network; one more process draws (default: one a core)')
    parser.add_argument(
        '--seed', type=int, metavar='N', help="of weights and pictures (default: the recipe's)")
    parser.add_argument(
        '--share', type=float, default=1.0, metavar='PART',
        help='part of the pictures to learn from, over 0 to 1 (default: 1)')
    parser.add_argument(
        '--start', type=named_path, metavar='FILE',
        help='weights to start from, for one model (default: what the recipe says)')
    parser.add_argument(
        '--frames', type=int, default=300, metavar='N',
        help='held-out scenes to judge it by at the end (default: 300)')


def run(args: argparse.Namespace) -> int:
    """Train; return the exit status: 2 for what is wrong with the command, 1 for the rest."""
    with leave_at_interrupt():
        from laimr_ros.training.learners import LearnerError
        from laimr_ros.training.recipes import RECIPES
        from laimr_ros.training.session import Session  # noqa: F401

    names = args.models or list(RECIPES)
    problem = _problem(args, names, list(RECIPES))
    if problem:
        print(f'laimr train: {problem}', file=sys.stderr)
        return 2
    try:
        for name in names:
            _train(args, name)
    except _Unusable as error:
        print(f'laimr train: {error}', file=sys.stderr)
        return 2
    except (LearnerError, ValueError, OSError) as error:
        print(f'laimr train: {error}', file=sys.stderr)
        return 1
    return 0


class _Unusable(Exception):
    """The files that are named do not do; the message names them and the fix."""


def _problem(args: argparse.Namespace, names: list[str], known: list[str]) -> str:
    """Return what is wrong with the arguments, or ''."""
    for name in names:
        if name not in known:
            return f'unknown model {name!r}; use {", ".join(known)}'
    problem = out_of_range(
        '--threads', args.threads, 0, most_threads(), '; 0 is one a core'
    ) or out_of_range('--frames', args.frames, 1, MOST_FRAMES)
    if problem:
        return problem
    if not 0.0 < args.share <= 1.0:
        return f'--share {args.share:g}; give a part over 0 and up to 1'
    if args.seed is not None and not 0 <= args.seed < 900:
        return f'--seed {args.seed}; give 0 to 899: higher ones are held out for judging'
    if args.start is not None and len(names) != 1:
        return f'--start is for one model, but {len(names)} are to be trained; name one'
    if args.start is not None and not args.start.is_file():
        return f'--start {str(args.start)!r} is no file; give a file of weights'
    return problem_with_directory('--out', args.out) or _problem_with_files(args, names)


def _problem_with_files(args: argparse.Namespace, names: list[str]) -> str:
    """Return which of the files cannot be written, hours before they are, or ''."""
    for name in names:
        for path in _paths(args.out, name):
            inputs = [args.start] if args.start is not None else []
            problem = problem_with_file('--out: file', path, inputs)
            if problem:
                return problem
    return ''


def _paths(out: Path, name: str) -> tuple[Path, Path, Path]:
    """Return the files of weights, of the card and of what is needed to go on."""
    from laimr_ros.training.recipes import file_name

    weights = out / file_name(name)
    return weights, weights.with_suffix('.md'), out / f'{name}.checkpoint.pt'


def _train(args: argparse.Namespace, name: str) -> None:
    """Train one model, judge it, write its weights and card."""
    from laimr_ros.training.card import made_by, USELESS, write_card
    from laimr_ros.training.learners import LearnerError
    from laimr_ros.training.recipes import RECIPES
    from laimr_ros.training.session import Session, Stage

    recipe = RECIPES[name]
    if args.seed is not None:
        recipe = replace(recipe, seed=args.seed)
    if args.share < 1.0:
        recipe = replace(recipe, stages=tuple(
            Stage(s.input_px, max(recipe.batch, round(s.images * args.share)))
            for s in recipe.stages))
    start = args.start or _start(args.out, recipe.start)
    threads = args.threads or os.cpu_count() or 1
    weights, card, checkpoint = _paths(args.out, name)
    try:
        session = Session(recipe, start, checkpoint, threads)
    except LearnerError as error:
        raise _Unusable(str(error)) from error
    except KeyboardInterrupt:
        print(f'laimr train: {name} was stopped before it began; nothing new was saved',
              file=sys.stderr)
        raise
    command = _command(args, name)
    if session.images >= recipe.images and weights.exists() and made_by(card, command):
        print(f'{name}: already trained: {weights}, {card}; to train it anew delete {checkpoint}')
        return
    where = f'after {session.images} of {recipe.images} pictures'
    try:
        if session.images < recipe.images:
            _show(name, session, recipe.images)
        where = 'while it was judged'
        _save(session, weights)
        accuracy = _judge(recipe.kind, weights, args.frames, threads)
    except KeyboardInterrupt:
        if session.images < recipe.images:
            where = f'after {session.images} of {recipe.images} pictures'
        print(f'laimr train: {name} was stopped {where}; ' + (
            f'what it learned is in {checkpoint}: the same command goes on from there'
            if session.images else 'nothing was saved'), file=sys.stderr)
        raise
    write_card(
        card, name, recipe, command=command, machine=_machine(threads),
        elapsed_s=session.elapsed_s, version=__version__, accuracy=accuracy, frames=args.frames)
    figures = ', '.join(f'{key} {value:.3f}' for key, value in accuracy.items())
    print(f'{name}: {figures}; {weights} ({weights.stat().st_size / 1e6:.1f} MB), {card}')
    if accuracy['mAP50'] < USELESS:
        print(f'laimr train: WARNING: {name} finds next to nothing after {recipe.images} '
              'pictures; these weights are of no use. Train on more: a larger --share, and '
              'another --out or without the checkpoint', file=sys.stderr)


def _save(session: object, weights: Path) -> None:
    """Write weights whole or not at all."""
    from laimr_ros.training.session import Session

    assert isinstance(session, Session)
    weights.parent.mkdir(parents=True, exist_ok=True)
    part = weights.with_name(f'.{weights.name}.part{weights.suffix}')
    try:
        session.save(part)
        part.replace(weights)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _start(out: Path, name: str) -> Path | None:
    """Return the weights that a recipe starts from: those just trained, or those shipped."""
    from laimr_ros.training.recipes import file_name

    if not name:
        return None
    trained = out / file_name(name)
    return trained if trained.exists() else Path(__file__).parents[1] / 'weights' / trained.name


def _show(name: str, session: object, total: int) -> None:
    """Run a training with a progress bar."""
    from laimr_ros.training.session import Progress as Step
    from laimr_ros.training.session import Session
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    assert isinstance(session, Session)
    with Progress(
        TextColumn(name), BarColumn(), TextColumn('{task.completed}/{task.total} pictures'),
        TextColumn('{task.fields[px]} px, loss {task.fields[loss]:.3f}'),
        TimeElapsedColumn(), TextColumn('left'), TimeRemainingColumn(elapsed_when_finished=False),
        console=Console(stderr=True), refresh_per_second=1,
    ) as bar:
        task = bar.add_task('', total=total, completed=session.images, px=0, loss=0.0)

        def report(step: Step) -> None:
            bar.update(task, completed=step.images, px=step.input_px, loss=step.loss)

        session.run(report)


def _judge(kind: str, weights: Path, frames: int, threads: int) -> dict[str, float]:
    """Return how well trained weights find what held-out scenes show."""
    from laimr_ros.detectors.base import DetectorSpec
    from laimr_ros.detectors.factory import create_detector
    from laimr_ros.training.accuracy import measure
    from laimr_ros.training.cells import CellSampler, HELD_OUT_SEED

    sampler = CellSampler(HELD_OUT_SEED)
    detector = create_detector(DetectorSpec(
        kind, str(weights), device='cpu', threads=threads, score_threshold=0.001))
    found = measure(detector, (sampler.frame(index) for index in range(frames)))
    return {'mAP50': found.map50, 'mAP50-95': found.map50_95}


def _command(args: argparse.Namespace, name: str) -> str:
    parts = ['laimr', 'train', name]
    for option, usual in (('seed', None), ('start', None), ('share', 1.0), ('frames', 300),
                          ('out', Path('out/train'))):
        value = getattr(args, option)
        if value != usual:
            parts += [f'--{option}', f'{value:g}' if isinstance(value, float) else str(value)]
    return shlex.join(parts)


def _machine(threads: int) -> str:
    return f'{threads} thread{"s" if threads > 1 else ""} of an {platform.machine()} CPU'
