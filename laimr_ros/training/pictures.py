"""An endless stream of batches of drawn pictures, made in processes beside the training."""

from __future__ import annotations

from collections.abc import Generator, Iterator
import signal
import threading
from typing import Any

import cv2
from laimr_ros.training.cells import CellSampler, FRAMES_A_CELL, HELD_OUT_SEED, SIZES
from laimr_ros.training.learners import Batch, Learner, make_batch
import torch
from torch.utils.data import DataLoader, Dataset

_CELLS_AT_ONCE = 8  # A batch shows so many cells, or the network would learn one after another.


class Pictures(Dataset[Batch]):
    """
    Batches by number. All pictures of a batch have one size; sizes take turns.

    :param learner: makes the network's input.
    :param seed: of what is drawn, below the held-out ones.
    :param input_px: side of the network's input, in pixels.
    :param batch: pictures in a batch.
    """

    def __init__(self, learner: Learner, seed: int, input_px: int, batch: int) -> None:
        if not 0 <= seed < HELD_OUT_SEED - len(SIZES):
            raise ValueError(
                f'seed {seed} is held out for judging; train with one from 0 to '
                f'{HELD_OUT_SEED - len(SIZES) - 1}')
        self._learner, self._batch = learner, batch
        # Small pictures are drawn sooner. Some are drawn in full and made smaller, as a camera's.
        self._samplers = [
            CellSampler(seed + number, (_fitted(size, input_px, number),), _CELLS_AT_ONCE)
            for number, size in enumerate(SIZES)]

    def __getitem__(self, number: int) -> Batch:
        """Return a batch."""
        cv2.setNumThreads(0)
        visit, which = divmod(number, len(self._samplers))
        sampler = self._samplers[which]
        cells = min(_CELLS_AT_ONCE, self._batch)
        frames = []
        for place in range(self._batch):
            # The n-th picture of this track of cells.
            count = visit * -(-self._batch // cells) + place // cells
            cell = place % cells + cells * (count // FRAMES_A_CELL)
            frames.append(sampler.frame(cell * FRAMES_A_CELL + count % FRAMES_A_CELL))
        return make_batch(self._learner, frames)


class _Numbers(torch.utils.data.Sampler[int]):
    def __init__(self, first: int, count: int) -> None:
        self._range = range(first, first + count)

    def __iter__(self) -> Iterator[int]:
        return iter(self._range)

    def __len__(self) -> int:
        return len(self._range)


def batches(
    pictures: Pictures, first: int, count: int, workers: int,
) -> Generator[Batch, None, None]:
    """Yield batches ``first`` to ``first + count - 1``, made by so many processes (0: here)."""
    # PyTorch watches its processes by a handler that it leaves behind when they are gone.
    before = signal.getsignal(signal.SIGCHLD)
    loader: DataLoader[Any] = DataLoader(
        pictures, batch_size=None, sampler=_Numbers(first, count), num_workers=workers,
        prefetch_factor=4 if workers else None)
    try:
        yield from loader
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)


def _fitted(size: tuple[int, int], input_px: int, number: int) -> tuple[int, int]:
    if number % 4 == 3:
        return size
    scale = min(1.0, input_px / max(size))
    return max(16, round(size[0] * scale)), max(16, round(size[1] * scale))
