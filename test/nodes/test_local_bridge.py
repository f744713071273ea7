"""Parameters of the local bridge: what it refuses, and in which words."""

from __future__ import annotations

import random

from laimr_ros.nodes import local_bridge
from laimr_ros.nodes.local_bridge import LocalBridge, PARAMETERS, pool_parameters
import pytest
import rclpy
from rclpy.context import Context
from rclpy.parameter import Parameter
from std_msgs.msg import UInt32


@pytest.fixture
def params_file(tmp_path):
    """Return a file that can be read; no worker starts here."""
    path = tmp_path / 'worker.yaml'
    path.write_text('worker: {ros__parameters: {}}\n')
    return str(path)


@pytest.fixture
def bridge(tmp_path, params_file):
    """Return a maker of nodes with parameters; pool ``edge`` has no replicas by itself."""
    context = Context()
    rclpy.init(context=context, domain_id=random.randint(1, 230))
    made = []

    def make(**overrides):
        values = {
            'pool_names': ['edge'],
            'log_directory': str(tmp_path / 'log'),
            'pools.edge.worker_params_file': params_file,
            'pools.edge.min_replicas': 0,
            **{name.replace('__', '.'): value for name, value in overrides.items()},
        }
        made.append(LocalBridge(
            context=context,
            parameter_overrides=[
                Parameter(name, value=value)
                if value != [] else Parameter(name, Parameter.Type.STRING_ARRAY, [])
                for name, value in values.items()],
        ))
        return made[-1]

    yield make
    for node in made:
        node.close()
        node.destroy_node()
    rclpy.shutdown(context=context)


@pytest.mark.parametrize(
    ('overrides', 'words'),
    [
        ({'pool_names': []}, 'pool_names: .* names no pool'),
        ({'pool_names': ['a b']}, "pool_names: 'a b' cannot be part of a topic name"),
        ({'pool_names': ['edge', 'edge']}, 'names a pool twice'),
        ({'pools__edge__worker_params_file': ''}, 'worker_params_file: is not set'),
        ({'pools__edge__worker_params_file': '/no/such.yaml'},
         "'/no/such.yaml' cannot be read: No such file"),
        ({'pools__edge__min_replicas': 3, 'pools__edge__max_replicas': 2},
         'min_replicas: 3 is more than max_replicas, 2'),
        ({'max_starting': 0}, 'max_starting: 0 is out of range'),
        ({'socket_directory': '/proc/none'}, "socket_directory: '/proc/none' cannot be used"),
        ({'socket_directory': '/tmp/' + 'long' * 30}, 'use a shorter directory'),
    ],
)
def test_bad_parameters_are_named(bridge, overrides, words):
    """The name, the value and the fix, on one line."""
    with pytest.raises(ValueError, match=words) as caught:
        bridge(**overrides)
    assert '\n' not in str(caught.value)


def test_main_ends_with_status_2(capfd, tmp_path, monkeypatch):
    """A bad parameter is one line on stderr, no traceback."""
    monkeypatch.setenv('ROS_DOMAIN_ID', str(random.randint(1, 230)))
    monkeypatch.setenv('ROS_LOG_DIR', str(tmp_path))
    status = local_bridge.main(['--ros-args', '-p', 'pool_names:=[edge]'])
    assert status == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith('local_bridge: parameter pools.edge.worker_params_file')


def test_limits_change_live_and_contradictions_are_refused(bridge):
    """``ros2 param set`` works for limits; a minimum over the maximum says why not."""
    node = bridge(pools__edge__max_replicas=4)
    (refused,) = node.set_parameters([Parameter('pools.edge.min_replicas', value=5)])
    assert not refused.successful and 'more than max_replicas, 4' in refused.reason
    (accepted,) = node.set_parameters([Parameter('pools.edge.max_replicas', value=2)])
    assert accepted.successful
    (read_only,) = node.set_parameters([Parameter('dispatcher', value='other')])
    assert not read_only.successful


def test_a_wish_beyond_the_limits_is_told_once(bridge, capfd):
    """It names both sides, and not each number that is too high."""
    node = bridge(pools__edge__max_replicas=0)
    for count in (2, 3, 0, 2):
        node._on_desired('edge', UInt32(data=count))
    said = capfd.readouterr().err
    assert said.count('[WARN]') == 1
    assert 'pool edge: the dispatcher asks for 2, max_replicas here is 0: 0 it is' in said


def test_every_parameter_is_described(bridge):
    """With a description, and read-only unless it is live."""
    node = bridge()
    for spec in (*PARAMETERS, *pool_parameters('edge')):
        descriptor = node.describe_parameter(spec.name)
        assert descriptor.description
        assert descriptor.read_only is not spec.live
