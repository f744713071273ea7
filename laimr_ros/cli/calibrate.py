"""``laimr calibrate``: measure a live worker and write the dispatcher's latency model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
import json
import os
from pathlib import Path
import re
import sys
from typing import Any, TYPE_CHECKING

from laimr_ros.cli.calibration_worker import CalibrateError, wait_ready, worker_to_measure
from laimr_ros.cli.outputs import named_path, problem_with_directory
from laimr_ros.cli.ranges import out_of_range

if TYPE_CHECKING:
    from laimr_ros.cli.calibration_sweep import FrameRecord, Visit
    from laimr_ros.serving.client import ImagePayload

_EPILOGUE = """
examples:
  laimr calibrate 127.0.0.1:8500 --model yolov5m
  laimr calibrate unix:/run/laimr/w.sock --model yolov5n --rates 1,2,4,6,8 --pool edge
  laimr calibrate --params-file config/demo.yaml --pool cloud --model yolov5n
  laimr calibrate 127.0.0.1:8500 --model yolov5m --check out/calibrate/latest/parameters.yaml

Nothing else may use the worker meanwhile. With --params-file, the pool's first endpoint is
measured or, if it lists none, a worker started as the file describes it. The folder of results
holds parameters.yaml (for the dispatcher), report.html, report.txt, report.json, plot.png and
frames.jsonl. Exit status 0: the model predicts what it was not fitted to; with --check, the fresh
run. 1: it does not, or the worker cannot be measured. 2: a wrong option.
"""
# Shares of what one replica can serve, where no rates are given.
_LOADS = (0.08, 0.2, 0.35, 0.5, 0.65, 0.78)
_MOST_SEED = 1_000_000_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOGUE
    # Of rates, "-1,2" is a wrong one, and no option.
    parser._negative_number_matcher = re.compile(r'-[\d.][\d.,e+-]*$')
    parser.add_argument('endpoint', nargs='?', metavar='ENDPOINT',
                        help='the worker: host:port or unix:/path')
    parser.add_argument('--params-file', type=named_path, metavar='FILE',
                        help='parameters of dispatcher and worker, instead of ENDPOINT')
    parser.add_argument('--model', required=True, metavar='NAME', help='model to measure')
    parser.add_argument('--pool', default='', metavar='NAME',
                        help='pool that the worker belongs to (default: edge; with --params-file '
                             'the only one in it)')
    parser.add_argument('--rates', type=_rates, metavar='R1,R2,...',
                        help='frames per second (default: six, up to 78 %% of what it can serve)')
    parser.add_argument('--frames', type=_count, metavar='N',
                        help='frames at each rate and round (default 60; for a check 100)')
    parser.add_argument('--rounds', type=_count, metavar='N',
                        help='visits to each rate, in another order each (default 3)')
    parser.add_argument('--seed', type=int, default=0, metavar='N',
                        help='of arrivals and order (default 0); a check takes another stream')
    parser.add_argument('--images', type=named_path, metavar='DIR',
                        help='JPEG and PNG files to send (default: drawn table tops, 640x480)')
    parser.add_argument('--timeout', type=_seconds, default=60.0, metavar='S',
                        help='for one frame, and, up to 30, until the worker is ready '
                             '(default 60)')
    parser.add_argument('--check', type=named_path, metavar='FILE',
                        help='measure anew how well the parameters in FILE predict')
    parser.add_argument('--out', type=named_path, default=Path('out/calibrate'), metavar='DIR',
                        help='results go to DIR/<time> and DIR/latest (default %(default)s)')


def run(args: argparse.Namespace) -> int:
    """Calibrate or check; return the exit status."""
    os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
    import asyncio

    from laimr_ros.cli.calibration_report import ParametersError
    from laimr_ros.cli.calibration_sweep import SweepError
    from laimr_ros.serving.endpoint import EndpointError
    from laimr_ros.serving.errors import InferenceError
    try:
        _check_options(args)
        images = _images(args.images)
        with worker_to_measure(args) as endpoint:
            return asyncio.run(_measure(args, endpoint, images))
    except (ParametersError, EndpointError) as error:
        return _complain(error, 2)
    except (CalibrateError, SweepError, InferenceError, ValueError, OSError) as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return _complain('interrupted; nothing was written', 130)


def _check_options(args: argparse.Namespace) -> None:
    """
    Check what can be checked before there is a worker.

    :raises ParametersError: naming option and fix.
    """
    from laimr_ros.cli.calibration_report import dispatcher_settings, ParametersError
    if (args.endpoint is None) == (args.params_file is None):
        raise ParametersError('give either ENDPOINT or --params-file')
    problem = out_of_range('--seed', args.seed, 0, _MOST_SEED) or problem_with_directory(
        '--out', args.out)
    if problem:
        raise ParametersError(problem)
    if args.check is not None:
        dispatcher_settings(args.check)


def _complain(error: object, status: int) -> int:
    print(f'laimr calibrate: {error}', file=sys.stderr, flush=True)
    return status


async def _measure(args: argparse.Namespace, endpoint: str, images: Sequence[ImagePayload]) -> int:
    from laimr_ros.cli import calibration_report as report
    from laimr_ros.cli import calibration_result as results
    from laimr_ros.cli.calibration_sweep import plan, service_alone
    from laimr_ros.serving.client import ReplicaClient
    pool, seed, before = args.pool or 'edge', args.seed, {}
    if args.check is not None:
        law, network, pool = report.read_parameters(args.check, args.model, args.pool)
        before = _plan_before(args.check)
        # Never the arrivals that were fitted to.
        seed = args.seed + 1_000_003
    async with ReplicaClient(endpoint) as client:
        await wait_ready(client, args)
        alone = await service_alone(client, args.model, images, args.timeout)
        rates = args.rates or before.get('rates') or _default_rates(alone)
        rounds = args.rounds or 3
        frames = args.frames or (100 if args.check else 60)
        visits = plan(rates, rounds, frames, seed)
        everything = await _sweep(client, args, images, visits, alone)
    records = [record for record in everything if not record.disturbed]
    disturbed = {record.block for record in everything if record.disturbed}
    about = {
        'model': args.model, 'pool': pool, 'endpoint': endpoint,
        'measured': datetime.now().astimezone().isoformat(timespec='seconds'),
        'rates': ', '.join(f'{rate:g}' for rate in rates) + ' frames/s',
        'frames': f'{len(records)}: {rounds} rounds of {frames} at each rate, Poisson arrivals, '
                  f'seed {seed}',
        'service time alone': f'{1e3 * alone:.4g} ms',
        'latest frame sent': f'{1e3 * max(r.late_s for r in records):.3g} ms late; '
                             f'{len(disturbed)} visits repeated, this host was too busy',
    }
    folder = _folder(args.out)
    if args.check is not None:
        verdict = results.judge(records, results.latency_model(law, network))
        text = report.summary(None, verdict, records, {**about, 'checked': args.check})
        report.write_records(folder, everything)
        (folder / report.TEXT).write_text(text, encoding='utf-8')
        (folder / report.REPORT).write_text(json.dumps({
            'about': about, 'checked': str(args.check), 'holds': verdict.holds,
            **asdict(verdict)}, indent=2) + '\n', encoding='utf-8')
        print(text)
        print('the prediction holds' if verdict.holds else
              'the prediction does NOT hold (wanted: error at most 10 %, 98 to 100 % within)')
        print(f'results: {folder}')
        return 0 if verdict.holds else 1
    result = results.evaluate(records, seed=seed)
    text = report.write_result(
        folder, result, records, pool, args.model, about,
        {'rates': list(rates), 'rounds': rounds, 'frames': frames, 'seed': seed})
    report.write_records(folder, everything)
    print(text)
    for doubt in result.doubts():
        print(f'WARNING: {doubt}')
    print(f'results: {folder}')
    return 1 if result.doubts() else 0


async def _sweep(
    client: Any, args: argparse.Namespace, images: Sequence[ImagePayload],
    visits: Sequence[Visit], alone_s: float,
) -> list[FrameRecord]:
    """Run the sweep under a progress bar, on standard error."""
    from laimr_ros.cli.calibration_sweep import sweep
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    total = sum(visit.moments[-1] for visit in visits)
    with Progress(
        TextColumn('visit {task.fields[block]}/{task.fields[blocks]} at '
                   '{task.fields[rate]:.3g}/s'),
        BarColumn(), TextColumn('{task.completed}/{task.total} frames'), TimeElapsedColumn(),
        TextColumn(f'of about {total:.0f} s; lost {{task.fields[lost]}}'),
        console=Console(stderr=True), refresh_per_second=4,
    ) as bar:
        planned = sum(len(visit.moments) for visit in visits)
        task = bar.add_task('', total=planned, block=1, blocks=len(visits), rate=visits[0].rate,
                            lost=0)
        lost = 0
        frames: dict[int, int] = {}

        def progress(record: FrameRecord) -> None:
            nonlocal lost
            lost += not record.ok
            # More than was planned are repetitions.
            frames[record.block] = frames.get(record.block, 0) + 1
            bar.update(task, completed=sum(frames.values()), total=max(planned, sum(
                frames.values())), block=record.block + 1, rate=record.rate, lost=lost)

        return await sweep(client, args.model, images, visits, args.timeout, alone_s, progress)


def _default_rates(alone_s: float) -> list[float]:
    if not alone_s > 0.0:
        raise CalibrateError('the worker takes no time for a frame; give --rates')
    return [float(f'{load / alone_s:.2g}') for load in _LOADS]


def _plan_before(parameters: Path) -> dict[str, Any]:
    """Return the plan of the calibration that a parameter file comes from, if it is there."""
    try:
        report = json.loads((parameters.resolve().parent / 'report.json').read_text('utf-8'))
        plan = report['plan']
        return plan if isinstance(plan, dict) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _folder(out: Path) -> Path:
    """Make a folder for the results, and let ``latest`` be it."""
    from laimr_ros.demo.files import point_latest
    name = datetime.now().strftime('%Y%m%d-%H%M%S')
    folder, number = out / name, 1
    while True:
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
            folder = out / f'{name}-{number}'
        except OSError as error:
            raise CalibrateError(f'{folder} cannot be made: {error.strerror}; use another '
                                 '--out') from None
    point_latest(out, folder)
    return folder


def _images(directory: Path | None) -> list[ImagePayload]:
    """
    Return the pictures to send.

    :raises ParametersError: if there are none.
    """
    from laimr_ros.cli.calibration_report import ParametersError
    from laimr_ros.serving.client import ImagePayload
    if directory is None:
        import cv2
        from laimr_ros.cameras.scene import Scene
        scene = Scene(7)
        return [ImagePayload(cv2.imencode('.jpg', scene.draw(4.0 * i).image)[1].tobytes())
                for i in range(8)]
    if not directory.is_dir():
        what = 'is a file' if directory.exists() else 'does not exist'
        raise ParametersError(f'--images {str(directory)!r} {what}; give a directory of JPEG or '
                              'PNG files')
    files = sorted(path for path in directory.glob('*')
                   if path.suffix.lower() in ('.jpg', '.jpeg', '.png'))
    if not files:
        raise ParametersError(f'--images {str(directory)!r} holds no JPEG or PNG file; give a '
                              'directory that does')
    try:
        return [ImagePayload(path.read_bytes()) for path in files[:100]]
    except OSError as error:
        raise ParametersError(
            f'--images: {error.filename!r} cannot be read ({error.strerror}); give another '
            'directory') from None


def _rates(text: str) -> list[float]:
    try:
        rates = [float(part) for part in text.split(',') if part.strip()]
    except ValueError:
        rates = []
    if not rates or not all(0.0 < rate < 1e5 for rate in rates):
        raise argparse.ArgumentTypeError(f'{text!r}: give frames per second, such as 1,2,4')
    return sorted(set(rates))


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f'{text!r}: give a whole number from 1')
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e6:
        raise argparse.ArgumentTypeError(f'{text!r}: give seconds, more than 0')
    return value
