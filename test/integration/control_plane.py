"""A real control plane for tests, and a kubelet that the tests play."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import datetime
import http.client
import ipaddress
import json
import os
from pathlib import Path
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any
import urllib.error
import urllib.request

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
import pytest
import yaml

PROGRAMS = ('etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler', 'kubectl')
DEADLINE_S = 30.0


def assets() -> Path:
    """Return where the programs are; skip the test loudly if they are not there."""
    directory = os.environ.get('KUBEBUILDER_ASSETS', '')
    missing = [p for p in PROGRAMS if not directory or not (Path(directory) / p).exists()]
    if missing:
        pytest.skip(
            f'REAL CONTROL PLANE NOT TESTED: no {", ".join(missing)}; set KUBEBUILDER_ASSETS to a '
            'directory that has them (etcd, kube-apiserver and kubectl come with `setup-envtest '
            'use`, the others with the Kubernetes release)')
    return Path(directory)


def eventually(
    predicate: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S,
    explain: Callable[[], Any] = lambda: '',
) -> Any:
    """Wait until something holds; return it."""
    end = time.monotonic() + deadline_s
    while not (value := predicate()):
        assert time.monotonic() < end, f'never happened: {what} {explain()}'
        time.sleep(0.01)
    return value


class KubeError(Exception):
    """The API server said no."""

    def __init__(self, status: int, body: str) -> None:
        """Keep both."""
        super().__init__(f'{status}: {body}')
        self.status = status


class Kube:
    """A plain client of the API server, independent of the one under test."""

    def __init__(self, server: str, ca_file: Path, token: str) -> None:
        """Take the address and who to be."""
        self.server = server
        self.token = token
        self._tls = ssl.create_default_context(cafile=str(ca_file))

    def __call__(
        self, method: str, path: str, body: Any = None, *, kind: str = 'application/json',
        timeout: float = 10.0,
    ) -> Any:
        """Return the answer. :raises KubeError: if it is an error."""
        request = urllib.request.Request(
            self.server + path, method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={'Authorization': f'Bearer {self.token}', 'Content-Type': kind})
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self._tls) as reply:
                return json.loads(reply.read() or b'{}')
        except urllib.error.HTTPError as error:
            raise KubeError(error.code, error.read().decode()) from None
        except http.client.HTTPException as error:
            # A server that is killed cuts off what it was about to say.
            raise OSError(f'no answer: {error}') from None

    def patch(self, path: str, body: Any) -> Any:
        """Merge-patch."""
        return self('PATCH', path, body, kind='application/merge-patch+json')

    def watch(self, path: str, query: str, stop: threading.Event) -> Iterator[Any]:
        """Yield (type, object): all there is as ADDED, then what changes, until told to stop."""
        version = ''
        while not stop.is_set():
            try:
                if not version:
                    found = self('GET', f'{path}?{query}')
                    for item in found['items']:
                        yield 'ADDED', item
                    version = found['metadata']['resourceVersion']
                request = urllib.request.Request(
                    f'{self.server}{path}?{query}&watch=1&resourceVersion={version}',
                    headers={'Authorization': f'Bearer {self.token}'})
                with urllib.request.urlopen(request, timeout=1.0, context=self._tls) as reply:
                    for line in reply:
                        event = json.loads(line)
                        if event['type'] == 'ERROR':
                            version = ''
                            break
                        version = event['object']['metadata']['resourceVersion']
                        yield event['type'], event['object']
                        if stop.is_set():
                            return
            except (OSError, KubeError, ValueError, http.client.HTTPException):
                stop.wait(0.05)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])


def make_certificate(
    directory: Path, name: str, issuer: tuple[Any, Any] | None = None, hosts: tuple[str, ...] = (),
) -> tuple[Any, Any]:
    """Write ``name.crt`` and ``name.key``; return certificate and key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder().subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([
            x509.IPAddress(ipaddress.ip_address(h)) if h[0].isdigit() else x509.DNSName(h)
            for h in hosts]), critical=False)
    certificate = builder.sign(issuer[1] if issuer else key, hashes.SHA256())
    (directory / f'{name}.crt').write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM))
    (directory / f'{name}.key').write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption()))
    return certificate, key


class ControlPlane:
    """The processes of one cluster. Nothing of it is reachable from outside this machine."""

    def __init__(self, programs: Path, directory: Path) -> None:
        """Make keys and start everything."""
        self.programs = programs
        self.directory = directory
        self._port, etcd, peer = free_port(), free_port(), free_port()
        self._etcd = f'http://127.0.0.1:{etcd}'
        self._peer = f'http://127.0.0.1:{peer}'
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._make_keys()
        self.server = f'https://127.0.0.1:{self._port}'
        self.admin = Kube(self.server, directory / 'ca.crt', 'admin-token')
        self.kubeconfig = self.write_kubeconfig('admin', 'admin-token')
        try:
            self._start('etcd', (
                '--data-dir', str(directory / 'etcd'), '--listen-client-urls', self._etcd,
                '--advertise-client-urls', self._etcd, '--listen-peer-urls', self._peer,
                '--unsafe-no-fsync', '--log-level', 'error'))
            self.start_api_server()
            self._start('kube-controller-manager', (
                '--kubeconfig', str(self.kubeconfig), '--leader-elect=false', '--secure-port', '0',
                '--service-account-private-key-file', str(directory / 'sa.key'),
                '--use-service-account-credentials',
                '--horizontal-pod-autoscaler-sync-period=2s',
                '--kube-api-qps=200', '--kube-api-burst=400',
                '--controllers=deployment-controller,replicaset-controller,'
                'statefulset-controller,'
                'horizontal-pod-autoscaler-controller,endpointslice-controller,'
                'serviceaccount-controller,namespace-controller,disruption-controller,'
                'resourcequota-controller,garbage-collector-controller'))
            self._start('kube-scheduler', (
                '--kubeconfig', str(self.kubeconfig), '--leader-elect=false',
                '--secure-port', '0'))
            eventually(self._has_default_account, 'controllers work', explain=self.log_tails)
        except BaseException:
            self.close()
            raise

    def _make_keys(self) -> None:
        sa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self.directory / 'sa.key').write_bytes(sa.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()))
        (self.directory / 'sa.pub').write_bytes(sa.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
        ca = make_certificate(self.directory, 'ca')
        make_certificate(self.directory, 'apiserver', ca, ('127.0.0.1', 'localhost'))
        front_ca = make_certificate(self.directory, 'front-proxy-ca')
        make_certificate(self.directory, 'front-proxy-client', front_ca)
        (self.directory / 'tokens.csv').write_text('admin-token,admin,1,"system:masters"\n')

    def write_kubeconfig(
        self, name: str, token: str = '', namespace: str = 'default', token_file: str = '',
    ) -> Path:
        """Write a kubeconfig for a token; return its path."""
        path = self.directory / f'{name}.kubeconfig'
        path.write_text(yaml.safe_dump({
            'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'test',
            'clusters': [{'name': 'test', 'cluster': {
                'server': self.server,
                'certificate-authority': str(self.directory / 'ca.crt')}}],
            'users': [{'name': name, 'user': (
                {'tokenFile': token_file} if token_file else {'token': token})}],
            'contexts': [{'name': 'test', 'context': {
                'cluster': 'test', 'user': name, 'namespace': namespace}}],
        }))
        return path

    def start_api_server(self) -> None:
        """Start the API server, and wait until it is ready."""
        d = self.directory
        self._start('kube-apiserver', (
            '--etcd-servers', self._etcd, '--secure-port', str(self._port),
            '--bind-address', '127.0.0.1', '--advertise-address', '127.0.0.1',
            '--tls-cert-file', str(d / 'apiserver.crt'),
            '--tls-private-key-file', str(d / 'apiserver.key'),
            '--service-account-key-file', str(d / 'sa.pub'),
            '--service-account-signing-key-file', str(d / 'sa.key'),
            '--service-account-issuer', 'https://kubernetes.default.svc',
            '--token-auth-file', str(d / 'tokens.csv'), '--authorization-mode', 'RBAC',
            '--service-cluster-ip-range', '10.0.0.0/24',
            '--endpoint-reconciler-type', 'none',
            '--client-ca-file', str(d / 'ca.crt'),
            '--proxy-client-cert-file', str(d / 'front-proxy-client.crt'),
            '--proxy-client-key-file', str(d / 'front-proxy-client.key'),
            '--requestheader-client-ca-file', str(d / 'front-proxy-ca.crt'),
            '--requestheader-allowed-names', 'front-proxy-client',
            '--requestheader-username-headers', 'X-Remote-User',
            '--requestheader-group-headers', 'X-Remote-Group',
            '--requestheader-extra-headers-prefix', 'X-Remote-Extra-'))
        eventually(self._ready, 'the API server is ready', explain=self.log_tails)

    def kill_api_server(self) -> None:
        """Kill it with SIGKILL."""
        process = self._processes.pop('kube-apiserver')
        process.kill()
        process.wait(10.0)

    def kubectl(self, *arguments: str, kubeconfig: Path | None = None, text: str = '') -> str:
        """Run kubectl; return what it prints. :raises AssertionError: if it fails."""
        done = subprocess.run(
            [str(self.programs / 'kubectl'), '--kubeconfig', str(kubeconfig or self.kubeconfig),
             '--cache-dir', str(self.directory / 'kubectl'), *arguments],
            input=text, capture_output=True, text=True, timeout=60.0)
        assert done.returncode == 0, f'kubectl {" ".join(arguments)}: {done.stderr}'
        return done.stdout

    def token(self, namespace: str, account: str, seconds: int = 3600) -> str:
        """Return a token of a service account."""
        return str(self.admin(
            'POST', f'/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token',
            {'spec': {'expirationSeconds': seconds}})['status']['token'])

    def log_tails(self) -> str:
        """Return the last words of every process."""
        return '\n'.join(
            f'--- {path.name}\n' + '\n'.join(
                path.read_text(errors='replace').splitlines()[-15:])
            for path in sorted(self.directory.glob('*.log')))

    def close(self) -> None:
        """End everything."""
        for process in reversed(list(self._processes.values())):
            process.kill()
        for process in self._processes.values():
            process.wait(10.0)
        self._processes.clear()

    def _start(self, program: str, arguments: tuple[str, ...]) -> None:
        with (self.directory / f'{program}.log').open('ab') as log:
            self._processes[program] = subprocess.Popen(
                [str(self.programs / program), *arguments], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent)

    def _ready(self) -> bool:
        try:
            self.admin('GET', '/readyz', timeout=2.0)
        except ValueError:
            return True  # "ok" is not JSON
        except (OSError, KubeError):
            return False
        return True

    def _has_default_account(self) -> bool:
        try:
            self.admin('GET', '/api/v1/namespaces/default/serviceaccounts/default')
        except (OSError, KubeError):
            return False
        return True


def _die_with_parent() -> None:
    """Have the kernel kill this process when the tests are killed."""
    import ctypes
    import signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """Yield a cluster of its own."""
    programs = assets()
    with tempfile.TemporaryDirectory(prefix='kube') as directory:
        plane = ControlPlane(programs, Path(directory))
        try:
            yield plane
        finally:
            plane.close()


def make_node(kube: Kube, name: str, cpus: int, pods: int = 110) -> None:
    """Add a node that is ready, with room for so much."""
    kube('POST', '/api/v1/nodes', {
        'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': name}})
    room = {'cpu': str(cpus), 'memory': '64Gi', 'pods': str(pods)}
    kube.patch(f'/api/v1/nodes/{name}/status', {'status': {
        'capacity': room, 'allocatable': room,
        'conditions': [{
            'type': 'Ready', 'status': 'True', 'reason': 'Test', 'message': 'is played',
            'lastHeartbeatTime': _now(), 'lastTransitionTime': _now()}]}})
    kube.patch(f'/api/v1/nodes/{name}', {'spec': {'taints': []}})


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')


class Container:
    """What the played kubelet runs for a pod: nothing, which is ready at once."""

    def __init__(self, pod: dict[str, Any], address: str) -> None:
        """Begin to run."""
        self.pod = pod
        self.address = address

    @property
    def ready(self) -> bool:
        """Return whether the readiness probe would succeed."""
        return True

    def terminate(self) -> None:
        """Ask it to end, as SIGTERM does."""

    @property
    def ended(self) -> bool:
        """Return whether it has ended."""
        return True

    def kill(self) -> None:
        """End it at once."""


class WorkerContainer(Container):
    """A real worker process with an emulated detector."""

    arguments: tuple[str, ...] = (
        '--model', 'yolov5m=emulated', '--set', 'models.yolov5m.options.mean_s=0.1')

    def __init__(self, pod: dict[str, Any], address: str) -> None:
        """Start the process."""
        super().__init__(pod, address)
        port = pod['spec']['containers'][0]['ports'][0]['containerPort']
        self.process = subprocess.Popen(
            [sys.executable, '-m', 'laimr_ros.cli.main', 'worker', *self.arguments,
             '--listen', f'{address}:{port}'],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=_die_with_parent)
        self._said = b''
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    @property
    def ready(self) -> bool:
        """Return whether it has said so."""
        assert self.process.stdout is not None
        if b'ready' not in self._said:
            self._said += self.process.stdout.read() or b''
        return b'ready' in self._said and not self.ended

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.terminate()

    @property
    def ended(self) -> bool:
        """Return whether the process has ended."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        if not self.ended:
            self.process.kill()
        self.process.wait(10.0)


class Kubelet:
    """
    Play the kubelet of every node of one namespace.

    :param start_s: time a pod takes to start beyond its container's own, in seconds.
    :param pre_stop_s: what the preStop hook takes, in seconds.
    """

    def __init__(
        self, plane: ControlPlane, namespace: str, container: type[Container] = Container, *,
        start_s: float = 0.0, pre_stop_s: float = 0.0,
    ) -> None:
        """Start to play."""
        self._kube = Kube(plane.server, plane.directory / 'ca.crt', 'admin-token')
        self._namespace = namespace
        self._container = container
        self._start_s, self._pre_stop_s = start_s, pre_stop_s
        self._addresses = iter(
            f'127.{10 + os.getpid() % 200}.{n // 250}.{1 + n % 250}' for n in range(60_000))
        self.containers: dict[str, Container] = {}
        self._pods: dict[str, dict[str, Any]] = {}
        self._ready: set[str] = set()
        self._due: dict[str, float] = {}
        #: When each pod was first seen to exist and to be bound, by name (monotonic seconds).
        self.seen_at: dict[str, float] = {}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._watch, daemon=True),
            threading.Thread(target=self._work, daemon=True)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End every container."""
        self._stop.set()
        for thread in self._threads:
            thread.join(10.0)
        for container in self.containers.values():
            container.kill()

    def _watch(self) -> None:
        path = f'/api/v1/namespaces/{self._namespace}/pods'
        for kind, pod in self._kube.watch(path, 'limit=0', self._stop):
            with self._lock:
                name = pod['metadata']['name']
                self.seen_at.setdefault(name, time.monotonic())
                if kind == 'DELETED':
                    self._pods.pop(name, None)
                else:
                    self._pods[name] = pod

    def _work(self) -> None:
        while not self._stop.wait(0.01):
            with self._lock:
                pods = dict(self._pods)
            for name in [n for n in self.containers if n not in pods]:
                self.containers.pop(name).kill()
            for name, pod in pods.items():
                try:
                    self._look(name, pod)
                except (KubeError, OSError):
                    pass  # again in the next round

    def _look(self, name: str, pod: dict[str, Any]) -> None:
        now = time.monotonic()
        node = pod['spec'].get('nodeName')
        container = self.containers.get(name)
        if pod['metadata'].get('deletionTimestamp'):
            stop_at = self._due.setdefault(f'{name} stop', now + self._pre_stop_s)
            if container is not None and now >= stop_at and f'{name} asked' not in self._due:
                self._due[f'{name} asked'] = now
                container.terminate()
            if container is None or (f'{name} asked' in self._due and container.ended):
                self._kube(
                    'DELETE', f'/api/v1/namespaces/{self._namespace}/pods/{name}',
                    {'gracePeriodSeconds': 0, 'preconditions': {'uid': pod['metadata']['uid']}})
            return
        if not node:
            return
        if container is None:
            if now < self._due.setdefault(f'{name} start', now + self._start_s):
                return
            container = self.containers[name] = self._container(pod, next(self._addresses))
            self._status(name, container, ready=False)
        elif container.ready and name not in self._ready:
            self._status(name, container, ready=True)
            self._ready.add(name)
        elif name in self._ready and not container.ready:
            self._status(name, container, ready=False)
            self._ready.discard(name)

    def _status(self, name: str, container: Container, *, ready: bool) -> None:
        yes = 'True' if ready else 'False'
        spec = container.pod['spec']['containers'][0]
        now = _now()
        self._kube.patch(f'/api/v1/namespaces/{self._namespace}/pods/{name}/status', {'status': {
            'phase': 'Running', 'podIP': container.address,
            'podIPs': [{'ip': container.address}], 'startTime': now,
            'conditions': [
                {'type': kind, 'status': status, 'lastTransitionTime': now}
                for kind, status in (
                    ('PodScheduled', 'True'), ('Initialized', 'True'),
                    ('ContainersReady', yes), ('Ready', yes))],
            'containerStatuses': [{
                'name': spec['name'], 'image': spec['image'], 'imageID': '', 'ready': ready,
                'restartCount': 0, 'started': True, 'state': {'running': {'startedAt': now}}}]}})
