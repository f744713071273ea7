"""Label selectors."""

from __future__ import annotations

from laimr_ros.cluster.kubernetes.pool import KubernetesPool, parse_workload, Workload
from laimr_ros.cluster.kubernetes.selector import from_object, matches
import pytest

LABELS = {'app': 'edge', 'tier': 'gpu', 'laimr/pool': 'x.y'}


@pytest.mark.parametrize(
    ('selector', 'expected'),
    [
        ('', True),
        ('app=edge', True),
        ('app==edge,tier=gpu', True),
        ('app=cloud', False),
        ('app!=cloud', True),
        ('none!=x', True),
        ('app in (cloud,edge)', True),
        ('app in (cloud, far),tier=gpu', False),
        ('app notin (cloud,far)', True),
        ('laimr/pool=x.y', True),
        ('tier', True),
        ('!tier', False),
        ('!none,app', True),
    ],
)
def test_matches(selector: str, expected: bool) -> None:
    """As kubectl would select."""
    assert matches(selector, LABELS) is expected


@pytest.mark.parametrize('selector', ['app=', 'a b', 'app=in valid', '=x', 'app in edge'])
def test_what_is_not_understood_is_named(selector: str) -> None:
    """But for an empty value, which is one."""
    if selector == 'app=':
        assert matches(selector, {'app': ''})
        return
    with pytest.raises(ValueError, match='is not understood'):
        KubernetesPool('deployment/a', selector=selector)


def test_from_object() -> None:
    """Both ways to write it in the API."""
    text = from_object({
        'matchLabels': {'app': 'edge'},
        'matchExpressions': [
            {'key': 'tier', 'operator': 'In', 'values': ['gpu', 'cpu']},
            {'key': 'old', 'operator': 'DoesNotExist'}]})
    assert text == '!old,app=edge,tier in (gpu,cpu)'
    assert matches(text, LABELS)


def test_workloads() -> None:
    """A bare name is a deployment; more than one, or another kind, is refused."""
    assert parse_workload('edge', 'ns') == Workload('deployment', 'ns', 'edge')
    assert parse_workload('statefulset/a.b', 'ns').path == (
        '/apis/apps/v1/namespaces/ns/statefulsets')
    with pytest.raises(ValueError, match="'a, b' names more than one workload"):
        parse_workload('a, b', 'ns')
    with pytest.raises(ValueError, match="'daemonset/a' is no workload"):
        parse_workload('daemonset/a', 'ns')
