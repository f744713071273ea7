"""What `laimr deploy` prints, and that deploy/ holds the same."""

from __future__ import annotations

import base64
from collections.abc import Iterator
import copy
from pathlib import Path
import subprocess
import sys
from typing import Any

from cryptography import x509
from laimr_ros.cli.deploy import DeployError, render
from laimr_ros.cli.main import main
import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / 'deploy'
PARAMETERS = ROOT / 'config' / 'kubernetes.yaml'
BASE = list(yaml.safe_load_all((DEPLOY / 'base' / 'laimr.yaml').read_text()))


def parameters(**pool: Any) -> dict[str, Any]:
    """Return the parameters that come with the package, changed for the pool."""
    document: dict[str, Any] = copy.deepcopy(yaml.safe_load(PARAMETERS.read_text()))
    document['/**/kubernetes_bridge']['ros__parameters']['pools']['edge'].update(pool)
    return document


def find(objects: list[dict[str, Any]], kind: str, name: str = '') -> dict[str, Any]:
    """Return the one object of a kind and name."""
    (found,) = (
        o for o in objects if o['kind'] == kind and name in ('', o['metadata']['name']))
    return found


def load(path: str) -> list[dict[str, Any]]:
    """Return the objects of a file of an overlay."""
    return list(yaml.safe_load_all((DEPLOY / 'overlays' / path).read_text()))


def pods(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the specifications of pods."""
    for item in objects:
        if item['kind'] == 'Deployment':
            yield item['spec']['template']['spec']


def test_deploy_base_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The files in deploy/ and the command never differ."""
    assert main(['deploy', 'render', '--params-file', str(PARAMETERS)]) == 0
    printed = capsys.readouterr().out
    assert list(yaml.safe_load_all(printed)) == BASE
    first, _, rest = (DEPLOY / 'base' / 'laimr.yaml').read_text().partition('\n')
    assert first.startswith('#') and rest == printed


def test_overlays_hold_what_is_printed() -> None:
    """An overlay's autoscaler is that of the command with the same drive."""
    metric = render(parameters(drive='external_metric'), certificate=False, monitoring=True)
    (autoscaler,) = load('external-metric/autoscaler.yaml')
    assert autoscaler == find(metric, 'HorizontalPodAutoscaler')
    for item in load('external-metric/access.yaml'):
        assert item in metric
    (settings,) = load('external-metric/parameters.yaml')
    assert settings['data'] == find(metric, 'ConfigMap', 'laimr-bridge')['data']
    keda = render(parameters(drive='keda'))
    assert load('keda/scaledobject.yaml') == [find(keda, 'ScaledObject')]
    (settings,) = load('keda/parameters.yaml')
    assert settings['data'] == find(keda, 'ConfigMap', 'laimr-bridge')['data']
    assert load('monitoring/servicemonitor.yaml') == [find(metric, 'ServiceMonitor')]


def test_applying_again_does_not_reset_the_number() -> None:
    """The workers' Deployment says nothing of replicas."""
    assert 'replicas' not in find(BASE, 'Deployment', 'laimr-worker-edge')['spec']


def test_pods_have_no_privileges() -> None:
    """Not root, nothing writable but /tmp, no capabilities, no token where none is needed."""
    for pod in pods(BASE):
        assert pod['securityContext']['runAsNonRoot'] is True
        assert pod['securityContext']['seccompProfile'] == {'type': 'RuntimeDefault'}
        for container in pod['containers']:
            security = container['securityContext']
            assert security['readOnlyRootFilesystem'] is True
            assert security['allowPrivilegeEscalation'] is False
            assert security['capabilities'] == {'drop': ['ALL']}
            assert container['resources']['requests'].keys() == {'cpu', 'memory'}
            assert 'cpu' not in container['resources']['limits']
    workers = find(BASE, 'Deployment', 'laimr-worker-edge')['spec']['template']['spec']
    assert workers['automountServiceAccountToken'] is False


def test_a_worker_is_taken_off_the_list_then_drained_then_ended() -> None:
    """PreStop waits, and what is left of the grace is more than the worker's own."""
    pod = find(BASE, 'Deployment', 'laimr-worker-edge')['spec']['template']['spec']
    (container,) = pod['containers']
    wait = container['lifecycle']['preStop']['sleep']['seconds']
    assert wait >= 3
    assert pod['terminationGracePeriodSeconds'] - wait > 10.0  # drain_grace_s of a worker
    assert container['readinessProbe']['grpc'] == container['startupProbe']['grpc'] == {
        'port': 8500}


def test_selectors_select() -> None:
    """Deployment, budget, service and monitor mean the pods that there are."""
    for name in ('laimr-worker-edge', 'laimr-bridge'):
        deployment = find(BASE, 'Deployment', name)['spec']
        labels = deployment['template']['metadata']['labels']
        assert deployment['selector']['matchLabels'].items() <= labels.items()
    budget = find(BASE, 'PodDisruptionBudget')['spec']['selector']['matchLabels']
    workers = find(BASE, 'Deployment', 'laimr-worker-edge')['spec']['template']['metadata']
    bridge = find(BASE, 'Deployment', 'laimr-bridge')['spec']['template']['metadata']
    assert budget.items() <= workers['labels'].items()
    assert not budget.items() <= bridge['labels'].items()
    assert find(BASE, 'Service')['spec']['selector'].items() <= bridge['labels'].items()


def test_the_bridge_that_does_not_write_may_not() -> None:
    """With an autoscaler, the right to scale is not given."""
    rules = find(render(parameters(drive='external_metric')), 'Role')['rules']
    assert not any('deployments/scale' in rule['resources'] for rule in rules)
    rules = find(BASE, 'Role')['rules']
    assert rules[1] == {
        'apiGroups': ['apps'], 'resources': ['deployments/scale'],
        'resourceNames': ['laimr-worker-edge'], 'verbs': ['get', 'patch']}


def test_gpus_cpus_images_and_names_are_taken_over() -> None:
    """What the parameter file says is what the pods get."""
    document = parameters(workload='deployment/other', min_replicas=2, max_replicas=5,
                          drive='external_metric')
    document['/**/deploy']['ros__parameters']['pools']['edge'] = {
        'cpu': 2, 'memory': '1Gi', 'gpus': 1, 'image': 'mine:1'}
    objects = render(document, namespace='here', bridge_image='bridge:2')
    (container,) = find(objects, 'Deployment', 'other')['spec']['template']['spec']['containers']
    assert container['image'] == 'mine:1'
    assert container['resources'] == {
        'requests': {'cpu': '2', 'memory': '1Gi', 'nvidia.com/gpu': 1},
        'limits': {'memory': '1Gi', 'nvidia.com/gpu': 1}}
    spec = find(objects, 'HorizontalPodAutoscaler')['spec']
    assert (spec['minReplicas'], spec['maxReplicas']) == (2, 5)
    assert spec['scaleTargetRef']['name'] == 'other'
    assert {o['metadata'].get('namespace', 'here') for o in objects} == {'here', 'kube-system'}
    bridge = find(objects, 'Deployment', 'laimr-bridge')['spec']['template']['spec']
    assert bridge['containers'][0]['image'] == 'bridge:2'


def test_the_certificate_fits_the_api_service() -> None:
    """The bundle vouches for the certificate, whose name is the Service's."""
    objects = render(parameters(drive='external_metric'))
    secret, service = find(objects, 'Secret'), find(objects, 'APIService')
    authority = x509.load_pem_x509_certificate(
        base64.b64decode(service['spec']['caBundle']))
    certificate = x509.load_pem_x509_certificate(base64.b64decode(secret['data']['tls.crt']))
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(
        x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    assert 'laimr-bridge.laimr.svc' in names
    reached = service['spec']['service']
    assert f'{reached["name"]}.{reached["namespace"]}.svc' in names


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        ({'workload': 'deployment/a,deployment/b'}, 'names more than one workload'),
        ({'workload': 'statefulset/a'}, 'only deployments are made here'),
        ({'workload': 'Job/a'}, 'is no workload'),
        ({'drive': 'hpa'}, "drive: 'hpa' is unknown; use one of scale"),
    ],
)
def test_bad_parameters_are_one_line(change: dict[str, Any], words: str) -> None:
    """The name, the value, the fix."""
    with pytest.raises(DeployError, match=words) as caught:
        render(parameters(**change))
    assert '\n' not in str(caught.value)
    assert 'pools.edge.' in str(caught.value)


def test_bad_files_end_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, no YAML, no pools: one line each."""
    (tmp_path / 'bad.yaml').write_text('a: [')
    (tmp_path / 'empty.yaml').write_text('{}')
    for name, words in (
            ('none.yaml', 'No such file'), ('bad.yaml', 'is no YAML'),
            ('empty.yaml', 'no kubernetes_bridge with pool_names')):
        assert main(['deploy', 'render', '--params-file', str(tmp_path / name)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line


BANNED = """
import sys
class Ban:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {banned!r}:
            raise ImportError(f'{{name}} is not in the image')
sys.meta_path.insert(0, Ban())
sys.path.insert(0, {root!r})
"""
_HEAVY = {'torch', 'torchvision', 'ultralytics', 'effdet', 'timm', 'scipy'}
_ROS = {'rclpy', 'std_msgs', 'diagnostic_msgs', 'rcl_interfaces', 'sensor_msgs', 'vision_msgs'}
_NEITHER = {'matplotlib', 'rich', 'psutil'}


@pytest.mark.parametrize(
    ('banned', 'code'),
    [
        (_ROS | _NEITHER | {'kubernetes', 'aiohttp', 'cryptography'},
         "import laimr_ros.cli.worker, laimr_ros.serving.server\n"
         "from laimr_ros.cli.main import main\n"
         "main(['worker', '--help'])"),
        (_HEAVY | _NEITHER | {'vision_msgs', 'cv2', 'PIL', 'tritonclient'},
         'import laimr_ros.nodes.kubernetes_bridge\n'
         'import laimr_ros.cluster.kubernetes.external_metrics\n'
         'import laimr_ros.cluster.kubernetes.keda'),
    ],
    ids=['worker', 'bridge'],
)
def test_images_hold_what_is_imported(banned: set[str], code: str) -> None:
    """The Dockerfile's short lists of packages are enough."""
    done = subprocess.run(
        [sys.executable, '-c', BANNED.format(banned=banned, root=str(ROOT)) + code],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_dockerfile_leaves_root_and_ros_out() -> None:
    """Both images have a user, and only the bridge has ROS."""
    text = (DEPLOY / 'Dockerfile').read_text()
    _, worker, bridge = text.split('\nFROM base AS ')
    for stage in (worker, bridge):
        assert 'USER 10001:10001' in stage
    assert 'ros-jazzy' not in worker and 'ros-jazzy' in bridge
