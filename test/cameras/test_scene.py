"""The drawn cell against what is known of the real one, and against itself."""

from __future__ import annotations

import math
from pathlib import Path
import time

import cv2
from laimr_ros.cameras.plan import GripperPose, Pose
from laimr_ros.cameras.scene import CLASSES, Look, Scene, SceneObject, State
import numpy as np
import pytest

RAISED_AWAY = GripperPose(60.0, -40.0, 0.0, 1.0, 0.5)


def on_floor(x_px: float, y_px: float) -> tuple[float, float]:
    """Return where on the floor a pixel near the middle is, in mm (157 mm away, no distortion)."""
    return (x_px - 298.73) * 157 / 504.51, (y_px - 257.62) * 157 / 504.42


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Return the intersection over union of two boxes."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    common = max(0.0, width) * max(0.0, height)
    total = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return common / (total - common)


def find(objects: tuple[SceneObject, ...], label: str) -> SceneObject:
    """Return the one object of a class."""
    (found,) = [o for o in objects if o.label == label]
    return found


def test_boxes_agree_with_those_of_real_photographs() -> None:
    # The boxes were drawn by eye on two photographs of a real cell; the poses were measured there.
    scene = Scene(3)
    tee = scene.draw_state(State(
        (('t_shape', Pose(*on_floor(357, 241), math.radians(24))),),
        GripperPose(46.0, -12.0, 0.0, 0.0, 0.9)))
    assert overlap(find(tee.objects, 't_shape').box, (317, 178, 415, 292)) > 0.9
    assert overlap(find(tee.objects, 'gripper').box, (370, 150, 503, 285)) > 0.75
    square = scene.draw_state(State(
        (('square', Pose(*on_floor(289, 280), math.radians(9))),),
        GripperPose(17.0, 15.0, math.radians(-85), 0.0, 0.5)))
    assert overlap(find(square.objects, 'square').box, (233, 223, 345, 336)) > 0.9
    assert find(square.objects, 'gripper').visible_fraction < 0.8  # partly behind the square


def test_same_seed_and_time_same_picture() -> None:
    late = 1_796_000_000.25
    first, second = Scene(5), Scene(5)
    first.draw(12.0)
    assert (first.draw(late).image == second.draw(late).image).all()
    assert first.draw(late).objects == second.draw(late).objects
    assert (first.draw(late).image != Scene(6).draw(late).image).any()
    assert (first.draw(late).image != first.draw(late + 1.0).image).any()


@pytest.mark.parametrize(('width', 'height'), [(640, 480), (1280, 720), (300, 700), (64, 48)])
def test_every_size_gives_boxes_in_the_picture(width: int, height: int) -> None:
    scene = Scene(2, width, height)
    seen = set()
    for number in range(12):
        frame = scene.draw(number * 9.1)
        assert frame.image.shape == (height, width, 3) and frame.image.dtype == np.uint8
        for thing in frame.objects:
            x1, y1, x2, y2 = thing.box
            assert 0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height
            assert 0.0 < thing.visible_fraction <= 1.0
            assert thing.label in CLASSES
            seen.add(thing.label)
    assert seen == set(CLASSES)


def test_boxes_hold_the_red_pixels() -> None:
    scene = Scene(1, look=Look(noise=0.0, blur_px=0.0))
    for shape in ('square', 'circle', 't_shape'):
        frame = scene.draw_state(State(((shape, Pose(-25.0, 10.0, 0.7)),), RAISED_AWAY))
        image = frame.image.astype(int)
        red = (image[:, :, 2] > 50) & (image[:, :, 2] > 2 * image[:, :, 1] + 20)
        red[:, 400:] = False  # the gripper's wires and the lamp
        rows, columns = np.nonzero(red)
        box = find(frame.objects, shape).box
        assert box == pytest.approx(
            (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1), abs=2)


def test_shapes_have_the_size_of_the_prints() -> None:
    # 30 mm at 157 mm, near the axis: 30 * 504.5 / 157 = 96 pixels.
    scene = Scene(1)
    for shape in ('square', 'circle', 't_shape'):
        frame = scene.draw_state(State(((shape, Pose(0.0, 0.0, 0.0)),), RAISED_AWAY))
        x1, y1, x2, y2 = find(frame.objects, shape).box
        assert (x2 - x1, y2 - y1) == pytest.approx((96, 96), abs=3)


def test_visible_fraction_at_the_border_and_behind() -> None:
    scene = Scene(1)
    places_mm = np.linspace(-160, 0, 400)
    pixels = scene.lens.project([(x, 0.0, 157.0) for x in places_mm])[:, 0]
    left_mm = float(np.interp(0.0, pixels, places_mm))  # its centre is on the border
    half = scene.draw_state(State((('circle', Pose(left_mm, 0.0, 0.0)),), RAISED_AWAY))
    thing = find(half.objects, 'circle')
    assert thing.box[0] == 0.0
    # Half of its face, and its side, which shows towards the middle of the picture.
    assert 0.5 < thing.visible_fraction < 0.75
    outside = scene.draw_state(State((('circle', Pose(-300.0, 0.0, 0.0)),), RAISED_AWAY))
    assert [o.label for o in outside.objects] == ['gripper']
    behind = scene.draw_state(State(
        (('square', Pose(0, 0, 0)), ('square', Pose(0, 0, 0))), RAISED_AWAY))
    # The one in front hides the other, of which nothing is left to find.
    assert [o.label for o in behind.objects] == ['gripper', 'square']


def test_chosen_shapes_only() -> None:
    labels = {o.label for o in Scene(1, shapes=('circle',)).draw(3.0).objects}
    assert labels <= {'circle', 'gripper'} and 'circle' in labels
    assert {o.label for o in Scene(1, shapes=()).draw(3.0).objects} == {'gripper'}


@pytest.mark.parametrize(('arguments', 'words'), [
    ({'width': 0}, '0x480'), ({'height': 100_000}, '640x100000'), ({'shapes': ('star',)}, 'star'),
])
def test_what_cannot_be_drawn_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Scene(1, **arguments)  # type: ignore[arg-type]


def test_look_changes_the_picture_not_the_boxes() -> None:
    plain = Scene(1).draw(5.0)
    dark = Scene(1, look=Look(exposure=0.5, tint=(1.0, 0.9, 0.8))).draw(5.0)
    assert dark.objects == plain.objects
    assert dark.image.mean() == pytest.approx(plain.image.mean() * 0.5 * 0.9, rel=0.05)


def test_drawn_faster_than_sixty_a_second_on_one_core() -> None:
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        scene = Scene(7)
        scene.draw(0.0)
        # CPU time of this thread: other processes do not count.
        best = min(_cpu_s(scene, first) for first in range(5))
    finally:
        cv2.setNumThreads(threads)
    assert best < 1 / 60


def _cpu_s(scene: Scene, first: int) -> float:
    begin = time.thread_time()
    for number in range(10):
        scene.draw(first + number * 0.37)
    return (time.thread_time() - begin) / 10


def test_like_the_photographs_in_tone() -> None:
    folder = Path(__file__).resolve().parents[3] / 'shared' / 'cloudgripper'
    if not folder.is_dir():
        pytest.skip('the real photographs are not part of the project; nothing to mend')
    real = cv2.imread(str(folder / 'base_cr01_t.png'))
    assert real is not None
    drawn = Scene(3).draw(0.0).image
    # Places where nothing moves: wall, strips, extrusions, fans.
    for x, y, size in ((150, 300, 40), (300, 14, 10), (520, 180, 20), (545, 350, 25), (5, 200, 10),
                       (100, 380, 20)):
        a, b = (im[y:y + size, x:x + size].mean() for im in (real, drawn))
        assert a == pytest.approx(b, abs=30), (x, y)
