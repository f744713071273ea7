"""Drawn cells are the same for the same seed, differ otherwise, and their truth is right."""

from __future__ import annotations

from collections import Counter

from laimr_ros.cameras.scene import CLASSES, Frame
from laimr_ros.training.cells import CellSampler, FRAMES_A_CELL, HELD_OUT_SEED, SIZES
import numpy as np
import pytest


def test_the_same_seed_and_index_give_the_same_picture() -> None:
    """Whatever was asked for before."""
    one, other = CellSampler(3), CellSampler(3)
    other.frame(40)
    for index in (9, 2, 9):
        a, b = one.frame(index), other.frame(index)
        assert np.array_equal(a.image, b.image)
        assert a.objects == b.objects


def test_seeds_and_indices_differ() -> None:
    """Two pictures of one cell, two cells, two seeds."""
    sampler, other = CellSampler(3, ((320, 240),)), CellSampler(4, ((320, 240),))
    first = sampler.frame(0).image
    for image in (
            sampler.frame(1).image, sampler.frame(FRAMES_A_CELL).image, other.frame(0).image):
        assert image.shape == first.shape
        assert np.abs(image.astype(int) - first).mean() > 1.0


def test_sizes_take_turns() -> None:
    """A cell each."""
    sampler = CellSampler(1)
    for number, (width, height) in enumerate(SIZES):
        assert sampler.frame(number * FRAMES_A_CELL).image.shape == (height, width, 3)


def frames(count: int, **more: object) -> list[Frame]:
    """Return held-out pictures, small ones."""
    sampler = CellSampler(HELD_OUT_SEED, ((320, 240),))
    return [sampler.frame(index) for index in range(count)]


def test_every_class_is_there_often_and_boxes_are_inside() -> None:
    """In 400 pictures; some things are hidden in part, some pictures have no shape."""
    drawn = frames(400)
    things = [thing for frame in drawn for thing in frame.objects]
    counts = Counter(thing.label for thing in things)
    assert set(counts) == set(CLASSES)
    assert min(counts.values()) > 100
    for thing in things:
        x0, y0, x1, y1 = thing.box
        assert 0 <= x0 < x1 <= 320 and 0 <= y0 < y1 <= 240
        assert 0 < thing.visible_fraction <= 1
    assert sum(0.25 < thing.visible_fraction < 0.8 for thing in things) > 40
    assert any(not any(t.label != 'gripper' for t in frame.objects) for frame in drawn)


@pytest.mark.parametrize('label', ['square', 'circle', 't_shape'])
def test_boxes_hold_what_they_say(label: str) -> None:
    """Prints are red: more so inside their boxes than in the picture as a whole."""
    redder = []
    for frame in frames(160):
        image = frame.image.astype(float)
        red = image[:, :, 2] - image[:, :, :2].mean(axis=2)
        for thing in frame.objects:
            if thing.label == label and thing.visible_fraction > 0.9:
                x0, y0, x1, y1 = map(int, thing.box)
                redder.append(red[y0:y1, x0:x1].mean() > red.mean())
    assert len(redder) > 20
    assert np.mean(redder) > 0.95


def test_pictures_vary_as_cameras_do() -> None:
    """Brightness, colour and sharpness are spread widely over the cells."""
    drawn = frames(50 * FRAMES_A_CELL)[::FRAMES_A_CELL]
    brightness = [frame.image.mean() for frame in drawn]
    assert np.percentile(brightness, 90) > 1.5 * np.percentile(brightness, 10)
    tint = [frame.image[:, :, 0].mean() / frame.image[:, :, 2].mean() for frame in drawn]
    assert np.percentile(tint, 90) > 1.1 * np.percentile(tint, 10)
    noise = [np.abs(np.diff(frame.image[:, :, 1].astype(int), axis=1)).mean() for frame in drawn]
    assert np.percentile(noise, 90) > 2 * np.percentile(noise, 10)
