"""What deploy/ holds is taken by a real API server, with strict checks of every field."""

from __future__ import annotations

from collections.abc import Iterator
import copy
from pathlib import Path
import shutil
from typing import Any

from control_plane import ControlPlane, eventually
from kubernetes_cell import cell, clear, WORKLOAD
from laimr_ros.cli.deploy import render
from laimr_ros.cli.main import main
import pytest
import yaml

ROOT = Path(__file__).parents[2]
_TEXT = {'type': 'string'}
_NUMBER = {'type': 'integer'}
_ANY = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}


def _fields(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    return {'type': 'object', 'properties': fields, 'required': list(required)}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {'type': 'array', 'items': items}


# The fields of KEDA's and of the Prometheus operator's resources, as they document them, as far as
# a deployment like ours could use them; strict checks refuse any other.
SCHEMAS = {
    'scaledobjects.keda.sh': ('ScaledObject', 'v1alpha1', _fields(
        ('scaleTargetRef', 'triggers'),
        scaleTargetRef=_fields(
            ('name',), apiVersion=_TEXT, kind=_TEXT, name=_TEXT, envSourceContainerName=_TEXT),
        pollingInterval=_NUMBER, initialCooldownPeriod=_NUMBER, cooldownPeriod=_NUMBER,
        idleReplicaCount=_NUMBER, minReplicaCount=_NUMBER, maxReplicaCount=_NUMBER,
        fallback=_fields(
            ('failureThreshold', 'replicas'), failureThreshold=_NUMBER, replicas=_NUMBER,
            behavior=_TEXT),
        advanced=_fields(
            restoreToOriginalReplicaCount={'type': 'boolean'},
            horizontalPodAutoscalerConfig=_fields(name=_TEXT, behavior=_ANY),
            scalingModifiers=_ANY),
        triggers=_list(_fields(
            ('type', 'metadata'), type=_TEXT, name=_TEXT, useCachedMetrics={'type': 'boolean'},
            metadata={'type': 'object', 'additionalProperties': _TEXT},
            authenticationRef=_fields(('name',), name=_TEXT, kind=_TEXT), metricType=_TEXT)))),
    'servicemonitors.monitoring.coreos.com': ('ServiceMonitor', 'v1', _fields(
        ('endpoints', 'selector'),
        selector=_fields(matchLabels={'type': 'object', 'additionalProperties': _TEXT}),
        namespaceSelector=_ANY, jobLabel=_TEXT,
        endpoints=_list(_fields(
            port=_TEXT, path=_TEXT, scheme=_TEXT, interval=_TEXT, scrapeTimeout=_TEXT)))),
}


@pytest.fixture(scope='module')
def crds(plane: ControlPlane) -> Iterator[None]:
    """Have the resources of KEDA and of the Prometheus operator."""
    names = []
    for name, (kind, version, spec) in SCHEMAS.items():
        plural, _, group = name.partition('.')
        plane.admin('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', {
            'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'CustomResourceDefinition',
            'metadata': {'name': name, 'annotations': {
                'api-approved.kubernetes.io': 'unapproved, for tests'}},
            'spec': {
                'group': group, 'scope': 'Namespaced',
                'names': {'plural': plural, 'kind': kind, 'singular': kind.lower()},
                'versions': [{
                    'name': version, 'served': True, 'storage': True,
                    'schema': {'openAPIV3Schema': _fields(spec=spec)}}]}})
        names.append(name)
        eventually(
            lambda name=name: any(
                c['type'] == 'Established' and c['status'] == 'True'
                for c in plane.admin(
                    'GET', f'/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}'
                ).get('status', {}).get('conditions') or ()), f'{name} is served')
    yield
    for name in names:
        plane.admin('DELETE', f'/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}')


def apply(plane: ControlPlane, text: str, namespace: str) -> None:
    """Apply objects with strict checks; those of another namespace go to this one."""
    objects = list(yaml.safe_load_all(text.replace('namespace: laimr', f'namespace: {namespace}')))
    for item in objects:
        if item['kind'] == 'Namespace':
            item['metadata']['name'] = namespace
    said = plane.kubectl(
        'apply', '--validate=strict', '--server-side', '-f', '-',
        text=yaml.safe_dump_all(objects))
    assert len(said.splitlines()) == len(objects), said


@pytest.mark.parametrize('overlay', ['../base', 'gpu', 'external-metric', 'keda', 'monitoring'])
def test_kustomize_and_apply(
    plane: ControlPlane, crds: None, overlay: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Base and every overlay are complete and valid."""
    shutil.copytree(ROOT / 'deploy', tmp_path / 'deploy')
    assert main(['deploy', 'certificate', '--namespace', 'laimr']) == 0
    (tmp_path / 'deploy/overlays/external-metric/certificate.yaml').write_text(
        capsys.readouterr().out)
    text = plane.kubectl('kustomize', str(tmp_path / 'deploy/overlays' / overlay))
    namespace = f'deploy-{Path(overlay).name}'
    apply(plane, text, namespace)
    role = plane.admin(
        'GET', f'/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/laimr-bridge')
    may_scale = any('deployments/scale' in rule['resources'] for rule in role['rules'])
    assert may_scale is (overlay in ('../base', 'gpu', 'monitoring'))
    if overlay == 'external-metric':
        plane.admin('DELETE', '/apis/apiregistration.k8s.io/v1/apiservices/'
                    'v1beta1.external.metrics.k8s.io')
    clear(plane.admin, namespace)
    plane.admin('DELETE', f'/api/v1/namespaces/{namespace}')


@pytest.mark.parametrize('drive', ['scale', 'external_metric', 'keda'])
def test_what_is_rendered_is_taken(plane: ControlPlane, crds: None, drive: str) -> None:
    """Of two pools, with GPUs and monitoring; and applying it twice changes nothing."""
    document = copy.deepcopy(yaml.safe_load((ROOT / 'config/kubernetes.yaml').read_text()))
    bridge = document['/**/kubernetes_bridge']['ros__parameters']
    bridge['pool_names'] = ['edge', 'far_cloud']
    bridge['pools'] = {name: {'drive': drive, 'max_replicas': 4} for name in bridge['pool_names']}
    document['/**/deploy']['ros__parameters']['pools']['far_cloud'] = {'gpus': 1}
    namespace = f'render-{drive.replace("_", "-")}'
    text = yaml.safe_dump_all(render(document, namespace=namespace, monitoring=True))
    apply(plane, text, namespace)
    path = f'/apis/apps/v1/namespaces/{namespace}/deployments/laimr-worker-far-cloud'
    plane.admin.patch(f'{path}/scale', {'spec': {'replicas': 3}})
    before = plane.admin('GET', path)['metadata']['generation']
    apply(plane, text, namespace)
    after = plane.admin('GET', path)
    assert after['metadata']['generation'] == before and after['spec']['replicas'] == 3
    if drive == 'external_metric':
        plane.admin('DELETE', '/apis/apiregistration.k8s.io/v1/apiservices/'
                    'v1beta1.external.metrics.k8s.io')
    clear(plane.admin, namespace)
    plane.admin('DELETE', f'/api/v1/namespaces/{namespace}')


def test_refuses_beside_a_scaled_object(plane: ControlPlane, crds: None) -> None:
    """KEDA's object is named, and not the autoscaler that KEDA makes of it."""
    with cell(plane) as home, home.holder() as holder:
        plane.admin('POST', f'/apis/keda.sh/v1alpha1/namespaces/{home.namespace}/scaledobjects', {
            'apiVersion': 'keda.sh/v1alpha1', 'kind': 'ScaledObject',
            'metadata': {'name': 'other'}, 'spec': {
                'scaleTargetRef': {'name': WORKLOAD},
                'triggers': [{'type': 'cpu', 'metadata': {'value': '50'}}]}})
        holder.set_replicas('edge', 4)
        text = eventually(
            lambda: next(iter(holder.complaints('edge')), ''), 'it is said')
        assert text.startswith(
            f"KEDA's ScaledObject other sets the replicas of deployment/{WORKLOAD}")
        assert home.replicas == 1 and holder.writes('edge') == 0
