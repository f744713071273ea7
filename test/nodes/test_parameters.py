"""Parameters of a real node: declared, described, refused with a reason, changed while it runs."""

from __future__ import annotations

from collections.abc import Iterator
import random
from typing import Any

import pytest

rclpy = pytest.importorskip('rclpy', reason='needs rclpy: run `make setup`, or source ROS 2')

from laimr_ros.nodes.parameters import (  # noqa: E402
    declare,
    on_change,
    ParameterError,
    ParameterSpec,
    warn_unknown,
)
from rcl_interfaces.msg import SetParametersResult  # noqa: E402
from rclpy.context import Context  # noqa: E402
from rclpy.node import Node  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402

SPECS = (
    ParameterSpec('rate_hz', 10.0, 'frames a second', unit='Hz', minimum=0.1, maximum=500.0,
                  live=True),
    ParameterSpec('max_replicas', 4, 'most replicas', minimum=1, live=True),
    ParameterSpec('min_replicas', 1, 'fewest replicas', minimum=0, live=True),
    ParameterSpec('discipline', 'pooled', 'queue discipline', choices=('pooled', 'per_replica'),
                  live=True),
    ParameterSpec('pools', [], 'names of pools'),
    ParameterSpec('robots', [], 'names of robots', live=True),
    ParameterSpec('quantiles', [0.5, 0.99], 'reported quantiles', minimum=0.0, maximum=1.0),
    ParameterSpec('verbose', False, 'log more', live=True),
)


@pytest.fixture()
def context() -> Iterator[Context]:
    """Give a context of its own, in a domain of its own."""
    context = Context()
    rclpy.init(context=context, domain_id=random.randint(1, 100))
    yield context
    rclpy.shutdown(context=context)


def make_node(context: Context, *assignments: str) -> Node:
    """Return a node started with ``-p name:=value``, parsed by ROS itself."""
    arguments = [word for text in assignments for word in ('-p', text)]
    return Node('subject', context=context, cli_args=['--ros-args', *arguments],
                use_global_arguments=False, start_parameter_services=False)


def set_one(node: Node, name: str, value: Any) -> SetParametersResult:
    """Set one parameter as its service would."""
    return node.set_parameters_atomically([Parameter(name, value=value)])


def test_defaults_and_types(context: Context) -> None:
    node = make_node(context)
    values = declare(node, SPECS)
    assert values == {spec.name: spec.default for spec in SPECS}
    assert node.get_parameter('pools').type_ is Parameter.Type.STRING_ARRAY
    assert node.get_parameter('pools').value == []
    assert node.get_parameter('rate_hz').type_ is Parameter.Type.DOUBLE


def test_values_from_outside_are_converted(context: Context) -> None:
    node = make_node(context, 'rate_hz:=5', 'pools:=[edge, cloud]', 'robots:=[]',
                     'quantiles:=[0, 1]', 'verbose:=true')
    values = declare(node, SPECS)
    assert values['rate_hz'] == 5.0 and isinstance(values['rate_hz'], float)
    assert values['pools'] == ['edge', 'cloud']
    assert values['robots'] == []
    assert values['quantiles'] == [0.0, 1.0]
    assert values['verbose'] is True


def test_names_that_depend_on_values(context: Context) -> None:
    node = make_node(context, 'pools:=[edge, cloud]', "pools.edge.endpoints:=['localhost:9']")
    pools = declare(node, SPECS)['pools']
    values = declare(node, [
        ParameterSpec(f'pools.{pool}.endpoints', [], 'where replicas serve', live=True)
        for pool in pools
    ])
    assert values == {'pools.edge.endpoints': ['localhost:9'], 'pools.cloud.endpoints': []}
    assert warn_unknown(node) == ()


@pytest.mark.parametrize(('assignment', 'words'), [
    ('rate_hz:=0.0', ('rate_hz', '0.0', 'from 0.1 to 500.0 Hz')),
    ('rate_hz:=.nan', ('rate_hz', 'nan', 'from 0.1 to 500.0 Hz')),
    ('rate_hz:=fast', ('rate_hz', "'fast'", 'a number')),
    ('max_replicas:=0', ('max_replicas', '0', 'at least 1')),
    ('max_replicas:=1.5', ('max_replicas', '1.5', 'a whole number')),
    ('max_replicas:=true', ('max_replicas', 'True', 'a whole number')),
    ('discipline:=poled', ('discipline', "'poled'", "'pooled'", 'per_replica')),
    ('pools:=edge', ('pools', "'edge'", 'list of strings', "['a', 'b']")),
    ('quantiles:=[0.5, 1.5]', ('quantiles', '1.5', 'from 0.0 to 1.0')),
    ('verbose:=1', ('verbose', '1', 'true or false')),
])
def test_a_bad_value_is_named_with_its_fix(
    context: Context, assignment: str, words: tuple[str, ...]
) -> None:
    node = make_node(context, assignment)
    with pytest.raises(ParameterError) as caught:
        declare(node, SPECS)
    message = str(caught.value)
    assert '\n' not in message
    assert all(word in message for word in words), message


def test_all_bad_values_are_told_at_once(context: Context) -> None:
    node = make_node(context, 'rate_hz:=-1.0', 'max_replicas:=-1')
    with pytest.raises(ParameterError) as caught:
        declare(node, SPECS)
    assert len(str(caught.value).splitlines()) == 2


def test_descriptors(context: Context) -> None:
    node = make_node(context)
    declare(node, SPECS)
    rate = node.describe_parameter('rate_hz')
    assert rate.description == 'frames a second [Hz]'
    assert not rate.read_only
    assert (rate.floating_point_range[0].from_value, rate.floating_point_range[0].to_value) == (
        0.1, 500.0)
    assert node.describe_parameter('max_replicas').integer_range[0].from_value == 1
    assert node.describe_parameter('pools').read_only
    assert node.describe_parameter('discipline').additional_constraints == (
        'one of pooled, per_replica')


def test_unknown_names_get_the_nearest_known_one(context: Context) -> None:
    node = make_node(context, 'max_replica:=3', 'qos_overrides./x.publisher.depth:=3', 'zzz:=1')
    declare(node, SPECS)
    warnings: list[str] = []
    logger = node.get_logger()
    node.get_logger = lambda: logger  # type: ignore[method-assign]
    logger.warning = warnings.append  # type: ignore[method-assign,assignment]
    assert set(warn_unknown(node)) == {'max_replica', 'zzz'}
    text = next(w for w in warnings if 'max_replica ' in w)
    assert 'did you mean max_replicas?' in text and '/subject' in text
    assert 'remove it' in next(w for w in warnings if 'zzz' in w)


def test_changes_are_checked_and_applied(context: Context) -> None:
    node = make_node(context)
    declare(node, SPECS)
    applied: list[tuple[dict[str, Any], set[str]]] = []

    def validate(values: Any, changed: Any) -> None:
        if values['min_replicas'] > values['max_replicas']:
            raise ValueError('min_replicas is above max_replicas; raise max_replicas first')

    on_change(node, validate, lambda values, changed: applied.append((dict(values), set(changed))))

    assert set_one(node, 'rate_hz', 20).successful  # a whole number for a float
    assert node.get_parameter('rate_hz').value == 20.0
    assert applied[-1][0]['rate_hz'] == 20.0 and applied[-1][1] == {'rate_hz'}

    refused = set_one(node, 'min_replicas', 9)
    assert not refused.successful and 'raise max_replicas first' in refused.reason
    assert node.get_parameter('min_replicas').value == 1
    both = node.set_parameters_atomically([
        Parameter('min_replicas', value=9), Parameter('max_replicas', value=9)])
    assert both.successful and applied[-1][1] == {'min_replicas', 'max_replicas'}
    # What was refused left nothing behind, and what was accepted counts from now on.
    assert not set_one(node, 'max_replicas', 5).successful

    assert set_one(node, 'robots', ['a']).successful
    assert set_one(node, 'robots', []).successful
    assert applied[-1][0]['robots'] == []
    count = len(applied)
    assert set_one(node, 'robots', []).successful
    assert len(applied) == count  # nothing differs, nothing to apply

    unknown = set_one(node, 'discipline', 'pool')
    assert not unknown.successful and 'per_replica' in unknown.reason
    assert not set_one(node, 'rate_hz', 1000.0).successful
    assert not set_one(node, 'rate_hz', float('nan')).successful
    assert not set_one(node, 'pools', ['x']).successful  # read-only
    assert len(applied) == count


def test_names_declared_later_take_changes_too(context: Context) -> None:
    node = make_node(context)
    declare(node, SPECS)
    applied: list[Any] = []
    on_change(node, None, lambda values, changed: applied.append((values['late'], set(changed))))
    declare(node, [ParameterSpec('late', [], 'declared later', live=True)])
    assert applied == []  # declaring is no change
    assert set_one(node, 'late', ['x']).successful
    assert applied == [(['x'], {'late'})]


def test_a_failure_in_apply_does_not_reach_the_executor(context: Context) -> None:
    node = make_node(context)
    declare(node, SPECS)

    def fail(values: Any, changed: Any) -> None:
        raise RuntimeError('broken')

    on_change(node, None, fail)
    assert set_one(node, 'rate_hz', 3.0).successful
    assert node.get_parameter('rate_hz').value == 3.0  # the error was logged, not raised
