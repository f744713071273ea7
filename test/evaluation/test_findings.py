"""A verdict is one of three, and none is made of a number that is none."""

from __future__ import annotations

import math

from laimr_ros.evaluation.findings import Claim, judged
import pytest


@pytest.mark.parametrize(('holds', 'verdict'), [
    (True, 'holds'), (False, 'does not hold'), (None, 'undecided')])
def test_verdict(holds, verdict):
    assert Claim('a claim', '1 s', '2 s', holds).verdict == verdict


def test_what_is_made_of_no_number_is_undecided():
    assert judged(1.0 <= 2.0, 1.0, math.inf) is True
    assert judged(3.0 <= 2.0, 3.0) is False
    assert judged(math.nan <= 2.0, 1.0, math.nan) is None
