"""The dispatcher's parameters: defaults, configuration files, and what does not fit together."""

from __future__ import annotations

from pathlib import Path
import random

import pytest

pytest.importorskip('rclpy', reason='no ROS here: run `make setup`')

from laimr_ros.nodes import dispatcher_parameters as parameters
from laimr_ros.nodes.parameters import warn_unknown
from rcl_interfaces.msg import ParameterType
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter

CONFIG = Path(__file__).parents[2] / 'config'


@pytest.fixture
def make_node():
    contexts, nodes = [], []

    def make(*arguments, **overrides):
        context = Context()
        rclpy.init(context=context, domain_id=random.randint(1, 230))
        contexts.append(context)
        node = Node(
            'dispatcher', context=context, cli_args=['--ros-args', *arguments],
            enable_rosout=False, start_parameter_services=False,
            parameter_overrides=[Parameter(k.replace('__', '.'), value=v)
                                 for k, v in overrides.items()])
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.destroy_node()
    for context in contexts:
        rclpy.shutdown(context=context)


def test_without_any_file_there_is_one_lane_and_one_pool(make_node):
    values = parameters.declare_parameters(make_node())
    parameters.check(values, '/')
    configuration = parameters.configuration(values)
    assert list(configuration.lanes) == ['balanced']
    assert configuration.lanes['balanced'].pools == ('edge',)
    assert list(configuration.pools['edge'].models) == [configuration.lanes['balanced'].model]
    assert parameters.default_lane(values) == 'balanced'


@pytest.mark.parametrize('name', ['edge.yaml', 'demo.yaml'])
def test_configuration_files_are_taken_whole(make_node, name):
    node = make_node('--params-file', str(CONFIG / name))
    values = parameters.declare_parameters(node)
    parameters.check(values, '/')
    assert warn_unknown(node) == ()
    assert list(parameters.configuration(values).lanes) == ['low_latency', 'balanced', 'precise']


def test_every_parameter_is_described(make_node):
    node = make_node('--params-file', str(CONFIG / 'edge.yaml'))
    for name in parameters.declare_parameters(node):
        descriptor = node.describe_parameter(name)
        assert descriptor.description, name
        assert descriptor.type != ParameterType.PARAMETER_NOT_SET
    assert not node.describe_parameter('lanes.balanced.slo').read_only
    assert node.describe_parameter('pool_names').read_only


def test_values_arrive_where_they_belong(make_node):
    values = parameters.declare_parameters(make_node(
        lane_names=['fast', 'slow'], pool_names=['edge', 'cloud'], instance_names=['host'],
        lanes__fast__model='a', lanes__fast__slo=0.3, lanes__fast__pools=['edge', 'cloud'],
        lanes__fast__robots=['arm*'], lanes__slow__model='b', lanes__slow__pools=['cloud'],
        lanes__slow__late_answers=True, pools__edge__instance='host',
        pools__cloud__network_mean=0.06, pools__cloud__max_replicas=8,
        pools__cloud__latency__b__alpha=0.5, pools__cloud__latency__b__gamma=1.49,
        instances__host__capacity=3.0, quantile=0.98, default_lane='slow'))
    parameters.check(values, '/')
    configuration = parameters.configuration(values)
    fast, slow = configuration.lanes['fast'], configuration.lanes['slow']
    assert (fast.model, fast.slo, fast.pools) == ('a', 0.3, ('edge', 'cloud'))
    assert slow.late_answers and not fast.late_answers
    edge, cloud = configuration.pools['edge'], configuration.pools['cloud']
    # A pool serves what the lanes that use it want.
    assert list(edge.models) == ['a'] and list(cloud.models) == ['a', 'b']
    assert (cloud.network.mean, cloud.max_replicas) == (0.06, 8)
    assert (cloud.models['b'].alpha, cloud.models['b'].gamma) == (0.5, 1.49)
    assert edge.instance == 'host' and configuration.instances['host'].capacity == 3.0
    assert configuration.limits.quantile == 0.98
    assert parameters.lane_patterns(values) == {'fast': ['arm*'], 'slow': []}
    assert parameters.default_lane(values) == 'slow'


@pytest.mark.parametrize('overrides, says', [
    ({'lane_names': ['a/b']}, "'a/b'"),
    ({'pool_names': ['edge', 'edge']}, 'twice'),
    ({'pools__edge__endpoints': ['a:1', 'grpc://a:1']}, 'already in pool edge'),
    ({'pools__edge__endpoints': ['a']}, "'a'"),
    ({'pools__edge__models': ['other'], 'lanes__balanced__model': 'mine'}, "'mine'"),
    ({'pools__edge__instance': 'host'}, "'host'"),
    ({'lanes__balanced__pools': ['moon']}, "'moon'"),
    ({'default_lane': 'fast'}, "'fast'"),
    ({'topics': ['/camera']}, "'/camera'"),
    ({'pools__edge__max_replicas': 0}, 'max_replicas 0'),
    ({'quantile': 1.5}, 'quantile'),
])
def test_what_does_not_fit_is_named(make_node, overrides, says):
    with pytest.raises(ValueError) as error:
        parameters.check(parameters.declare_parameters(make_node(**overrides)), '/')
    assert says in str(error.value)
