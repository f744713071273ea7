"""
What a detector costs beside its network: ``python -m benchmarks.detectors [--json FILE]``.

One photograph goes, as the JPEG that it is, through a real worker process on a Unix socket. The
same photograph, letterboxed and ready, goes through the bare fused network in this process. Both
have the same threads and take turns, so that whatever else the machine does falls on both alike.
``yolov5m_ratio_to_bare`` is the ratio of the medians, decoding left out. The weights are random:
the time does not depend on them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
import importlib.util
from pathlib import Path
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.report import add_arguments, median, write
from laimr_ros.detectors.base import Detections, DetectorSpec
from laimr_ros.detectors.images import decode_compressed

ARCHITECTURE = 'yolov5m.yaml'
MODEL = 'yolov5m'
MAX_PIXELS = 40_000_000
START_S = 180.0
ANSWER_S = 60.0


def photograph() -> bytes:
    """Return the photograph of a bus, 810x1080, that ultralytics comes with."""
    spec = importlib.util.find_spec('ultralytics')
    if spec is None or spec.origin is None:
        sys.exit('benchmarks.detectors needs ultralytics: pip install ultralytics-opencv-headless')
    return (Path(spec.origin).parent / 'assets' / 'bus.jpg').read_bytes()


def bare_network(
    spec: DetectorSpec, jpeg: bytes,
) -> tuple[Callable[[], float], Callable[[], tuple[float, Detections]]]:
    """
    Make the fused network and a detector around another copy of it.

    :return: a function that runs the network alone on the photograph's input and returns the
        time, and one that detects in the decoded photograph; times in seconds.
    """
    from laimr_ros.detectors import network, yolo
    from laimr_ros.detectors.letterbox import Canvas, centred
    import torch
    import ultralytics
    device = network.choose_device(spec)
    model: Any = ultralytics.YOLO(spec.weights).model.eval().fuse(verbose=False)
    model.requires_grad_(False).to(device, memory_format=torch.channels_last)
    image = decode_compressed(jpeg, MAX_PIXELS)
    detector = yolo.YoloDetector(spec)
    letterbox = centred(image.shape[0], image.shape[1], detector.input_size, 32, True)
    pixels = detector.prepare(Canvas((114, 114, 114)).draw(image, letterbox)).clone()

    def bare() -> float:
        network.limit_threads(spec.threads)
        begin = time.perf_counter()
        with torch.inference_mode():
            model(pixels)
            network.wait_for(device)
        return time.perf_counter() - begin

    def direct() -> tuple[float, Detections]:
        begin = time.perf_counter()
        found = detector.detect(image)
        return time.perf_counter() - begin, found

    return bare, direct


@contextmanager
def through_worker(spec: DetectorSpec, jpeg: bytes) -> Iterator[Callable[[], tuple[float, Any]]]:
    """
    Start a worker process that serves the detector on a Unix socket.

    :return: a function that sends the photograph and returns the time until the answer in
        seconds, and the times that the worker measured (``laimr_ros.serving.reply.Timings``).
    """
    from laimr_ros.serving.client import ReplicaClient
    from laimr_ros.serving.codec import ImagePayload
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(prefix='laimr-') as directory:
        endpoint = f'unix:{directory}/worker.sock'
        worker = subprocess.Popen([
            sys.executable, '-m', 'laimr_ros.cli.main', 'worker',
            '--model', f'{MODEL}={spec.kind}:{spec.weights}', '--threads', str(spec.threads),
            '--device', spec.device, '--listen', endpoint,
        ], stdout=subprocess.DEVNULL)
        try:
            async def connect() -> ReplicaClient:
                client = ReplicaClient(endpoint)
                await client.wait_ready([MODEL], START_S)
                return client

            client = loop.run_until_complete(connect())

            def ask() -> tuple[float, Any]:
                begin = time.perf_counter()
                reply = loop.run_until_complete(
                    client.infer(MODEL, ImagePayload(jpeg), ANSWER_S))
                return time.perf_counter() - begin, reply.timings

            yield ask
            loop.run_until_complete(client.close())
        finally:
            worker.terminate()
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            loop.close()


def measure(spec: DetectorSpec, rounds: int) -> dict[str, float]:
    """Let the bare network, the detector and the worker take turns; return medians."""
    jpeg = photograph()
    bare, direct = bare_network(spec, jpeg)
    times: dict[str, list[float]] = {}

    def note(**values_s: float) -> None:
        for name, value in values_s.items():
            times.setdefault(name, []).append(value)

    with through_worker(spec, jpeg) as ask:
        for turn in range(rounds + 2):
            if turn == 2:  # The first two are warm-up, for the caches of all three.
                times.clear()
            # In turn each goes first: whoever follows a pause finds a cooler, faster core.
            for step in range(3):
                which = (turn + step) % 3
                if which == 0:
                    note(bare=bare())
                elif which == 1:
                    total, _ = direct()
                    note(direct=total)
                else:
                    total, parts = ask()
                    note(worker=total, worker_but_decode=total - parts.decode_s,
                         decode=parts.decode_s, preprocess=parts.preprocess_s,
                         inference=parts.inference_s, postprocess=parts.postprocess_s,
                         transport=total - parts.decode_s - parts.preprocess_s
                         - parts.inference_s - parts.postprocess_s)
    middle = {name: median(values) for name, values in times.items()}
    return {
        'yolov5m_ratio_to_bare': middle['worker_but_decode'] / middle['bare'],
        'yolov5m_direct_ratio_to_bare': middle['direct'] / middle['bare'],
        'bare_ms': 1e3 * middle['bare'],
        'direct_ms': 1e3 * middle['direct'],
        'worker_ms': 1e3 * middle['worker'],
        'decode_ms': 1e3 * middle['decode'],
        'preprocess_ms': 1e3 * middle['preprocess'],
        'inference_ms': 1e3 * middle['inference'],
        'postprocess_ms': 1e3 * middle['postprocess'],
        'transport_ms': 1e3 * middle['transport'],
        'threads': spec.threads,
        'rounds': rounds,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument('--quick', action='store_true', help='5 rounds in place of 25')
    parser.add_argument('--rounds', type=int, default=25, help='measured rounds (default: 25)')
    parser.add_argument('--threads', type=int, default=1, help='CPU threads (default: 1)')
    parser.add_argument('--device', default='cpu', help='cpu (the default), auto, cuda or cuda:N')
    args = parser.parse_args()
    spec = DetectorSpec('yolo', ARCHITECTURE, device=args.device, threads=args.threads)
    write(measure(spec, 5 if args.quick else args.rounds), args)


if __name__ == '__main__':
    main()
