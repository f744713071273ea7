"""The worker node beside its lifecycle: parameters, and a detector that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
import random
from typing import Any

from laimr_ros.detectors import factory
from laimr_ros.detectors.emulated import EmulatedDetector
from laimr_ros.nodes import worker as worker_module
from laimr_ros.nodes.parameters import ParameterError
from laimr_ros.nodes.worker import Worker
from laimr_ros.serving.client import ReplicaClient
from laimr_ros.serving.codec import ImagePayload
from laimr_ros.serving.errors import InferenceError
import pytest
import rclpy
from rclpy.context import Context
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter


@pytest.fixture
def make(tmp_path) -> Iterator[Callable[..., Worker]]:
    """Return a maker of nodes that serve on a Unix socket."""
    context = Context()
    rclpy.init(context=context, domain_id=random.randint(1, 230))
    made = []

    def make(**parameters: Any) -> Worker:
        values = {
            'listen': [f'unix:{tmp_path}/w.sock'],
            'models.lite.kind': 'emulated',
            **parameters,
        }
        made.append(Worker(context=context, parameter_overrides=[
            Parameter(name, value=value) for name, value in values.items()]))
        return made[-1]

    yield make
    for node in made:
        node.trigger_shutdown()
        node.destroy_node()
    rclpy.shutdown(context=context)


def infer(node: Worker, count: int) -> list[str]:
    """Send raw images; return what went wrong with each."""
    async def ask() -> list[str]:
        client = ReplicaClient(node._server.endpoints[0])
        image = ImagePayload(bytes(12), 'rgb8', 2, 2, 6)
        errors = []
        for _ in range(count):
            try:
                await client.infer('lite', image, 5.0)
                errors.append('')
            except InferenceError as error:
                errors.append(str(error))
        await client.close()
        return errors
    return asyncio.run(ask())


def test_a_detector_beyond_repair_is_noticed(make, monkeypatch):
    """Its failures are told from those of images; ``broken`` is what ends the process."""
    broken = False

    class Breaking(EmulatedDetector):
        def detect(self, image: Any) -> Any:
            if broken:
                raise RuntimeError('the GPU has fallen off the bus')
            return super().detect(image)

        def warm_up(self) -> float:
            if broken:
                raise RuntimeError('the GPU has fallen off the bus')
            return super().warm_up()

    monkeypatch.setattr(factory, 'create_detector', Breaking)
    node = make()
    node.start()
    assert infer(node, 1) == ['']
    node._publish_diagnostics()
    assert not node.broken.is_set()
    broken = True
    assert all('GPU' in error for error in infer(node, 5))
    node._publish_diagnostics()
    assert node.broken.is_set()
    assert dict(node._facts())['lite.failed'] == 5
    # A manager can bring it back without a new process, if that helps.
    broken = False
    assert node.trigger_deactivate() is TransitionCallbackReturn.SUCCESS
    assert node.trigger_cleanup() is TransitionCallbackReturn.SUCCESS
    node._publish_diagnostics()
    assert not node.broken.is_set()
    node.start()
    assert infer(node, 1) == ['']


def test_wrong_types_are_told_at_once(make):
    """Before any model is loaded."""
    with pytest.raises(ParameterError, match='max_queue'):
        make(max_queue='many')
    with pytest.raises(ParameterError, match='models.lite.input_px'):
        make(**{'models.lite.input_px': -1})


def test_main_ends_with_status_2(capfd, tmp_path, monkeypatch):
    """One line, no traceback."""
    monkeypatch.setenv('ROS_DOMAIN_ID', str(random.randint(1, 230)))
    monkeypatch.setenv('ROS_LOG_DIR', str(tmp_path))
    assert worker_module.main(['--ros-args', '-p', 'max_queue:=many']) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith('worker: parameter max_queue')


def test_without_a_model_configure_fails_in_words(make):
    """An unknown kind or none: FAILURE, with what to do in the log and in diagnostics."""
    node = make(**{'models.lite.kind': 'yolov5'})
    assert node.trigger_configure() is TransitionCallbackReturn.FAILURE
    assert 'yolo, efficientdet' in node._trouble
