"""``laimr export``: make of trained weights an engine that a CPU runs sooner."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from typing import TYPE_CHECKING

from laimr_ros.cli.interrupts import leave_at_interrupt
from laimr_ros.cli.outputs import named_path, problem_with_file
from laimr_ros.cli.ranges import most_threads, out_of_range, wrong_input_px

if TYPE_CHECKING:
    from laimr_ros.detectors.base import Detector

_EPILOGUE = """
examples:
  laimr export --kind yolo --weights out/train/cell_yolov5n.pt --out out/engines/yolov5n.xml
  laimr export --kind efficientdet --weights lite0.safetensors --out lite0.xml

The engine is OpenVINO's, two files, for CPUs only. To use it give the .xml file in a parameter
file: models.NAME.weights; the kind stays. Where the CPU has bfloat16 units (AMX) OpenVINO uses
them by itself: `laimr evaluate --kind KIND --weights FILE.xml` tells what that costs in accuracy.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOGUE
    parser.add_argument('--weights', required=True, metavar='FILE', help='trained weights')
    parser.add_argument(
        '--kind', required=True, choices=('yolo', 'efficientdet'), help='kind of detector')
    parser.add_argument(
        '--input-px', type=int, default=0, metavar='N',
        help="side of the network's input in pixels (default: 0, what it was trained with)")
    parser.add_argument(
        '--out', type=named_path, required=True, metavar='FILE.xml',
        help='file to write; its weights go beside it, in FILE.bin')
    parser.add_argument(
        '--threads', type=int, default=1, metavar='N',
        help='CPU threads for the comparison of times; 0 is all cores (default: 1)')


def run(args: argparse.Namespace) -> int:
    """Export; return the exit status: 2 for what is wrong with the command, 1 for the rest."""
    from dataclasses import replace

    from laimr_ros.detectors.base import DetectorError, DetectorSpec

    problem = _problem(args)
    if problem:
        print(f'laimr export: {problem}', file=sys.stderr)
        return 2
    with leave_at_interrupt():
        from laimr_ros.detectors.engine import EngineWriteError
        from laimr_ros.detectors.export import export
        from laimr_ros.detectors.factory import create_detector
    spec = DetectorSpec(args.kind, args.weights, args.input_px, 'cpu', threads=args.threads)
    try:
        export(spec, args.out)
        before = create_detector(spec)
        after = create_detector(replace(spec, weights=str(args.out), input_px=0))
        times = compare([before, after])
        before.close()
        after.close()
    except (DetectorError, OSError) as error:
        print(f'laimr export: {error}', file=sys.stderr)
        return 1 if isinstance(error, (EngineWriteError, OSError)) else 2
    size = args.out.with_suffix('.bin').stat().st_size
    print(f'{args.out} ({size / 1e6:.1f} MB of weights): {1e3 * times[1]:.1f} ms a frame, '
          f'{1e3 * times[0]:.1f} ms before, {times[0] / times[1]:.1f} times faster '
          f'(threads: {args.threads or "all"})')
    return 0


def _problem(args: argparse.Namespace) -> str:
    """Return what is wrong with the arguments, or ''."""
    from laimr_ros.detectors.files import find_file

    weights = find_file(args.weights)
    if args.out.suffix.lower() != '.xml':
        return f'--out {str(args.out)!r} is no name of an engine; give one that ends in .xml'
    return (
        out_of_range('--threads', args.threads, 0, most_threads(), '; 0 is all cores')
        or wrong_input_px(args.kind, args.input_px)
        or ('' if args.weights and os.path.exists(weights) else
            f'--weights {args.weights!r}: there is no such file; give a file of trained weights')
        or problem_with_file('--out', args.out, [weights])
        or problem_with_file('--out: file', args.out.with_suffix('.bin'), [weights]))


def compare(detectors: list[Detector], rounds: int = 9) -> list[float]:
    """Return the median time of each detector, in seconds, measured in turn."""
    taken: list[list[float]] = [[] for _ in detectors]
    for _ in range(rounds):
        for times, detector in zip(taken, detectors):
            times.append(detector.warm_up())
    return [statistics.median(times) for times in taken]
