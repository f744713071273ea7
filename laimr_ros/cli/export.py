"""``laimr export``: make of trained weights an engine that a CPU runs sooner."""

from __future__ import annotations

import argparse
from pathlib import Path
import statistics
import sys
from typing import TYPE_CHECKING

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
        help="side of the network's input in pixels (default: what it was trained with)")
    parser.add_argument(
        '--out', type=Path, required=True, metavar='FILE.xml',
        help='file to write; its weights go beside it, in FILE.bin')
    parser.add_argument(
        '--threads', type=int, default=1, metavar='N',
        help='CPU threads for the comparison of times (default: 1)')


def run(args: argparse.Namespace) -> int:
    """Export; return the exit status."""
    from dataclasses import replace

    from laimr_ros.detectors.base import DetectorError, DetectorSpec
    from laimr_ros.detectors.export import export
    from laimr_ros.detectors.factory import create_detector

    if args.threads < 0:
        print(f'laimr export: --threads {args.threads}; give 1 or more, or 0 for all cores',
              file=sys.stderr)
        return 2
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
        return 1
    size = args.out.with_suffix('.bin').stat().st_size
    print(f'{args.out} ({size / 1e6:.1f} MB of weights): {1e3 * times[1]:.1f} ms a frame, '
          f'{1e3 * times[0]:.1f} ms before, {times[0] / times[1]:.1f} times faster '
          f'(threads: {args.threads or "all"})')
    return 0


def compare(detectors: list[Detector], rounds: int = 9) -> list[float]:
    """Return the median time of each detector, in seconds, measured in turn."""
    taken: list[list[float]] = [[] for _ in detectors]
    for _ in range(rounds):
        for times, detector in zip(taken, detectors):
            times.append(detector.warm_up())
    return [statistics.median(times) for times in taken]
