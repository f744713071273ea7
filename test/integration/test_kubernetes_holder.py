"""Replicas as pods of a real control plane, with the bridge's own account and nothing more."""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import Any

from control_plane import Container, ControlPlane, eventually
from kubernetes_cell import cell, document, ReplicaRecorder, WORKLOAD
from laimr_ros.cluster.base import ReplicaState
from laimr_ros.cluster.kubernetes.credentials import Source
from laimr_ros.cluster.kubernetes.errors import CredentialsError
from laimr_ros.cluster.kubernetes.pool import KubernetesPool
from laimr_ros.cluster.kubernetes.replicas import ClusterConfig, KubernetesReplicas
import pytest

READY = ReplicaState.READY


def ready(holder: KubernetesReplicas, count: int) -> Callable[[], bool]:
    """Return whether so many are ready, and no others there."""
    return lambda: (
        holder.observe('edge').count(READY) == count == len(holder.observe('edge').replicas))


def complaint(holder: KubernetesReplicas, words: str) -> Callable[[], str]:
    """Return the complaint with these words in it."""
    return lambda: next((c for c in holder.complaints('edge') if words in c), '')


def say(holder: KubernetesReplicas) -> Callable[[], Any]:
    """Return what to print when something never happens."""
    return lambda: (holder.observe('edge'), holder.complaints('edge'), holder.away())


def test_follows_up_and_down_and_measures_start_up(plane: ControlPlane) -> None:
    """Replicas, addresses and start-up times are known as they are."""
    with cell(plane, start_s=0.3) as home, home.holder() as holder:
        eventually(ready(holder, 1), 'the first', explain=say(holder))
        holder.set_replicas('edge', 4)
        eventually(ready(holder, 4), 'four', explain=say(holder))
        status = holder.observe('edge')
        addresses = {f'{c.address}:8500' for c in home.kubelet.containers.values()}
        assert set(status.endpoints()) == addresses and len(addresses) == 4
        assert len(status.start_up_s) >= 3
        assert all(0.3 <= s < 5.0 for s in status.start_up_s), status.start_up_s
        holder.set_replicas('edge', 2)
        eventually(ready(holder, 2), 'two', explain=say(holder))
        assert home.replicas == 2
        assert holder.complaints('edge') == ()
        # Asking again for what there is writes nothing.
        writes = holder.writes('edge')
        holder.set_replicas('edge', 2)
        holder.set_replicas('edge', 99)
        eventually(lambda: home.replicas == 9, 'the maximum')
        # The server has the number before the holder has its answer.
        eventually(lambda: holder.writes('edge') > writes, 'it knows that it has written')
        assert holder.writes('edge') == writes + 1


def test_a_full_cluster_is_told_and_not_counted_on(plane: ControlPlane) -> None:
    """Of seven replicas of 30 CPUs, three find room on 100."""
    with cell(plane, document(cpu='30')) as home, home.holder() as holder:
        holder.set_replicas('edge', 7)
        text = eventually(
            complaint(holder, '4 of 7'), 'four wait', explain=say(holder))
        assert text == '4 of 7 replicas cannot be scheduled: Insufficient cpu'
        eventually(
            lambda: holder.observe('edge').count(READY) == 3, 'three are ready',
            explain=say(holder))
        status = holder.observe('edge')
        assert status.count(ReplicaState.STARTING) == 0
        assert status.count(ReplicaState.FAILED) == 4
        assert len(status.endpoints()) == 3
        # Room is made, and the rest starts; waiting for room was no start-up.
        plane.admin.patch('/api/v1/nodes/node-1/status', {'status': {
            'allocatable': {'cpu': '300'}, 'capacity': {'cpu': '300'}}})
        try:
            eventually(ready(holder, 7), 'all seven', explain=say(holder))
        finally:
            plane.admin.patch('/api/v1/nodes/node-1/status', {'status': {
                'allocatable': {'cpu': '100'}, 'capacity': {'cpu': '100'}}})
        assert holder.complaints('edge') == ()


def test_a_leaving_replica_is_off_the_list_before_it_ends(plane: ControlPlane) -> None:
    """From the deletion on it is draining, while its container still runs."""
    asked: list[tuple[float, str]] = []

    class Slow(Container):
        def terminate(self) -> None:
            asked.append((time.monotonic(), f'{self.address}:8500'))

    with cell(plane, container=Slow, pre_stop_s=0.5) as home, home.holder() as holder:
        holder.set_replicas('edge', 3)
        eventually(ready(holder, 3), 'three', explain=say(holder))
        began = time.monotonic()
        holder.set_replicas('edge', 1)
        eventually(lambda: len(holder.observe('edge').endpoints()) == 1, 'two are off the list')
        off_s = time.monotonic() - began
        assert not asked
        assert holder.observe('edge').count(ReplicaState.DRAINING) == 2
        kept = holder.observe('edge').endpoints()
        eventually(lambda: len(asked) == 2, 'both are asked to end')
        assert kept[0] not in [endpoint for _, endpoint in asked]
        eventually(ready(holder, 1), 'they are gone')
        assert off_s < 1.0


def test_a_change_by_hand_is_undone(plane: ControlPlane) -> None:
    """The dispatcher's number holds, whoever writes another."""
    with cell(plane) as home, home.holder() as holder:
        holder.set_replicas('edge', 2)
        eventually(ready(holder, 2), 'two', explain=say(holder))
        home.set_replicas(6)
        eventually(lambda: home.replicas == 2, 'two again', explain=say(holder))
        eventually(ready(holder, 2), 'two pods again', explain=say(holder))


def test_nothing_changes_before_somebody_asks(plane: ControlPlane) -> None:
    """What is observed stays, whatever the limits say."""
    with cell(plane) as home:
        home.set_replicas(3)
        with home.holder(KubernetesPool(f'deployment/{WORKLOAD}', 5, 9)) as holder:
            eventually(lambda: holder.observe('edge').count(READY) == 3, 'three')
            assert holder.desired('edge') == 3
            assert home.replicas == 3 and holder.writes('edge') == 0


def test_refuses_beside_an_autoscaler(plane: ControlPlane) -> None:
    """An HPA of the same workload stops it, with the reason; its end lets it go on."""
    with cell(plane) as home, home.holder() as holder:
        eventually(ready(holder, 1), 'one', explain=say(holder))
        path = f'/apis/autoscaling/v2/namespaces/{home.namespace}/horizontalpodautoscalers'
        plane.admin('POST', path, {'metadata': {'name': 'other'}, 'spec': {
            'minReplicas': 1, 'maxReplicas': 3,
            'scaleTargetRef': {'apiVersion': 'apps/v1', 'kind': 'Deployment', 'name': WORKLOAD},
            'metrics': [{'type': 'Resource', 'resource': {
                'name': 'cpu', 'target': {'type': 'Utilization', 'averageUtilization': 50}}}]}})
        holder.set_replicas('edge', 5)
        text = eventually(complaint(holder, 'HorizontalPodAutoscaler other'), 'it refuses')
        assert 'remove it, or set drive' in text and '\n' not in text
        assert home.replicas == 1 and holder.writes('edge') == 0
        plane.admin('DELETE', f'{path}/other')
        eventually(lambda: home.replicas == 5, 'five, after the autoscaler is gone',
                   explain=say(holder))


def test_a_pool_that_does_not_exist_yet(plane: ControlPlane) -> None:
    """It is said; when it comes, it gets the number that is wanted."""
    with cell(plane) as home:
        made = plane.admin('GET', home.workload)
        plane.admin('DELETE', home.workload)
        with home.holder() as holder:
            holder.set_replicas('edge', 3)
            text = eventually(complaint(holder, 'does not exist'), 'it is said')
            assert text == (
                f'deployment/{WORKLOAD} does not exist in namespace {home.namespace} yet')
            assert holder.known('edge') and not holder.observe('edge').replicas
            eventually(lambda: not home.kubelet.containers, 'the old pods are gone')
            plane.admin('POST', home.workload.rpartition('/')[0], {
                'metadata': {'name': WORKLOAD}, 'spec': made['spec']})
            eventually(ready(holder, 3), 'three', explain=say(holder))
            assert holder.complaints('edge') == ()


def test_quota_refuses(plane: ControlPlane) -> None:
    """The number is set, the cluster makes fewer pods, and says why."""
    with cell(plane) as home, home.holder() as holder:
        eventually(ready(holder, 1), 'one', explain=say(holder))
        plane.admin('POST', f'/api/v1/namespaces/{home.namespace}/resourcequotas', {
            'metadata': {'name': 'few'}, 'spec': {'hard': {'pods': '2'}}})
        eventually(
            lambda: plane.admin(
                'GET', f'/api/v1/namespaces/{home.namespace}/resourcequotas/few'
            ).get('status', {}).get('hard'), 'the quota is in force')
        holder.set_replicas('edge', 4)
        text = eventually(complaint(holder, 'refuses pods'), 'it is said', explain=say(holder))
        assert 'exceeded quota: few' in text and '\n' not in text
        eventually(lambda: holder.observe('edge').count(READY) == 2, 'two of them')


def test_of_two_bridges_one_acts(plane: ControlPlane) -> None:
    """The other takes over when the first is gone, and both know all replicas."""
    with cell(plane) as home:
        lease = {'lease_name': 'laimr-kubernetes-bridge', 'lease_duration_s': 3}
        first = home.holder(identity='first', **lease)
        eventually(lambda: first.acting, 'the first acts')
        with home.holder(identity='second', **lease) as second:
            for holder in (first, second):
                holder.set_replicas('edge', 3)
            eventually(ready(first, 3), 'three', explain=say(first))
            eventually(ready(second, 3), 'three, seen by both', explain=say(second))
            eventually(lambda: second.leader == 'first', 'the second knows')
            assert first.writes('edge') == 1 and second.writes('edge') == 0
            assert not second.acting
            first.close()
            began = time.monotonic()
            eventually(lambda: second.acting, 'the second acts')
            # It was released, so there is no waiting for its end.
            assert time.monotonic() - began < 3.0
            second.set_replicas('edge', 2)
            eventually(ready(second, 2), 'two', explain=say(second))


def test_the_api_server_goes_and_comes(own_plane: ControlPlane) -> None:
    """Everything known is kept; the last number is applied within 5 s."""
    with cell(own_plane) as home, home.holder(lease_name='laimr-kubernetes-bridge') as holder:
        holder.set_replicas('edge', 3)
        eventually(ready(holder, 3), 'three', explain=say(holder))
        endpoints = holder.observe('edge').endpoints()
        own_plane.kill_api_server()
        try:
            eventually(holder.away, 'it is noticed')
            holder.set_replicas('edge', 5)
            holder.set_replicas('edge', 4)
            end = time.monotonic() + 8.0
            while time.monotonic() < end:
                assert holder.observe('edge').endpoints() == endpoints
                time.sleep(0.1)
            away_s, why = holder.away()
            assert away_s > 7.0
            assert why == f'{own_plane.server}: Connection refused'
        finally:
            own_plane.start_api_server()
        back = time.monotonic()
        eventually(lambda: home.replicas == 4, 'four', explain=say(holder))
        print(f'applied {time.monotonic() - back:.2f} s after it was ready')
        assert time.monotonic() - back < 5.0
        eventually(lambda: holder.away() is None, 'it is noticed')
        # The cluster's own controllers may take half a minute to notice; our watch does not.
        name = next(iter(home.kubelet.containers))
        own_plane.admin.patch(f'/api/v1/namespaces/{home.namespace}/pods/{name}/status', {
            'status': {'conditions': [{'type': 'Ready', 'status': 'False'}]}})
        eventually(
            lambda: holder.observe('edge').count(ReplicaState.FAILED) == 1,
            'a replica that is not ready any more is known', 5.0, explain=say(holder))


def test_the_account_may_do_what_the_readme_lists_and_nothing_more(plane: ControlPlane) -> None:
    """What kubectl says the bridge may do, beside what everybody may."""
    with cell(plane) as home:
        plane.admin('POST', f'/api/v1/namespaces/{home.namespace}/serviceaccounts', {
            'metadata': {'name': 'nobody'}})
        nobody = plane.write_kubeconfig(
            f'{home.namespace}-nobody', plane.token(home.namespace, 'nobody'), home.namespace)

        def rights(kubeconfig: Any) -> set[str]:
            lines = plane.kubectl(
                'auth', 'can-i', '--list', '-n', home.namespace, kubeconfig=kubeconfig
            ).splitlines()[1:]
            return {' '.join(line.split()) for line in lines}

        assert rights(home.kubeconfig) - rights(nobody) == {
            f'deployments.apps [] [{WORKLOAD}] [get list watch]',
            f'deployments.apps/scale [] [{WORKLOAD}] [get patch]',
            'pods [] [] [list watch]',
            'horizontalpodautoscalers.autoscaling [] [] [list]',
            'scaledobjects.keda.sh [] [] [list]',
            'leases.coordination.k8s.io [] [] [create]',
            'leases.coordination.k8s.io [] [laimr-kubernetes-bridge] [get update]',
        }


def test_no_permission_is_one_clear_line(plane: ControlPlane) -> None:
    """An account that may do nothing: said which right lacks, and where to get it."""
    with cell(plane) as home:
        plane.admin(
            'DELETE', '/apis/rbac.authorization.k8s.io/v1/namespaces/'
            f'{home.namespace}/rolebindings/laimr-bridge')
        with home.holder() as holder:
            text = eventually(complaint(holder, 'no permission'), 'it is said')
            assert 'deployments.apps' in text and 'forbidden' in text and '\n' not in text
            assert 'RBAC of deploy/' in text
            assert not holder.known('edge')


def test_a_wrong_selector_is_one_clear_line(plane: ControlPlane) -> None:
    """It names the selector, the workload and the labels its pods have."""
    with cell(plane) as home, home.holder(KubernetesPool(
            f'deployment/{WORKLOAD}', 0, 9, selector='app=other')) as holder:
        text = eventually(complaint(holder, 'selector'), 'it is said')
        assert "selector 'app=other' does not select the pods of" in text
        assert 'laimr/pool=edge' in text and '\n' not in text


def test_a_selector_of_two_workloads_is_one_clear_line(plane: ControlPlane) -> None:
    """The strangers are named, and not used."""
    with cell(plane) as home:
        other = plane.admin('GET', home.workload)
        labels = {'app.kubernetes.io/part-of': 'laimr', 'other': 'yes'}
        other['spec']['selector'] = {'matchLabels': labels}
        other['spec']['template']['metadata']['labels'] = labels
        plane.admin('POST', home.workload.rpartition('/')[0], {
            'metadata': {'name': 'stranger'}, 'spec': {**other['spec'], 'replicas': 2}})
        with home.holder(KubernetesPool(
                f'deployment/{WORKLOAD}', 0, 9,
                selector='app.kubernetes.io/part-of=laimr')) as holder:
            text = eventually(complaint(holder, 'deployment/stranger'), 'it is said')
            assert 'make the selector narrower' in text and '\n' not in text
            eventually(ready(holder, 1), 'its own only', explain=say(holder))


def test_unknown_context_and_two_pools_of_one_workload(plane: ControlPlane) -> None:
    """Each is refused at once."""
    with pytest.raises(CredentialsError, match="context 'prod' is not in kubeconfig .* test"):
        KubernetesReplicas({}, ClusterConfig(source=Source(str(plane.kubeconfig), 'prod')))
    pool = KubernetesPool('deployment/a', 0, 1)
    with pytest.raises(ValueError, match='pools x and y name the same workload, deployment/a'):
        KubernetesReplicas(
            {'x': pool, 'y': pool}, ClusterConfig(source=Source(str(plane.kubeconfig))))


def test_restart_from_what_is_observed(plane: ControlPlane) -> None:
    """A bridge that ends without a word and its successor change nothing between them."""
    with cell(plane) as home:
        with home.holder() as holder:
            holder.set_replicas('edge', 3)
            eventually(ready(holder, 3), 'three', explain=say(holder))
        recorder = ReplicaRecorder(home)
        for _ in range(3):
            with home.holder() as holder:
                eventually(ready(holder, 3), 'three', explain=say(holder))
                holder.set_replicas('edge', 3)
        assert recorder.close() == [3]
