"""Rules are compared at the cost of the method, read between their runs."""

from __future__ import annotations

from laimr_ros.evaluation.ablation import at_cost
import pytest


@pytest.mark.parametrize(('cost', 'late', 'how'), [
    (150.0, 0.3, 'between'), (100.0, 0.4, 'between'), (400.0, 0.1, 'dearest'),
    (50.0, 0.4, 'cheapest')])
def test_late_share_at_a_cost(cost, late, how):
    found, told = at_cost([(300.0, 0.1), (100.0, 0.4), (200.0, 0.2)], cost)
    assert found == pytest.approx(late)
    assert how in told
