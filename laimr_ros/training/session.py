"""One training from start to end, which can be stopped at any time and gone on with."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
from dataclasses import asdict, dataclass
import math
from pathlib import Path
import time
from typing import Any

from laimr_ros.detectors.contents import why_not_pytorch
from laimr_ros.detectors.reasons import in_short
from laimr_ros.training.interruption import Interruption
from laimr_ros.training.learners import create_learner, Learner, LearnerError
from laimr_ros.training.pictures import batches, Pictures
import torch
from torch.optim.swa_utils import AveragedModel

_WARM_UP = 0.03  # Part of the training in which the steps grow.
_SAVE_EVERY_S = 60.0


@dataclass(frozen=True)
class Stage:
    """
    Part of a training.

    :param input_px: side of the network's input, in pixels.
    :param images: how many pictures to learn from.
    """

    input_px: int
    images: int


@dataclass(frozen=True)
class Recipe:
    """
    How to train one detector.

    :param kind: ``yolo`` or ``efficientdet``.
    :param architecture: as the detector's library calls it.
    :param stages: one after the other; small pictures first costs less.
    :param rate: the largest step size.
    :param batch: pictures in a step.
    :param seed: of the first weights and of the pictures.
    :param start: name of the recipe, or file, whose weights to start from; '' for random ones.
    """

    kind: str
    architecture: str
    stages: tuple[Stage, ...]
    rate: float
    batch: int = 16
    seed: int = 1
    start: str = ''

    @property
    def images(self) -> int:
        """Return how many pictures it learns from in all."""
        return sum(stage.images for stage in self.stages)

    @property
    def input_px(self) -> int:
        """Return the side of the trained network's input, in pixels."""
        return self.stages[-1].input_px


@dataclass(frozen=True)
class Progress:
    """
    Where a training is.

    :param images: pictures learned from.
    :param total: of so many.
    :param input_px: side of the network's input now, in pixels.
    :param loss: mean of the last steps.
    :param elapsed_s: time spent on it, earlier runs included, in seconds.
    """

    images: int
    total: int
    input_px: int
    loss: float
    elapsed_s: float


class Session:
    """
    Train one detector.

    :param recipe: what to do.
    :param start: file of the weights to start from, if the recipe names any.
    :param checkpoint: file to keep the state in; what is there is gone on with.
    :param threads: CPU threads of the network.
    :param workers: processes that draw pictures.
    :raises LearnerError: if it cannot be done, or the checkpoint is of another recipe.
    """

    def __init__(
        self, recipe: Recipe, start: Path | None, checkpoint: Path, threads: int = 2,
        workers: int = 1,
    ) -> None:
        torch.set_num_threads(threads)
        torch.manual_seed(recipe.seed)
        self._recipe, self._checkpoint, self._workers = recipe, checkpoint, workers
        self._enter(recipe.stages[0], start)
        self._images = 0
        self._elapsed_s = 0.0
        self._loss = math.nan
        if checkpoint.exists():
            self._resume()

    @property
    def images(self) -> int:
        """Return how many pictures it has learned from."""
        return self._images

    @property
    def elapsed_s(self) -> float:
        """Return the time spent, in seconds."""
        return self._elapsed_s

    def run(self, report: Callable[[Progress], None] = lambda _: None) -> None:
        """
        Train to the end. What was learned is kept when Ctrl-C ends it before.

        :param report: called after every step.
        :raises KeyboardInterrupt: at Ctrl-C, between two steps.
        :raises LearnerError: if it comes to nothing, or the checkpoint cannot be written.
        """
        before = 0
        with Interruption() as interruption:
            for number, stage in enumerate(self._recipe.stages):
                if number:
                    state = self._state()
                    self._enter(stage)
                    self._load(state)
                if self._images < before + stage.images:
                    self._run_stage(number, stage, before, report, interruption)
                before += stage.images
            self.keep()
            interruption.check()

    def save(self, path: Path, notes: str = '') -> None:
        """Write the averaged weights, half precision, for the detector to load."""
        self._learner.save(self._average.module, path, notes)

    def _enter(self, stage: Stage, start: Path | None = None) -> None:
        """Make network and optimiser for a stage's size of input."""
        recipe = self._recipe
        self._learner: Learner = create_learner(
            recipe.kind, recipe.architecture, stage.input_px, start)
        network = self._learner.network
        bent = [p for p in network.parameters() if p.ndim > 1]
        rest = [p for p in network.parameters() if p.ndim <= 1]
        # Neither biases nor scales are pulled to zero.
        self._optimizer = torch.optim.AdamW(
            [{'params': bent, 'weight_decay': 0.02}, {'params': rest, 'weight_decay': 0.0}],
            lr=recipe.rate)
        self._average = AveragedModel(network, multi_avg_fn=_averaging, use_buffers=True)

    def _run_stage(
        self, number: int, stage: Stage, before: int, report: Callable[[Progress], None],
        interruption: Interruption,
    ) -> None:
        recipe = self._recipe
        done = (self._images - before) // recipe.batch
        count = -(-stage.images // recipe.batch)
        # Each stage has pictures of its own.
        pictures = Pictures(
            self._learner, recipe.seed * 1000 + 100 * number, stage.input_px, recipe.batch)
        kept_at = began = time.monotonic()
        spent = self._elapsed_s
        self._learner.network.train()
        with contextlib.closing(batches(pictures, done, count - done, self._workers)) as drawn:
            for step in range(done + 1, count + 1):
                # Nothing changes while pictures are waited for.
                try:
                    with interruption.let_through():
                        batch = next(drawn)
                except KeyboardInterrupt:
                    # At once: the process that draws takes seconds to end.
                    if self._images:
                        self.keep()
                    raise
                loss = self._step(batch)
                self._images = before + min(step * recipe.batch, stage.images)
                self._loss = loss if math.isnan(self._loss) else 0.98 * self._loss + 0.02 * loss
                now = time.monotonic()
                self._elapsed_s = spent + now - began
                report(Progress(
                    self._images, recipe.images, stage.input_px, self._loss, self._elapsed_s))
                if now - kept_at > _SAVE_EVERY_S:
                    self.keep()
                    kept_at = now

    def _step(self, batch: Any) -> float:
        recipe = self._recipe
        rate = recipe.rate * _schedule(self._images / recipe.images)
        for group in self._optimizer.param_groups:
            group['lr'] = rate
        loss = self._learner.loss(batch)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise LearnerError(
                f'training came to a loss of {value} after {self._images} pictures; lower the '
                f'rate ({recipe.rate:g})')
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._learner.network.parameters(), 10.0)
        self._optimizer.step()
        self._average.update_parameters(self._learner.network)
        return value

    def keep(self) -> None:
        """
        Write the state to the checkpoint, never half of it.

        :raises LearnerError: if it cannot be written; what was kept before stays.
        """
        part = self._checkpoint.with_name(self._checkpoint.name + '.part')
        try:
            self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
            torch.save({
                'recipe': repr(asdict(self._recipe)), **self._state(),
                'images': self._images, 'elapsed_s': self._elapsed_s, 'loss': self._loss}, part)
            part.replace(self._checkpoint)
        # PyTorch says of a full disk that its writer failed.
        except (OSError, RuntimeError) as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise LearnerError(
                f'cannot write {str(self._checkpoint)!r} ({in_short(error)}); free some space, or '
                'give another --out') from error

    def _state(self) -> dict[str, Any]:
        return {
            'network': self._learner.network.state_dict(),
            'average': self._average.state_dict(), 'optimizer': self._optimizer.state_dict()}

    def _load(self, state: dict[str, Any]) -> None:
        self._learner.network.load_state_dict(state['network'])
        self._average.load_state_dict(state['average'])
        self._optimizer.load_state_dict(state['optimizer'])

    def _resume(self) -> None:
        path = str(self._checkpoint)
        try:
            state = torch.load(path, map_location='cpu', weights_only=True)
            same = state['recipe'] == repr(asdict(self._recipe))
            if same:
                self._load(state)
                self._images = int(state['images'])
                self._elapsed_s, self._loss = float(state['elapsed_s']), float(state['loss'])
        # Whatever torch raises on a damaged or foreign file.
        except Exception as error:
            reason = why_not_pytorch(self._checkpoint) or (
                'is damaged, or no checkpoint of a training')
            raise LearnerError(
                f'cannot go on from {path!r}: it {reason}; delete it to start again') from error
        if not same:
            raise LearnerError(
                f'{path!r} is of a training with other settings; delete it to start again, or '
                'give another --out')


def _schedule(part: float) -> float:
    """Return the step size at a part of the training, 1 at its largest."""
    if part < _WARM_UP:
        return 0.05 + 0.95 * part / _WARM_UP
    along = (part - _WARM_UP) / (1.0 - _WARM_UP)
    return 0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * min(along, 1.0)))


@torch.no_grad()
def _averaging(averaged: Any, current: Any, count: Any) -> None:
    """Average exponentially, over a short time in the beginning."""
    steps = float(count)
    keep = 0.998 * (1.0 - math.exp(-steps / 400.0))
    for mean, value in zip(averaged, current):
        if mean.is_floating_point():
            mean.lerp_(value.to(mean.dtype), 1.0 - keep)
        else:
            mean.copy_(value)
