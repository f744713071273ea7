"""Test that a controller goes on from what another one learned."""

from __future__ import annotations

import copy
import json
from typing import Any

from laimr_ros.control.controller import Controller
from laimr_ros.control.events import FrameArrived, FrameDone, PoolObserved, ReplicaReady
from laimr_ros.control.memory import restore, to_state
from laimr_ros.control.nouns import Configuration, Frame, Lane, Network, Pool
from laimr_ros.latency.model import PowerLaw
import pytest


def make_controller(alpha: float = 0.1) -> Controller:
    """Return a controller with one lane and one replica."""
    controller = Controller(Configuration(
        {'lane': Lane('lane', 'm', 10.0, ('edge',))},
        {'edge': Pool('edge', {'m': PowerLaw(alpha, cv=0.1)}, network=Network(0.01))}))
    controller.handle(0.0, PoolObserved('edge', 1, 0))
    controller.handle(0.0, ReplicaReady('edge', 'r'))
    return controller


def serve(controller: Controller, service: float, frames: int) -> None:
    """Let so many frames be served, one a second."""
    for number in range(frames):
        controller.handle(float(number), FrameArrived(
            Frame(number, 'c', 'lane', float(number), float(number))))
        controller.handle(
            number + service + 0.01, FrameDone(number, 'r', 0.0, service))


def service(controller: Controller) -> float:
    """Return the service time that is believed now, in seconds."""
    return controller.pools['edge'].costs['m'].service


def learned() -> dict[str, Any]:
    """Return the state of a controller whose worker is twice as slow as calibrated."""
    controller = make_controller()
    serve(controller, 0.2, 100)
    assert service(controller) == pytest.approx(0.2, rel=0.05)
    return json.loads(json.dumps(to_state(controller), allow_nan=False))


def test_a_young_state_is_gone_on_from() -> None:
    """A restart does not begin with the calibration's error."""
    controller = make_controller()
    assert restore(controller, learned(), 60.0) == ['edge']
    assert service(controller) == pytest.approx(0.2, rel=0.05)


def test_an_old_state_is_left() -> None:
    """Yesterday's load says nothing of today's."""
    controller = make_controller()
    restore(controller, learned(), 86400.0)
    assert service(controller) == pytest.approx(0.1)


@pytest.mark.parametrize('damage', [
    {}, {'version': 99}, {'pools': 3}, {'pools': {'edge': []}},
    {'pools': {'edge': {'models': {'m': {'correction': {'version': 1, 'mean': 'x'}}}}}}])
def test_a_damaged_state_is_left(damage: dict[str, Any]) -> None:
    """Whatever a file may hold, the calibration is there."""
    controller = make_controller()
    state = {**learned(), **damage} if damage else {}
    restore(controller, state, 60.0)
    assert service(controller) == pytest.approx(0.1)
    serve(controller, 0.1, 3)


def test_a_state_of_another_pool_is_left() -> None:
    """Only what is configured is taken up."""
    state = learned()
    state['pools'] = {'elsewhere': state['pools']['edge']}
    controller = make_controller()
    assert restore(controller, state, 60.0) == []
    assert service(controller) == pytest.approx(0.1)


def test_a_state_of_another_calibration_is_left() -> None:
    """What was learned on top of other numbers does not fit the new ones."""
    controller = make_controller(alpha=0.3)
    restore(controller, learned(), 60.0)
    assert service(controller) == pytest.approx(0.3)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values of a state; of lists, to the first five."""
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value[:5]))
    else:
        return [path]
    return [path, *(p for key, v in inner for p in leaves(v, (*path, key)))]


@pytest.mark.parametrize('value', [
    None, 'x', float('nan'), float('inf'), -1, -1e308, 1e308, 0, [], {}, True, 10 ** 400, [[]],
    1e-300], ids=repr)
def test_no_value_anywhere_stops_a_start_or_keeps_frames_away(value: Any) -> None:
    """Whatever stands in any one place, frames are sent and learned from."""
    state = learned()
    for path in leaves(state)[1:]:
        changed = copy.deepcopy(state)
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        controller = make_controller()
        said: list[str] = []
        restore(controller, changed, 60.0, said.append)
        assert len(said) <= 1
        assert 0.002 < service(controller) < 7.0, path
        serve(controller, 0.2, 12)
        assert 0.1 < service(controller) < 0.4, path
        json.dumps(to_state(controller), allow_nan=False)


def test_damage_is_told_once_and_leaves_the_whole_pool_as_calibrated() -> None:
    """Parts that were learned on top of each other are not mixed with the calibration."""
    state = learned()
    state['pools']['edge']['models']['m']['refit']['deviation'] = 1e308
    state['pools']['edge']['network']['samples'] = 10 ** 400
    controller = make_controller()
    said: list[str] = []
    assert restore(controller, state, 60.0, said.append) == []
    assert service(controller) == pytest.approx(0.1)
    assert len(said) == 1 and 'pool edge' in said[0]
    restore(controller, learned(), 60.0, said.append)
    restore(controller, learned(), 86400.0, said.append)
    assert len(said) == 1
