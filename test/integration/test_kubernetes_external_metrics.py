"""A stock autoscaler follows our number through the aggregated API of a real control plane."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
import json
from pathlib import Path
import random
import ssl
import time
from typing import Any
import urllib.error
import urllib.request

from control_plane import ControlPlane, eventually, free_port, KubeError
from kubernetes_cell import BridgeProcess, Cell, cell, document, WORKLOAD
from laimr_ros.cli.manifests import api_service
from laimr_ros.cluster.base import ReplicaState
from laimr_ros.cluster.kubernetes.certificates import CertificateSet, make_certificates
from laimr_ros.cluster.kubernetes.pool import Drive, KubernetesPool
from laimr_ros.cluster.kubernetes.replicas import KubernetesReplicas
from played_dispatcher import PlayedDispatcher
import pytest

POOL = KubernetesPool(f'deployment/{WORKLOAD}', 1, 9, drive=Drive.EXTERNAL_METRIC)
ROOT = '/apis/external.metrics.k8s.io/v1beta1'
# The autoscaler of the control plane under test looks every so often.
SYNC_S = 2.0


def write(certificates: CertificateSet, directory: Path) -> dict[str, str]:
    """Write a certificate and its key; return where, as the holder wants it."""
    (directory / 'tls.crt').write_bytes(certificates.certificate)
    (directory / 'tls.key').write_bytes(certificates.key)
    return {
        'tls_cert_file': str(directory / 'tls.crt'), 'tls_key_file': str(directory / 'tls.key')}


@contextmanager
def served(
    plane: ControlPlane, home: Cell, directory: Path, **config: Any,
) -> Iterator[KubernetesReplicas]:
    """Yield a holder whose metrics the API server reaches, checking the certificate."""
    name = f'laimr-bridge.{home.namespace}.svc'
    made = make_certificates((name, 'localhost'))
    with home.holder(
            POOL, metrics_listen='127.0.0.1:0', **write(made, directory), **config) as holder:
        (port,) = holder.ports
        # The bridge runs beside the cluster here; its Service is a name for this host.
        plane.admin('POST', f'/api/v1/namespaces/{home.namespace}/services', {
            'metadata': {'name': 'laimr-bridge'}, 'spec': {
                'type': 'ExternalName', 'externalName': 'localhost',
                'ports': [{'port': port, 'protocol': 'TCP'}]}})
        service = api_service(home.namespace, base64.b64encode(made.authority).decode())
        service['spec']['service']['port'] = port
        plane.admin('POST', '/apis/apiregistration.k8s.io/v1/apiservices', service)
        try:
            eventually(available(plane), 'the aggregated API is available', explain=lambda: (
                plane.admin('GET', _API_SERVICE).get('status')))
            yield holder
        finally:
            plane.admin('DELETE', _API_SERVICE)


_API_SERVICE = '/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io'


def available(plane: ControlPlane) -> Callable[[], bool]:
    """Return whether the API server finds it so."""
    def check() -> bool:
        conditions = plane.admin('GET', _API_SERVICE).get('status', {}).get('conditions') or ()
        return any(c['type'] == 'Available' and c['status'] == 'True' for c in conditions)
    return check


def autoscaler(plane: ControlPlane, home: Cell) -> dict[str, Any]:
    """Return the HPA of the pool."""
    found: dict[str, Any] = plane.admin(
        'GET', f'/apis/autoscaling/v2/namespaces/{home.namespace}/horizontalpodautoscalers/'
        f'{WORKLOAD}')
    return found


def test_an_autoscaler_follows(plane: ControlPlane, tmp_path: Path) -> None:
    """Within one sync and a second; up and down; kubectl shows current and target."""
    with cell(plane, document('external_metric')) as home, \
            served(plane, home, tmp_path, max_age_s=1000.0) as holder:
        took = []
        for count in (4, 9, 3, 6, 1, 5):
            began = time.monotonic()
            holder.set_replicas('edge', count)
            eventually(
                lambda count=count: home.replicas == count, f'{count} replicas',
                explain=lambda: autoscaler(plane, home)['status'])
            took.append(time.monotonic() - began)
        print(f'external metric: {sorted(round(t, 2) for t in took)} s')
        # The first one waits for the API server's discovery as well.
        assert max(took[1:]) <= SYNC_S + 1.0, took
        eventually(
            lambda: holder.observe('edge').count(ReplicaState.READY) == 5, 'five are ready')
        eventually(
            lambda: '1/1 (avg)' in plane.kubectl('get', 'hpa', '-n', home.namespace),
            'kubectl shows the metric', explain=lambda: plane.kubectl(
                'get', 'hpa', '-n', home.namespace))
        print(plane.kubectl('get', 'hpa', '-n', home.namespace))
        value = plane.admin(
            'GET', f'{ROOT}/namespaces/{home.namespace}/laimr_desired_replicas'
            '?labelSelector=pool%3Dedge')
        assert [item['value'] for item in value['items']] == ['5']
        assert value['items'][0]['metricLabels'] == {'pool': 'edge'}
        assert not plane.admin(
            'GET', f'{ROOT}/namespaces/{home.namespace}/laimr_desired_replicas'
            '?labelSelector=pool%3Dother')['items']
        assert holder.complaints('edge') == ()


def test_a_stale_number_is_withheld_and_the_autoscaler_holds(
    plane: ControlPlane, tmp_path: Path,
) -> None:
    """No value, ScalingActive False, replicas as they were."""
    with cell(plane, document('external_metric')) as home, \
            served(plane, home, tmp_path, max_age_s=4.0) as holder:
        began = time.monotonic()
        while home.replicas != 4:
            assert time.monotonic() < began + 30.0
            holder.set_replicas('edge', 4)
            time.sleep(0.1)

        def inactive() -> bool:
            return any(
                c['type'] == 'ScalingActive' and c['status'] == 'False'
                and c['reason'] == 'FailedGetExternalMetric'
                for c in autoscaler(plane, home)['status'].get('conditions') or ())

        eventually(inactive, 'the autoscaler is told nothing')
        end = time.monotonic() + 2 * SYNC_S + 1.0
        while time.monotonic() < end:
            assert home.replicas == 4
            time.sleep(0.1)
        holder.set_replicas('edge', 2)
        eventually(lambda: home.replicas == 2, 'it follows again')


def test_who_may_not_is_refused(plane: ControlPlane, tmp_path: Path) -> None:
    """Without proof: 401; as somebody without the right: 403; a forged header counts nothing."""
    with cell(plane, document('external_metric')) as home, \
            served(plane, home, tmp_path) as holder:
        holder.set_replicas('edge', 3)
        (port,) = holder.ports
        path = f'{ROOT}/namespaces/{home.namespace}/laimr_desired_replicas'

        def ask(headers: dict[str, str], certificate: str = '') -> int:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            if certificate:
                context.load_cert_chain(
                    str(plane.directory / f'{certificate}.crt'),
                    str(plane.directory / f'{certificate}.key'))
            request = urllib.request.Request(
                f'https://127.0.0.1:{port}{path}', headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=5.0, context=context) as reply:
                    return int(reply.status)
            except urllib.error.HTTPError as error:
                return error.code

        forged = {'X-Remote-User': 'admin', 'X-Remote-Group': 'system:masters'}
        assert ask({}) == 401
        assert ask(forged) == 401
        assert ask({'Authorization': 'Bearer nonsense'}) == 401
        assert ask({'Authorization': f'Bearer {home.mine.token}'}) == 403
        assert ask({'Authorization': 'Bearer admin-token'}) == 200
        assert ask(forged, 'front-proxy-client') == 200
        assert ask({'X-Remote-User': 'somebody'}, 'front-proxy-client') == 403
        # A certificate of another authority does not even get that far.
        with pytest.raises((ssl.SSLError, urllib.error.URLError, ConnectionError)):
            ask(forged, 'apiserver')
        # Through the API server the caller's own rights count.
        with pytest.raises(KubeError) as caught:
            home.mine('GET', path)
        assert caught.value.status == 403


def test_a_new_certificate_is_shown_without_restart(plane: ControlPlane, tmp_path: Path) -> None:
    """The file changes, the next connection sees it; half a change does no harm."""
    with cell(plane, document('external_metric')) as home, \
            served(plane, home, tmp_path) as holder:
        (port,) = holder.ports

        def shown() -> str:
            return ssl.get_server_certificate(('127.0.0.1', port))

        before = shown()
        renewed = make_certificates((f'laimr-bridge.{home.namespace}.svc', 'localhost'))
        (tmp_path / 'tls.crt').write_bytes(renewed.certificate)
        time.sleep(2.5)
        assert shown() == before
        (tmp_path / 'tls.key').write_bytes(renewed.key)
        eventually(lambda: shown() != before, 'the new one is shown')
        assert shown().split() == renewed.certificate.decode().split()


def test_it_is_said_if_no_autoscaler_listens(plane: ControlPlane, tmp_path: Path) -> None:
    """A number that nobody follows is worth a line."""
    with cell(plane) as home, home.holder(POOL, metrics_listen='127.0.0.1:0') as holder:
        eventually(
            lambda: holder.complaints('edge') == (
                f'no HorizontalPodAutoscaler targets deployment/{WORKLOAD}: nothing scales it',),
            'it is said')


def test_without_the_dispatcher_the_number_is_withheld(
    plane: ControlPlane, tmp_path: Path,
) -> None:
    """The node stands by the number as long as the dispatcher is there, and not longer."""
    port, domain = free_port(), random.randint(1, 230)
    with cell(plane, document('external_metric')) as home:
        dispatcher = PlayedDispatcher(domain)
        bridge = BridgeProcess(
            home, domain, tmp_path, max_age=2.0, metrics_listen=f'127.0.0.1:{port}',
            pools={'edge': {
                'drive': 'external_metric', 'min_replicas': 1, 'max_replicas': 9}})
        tls = ssl.create_default_context()
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE

        def values() -> list[str] | None:
            request = urllib.request.Request(
                f'https://127.0.0.1:{port}{ROOT}/namespaces/{home.namespace}/'
                'laimr_desired_replicas', headers={'Authorization': 'Bearer admin-token'})
            try:
                with urllib.request.urlopen(request, timeout=5.0, context=tls) as reply:
                    return [item['value'] for item in json.load(reply)['items']]
            except OSError:
                return None

        try:
            dispatcher.ask(3)
            eventually(lambda: values() == ['3'], 'the number is served',
                       explain=lambda: bridge.log.read_text())
            end = time.monotonic() + 4.0
            while time.monotonic() < end:
                assert values() == ['3']
                time.sleep(0.2)
            dispatcher.close()
            eventually(lambda: values() == [], 'it is withheld', 30.0)
        finally:
            assert bridge.close() == 0
