"""The weights that come with the package, served by a real worker, and on real photographs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
import contextlib
from pathlib import Path
import subprocess
import sys
import threading

import cv2
from laimr_ros.cameras.scene import Frame, Scene
from laimr_ros.detectors.base import DetectorSpec
from laimr_ros.detectors.factory import create_detector
from laimr_ros.serving.client import ImagePayload, ReplicaClient
from laimr_ros.training.matching import Box, iou
import pytest

ROOT = Path(__file__).parents[2]
WEIGHTS = 'package://laimr_ros/weights/'
MODELS = {
    'efficientdet_lite0': ('efficientdet', 'cell_efficientdet_lite0.safetensors'),
    'yolov5n': ('yolo', 'cell_yolov5n.pt'),
    'yolov5n_512': ('yolo', 'cell_yolov5n_512.pt'),
}
SIZES = [(640, 480), (1280, 720), (300, 700)]
# Boxes by eye of the object and of the gripper's jaws and carriage, in pixels.
PHOTOGRAPHS = {
    'base_cr01_t.png': ('t_shape', (317, 178, 415, 292), (370, 150, 503, 285)),
    'base_cr01_square.png': ('square', (233, 223, 345, 336), (285, 215, 375, 352)),
}


@contextlib.contextmanager
def worker() -> Iterator[str]:
    """Yield the endpoint of a worker that serves all of them."""
    command = [sys.executable, '-m', 'laimr_ros.cli.main', 'worker', '--listen', '127.0.0.1:0']
    for name, (kind, file) in MODELS.items():
        command += ['--model', f'{name}={kind}',
                    '--set', f'models.{name}.weights={WEIGHTS}{file}']
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    watchdog = threading.Timer(120.0, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line.startswith('ready '), (line, process.stderr.read())
        yield line.split()[1]
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def drawn(width: int, height: int) -> list[Frame]:
    """Return pictures of cells as the demonstration's cameras show them, of some minutes."""
    return [Scene(seed, width, height).draw(7.0 + 41.0 * seed) for seed in range(6)]


async def detect(
    endpoint: str, pictures: list[bytes], model: str,
) -> list[list[tuple[str, float, Box]]]:
    """Return class, score and box of what is found in each picture."""
    found = []
    async with ReplicaClient(endpoint) as client:
        for data in pictures:
            reply = await client.infer(model, ImagePayload(data), 30.0)
            found.append([
                (label, score, tuple(box))
                for label, box, score in zip(
                    reply.labels, reply.boxes.tolist(), reply.scores.tolist())])
    return found


def test_every_size_through_a_real_worker() -> None:
    """Every object that nothing hides is found, in pixels of the picture that was sent."""
    with worker() as endpoint:
        for width, height in SIZES:
            frames = drawn(width, height)
            pictures = [cv2.imencode('.jpg', frame.image)[1].tobytes() for frame in frames]
            for model in MODELS:
                found = asyncio.run(detect(endpoint, pictures, model))
                for number, frame in enumerate(frames):
                    for thing in frame.objects:
                        if thing.visible_fraction < 0.95:
                            continue
                        best = max((iou(thing.box, box) for label, _, box in found[number]
                                    if label == thing.label), default=0.0)
                        assert best >= 0.5, (model, width, height, number, thing, found[number])


@pytest.mark.parametrize('model', ['yolov5n', 'yolov5n_512'])
@pytest.mark.parametrize('file', PHOTOGRAPHS)
def test_real_photographs(file: str, model: str) -> None:
    """No photograph was trained on, yet object and gripper are found."""
    path = ROOT.parent / 'shared' / 'cloudgripper' / file
    if not path.exists():
        pytest.skip(f'REAL PHOTOGRAPHS NOT TESTED: no {path}; they are not ours to pass on')
    label, box, gripper = PHOTOGRAPHS[file]
    kind, weights = MODELS[model]
    detector = create_detector(DetectorSpec(kind, WEIGHTS + weights, device='cpu'))
    image = cv2.imread(str(path))
    assert image is not None
    made = detector.detect(image)
    found = [
        (detector.class_names[kind], score, tuple(box)) for box, score, kind in zip(
            made.boxes.tolist(), made.scores.tolist(), made.class_ids.tolist())]
    shapes = [one for one in found if one[0] != 'gripper']
    # The surest shape is the one that is there.
    name, score, at = max(shapes, key=lambda one: one[1])
    assert name == label and score >= 0.5 and iou(at, box) >= 0.5, found
    assert max(iou(at, gripper) for name, _, at in found if name == 'gripper') >= 0.4, found
