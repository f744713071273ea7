"""Networks that learn: their input is their detector's, their file loads, wrong ones are told."""

from __future__ import annotations

from pathlib import Path

from laimr_ros.cameras.scene import CLASSES, Frame
from laimr_ros.detectors.base import DetectorSpec
from laimr_ros.detectors.factory import create_detector
from laimr_ros.training.cells import CellSampler
from laimr_ros.training.learners import create_learner, LearnerError, make_batch, MIN_VISIBLE
import numpy as np
import pytest
import torch

KINDS = [('yolo', 'yolov5n.yaml', '.pt'),
         ('efficientdet', 'tf_efficientdet_lite0', '.safetensors')]


def frames(width: int, height: int, count: int = 2) -> list[Frame]:
    """Return pictures of one size."""
    sampler = CellSampler(1, ((width, height),))
    return [sampler.frame(index) for index in range(count)]


@pytest.mark.parametrize('kind, architecture, suffix', KINDS)
@pytest.mark.parametrize('size', [(320, 240), (150, 350)])
def test_boxes_go_with_the_picture(
    kind: str, architecture: str, suffix: str, size: tuple[int, int],
) -> None:
    """Brought back by the detector's own letterbox they are what they were."""
    learner = create_learner(kind, architecture, 128)
    drawn = frames(*size, count=4)
    pixels, truth = make_batch(learner, drawn)
    assert pixels.dtype == torch.uint8 and pixels.shape[1] == 3
    for number, frame in enumerate(drawn):
        box = learner.letterbox(size[1], size[0])
        assert pixels.shape[2:] == (box.height, box.width)
        rows = truth[truth[:, 0] == number].numpy()
        taught = [t for t in frame.objects if t.visible_fraction >= MIN_VISIBLE]
        assert [CLASSES[int(row[1])] for row in rows] == [t.label for t in taught]
        if taught:
            back = box.to_source(rows[:, 2:].astype(np.float32))
            assert np.allclose(back, [t.box for t in taught], atol=1e-3)


@pytest.mark.parametrize('kind, architecture, suffix', KINDS)
def test_the_loss_falls_and_the_file_loads(
    kind: str, architecture: str, suffix: str, tmp_path: Path,
) -> None:
    """A few steps on one batch; the detector then knows classes and input size by itself."""
    torch.manual_seed(0)
    learner = create_learner(kind, architecture, 128)
    batch = make_batch(learner, frames(160, 120, 4))
    optimizer = torch.optim.AdamW(learner.network.parameters(), 1e-3)
    learner.network.train()
    losses = []
    for _ in range(30):
        loss = learner.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    # Boxes are first learned of once classes begin to be told: at first the loss of YOLO rises.
    assert losses[-1] < 0.7 * max(losses)
    path = tmp_path / f'weights{suffix}'
    learner.save(learner.network, path, 'of a test')
    assert path.stat().st_size < 15e6
    detector = create_detector(DetectorSpec(
        kind, str(path), device='cpu', score_threshold=0.0))
    assert detector.class_names == CLASSES
    assert not detector.random_weights
    assert detector.input_size == (128, 128)
    assert len(detector.detect(np.full((120, 160, 3), 90, np.uint8)).scores)
    # What was learned is gone on with.
    again = create_learner(kind, architecture, 128, path)
    again.network.train()
    fresh = create_learner(kind, architecture, 128)
    fresh.network.train()
    weights = dict(learner.network.state_dict())
    for key, value in again.network.state_dict().items():
        assert torch.allclose(value, weights[key], atol=1e-2, rtol=1e-2), key
    assert any(
        not torch.allclose(value, weights[key], atol=1e-2, rtol=1e-2)
        for key, value in fresh.network.state_dict().items())


def test_a_picture_with_nothing_in_it_has_a_loss() -> None:
    """An empty batch of truth is no error."""
    empty = [Frame(np.zeros((120, 160, 3), np.uint8), ())] * 2
    for kind, architecture, _ in KINDS:
        learner = create_learner(kind, architecture, 128)
        assert torch.isfinite(learner.loss(make_batch(learner, empty)))


@pytest.mark.parametrize('kind, architecture, start, says', [
    ('ssd', 'x', None, "kind 'ssd' cannot be trained; use yolo, efficientdet"),
    ('efficientdet', 'efficientdet_z', None, "cannot train efficientdet 'efficientdet_z'"),
    ('yolo', 'yolov5n.yaml', Path('none.pt'), "from 'none.pt'"),
])
def test_what_cannot_be_trained_is_named(
    kind: str, architecture: str, start: Path | None, says: str,
) -> None:
    """In one line."""
    with pytest.raises(LearnerError, match=says) as caught:
        create_learner(kind, architecture, 128, start)
    assert '\n' not in str(caught.value)
