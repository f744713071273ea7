"""
What an exported engine gains: ``python -m benchmarks.export [--json FILE]``.

Each network of the demonstration runs as PyTorch and as `laimr export` makes it, on the same
threads and the same drawn pictures, in turn. ``speedup`` and ``map50_95_loss_points`` are those
of the YOLO of the balanced lane; the others' follow under their names. Times are medians of
``detect``, from decoded picture to boxes; accuracy is on held-out scenes.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
import sys
import tempfile
import time

from benchmarks.report import add_arguments, median, write
from laimr_ros.cameras.scene import Frame
from laimr_ros.detectors.base import Detections, Detector, DetectorError, DetectorSpec
from laimr_ros.detectors.export import export
from laimr_ros.detectors.factory import create_detector
from laimr_ros.training.accuracy import average_precision
from laimr_ros.training.cells import CellSampler, HELD_OUT_SEED
from laimr_ros.training.recipes import file_name, RECIPES

FIRST = 'yolov5n'
SIZE = (640, 480)


def main() -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(prog='benchmarks.export', description=__doc__)
    add_arguments(parser)
    parser.add_argument('--frames', type=int, default=200, help='pictures (default: 200)')
    parser.add_argument('--threads', type=int, default=1, help='of each network (default: 1)')
    args = parser.parse_args()
    sampler = CellSampler(HELD_OUT_SEED, (SIZE,))
    frames = [sampler.frame(index) for index in range(args.frames)]
    figures: dict[str, float] = {}
    try:
        with tempfile.TemporaryDirectory(prefix='laimr-') as directory:
            for name in (FIRST, *(name for name in RECIPES if name != FIRST)):
                found = compare(name, Path(directory), frames, args.threads)
                prefix = '' if name == FIRST else f'{name}_'
                figures.update({prefix + key: value for key, value in found.items()})
    except DetectorError as error:
        print(f'benchmarks.export: {error}', file=sys.stderr)
        return 1
    figures['frames'], figures['threads'] = args.frames, args.threads
    write(figures, args)
    return 0


def compare(
    name: str, directory: Path, frames: list[Frame], threads: int,
) -> dict[str, float]:
    """Return what one network gains and loses by export."""
    spec = DetectorSpec(
        RECIPES[name].kind, f'package://laimr_ros/weights/{file_name(name)}', device='cpu',
        threads=threads, score_threshold=0.001)
    engine = directory / f'{name}.xml'
    export(spec, engine)
    detectors: list[Detector] = [
        create_detector(spec), create_detector(replace(spec, weights=str(engine)))]
    taken: list[list[float]] = [[], []]
    found: list[list[Detections]] = [[], []]
    for detector in detectors:
        detector.warm_up()
    for frame in frames:
        for times, results, detector in zip(taken, found, detectors):
            begin = time.perf_counter()
            results.append(detector.detect(frame.image))
            times.append(time.perf_counter() - begin)
    torch_map, engine_map = (
        average_precision(frames, results, detectors[0].class_names).map50_95
        for results in found)
    torch_s, engine_s = (median(times) for times in taken)
    return {
        'speedup': torch_s / engine_s, 'map50_95_loss_points': 100 * (torch_map - engine_map),
        'torch_ms': 1e3 * torch_s, 'engine_ms': 1e3 * engine_s, 'torch_map50_95': torch_map,
        'engine_map50_95': engine_map}


if __name__ == '__main__':
    sys.exit(main())
