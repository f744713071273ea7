"""The motion in a cell: continuous, within reach, and decided by seed and time alone."""

from __future__ import annotations

import math

from laimr_ros.cameras.plan import FLOOR_MM, Plan, REACH_MM
import pytest

EPOCH_S = 1_796_000_000.0


def test_seed_and_time_decide() -> None:
    plan, same, other = Plan(4), Plan(4), Plan(5)
    late = plan.at(EPOCH_S + 77.7)
    plan.at(3.0)
    assert plan.at(EPOCH_S + 77.7) == late == same.at(EPOCH_S + 77.7)
    assert other.at(EPOCH_S + 77.7) != late


@pytest.mark.parametrize('seed', range(6))
def test_nothing_jumps_and_everything_stays_in_reach(seed: int) -> None:
    plan = Plan(seed)
    step_s = 0.02
    jumps = 0
    moved = set()
    shapes, gripper = plan.at(0.0)
    for number in range(1, 14000):  # longer than one round of the plan
        new_shapes, new_gripper = plan.at(number * step_s)
        far = max(math.hypot(a.x - b.x, a.y - b.y) for a, b in zip(shapes, new_shapes))
        travelled = math.hypot(new_gripper.x - gripper.x, new_gripper.y - gripper.y)
        if max(far, travelled) > 5.0:  # more than 250 mm/s
            jumps += 1
        moved |= {i for i, (a, b) in enumerate(zip(shapes, new_shapes)) if a != b}
        for pose in new_shapes:
            assert FLOOR_MM[0] <= pose.x <= FLOOR_MM[2] and FLOOR_MM[1] <= pose.y <= FLOOR_MM[3]
        assert -1e-9 <= new_gripper.lift <= 1 + 1e-9 and 0 <= new_gripper.opening <= 1
        reach = 30.0  # while turning where it stands, a shape may be pushed from further out
        assert REACH_MM[0] - reach <= new_gripper.x <= REACH_MM[2] + reach
        shapes, gripper = new_shapes, new_gripper
    assert jumps <= 2  # only where the round closes
    assert moved == {0, 1, 2}


def test_shapes_keep_apart() -> None:
    for seed in range(10):
        plan = Plan(seed)
        for number in range(500):
            (square, circle, tee), _ = plan.at(number * 0.5)
            for a, b in ((square, circle), (square, tee), (circle, tee)):
                assert math.hypot(a.x - b.x, a.y - b.y) > 30.0


def test_an_empty_floor_still_has_a_gripper_moving() -> None:
    plan = Plan(1, ())
    assert plan.at(0.0)[0] == ()
    assert plan.at(0.0)[1] != plan.at(1.0)[1]
