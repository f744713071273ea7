"""Forms predict what they were fitted to; online they follow what changes, one frame behind."""

from __future__ import annotations

from laimr_ros.evaluation.forms import fitted, predicted
from laimr_ros.evaluation.sweep import observations, Visit, visit, WORLDS
from laimr_ros.latency.model import PowerLaw
import numpy as np
import pytest


@pytest.mark.parametrize('form', ['told', 'power', 'exact'])
def test_every_form_finds_the_means_it_was_fitted_to(form):
    seen = [visit('own', 5, rate, 1, 300.0) for rate in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)]
    model = fitted(form, observations(seen), WORLDS['own'].exact(5), 1)
    for one in seen:
        assert model.mean(one.rate, 5) == pytest.approx(one.service.mean(), rel=0.06)
    assert model.quantile(0.99, 1.0, 5) > 1.2 * model.mean(1.0, 5)


def _served(service):
    count = len(service)
    return Visit(2, 1.0, np.arange(count, dtype=float), np.array(service), np.full(count, np.nan))


def test_a_frame_is_predicted_before_it_is_learned_from():
    model = PowerLaw(1.0, cv=0.1)
    ((mean,), (bound,)) = predicted(model, [_served([2.0] * 200)], 0.95, online=True)
    assert mean[0] == model.mean(1.0, 2)
    assert bound[0] == pytest.approx(model.quantile(0.95, 1.0, 2))
    assert mean[-1] == pytest.approx(2.0, rel=0.05)
    assert bound[-1] >= 2.0


def test_without_learning_predictions_stay():
    model = PowerLaw(1.0, 1.0, 1.0, cv=0.1)
    ((mean,), (bound,)) = predicted(model, [_served([2.0, 3.0])], 0.95)
    assert list(mean) == [1.5, 1.5]
    assert bound == pytest.approx(model.quantile(0.95, 1.0, 2))
