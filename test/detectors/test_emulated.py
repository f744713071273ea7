"""Tests of `laimr_ros.detectors.emulated`."""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

from laimr_ros.detectors.base import DetectorError, DetectorSpec
from laimr_ros.detectors.emulated import EmulatedDetector
from laimr_ros.detectors.images import blank
import numpy as np
import pytest


def make(**options: Any) -> EmulatedDetector:
    return EmulatedDetector(DetectorSpec('emulated', options=options))


def drawn(count: int, **options: Any) -> list[float]:
    detector = make(mean_s=0.2, seed=3, **options)
    return [detector._draw() for _ in range(count)]


def test_zero_mean_returns_at_once() -> None:
    detector = make()
    image = blank(640, 480)
    begin = time.perf_counter()
    for _ in range(1000):
        detector.detect(image)
    assert time.perf_counter() - begin < 1.0


def test_takes_the_time_and_no_cpu() -> None:
    detector = make(mean_s=0.1)
    begin, cpu = time.perf_counter(), time.thread_time()
    found = detector.detect(blank(640, 480))
    elapsed = time.perf_counter() - begin
    assert 0.1 <= found.inference_s <= elapsed
    assert time.thread_time() - cpu < 0.02


@pytest.mark.parametrize('law, cv, expected_cv', [
    ('constant', 0.0, 0.0), ('lognormal', 0.5, 0.5), ('exponential', 0.0, 1.0),
    ('power_law', 0.3, 0.3),
])
def test_law_has_its_mean_and_spread(law: str, cv: float, expected_cv: float) -> None:
    times = drawn(20_000, law=law, cv=cv)
    assert statistics.fmean(times) == pytest.approx(0.2, rel=0.03)
    assert statistics.pstdev(times) / 0.2 == pytest.approx(expected_cv, abs=0.05)


def test_same_seed_gives_same_times() -> None:
    assert drawn(5, law='exponential') == drawn(5, law='exponential')


def test_no_seed_gives_each_detector_its_own_times() -> None:
    first, second = (make(law='exponential', mean_s=1.0)._draw() for _ in range(2))
    assert first != second


@pytest.mark.parametrize('law, cv', [('lognormal', 0.8), ('exponential', 0.0)])
def test_warm_up_gives_the_median(law: str, cv: float) -> None:
    detector = make(law=law, cv=cv, mean_s=0.2, seed=1)
    times = [detector._draw() for _ in range(20_001)]
    assert detector.warm_up() == pytest.approx(statistics.median(times), rel=0.05)


def test_power_law_follows_the_paper() -> None:
    # L = L_m * (1 + U**gamma); alone on 3 cores with a background of 0.5: U = 0.5 + 1/3.
    detector = make(law='power_law', mean_s=0.02, gamma=1.49, background=0.5, cores=3)
    expected = 0.02 * (1.0 + (0.5 + 1.0 / 3.0) ** 1.49)
    assert detector.warm_up() == pytest.approx(expected)
    found = detector.detect(blank(8, 8))
    assert found.inference_s >= expected - 1e-6


@pytest.mark.parametrize('count', [0, 1, 10, 100])
@pytest.mark.parametrize('width, height', [(1, 1), (300, 700), (1920, 1080)])
def test_boxes_lie_inside_and_repeat(count: int, width: int, height: int) -> None:
    detector = make(detections=count, class_names=('square', 'circle', 'tee'))
    first, second = (detector.detect(blank(width, height)) for _ in range(2))
    assert first.boxes.shape == (count, 4)
    assert first.boxes.dtype == np.float32
    assert (first.scores.dtype, first.class_ids.dtype) == (np.float32, np.int64)
    assert np.array_equal(first.boxes, second.boxes)
    assert (first.boxes >= 0).all()
    assert (first.boxes[:, [0, 2]] <= width).all() and (first.boxes[:, [1, 3]] <= height).all()
    assert (first.boxes[:, 2:] > first.boxes[:, :2]).all()
    assert (np.diff(first.scores) <= 0).all()
    assert list(first.class_ids) == [index % 3 for index in range(count)]


def test_threshold_and_limit_hold() -> None:
    found = EmulatedDetector(DetectorSpec(
        'emulated', score_threshold=0.9, max_detections=50, options={'detections': 200},
    )).detect(blank(64, 64))
    assert 0 < len(found.scores) < 50
    assert found.scores.min() >= 0.9


def test_answers_are_the_callers_own() -> None:
    detector = make(detections=2)
    detector.detect(blank(10, 10)).scores[:] = 0.0
    assert detector.detect(blank(10, 10)).scores[0] > 0.5


def test_close_twice() -> None:
    detector = make()
    detector.close()
    detector.close()


@pytest.mark.parametrize('options, said', [
    ({'men_s': 1}, 'men_s'),
    ({'law': 'normal'}, 'lognormal'),
    ({'mean_s': -1}, 'mean_s'),
    ({'mean_s': 'fast'}, 'fast'),
    ({'mean_s': math.nan}, 'mean_s'),
    ({'cores': 0}, 'cores'),
    ({'cv': 1.0}, 'cv'),
    ({'class_names': ()}, 'class_names'),
    ({'class_names': 'dog'}, 'class_names'),
    ({'seed': 'x'}, 'seed'),
    ({'seed': -1}, 'seed'),
    ({'detections': 1.5}, 'detections'),
    ({'load_file': '/nowhere/at/all'}, '/nowhere/at/all'),
])
def test_wrong_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DetectorError, match=said):
        make(**options)


@pytest.mark.parametrize('image', [
    np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3), np.float32),
    np.zeros((0, 4, 3), np.uint8),
])
def test_other_images_are_refused(image: Any) -> None:
    with pytest.raises(DetectorError, match='uint8'):
        make().detect(image)
