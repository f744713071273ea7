"""Simulated queues agree with what is known exactly of them."""

from __future__ import annotations

import math

from laimr_ros.evaluation.queues import DISCIPLINES, unit_services, waits
import numpy as np
import pytest


def _poisson(seed, rate, count):
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate, count))


def _mean(discipline, servers, load, law='exponential', cv=1.0, count=200_000):
    services = unit_services(law, cv)(np.random.default_rng(5), count)
    found = waits(discipline, _poisson(4, load * servers, count), services, servers,
                  np.random.default_rng(6))
    return float(found[count // 10:].mean())


def test_mm2_has_the_mean_of_the_textbook():
    # M/M/2: rho^2 / (1 - rho^2) mean service times (Kleinrock 1975).
    assert _mean('pooled', 2, 0.7) == pytest.approx(0.49 / 0.51, rel=0.03)


@pytest.mark.parametrize('servers', [1, 3])
def test_lots_make_mg1_of_each_queue(servers):
    # Pollaczek and Khinchine: rho (1 + cv^2) / (2 (1 - rho)).
    expected = 0.6 * (1.0 + 0.25) / (2.0 * 0.4)
    assert _mean('random', servers, 0.6, 'lognormal', 0.5) == pytest.approx(expected, rel=0.03)


def test_one_server_is_one_queue_however_it_is_chosen():
    means = [_mean(discipline, 1, 0.5, count=5_000) for discipline in DISCIPLINES]
    assert means == pytest.approx([means[0]] * len(DISCIPLINES))


def test_known_work_makes_one_queue_of_many():
    # With constant services the prediction is exact, and who is free first is known.
    assert _mean('least_predicted', 4, 0.9, 'lognormal', 0.0, 20_000) == pytest.approx(
        _mean('pooled', 4, 0.9, 'lognormal', 0.0, 20_000))


def test_a_small_case_by_hand():
    arrivals, services = np.array([0.0, 0.1, 0.2, 0.3]), np.array([1.0, 5.0, 1.0, 1.0])
    lots = np.random.default_rng(1)
    assert waits('pooled', arrivals, services, 2, lots) == pytest.approx([0, 0, 0.8, 1.7])
    assert waits('round_robin', arrivals, services, 2, lots) == pytest.approx([0, 0, 0.8, 4.8])
    # At 0.3 the first queue has 0.7 + 1 to do, the second 0.8 by its mean: into the trap.
    assert waits('least_predicted', arrivals, services, 2, lots) == pytest.approx(
        [0, 0, 0.8, 4.8])


def test_services_have_mean_and_variation():
    for law, cv in (('exponential', 1.0), ('lognormal', 0.15)):
        drawn = unit_services(law, cv)(np.random.default_rng(2), 100_000)
        assert drawn.mean() == pytest.approx(1.0, abs=0.01)
        assert drawn.std() == pytest.approx(cv, rel=0.02)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="discipline 'fifo' is unknown; use one of"):
        waits('fifo', np.zeros(1), np.ones(1), 1, np.random.default_rng(1))
    with pytest.raises(ValueError, match="law 'cauchy' is unknown"):
        unit_services('cauchy', math.nan)
