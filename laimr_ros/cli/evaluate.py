"""``laimr evaluate``: how well the detectors of each lane find what drawn cells show."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
import json
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from laimr_ros.detectors.base import DetectorSpec
    from laimr_ros.training.accuracy import Accuracy

_EPILOGUE = """
examples:
  laimr evaluate                                     the lanes of config/demo.yaml
  laimr evaluate --params-file robots.yaml --json out/lanes.json
  laimr evaluate --kind yolo --weights out/train/cell_yolov5n.pt

Pictures are drawn from seeds that training never uses. Average precision is COCO's.
"""


class EvaluateError(Exception):
    """Something cannot be judged; the message names it and the fix."""


@dataclass(frozen=True)
class _Candidate:
    """A lane and its detector; lanes of one model are judged once."""

    lane: str
    model: str
    spec: DetectorSpec


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOGUE
    parser.add_argument(
        '--params-file', type=Path, metavar='FILE',
        help='parameter file with lanes and models (default: config/demo.yaml)')
    parser.add_argument('--weights', metavar='FILE', help='judge these weights, not the lanes')
    parser.add_argument(
        '--kind', choices=('yolo', 'efficientdet'), help='kind of detector of --weights')
    parser.add_argument(
        '--input-px', type=int, default=0, metavar='N',
        help="side of the network's input for --weights (default: the network's own)")
    parser.add_argument(
        '--frames', type=int, default=300, metavar='N',
        help='how many pictures to draw (default: 300)')
    parser.add_argument(
        '--seed', type=int, default=0, metavar='N', help='which of the held-out seeds, from 0 up')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures to a file')


def run(args: argparse.Namespace) -> int:
    """Judge; return the exit status: 1 if a lane could not be judged, 2 for a wrong argument."""
    from laimr_ros.detectors.base import DetectorError
    from laimr_ros.serving.config import ConfigError

    problem = _problem(args)
    if problem:
        print(f'laimr evaluate: {problem}', file=sys.stderr)
        return 2
    try:
        candidates = _given(args) if args.weights else _lanes(args.params_file)
        rows, skipped = _measure(candidates, args)
        if args.json is not None:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(rows, indent=2) + '\n')
    except (EvaluateError, ConfigError, DetectorError, OSError, ValueError) as error:
        print(f'laimr evaluate: {error}', file=sys.stderr)
        return 2 if isinstance(error, (EvaluateError, ConfigError)) else 1
    _show(rows, args.frames)
    for line in skipped:
        print(f'laimr evaluate: {line}', file=sys.stderr)
    return 1 if skipped else 0


def _problem(args: argparse.Namespace) -> str:
    """Return what is wrong with the arguments, or ''."""
    if args.weights and not args.kind:
        return '--weights needs --kind yolo or --kind efficientdet'
    if args.weights and args.params_file:
        return 'give --weights or --params-file, not both'
    if args.kind and not args.weights:
        return '--kind is for --weights; give both or neither'
    if args.frames < 1:
        return f'--frames {args.frames}; give 1 or more'
    if args.seed < 0:
        return f'--seed {args.seed}; give 0 or more'
    if args.input_px < 0:
        return f"--input-px {args.input_px}; give pixels, or 0 for the network's own"
    return ''


def _given(args: argparse.Namespace) -> list[_Candidate]:
    from laimr_ros.detectors.base import DetectorSpec

    spec = DetectorSpec(args.kind, args.weights, args.input_px, threads=1)
    return [_Candidate('-', Path(args.weights).stem, spec)]


def _lanes(file: Path | None) -> list[_Candidate]:
    """Return the lanes of a parameter file."""
    from laimr_ros.demo.files import configuration_file
    from laimr_ros.serving.config import from_mapping, node_settings
    import yaml

    path = file or configuration_file('demo.yaml')
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise EvaluateError(f'cannot read {path} ({error.strerror}); give a parameter file with '
                            '--params-file') from None
    except yaml.YAMLError as error:
        raise EvaluateError(f'{path} is no YAML: {" ".join(str(error).split())}') from None
    models = from_mapping(node_settings(content)).models
    lanes = node_settings(content, 'dispatcher')
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


def _measure(
    candidates: list[_Candidate], args: argparse.Namespace,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row a lane, and a line for each that could not be judged."""
    from laimr_ros.detectors.factory import create_detector
    from laimr_ros.training.accuracy import measure
    from laimr_ros.training.cells import CellSampler, HELD_OUT_SEED
    from rich.console import Console
    from rich.progress import track

    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    for candidate in candidates:
        where = f'lane {candidate.lane}' if candidate.lane != '-' else candidate.model
        if candidate.spec.kind == 'emulated':
            skipped.append(f'{where}: model {candidate.model} is emulated and looks at nothing')
            continue
        detector = create_detector(replace(
            candidate.spec, score_threshold=0.001, max_detections=100))
        try:
            if detector.random_weights:
                skipped.append(f'{where}: model {candidate.model} has random weights '
                               f'({candidate.spec.weights}); its boxes mean nothing')
                continue
            detector.warm_up()
            sampler = CellSampler(HELD_OUT_SEED + args.seed)
            frames = (sampler.frame(index) for index in track(
                range(args.frames), candidate.model, console=Console(stderr=True),
                transient=True))
            found = measure(detector, frames)
            side = max(getattr(detector, 'input_size', (candidate.spec.input_px,)))
        finally:
            detector.close()
        rows.append(_row(candidate, side, found, args.seed))
    return rows, skipped


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
    table = Table(title=f'{frames} drawn scenes of held-out seeds')
    for column in ('lane', 'model', 'input', 'mAP50', 'mAP50-95', 'service'):
        table.add_column(column, justify='left' if column in ('lane', 'model') else 'right')
    for row in rows:
        table.add_row(
            row['lane'], row['model'], f'{row["input_px"]} px', f'{row["map50"]:.3f}',
            f'{row["map50_95"]:.3f}', f'{row["service_ms"]:.0f} ms')
    Console().print(table)
