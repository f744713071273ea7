"""One namespace with a deployment as `laimr deploy render` makes it, and a played kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import os
from pathlib import Path
import random
import subprocess
import sys
import threading
import time
from typing import Any

from control_plane import Container, ControlPlane, eventually, Kube, Kubelet
from laimr_ros.cli.deploy import render
from laimr_ros.cluster.kubernetes.credentials import Source
from laimr_ros.cluster.kubernetes.pool import KubernetesPool
from laimr_ros.cluster.kubernetes.replicas import ClusterConfig, KubernetesReplicas
import yaml

ROOT = Path(__file__).parents[2]
WORKLOAD = 'laimr-worker-edge'


def document(drive: str = 'scale', cpu: str = '100m', **bridge: Any) -> dict[str, Any]:
    """Return the content of a parameter file."""
    return {
        '/**/kubernetes_bridge': {'ros__parameters': {
            'pool_names': ['edge'], **bridge,
            'pools': {'edge': {'drive': drive, 'min_replicas': 1, 'max_replicas': 9}}}},
        '/**/worker': {'ros__parameters': {
            'model_names': ['yolov5m'], 'models': {'yolov5m': {'kind': 'emulated'}}}},
        '/**/deploy': {'ros__parameters': {
            'pools': {'edge': {'cpu': cpu, 'memory': '64Mi'}}}},
    }


class Cell:
    """A namespace, its objects, its kubelet, and the bridge's own credentials."""

    def __init__(
        self, plane: ControlPlane, parameters: dict[str, Any], kubelet: dict[str, Any],
    ) -> None:
        """Apply everything as the administrator; the bridge gets its account's token."""
        self.plane = plane
        self.kube = plane.admin
        self.namespace = f'cell-{random.randrange(16**8):08x}'
        objects = render(parameters, namespace=self.namespace, with_bridge=False)
        plane.kubectl('apply', '--validate=strict', '-f', '-', text=yaml.safe_dump_all(objects))
        eventually(self._has_account, 'the account of the bridge')
        self.kubeconfig = plane.write_kubeconfig(
            self.namespace, plane.token(self.namespace, 'laimr-bridge'), self.namespace)
        self.mine = Kube(
            plane.server, plane.directory / 'ca.crt',
            plane.token(self.namespace, 'laimr-bridge'))
        self.kubelet = Kubelet(plane, self.namespace, **kubelet)

    @property
    def workload(self) -> str:
        """Return the path of the Deployment."""
        return f'/apis/apps/v1/namespaces/{self.namespace}/deployments/{WORKLOAD}'

    @property
    def replicas(self) -> int:
        """Return the number in the Deployment."""
        return int(self.kube('GET', self.workload)['spec'].get('replicas', 0))

    def set_replicas(self, count: int) -> None:
        """Set the number by hand."""
        self.kube.patch(f'{self.workload}/scale', {'spec': {'replicas': count}})

    def holder(self, pool: KubernetesPool | None = None, **config: Any) -> KubernetesReplicas:
        """Return a holder with the bridge's own credentials and nothing more."""
        return KubernetesReplicas(
            {'edge': pool or KubernetesPool(f'deployment/{WORKLOAD}', 0, 9)},
            ClusterConfig(source=Source(str(self.kubeconfig)), **config))

    def close(self) -> None:
        """Remove what runs."""
        self.kubelet.close()
        clear(self.kube, self.namespace)

    def _has_account(self) -> bool:
        try:
            self.kube('GET', f'/api/v1/namespaces/{self.namespace}/serviceaccounts/default')
        except Exception:
            return False
        return True


def clear(kube: Kube, namespace: str) -> None:
    """Delete workloads and pods, which would take room on the node for ever."""
    def is_clear() -> bool:
        left = 0
        for path in (
                f'/apis/apps/v1/namespaces/{namespace}/deployments',
                f'/apis/apps/v1/namespaces/{namespace}/replicasets',
                f'/api/v1/namespaces/{namespace}/pods'):
            left += len(kube('GET', path)['items'])
            kube('DELETE', path, {'gracePeriodSeconds': 0})
        return not left

    eventually(is_clear, f'nothing is left in {namespace}')


@contextmanager
def cell(
    plane: ControlPlane, parameters: dict[str, Any] | None = None,
    container: type[Container] = Container, **kubelet: Any,
) -> Iterator[Cell]:
    """Yield a cell."""
    made = Cell(plane, parameters or document(), {'container': container, **kubelet})
    try:
        yield made
    finally:
        made.close()


class BridgeProcess:
    """The node ``kubernetes_bridge`` as a process, with its own account."""

    def __init__(self, cell: Cell, domain: int, directory: Path, **parameters: Any) -> None:
        """Start it."""
        file = directory / 'bridge.yaml'
        file.write_text(yaml.safe_dump({'/**/kubernetes_bridge': {'ros__parameters': {
            'pool_names': ['edge'], 'kubeconfig': str(cell.kubeconfig),
            'namespace': cell.namespace, 'lease_duration': 3,
            'pools': {'edge': {'min_replicas': 1, 'max_replicas': 9}}, **parameters}}}))
        self.log = directory / 'bridge.log'
        with self.log.open('ab') as output:
            self.process = subprocess.Popen(
                [sys.executable, '-m', 'laimr_ros.nodes.kubernetes_bridge', '--ros-args',
                 '--params-file', str(file)],
                env={**os.environ, 'ROS_DOMAIN_ID': str(domain),
                     'ROS_LOG_DIR': str(directory / 'ros'),
                     'PYTHONPATH': f'{ROOT}:{os.environ.get("PYTHONPATH", "")}'},
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(10.0)

    def close(self) -> int:
        """End it as a launch does; return its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class ReplicaRecorder:
    """Every number that a Deployment ever had, in the order it had them."""

    def __init__(self, cell: Cell) -> None:
        """Start to record."""
        self._stop = threading.Event()
        self.numbers: list[tuple[float, int]] = []
        self._cell = cell
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        path, _, name = self._cell.workload.rpartition('/')
        for _, item in self._cell.kube.watch(path, f'fieldSelector=metadata.name={name}',
                                             self._stop):
            count = int(item['spec'].get('replicas', 0))
            if not self.numbers or self.numbers[-1][1] != count:
                self.numbers.append((time.monotonic(), count))

    def close(self) -> list[int]:
        """Stop; return the numbers."""
        self._stop.set()
        self._thread.join(5.0)
        return [number for _, number in self.numbers]
