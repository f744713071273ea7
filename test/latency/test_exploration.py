"""Test which frames renew the model of an unused pool."""

from __future__ import annotations

from laimr_ros.latency.exploration import Explorer
import pytest


def explore(explorer: Explorer, frames: int, *, burst: bool = False) -> list[int]:
    """Return which frames explored; the edge is best, the cloud is feasible and idle."""
    found = []
    for k in range(frames):
        now = 0.1 * k
        explorer.used('edge', now)
        if explorer.due(burst=burst) and explorer.choose(now, 'edge', ['edge', 'cloud']):
            found.append(k)
    return found


def test_one_frame_in_a_hundred_explores_and_always_the_same() -> None:
    found = explore(Explorer(0.01), 1000)
    assert found == list(range(99, 1000, 100))
    assert found == explore(Explorer(0.01), 1000)


def test_a_burst_is_no_time_for_it_and_none_is_saved_up() -> None:
    explorer = Explorer(0.01)
    assert explore(explorer, 1000, burst=True) == []
    assert explore(explorer, 150) == [0, 100]


def test_the_stalest_other_pool_is_chosen() -> None:
    explorer = Explorer(1.0, stale_after=10.0)
    explorer.used('near', 5.0)
    explorer.used('far', 3.0)
    assert explorer.choose(100.0, 'edge', ['edge', 'near', 'far']) == 'far'
    assert explorer.choose(100.0, 'far', ['near', 'far']) == 'near'
    assert explorer.choose(100.0, 'edge', ['near', 'far', 'new']) == 'new'
    assert explorer.age('new', 100.0) == float('inf')


def test_nothing_is_explored_that_is_best_infeasible_or_known() -> None:
    explorer = Explorer(1.0, stale_after=10.0)
    assert explorer.choose(0.0, 'edge', ['edge']) is None
    assert explorer.choose(0.0, 'edge', []) is None
    explorer.used('cloud', 95.0)
    assert explorer.choose(100.0, 'edge', ['cloud']) is None
    assert explorer.explored == 0
    # What could not be used is kept for the next frame.
    assert explorer.due(burst=False)
    assert explorer.choose(106.0, 'edge', ['cloud']) == 'cloud'
    explorer.forget('cloud')
    assert explorer.age('cloud', 106.0) == float('inf')


@pytest.mark.parametrize('share', [0.0, 0.01, 0.5, 1.0])
def test_the_share_is_kept(share: float) -> None:
    explorer = Explorer(share)
    assert len(explore(explorer, 2000)) == pytest.approx(2000 * share, abs=1)
    assert explorer.frames == 2000


@pytest.mark.parametrize('share', [-0.1, 1.1, float('nan')])
def test_a_wrong_share_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match='exploration share is'):
        Explorer(share)
