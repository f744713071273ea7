"""The Kubernetes bridge's parameters, without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
import random
from typing import Any
import urllib.error
import urllib.request

from laimr_ros.nodes import kubernetes_bridge
from laimr_ros.nodes.kubernetes_bridge import (
    default_workload,
    KubernetesBridge,
    PARAMETERS,
    pool_parameters,
)
from laimr_ros.nodes.kubernetes_metrics import BridgePages, exposition
import pytest
import rclpy
from rclpy.context import Context
from rclpy.parameter import Parameter
import yaml


def write_kubeconfig(directory: Path) -> str:
    """Write a kubeconfig of a server that is not there; return its path."""
    path = directory / 'kubeconfig'
    path.write_text(yaml.safe_dump({
        'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'here',
        'clusters': [{'name': 'c', 'cluster': {'server': 'http://127.0.0.1:1'}}],
        'users': [{'name': 'u', 'user': {'token': 't'}}],
        'contexts': [{'name': 'here', 'context': {'cluster': 'c', 'user': 'u'}}]}))
    return str(path)


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Callable[..., KubernetesBridge]]:
    """Return a maker of bridges; parameter names with ``__`` for the dots."""
    context = Context()
    rclpy.init(context=context, domain_id=random.randint(1, 230))
    made: list[KubernetesBridge] = []

    def make(**overrides: Any) -> KubernetesBridge:
        values = {
            'pool_names': ['edge'], 'kubeconfig': write_kubeconfig(tmp_path),
            **{name.replace('__', '.'): value for name, value in overrides.items()}}
        made.append(KubernetesBridge(
            context=context,
            parameter_overrides=[
                Parameter(name, value=value)
                if value != [] else Parameter(name, Parameter.Type.STRING_ARRAY, [])
                for name, value in values.items()]))
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
        ({'context': 'prod'}, "kubeconfig: context 'prod' is not in kubeconfig .*; it has: here"),
        ({'kubeconfig': '/no/such'}, "kubeconfig: kubeconfig '/no/such' does not exist"),
        ({'pools__edge__workload': 'a,b'},
         "pools.edge.workload: 'a,b' names more than one workload"),
        ({'pools__edge__workload': 'job/a'}, "pools.edge.workload: 'job/a' is no workload"),
        ({'pool_names': ['edge', 'cloud'], 'pools__cloud__workload': 'laimr-worker-edge'},
         'pools edge and cloud name the same workload'),
        ({'pools__edge__selector': 'a b'}, "selector part 'a b' is not understood"),
        ({'pools__edge__drive': 'hpa'}, "drive: 'hpa' is unknown; use one of scale"),
        ({'pools__edge__min_replicas': 3, 'pools__edge__max_replicas': 2},
         'min_replicas: 3 is more than max_replicas, 2'),
        ({'lease_duration': 1}, 'lease_duration: 1 is out of range'),
        ({'pools__edge__drive': 'external_metric', 'metrics_listen': 'here'},
         "metrics_listen: 'here' is no address"),
        ({'pools__edge__drive': 'external_metric', 'tls_cert_file': '/no/cert'},
         "tls_cert_file '/no/cert', .* cannot be used"),
    ],
)
def test_bad_parameters_are_named(
    bridge: Callable[..., KubernetesBridge], overrides: dict[str, Any], words: str,
) -> None:
    """The name, the value and the fix, on one line."""
    with pytest.raises(ValueError, match=words) as caught:
        bridge(**overrides)
    assert '\n' not in str(caught.value)


def test_main_ends_with_status_2(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bad context is one line on stderr, no traceback."""
    monkeypatch.setenv('ROS_DOMAIN_ID', str(random.randint(1, 230)))
    monkeypatch.setenv('ROS_LOG_DIR', str(tmp_path))
    status = kubernetes_bridge.main([
        '--ros-args', '-p', 'pool_names:=[edge]', '-p', 'context:=prod',
        '-p', f'kubeconfig:={write_kubeconfig(tmp_path)}'])
    assert status == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert line.startswith("kubernetes_bridge: parameter kubeconfig: context 'prod'")


def test_starts_without_the_api_server(bridge: Callable[..., KubernetesBridge]) -> None:
    """It may come later; until then nothing is said of replicas."""
    node = bridge()
    assert not node.knows('edge')
    assert node.remote.settled
    level, text = node.judge('edge', node.holder.observe('edge'))
    assert level == b'\2' and 'are not known' in text


def test_limits_change_live(bridge: Callable[..., KubernetesBridge]) -> None:
    """As those of the local bridge."""
    node = bridge(pools__edge__max_replicas=4)
    (refused,) = node.set_parameters([Parameter('pools.edge.min_replicas', value=5)])
    assert not refused.successful and 'more than max_replicas, 4' in refused.reason
    (accepted,) = node.set_parameters([Parameter('pools.edge.max_replicas', value=2)])
    assert accepted.successful


def test_every_parameter_is_described(bridge: Callable[..., KubernetesBridge]) -> None:
    """With a description, and read-only unless it is live."""
    node = bridge()
    for spec in (*PARAMETERS, *pool_parameters('edge')):
        descriptor = node.describe_parameter(spec.name)
        assert descriptor.description
        assert descriptor.read_only is not spec.live


def test_default_workload() -> None:
    """A name that Kubernetes takes."""
    assert default_workload('far_Cloud') == 'deployment/laimr-worker-far-cloud'


def test_pages() -> None:
    """Metrics in Prometheus' format, and whether it lives."""
    status = {'acting': True, 'away_s': 0.0, 'pools': {'edge': {
        'ready': 2, 'starting': 1, 'draining': 0, 'failed': 0, 'desired': 3, 'start_up_s': 1.5}}}
    lines = exposition(status).splitlines()
    assert 'laimr_bridge_acting 1' in lines
    assert 'laimr_bridge_desired_replicas{pool="edge"} 3' in lines
    healthy = [True]
    pages = BridgePages(0, lambda: status, lambda: healthy[0])
    try:
        address = f'http://127.0.0.1:{pages.port}'
        with urllib.request.urlopen(f'{address}/metrics', timeout=5.0) as reply:
            assert reply.read().decode().splitlines() == lines
        with urllib.request.urlopen(f'{address}/healthz', timeout=5.0) as reply:
            assert reply.read() == b'ok'
        healthy[0] = False
        with pytest.raises(urllib.error.HTTPError, match='503'):
            urllib.request.urlopen(f'{address}/healthz', timeout=5.0)
    finally:
        pages.close()
