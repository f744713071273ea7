"""The Kubernetes objects of a deployment, made from its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

Object = dict[str, Any]

BRIDGE = 'laimr-bridge'
LEASE = 'laimr-kubernetes-bridge'
PORT = 8500
METRICS_PORT = 6443
KEDA_PORT = 9090
PROMETHEUS_PORT = 9464
TLS_SECRET = 'laimr-bridge-tls'
# From the moment the API server knows that a pod goes, until the worker is asked to drain: the
# bridge takes it off the dispatcher's list within this time, with a margin for a slow network.
_DEREGISTER_S = 5
# For the frames in progress after that.
_DRAIN_S = 15
# A model may take minutes to load from a slow disk.
_START_S = 300


@dataclass(frozen=True)
class PoolManifest:
    """
    What one pool's objects are made from.

    :param name: of the pool.
    :param workload: name of the Deployment.
    :param drive: ``scale``, ``external_metric`` or ``keda``.
    :param image: of the worker.
    :param cpu: request of each pod.
    :param memory: request and limit of each pod.
    :param gpus: ``nvidia.com/gpu`` of each pod.
    """

    name: str
    workload: str
    min_replicas: int = 1
    max_replicas: int = 1
    drive: str = 'scale'
    image: str = 'laimr-worker:latest'
    cpu: str = '3'
    memory: str = '4Gi'
    gpus: int = 0


@dataclass(frozen=True)
class Deployment:
    """
    What all objects are made from.

    :param worker: parameters of the workers, as for ``laimr worker --params-file``.
    :param bridge: parameters of the bridge's node; empty if it does not run in the cluster.
    :param bridge_env: further variables of the bridge's container.
    :param hpa_tolerance: change of the number that an autoscaler ignores; empty to leave it at
        the cluster's default, as clusters before 1.33 need.
    """

    namespace: str
    pools: Sequence[PoolManifest]
    worker: Mapping[str, Any]
    bridge: Mapping[str, Any] = field(default_factory=dict)
    bridge_image: str = 'laimr-bridge:latest'
    ros_domain_id: int = 0
    bridge_env: Mapping[str, str] = field(default_factory=dict)
    lease: str = LEASE
    hpa_tolerance: str = '0'


def _labels(component: str, **more: str) -> dict[str, str]:
    return {'app.kubernetes.io/part-of': 'laimr', 'app.kubernetes.io/name': component, **more}


def _pool_labels(pool: PoolManifest) -> dict[str, str]:
    return _labels('laimr-worker', **{'laimr/pool': pool.name})


def _object(
    api: str, kind: str, name: str, namespace: str | None, labels: Mapping[str, str], **rest: Any,
) -> Object:
    metadata: Object = {'name': name}
    if namespace is not None:
        metadata['namespace'] = namespace
    metadata['labels'] = dict(labels)
    return {'apiVersion': api, 'kind': kind, 'metadata': metadata, **rest}


def namespace_object(deployment: Deployment) -> Object:
    """Return the namespace, which admits only pods without privileges."""
    labels = {
        **_labels('laimr'), 'pod-security.kubernetes.io/enforce': 'baseline',
        'pod-security.kubernetes.io/warn': 'restricted'}
    return _object('v1', 'Namespace', deployment.namespace, None, labels)


_POD_SECURITY = {
    'runAsNonRoot': True, 'runAsUser': 10001, 'runAsGroup': 10001, 'fsGroup': 10001,
    'seccompProfile': {'type': 'RuntimeDefault'},
}
_CONTAINER_SECURITY = {
    'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True,
    'capabilities': {'drop': ['ALL']},
}


def worker_objects(deployment: Deployment, pool: PoolManifest) -> list[Object]:
    """Return the objects of one pool's workers."""
    labels = _pool_labels(pool)
    configuration = _object(
        'v1', 'ConfigMap', pool.workload, deployment.namespace, labels,
        data={'worker.yaml': yaml.safe_dump(
            {'worker': {'ros__parameters': dict(deployment.worker)}}, sort_keys=False)})
    resources: Object = {
        'requests': {'cpu': pool.cpu, 'memory': pool.memory},
        # No limit of CPU: the kernel's quota would stretch the tail that this is all about.
        'limits': {'memory': pool.memory},
    }
    if pool.gpus:
        resources['limits']['nvidia.com/gpu'] = pool.gpus
        resources['requests']['nvidia.com/gpu'] = pool.gpus
    container = {
        'name': 'worker',
        'image': pool.image,
        'args': [
            'worker', '--params-file', '/etc/laimr/worker.yaml', '--listen', f'0.0.0.0:{PORT}'],
        'ports': [{'name': 'grpc', 'containerPort': PORT, 'protocol': 'TCP'}],
        'resources': resources,
        'startupProbe': {
            'grpc': {'port': PORT}, 'periodSeconds': 1, 'failureThreshold': _START_S},
        'readinessProbe': {'grpc': {'port': PORT}, 'periodSeconds': 1, 'failureThreshold': 2},
        # Of the port only: a worker that drains says that it does not serve, and must live.
        'livenessProbe': {'tcpSocket': {'port': PORT}, 'periodSeconds': 5, 'failureThreshold': 3},
        'lifecycle': {'preStop': {'sleep': {'seconds': _DEREGISTER_S}}},
        'securityContext': _CONTAINER_SECURITY,
        'volumeMounts': [
            {'name': 'parameters', 'mountPath': '/etc/laimr', 'readOnly': True},
            {'name': 'tmp', 'mountPath': '/tmp'},
        ],
    }
    workers = _object(
        'apps/v1', 'Deployment', pool.workload, deployment.namespace, labels,
        # No replicas: applying this again must not undo what the load has asked for.
        spec={
            'selector': {'matchLabels': labels},
            'strategy': {
                'type': 'RollingUpdate',
                'rollingUpdate': {'maxUnavailable': 0, 'maxSurge': 1}},
            'template': {
                'metadata': {'labels': labels},
                'spec': {
                    'automountServiceAccountToken': False,
                    'enableServiceLinks': False,
                    'terminationGracePeriodSeconds': _DEREGISTER_S + _DRAIN_S,
                    'securityContext': _POD_SECURITY,
                    'topologySpreadConstraints': [{
                        'maxSkew': 1, 'topologyKey': 'kubernetes.io/hostname',
                        'whenUnsatisfiable': 'ScheduleAnyway',
                        'labelSelector': {'matchLabels': labels}}],
                    'containers': [container],
                    'volumes': [
                        {'name': 'parameters', 'configMap': {'name': pool.workload}},
                        {'name': 'tmp', 'emptyDir': {}},
                    ],
                },
            },
        })
    budget = _object(
        'policy/v1', 'PodDisruptionBudget', pool.workload, deployment.namespace, labels,
        spec={'maxUnavailable': 1, 'selector': {'matchLabels': labels}})
    return [configuration, workers, budget]


def scaler_objects(deployment: Deployment, pool: PoolManifest) -> list[Object]:
    """Return what scales one pool, where that is not the bridge itself."""
    target = {'apiVersion': 'apps/v1', 'kind': 'Deployment', 'name': pool.workload}
    behaviour: Object = {
        # The dispatcher has weighed all this already; the autoscaler is to follow at once.
        'scaleUp': {
            'stabilizationWindowSeconds': 0, 'selectPolicy': 'Max',
            'policies': [{'type': 'Pods', 'value': 1000, 'periodSeconds': 15}]},
        'scaleDown': {
            'stabilizationWindowSeconds': 0, 'selectPolicy': 'Max',
            'policies': [{'type': 'Pods', 'value': 1000, 'periodSeconds': 15}]},
    }
    if deployment.hpa_tolerance:
        for direction in behaviour.values():
            direction['tolerance'] = deployment.hpa_tolerance
    if pool.drive == 'external_metric':
        return [_object(
            'autoscaling/v2', 'HorizontalPodAutoscaler', pool.workload, deployment.namespace,
            _pool_labels(pool), spec={
                'scaleTargetRef': target,
                # An autoscaler knows no zero.
                'minReplicas': max(1, pool.min_replicas), 'maxReplicas': pool.max_replicas,
                'metrics': [{'type': 'External', 'external': {
                    'metric': {
                        'name': 'laimr_desired_replicas',
                        'selector': {'matchLabels': {'pool': pool.name}}},
                    'target': {'type': 'AverageValue', 'averageValue': '1'}}}],
                'behavior': behaviour})]
    if pool.drive == 'keda':
        return [_object(
            'keda.sh/v1alpha1', 'ScaledObject', pool.workload, deployment.namespace,
            _pool_labels(pool), spec={
                'scaleTargetRef': target,
                'pollingInterval': 5, 'cooldownPeriod': 30,
                'minReplicaCount': pool.min_replicas, 'maxReplicaCount': pool.max_replicas,
                'advanced': {'horizontalPodAutoscalerConfig': {'behavior': behaviour}},
                'triggers': [{
                    'type': 'external-push', 'metricType': 'AverageValue',
                    'metadata': {
                        'scalerAddress':
                            f'{BRIDGE}.{deployment.namespace}.svc.cluster.local:{KEDA_PORT}',
                        'pool': pool.name}}]})]
    return []


def access_objects(deployment: Deployment) -> list[Object]:
    """Return the bridge's account, and what it may do: this and nothing more."""
    namespace, labels = deployment.namespace, _labels(BRIDGE)
    workloads = [pool.workload for pool in deployment.pools]
    written = [pool.workload for pool in deployment.pools if pool.drive == 'scale']
    rules: list[Object] = [
        {'apiGroups': ['apps'], 'resources': ['deployments'], 'resourceNames': workloads,
         'verbs': ['get', 'list', 'watch']},
        {'apiGroups': [''], 'resources': ['pods'], 'verbs': ['list', 'watch']},
        {'apiGroups': ['autoscaling'], 'resources': ['horizontalpodautoscalers'],
         'verbs': ['list']},
        {'apiGroups': ['keda.sh'], 'resources': ['scaledobjects'], 'verbs': ['list']},
        # To create cannot be bound to a name.
        {'apiGroups': ['coordination.k8s.io'], 'resources': ['leases'], 'verbs': ['create']},
        {'apiGroups': ['coordination.k8s.io'], 'resources': ['leases'],
         'resourceNames': [deployment.lease], 'verbs': ['get', 'update']},
    ]
    if written:
        rules.insert(1, {
            'apiGroups': ['apps'], 'resources': ['deployments/scale'], 'resourceNames': written,
            'verbs': ['get', 'patch']})
    rbac = 'rbac.authorization.k8s.io'
    subjects = [{'kind': 'ServiceAccount', 'name': BRIDGE, 'namespace': namespace}]
    found = [
        _object('v1', 'ServiceAccount', BRIDGE, namespace, labels),
        _object(f'{rbac}/v1', 'Role', BRIDGE, namespace, labels, rules=rules),
        _object(f'{rbac}/v1', 'RoleBinding', BRIDGE, namespace, labels, subjects=subjects,
                roleRef={'apiGroup': rbac, 'kind': 'Role', 'name': BRIDGE}),
    ]
    if any(pool.drive == 'external_metric' for pool in deployment.pools):
        # To have the API server say who calls, and whether they may.
        found += [
            _object(f'{rbac}/v1', 'ClusterRoleBinding', f'{BRIDGE}-{namespace}-auth-delegator',
                    None, labels, subjects=subjects, roleRef={
                        'apiGroup': rbac, 'kind': 'ClusterRole',
                        'name': 'system:auth-delegator'}),
            _object(f'{rbac}/v1', 'RoleBinding', f'{BRIDGE}-{namespace}-auth-reader',
                    'kube-system', labels, subjects=subjects, roleRef={
                        'apiGroup': rbac, 'kind': 'Role',
                        'name': 'extension-apiserver-authentication-reader'}),
        ]
    return found


def bridge_objects(deployment: Deployment) -> list[Object]:
    """Return the bridge as a pod."""
    namespace, labels = deployment.namespace, _labels(BRIDGE)
    metrics = any(pool.drive == 'external_metric' for pool in deployment.pools)
    keda = any(pool.drive == 'keda' for pool in deployment.pools)
    parameters = {
        key: value for key, value in deployment.bridge.items()
        # Of another place: a pod is itself its credentials.
        if key not in ('kubeconfig', 'context')}
    parameters['namespace'] = namespace
    parameters['prometheus_port'] = PROMETHEUS_PORT
    ports = [{'name': 'prometheus', 'containerPort': PROMETHEUS_PORT, 'protocol': 'TCP'}]
    mounts = [
        {'name': 'parameters', 'mountPath': '/etc/laimr', 'readOnly': True},
        {'name': 'tmp', 'mountPath': '/tmp'},
    ]
    volumes: list[Object] = [
        {'name': 'parameters', 'configMap': {'name': BRIDGE}}, {'name': 'tmp', 'emptyDir': {}}]
    service_ports = [{
        'name': 'prometheus', 'port': PROMETHEUS_PORT, 'targetPort': PROMETHEUS_PORT,
        'protocol': 'TCP'}]
    if metrics:
        parameters.update(
            metrics_listen=f'0.0.0.0:{METRICS_PORT}',
            tls_cert_file='/etc/laimr-tls/tls.crt', tls_key_file='/etc/laimr-tls/tls.key')
        ports.append({'name': 'metrics', 'containerPort': METRICS_PORT, 'protocol': 'TCP'})
        mounts.append({'name': 'tls', 'mountPath': '/etc/laimr-tls', 'readOnly': True})
        volumes.append({'name': 'tls', 'secret': {'secretName': TLS_SECRET}})
        service_ports.append({
            'name': 'metrics', 'port': 443, 'targetPort': METRICS_PORT, 'protocol': 'TCP'})
    if keda:
        parameters['keda_listen'] = f'0.0.0.0:{KEDA_PORT}'
        ports.append({'name': 'keda', 'containerPort': KEDA_PORT, 'protocol': 'TCP'})
        service_ports.append({
            'name': 'keda', 'port': KEDA_PORT, 'targetPort': KEDA_PORT, 'protocol': 'TCP'})
    container = {
        'name': 'bridge',
        'image': deployment.bridge_image,
        'args': ['--ros-args', '--params-file', '/etc/laimr/bridge.yaml'],
        'env': [
            {'name': 'ROS_DOMAIN_ID', 'value': str(deployment.ros_domain_id)},
            {'name': 'ROS_LOG_DIR', 'value': '/tmp/ros'},
            *({'name': name, 'value': value} for name, value in deployment.bridge_env.items()),
        ],
        'ports': ports,
        'resources': {
            'requests': {'cpu': '100m', 'memory': '192Mi'}, 'limits': {'memory': '512Mi'}},
        'readinessProbe': {
            'httpGet': {'path': '/healthz', 'port': PROMETHEUS_PORT}, 'periodSeconds': 2},
        'livenessProbe': {
            'httpGet': {'path': '/healthz', 'port': PROMETHEUS_PORT}, 'periodSeconds': 10,
            'failureThreshold': 3},
        'securityContext': _CONTAINER_SECURITY,
        'volumeMounts': mounts,
    }
    configuration = _object(
        'v1', 'ConfigMap', BRIDGE, namespace, labels,
        data={'bridge.yaml': yaml.safe_dump(
            {'/**/kubernetes_bridge': {'ros__parameters': parameters}}, sort_keys=False)})
    bridge = _object(
        'apps/v1', 'Deployment', BRIDGE, namespace, labels, spec={
            # Two, of which one acts: when its node goes, the other takes over in seconds.
            'replicas': 2,
            'selector': {'matchLabels': labels},
            'template': {
                'metadata': {'labels': labels},
                'spec': {
                    'serviceAccountName': BRIDGE,
                    'enableServiceLinks': False,
                    'terminationGracePeriodSeconds': 10,
                    'securityContext': _POD_SECURITY,
                    'topologySpreadConstraints': [{
                        'maxSkew': 1, 'topologyKey': 'kubernetes.io/hostname',
                        'whenUnsatisfiable': 'ScheduleAnyway',
                        'labelSelector': {'matchLabels': labels}}],
                    'containers': [container],
                    'volumes': volumes,
                },
            },
        })
    service = _object(
        'v1', 'Service', BRIDGE, namespace, labels,
        spec={'selector': labels, 'ports': service_ports})
    return [configuration, bridge, service]


def api_service(namespace: str, authority: str) -> Object:
    """
    Return what makes the API server ask the bridge for external metrics.

    :param authority: base64 of the certificate that vouches for the bridge.
    """
    return _object(
        'apiregistration.k8s.io/v1', 'APIService', 'v1beta1.external.metrics.k8s.io', None,
        _labels(BRIDGE), spec={
            'group': 'external.metrics.k8s.io', 'version': 'v1beta1',
            'groupPriorityMinimum': 100, 'versionPriority': 100,
            'service': {'name': BRIDGE, 'namespace': namespace, 'port': 443},
            'caBundle': authority})


def tls_secret(namespace: str, certificate: str, key: str) -> Object:
    """Return the bridge's certificate; both in base64."""
    return _object(
        'v1', 'Secret', TLS_SECRET, namespace, _labels(BRIDGE), type='kubernetes.io/tls',
        data={'tls.crt': certificate, 'tls.key': key})


def service_monitor(deployment: Deployment) -> Object:
    """Return what makes the Prometheus operator collect the bridge's metrics."""
    return _object(
        'monitoring.coreos.com/v1', 'ServiceMonitor', BRIDGE, deployment.namespace,
        _labels(BRIDGE), spec={
            'selector': {'matchLabels': _labels(BRIDGE)},
            'endpoints': [{'port': 'prometheus', 'interval': '5s', 'path': '/metrics'}]})
