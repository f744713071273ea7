"""``laimr evaluate``: how well the detectors of each lane find what drawn cells show."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
import json
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from laimr_ros.cli.interrupts import leave_at_interrupt
from laimr_ros.cli.outputs import named_path, problem_with_file, write_whole
from laimr_ros.cli.ranges import MOST_FRAMES, out_of_range, wrong_input_px

if TYPE_CHECKING:
    from laimr_ros.detectors.base import Detector, DetectorSpec
    from laimr_ros.training.accuracy import Accuracy

_EPILOGUE = """
examples:
  laimr evaluate                                     the lanes of config/demo.yaml
  laimr evaluate --params-file robots.yaml --json out/lanes.json
  laimr evaluate --kind yolo --weights out/train/cell_yolov5n.pt

Pictures are drawn from seeds that training never uses. Average precision is COCO's.
"""
_MOST_SEED = 1_000_000_000


class EvaluateError(Exception):
    """Something cannot be judged; the message names it and the fix."""


@dataclass(frozen=True)
class _Candidate:
    """A lane and its detector; lanes of one model are judged once."""

    lane: str
    model: str
    spec: DetectorSpec

    def __str__(self) -> str:
        """Return it as messages name it."""
        return f'lane {self.lane}' if self.lane != '-' else self.model


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOGUE
    parser.add_argument(
        '--params-file', type=named_path, metavar='FILE',
        help='parameter file with lanes and models (default: config/demo.yaml)')
    parser.add_argument('--weights', metavar='FILE', help='judge these weights, not the lanes')
    parser.add_argument(
        '--kind', choices=('yolo', 'efficientdet'), help='kind of detector of --weights')
    parser.add_argument(
        '--input-px', type=int, metavar='N',
        help="side of the network's input for --weights (default: 0, the network's own)")
    parser.add_argument(
        '--frames', type=int, default=300, metavar='N',
        help='how many pictures to draw (default: 300)')
    parser.add_argument(
        '--seed', type=int, default=0, metavar='N', help='which of the held-out seeds, from 0 up')
    parser.add_argument(
        '--json', type=named_path, metavar='FILE', help='write the figures to a file, *.json')


def run(args: argparse.Namespace) -> int:
    """Judge; return the exit status: 1 if a lane could not be judged, 2 for a wrong argument."""
    from laimr_ros.detectors.base import DetectorError

    problem = _problem(args)
    if problem:
        print(f'laimr evaluate: {problem}', file=sys.stderr)
        return 2
    try:
        candidates = _given(args) if args.weights else _lanes(args.params_file)
        loaded, skipped = _load(candidates)
    except (EvaluateError, DetectorError) as error:
        print(f'laimr evaluate: {error}', file=sys.stderr)
        return 2
    rows: list[dict[str, Any]] = []
    try:
        skipped += _measure(loaded, args, rows)
    except KeyboardInterrupt:
        print(f'laimr evaluate: stopped; {len(rows)} of {len(candidates)} were judged, nothing '
              'was written', file=sys.stderr)
        raise
    finally:
        _show(rows, args.frames)
    if args.json is not None:
        try:
            write_whole(args.json, json.dumps(rows, indent=2) + '\n')
        except OSError as error:
            skipped.append(
                f'cannot write {str(args.json)!r} ({error.strerror}); the figures are above')
    for line in skipped:
        print(f'laimr evaluate: {line}', file=sys.stderr)
    return 1 if skipped else 0


def _problem(args: argparse.Namespace) -> str:
    """Return what is wrong with the arguments, or ''."""
    if args.weights == '':
        return "--weights '' names no file; give one, or leave it out for the lanes"
    if args.weights and not args.kind:
        return '--weights needs --kind yolo or --kind efficientdet'
    if args.weights and args.params_file:
        return 'give --weights or --params-file, not both'
    if args.kind and not args.weights:
        return '--kind is for --weights; give both or neither'
    if args.input_px is not None and not args.weights:
        return '--input-px is for --weights; of lanes the parameter file says it'
    return (
        out_of_range('--frames', args.frames, 1, MOST_FRAMES)
        or out_of_range('--seed', args.seed, 0, _MOST_SEED)
        or (wrong_input_px(args.kind, args.input_px) if args.input_px else '')
        or ('' if args.json is None else _problem_with_json(args)))


def _problem_with_json(args: argparse.Namespace) -> str:
    """Return why the figures cannot go where they are to go, or ''."""
    from laimr_ros.detectors.files import find_file

    inputs = [find_file(str(p)) for p in (args.weights, args.params_file) if p]
    problem = problem_with_file('--json', args.json, inputs)
    if not problem and args.json.is_file() and args.json.suffix.lower() != '.json':
        return (f'--json {str(args.json)!r} is there already and not called .json; it would be '
                'lost: give another name, or remove it')
    return problem


def _given(args: argparse.Namespace) -> list[_Candidate]:
    from laimr_ros.detectors.base import DetectorSpec

    spec = DetectorSpec(args.kind, args.weights, args.input_px or 0, threads=1)
    return [_Candidate('-', Path(args.weights).stem, spec)]


def _lanes(file: Path | None) -> list[_Candidate]:
    """Return the lanes of a parameter file."""
    from laimr_ros.demo.files import configuration_file
    from laimr_ros.serving.config import ConfigError, from_mapping, node_settings
    import yaml

    path = file or configuration_file('demo.yaml')
    try:
        content = yaml.safe_load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise EvaluateError(f'cannot read {path} ({error.strerror}); give a parameter file with '
                            '--params-file') from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        reason = 'it is not UTF-8 text' if isinstance(error, UnicodeDecodeError) else ' '.join(
            str(error).split())
        raise EvaluateError(
            f'{path} is no YAML ({reason}); give a parameter file with lanes and models, as '
            'config/demo.yaml') from None
    if not content or not isinstance(content, Mapping):
        what = 'is empty' if not content else f'holds a {type(content).__name__}'
        raise EvaluateError(
            f'{path} {what}; give a parameter file with lanes and models, as config/demo.yaml')
    try:
        described = node_settings(content)
        if not any(key.startswith('models.') for key in described):
            raise EvaluateError(
                f'{path} describes no models (worker: models); give a parameter file with lanes '
                'and models, as config/demo.yaml')
        models = from_mapping(described).models
        lanes = node_settings(content, 'dispatcher')
    except ConfigError as error:
        raise EvaluateError(f'{path}: {error}') from None
    names = lanes.get('lane_names') or []
    if not names:
        raise EvaluateError(f'{path} has no lanes (dispatcher: lane_names); give a parameter file '
                            'of a dispatcher, or --weights and --kind')
    made = []
    for name in names:
        model = str(lanes.get(f'lanes.{name}.model', ''))
        if model not in models:
            raise EvaluateError(
                f'lane {name} of {path} has model {model!r}, which its worker does not serve; '
                f'it serves {", ".join(models) or "none"}')
        made.append(_Candidate(name, model, models[model]))
    return made


def _load(candidates: list[_Candidate]) -> tuple[list[tuple[_Candidate, Detector]], list[str]]:
    """
    Return those that can be judged with their detectors, and a line for each that cannot.

    All before any is judged: what is wrong with the last is said at once.

    :raises DetectorError: if one cannot be loaded, or knows other classes than are drawn.
    """
    with leave_at_interrupt():
        from laimr_ros.detectors.factory import create_detector
        from laimr_ros.training.accuracy import check_classes

    loaded: list[tuple[_Candidate, Detector]] = []
    skipped: list[str] = []
    for candidate in candidates:
        if candidate.spec.kind == 'emulated':
            skipped.append(f'{candidate}: model {candidate.model} is emulated and looks at '
                           'nothing')
            continue
        detector = create_detector(replace(
            candidate.spec, score_threshold=0.001, max_detections=100))
        if detector.random_weights:
            skipped.append(f'{candidate}: model {candidate.model} has random weights '
                           f'({candidate.spec.weights}); its boxes mean nothing')
            detector.close()
            continue
        check_classes(detector)
        loaded.append((candidate, detector))
    return loaded, skipped


def _measure(
    loaded: list[tuple[_Candidate, Detector]], args: argparse.Namespace,
    rows: list[dict[str, Any]],
) -> list[str]:
    """Add a row a lane; return a line for each that could not be judged."""
    from laimr_ros.detectors.reasons import in_short
    from laimr_ros.training.accuracy import measure
    from laimr_ros.training.cells import CellSampler, HELD_OUT_SEED
    from rich.console import Console
    from rich.progress import track

    failed: list[str] = []
    console = Console(stderr=True)
    for candidate, detector in loaded:
        sampler = CellSampler(HELD_OUT_SEED + args.seed)
        frames = (sampler.frame(index) for index in track(
            range(args.frames), candidate.model, console=console, transient=True,
            # Without a terminal it would leave empty lines.
            disable=not console.is_terminal))
        try:
            detector.warm_up()
            found = measure(detector, frames)
            side = max(getattr(detector, 'input_size', (candidate.spec.input_px,)))
        # Out of memory, nothing drawn to be found: the others are judged all the same.
        except (ValueError, RuntimeError, MemoryError) as error:
            reason = str(error) if isinstance(error, ValueError) else in_short(error)
            failed.append(f'{candidate}: model {candidate.model} cannot be judged: {reason}')
            continue
        finally:
            detector.close()
        rows.append(_row(candidate, side, found, args.seed))
    return failed


def _row(candidate: _Candidate, side: int, found: Accuracy, seed: int) -> dict[str, Any]:
    return {
        'lane': candidate.lane, 'model': candidate.model, 'input_px': side,
        'map50': found.map50, 'map50_95': found.map50_95,
        'service_ms': 1e3 * found.service_s, 'by_class': found.by_class,
        'frames': found.frames, 'objects': found.objects, 'seed': seed,
        'threads': candidate.spec.threads}


def _show(rows: list[dict[str, Any]], frames: int) -> None:
    from rich.console import Console
    from rich.table import Table

    if not rows:
        return
    table = Table(title=f'{frames} drawn scene{"s" if frames > 1 else ""} of held-out seeds')
    for column in ('lane', 'model', 'input', 'mAP50', 'mAP50-95', 'service'):
        table.add_column(column, justify='left' if column in ('lane', 'model') else 'right')
    for row in rows:
        table.add_row(
            row['lane'], row['model'], f'{row["input_px"]} px', f'{row["map50"]:.3f}',
            f'{row["map50_95"]:.3f}', f'{row["service_ms"]:.0f} ms')
    Console().print(table)
