"""The node that holds replicas as pods of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import sys
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from laimr_ros.cluster.base import PoolStatus, ReplicaState
from laimr_ros.cluster.kubernetes.credentials import Source
from laimr_ros.cluster.kubernetes.errors import CredentialsError
from laimr_ros.cluster.kubernetes.pool import Drive, KubernetesPool
from laimr_ros.cluster.kubernetes.replicas import ClusterConfig, KubernetesReplicas
from laimr_ros.nodes.bridge import (
    Bridge,
    DISPATCHER,
    LATCHED,
    limit_parameters,
    quantile,
    run_bridge,
)
from laimr_ros.nodes.kubernetes_metrics import BridgePages
from laimr_ros.nodes.parameters import ParameterError, ParameterSpec, Values
from std_msgs.msg import String

# An executor that has not run a timer of one second for so long hangs.
_HANGS_S = 15.0

PARAMETERS = (
    DISPATCHER,
    ParameterSpec('pool_names', [], 'pools whose workers are pods'),
    ParameterSpec(
        'kubeconfig', '',
        'file with the credentials; empty for $KUBECONFIG or ~/.kube/config, or, in a pod '
        'without them, for its service account'),
    ParameterSpec('context', '', 'context of the kubeconfig; empty for its current one'),
    ParameterSpec(
        'namespace', '', 'namespace of the workloads; empty for the one of the credentials'),
    ParameterSpec(
        'lease_name', 'laimr-kubernetes-bridge',
        'Lease that elects the bridge that acts, where several run for one dispatcher; empty to '
        'act always'),
    ParameterSpec(
        'lease_duration', 10, 'without renewal for so long, another bridge takes over', unit='s',
        minimum=2, maximum=600),
    ParameterSpec(
        'max_age', 30.0,
        'numbers of replicas that no dispatcher has stood by for so long are withheld from '
        'autoscalers, which then hold', unit='s', minimum=1.0, maximum=3600.0),
    ParameterSpec(
        'metrics_listen', '0.0.0.0:6443',
        'where external metrics are served, if a pool has drive external_metric'),
    ParameterSpec(
        'keda_listen', '0.0.0.0:9090', 'where KEDA is served, if a pool has drive keda'),
    ParameterSpec(
        'tls_cert_file', '',
        'certificate of what is served, PEM, read again when it changes; empty for one made at '
        'the start (KEDA: for no TLS)'),
    ParameterSpec('tls_key_file', '', 'key of that certificate, PEM'),
    ParameterSpec(
        'prometheus_port', 0, 'TCP port for Prometheus metrics and /healthz; 0 for none',
        minimum=0, maximum=65535),
)


def pool_parameters(pool: str) -> tuple[ParameterSpec, ...]:
    """Return the parameters of one pool."""
    prefix = f'pools.{pool}.'
    return (
        ParameterSpec(
            prefix + 'workload', '',
            'deployment/NAME or statefulset/NAME; empty for deployment/laimr-worker-POOL'),
        ParameterSpec(
            prefix + 'selector', '',
            "labels of the pods, as in kubectl; empty for the workload's own selector"),
        ParameterSpec(
            prefix + 'port', 0, 'port of the workers; 0 for the first that the pods declare',
            minimum=0, maximum=65535),
        ParameterSpec(
            prefix + 'drive', Drive.SCALE.value,
            'how the number gets into the cluster: written to the scale subresource, or offered '
            'to a HorizontalPodAutoscaler or to KEDA',
            choices=tuple(drive.value for drive in Drive)),
        ParameterSpec(
            prefix + 'scale_interval', 0.5, 'shortest time between two changes of the number',
            unit='s', minimum=0.0, maximum=3600.0),
        *limit_parameters(prefix),
    )


class KubernetesBridge(Bridge):
    """
    Have a cluster hold as many pods as the dispatcher asks for, and tell it where they serve.

    Without a dispatcher, without the API server, or while another bridge acts, the replicas stay
    as they are.

    :param node_options: as for ``rclpy.node.Node``.
    :raises ParameterError: if the parameters cannot be used.
    """

    general_parameters = PARAMETERS

    def __init__(self, **node_options: Any) -> None:
        self._acting = ''
        self._pages: BridgePages | None = None
        self._lived_at = time.monotonic()
        super().__init__('kubernetes_bridge', **node_options)

    def parameters_of_pool(self, pool: str) -> Sequence[ParameterSpec]:
        """Return the parameters of one pool."""
        return pool_parameters(pool)

    def make_holder(self, values: Values, pools: Mapping[str, Values]) -> KubernetesReplicas:
        """Return the holder of pods. :raises ValueError: if the values cannot be used."""
        configurations = {}
        for pool, settings in pools.items():
            prefix = f'pools.{pool}.'
            try:
                configurations[pool] = KubernetesPool(
                    workload=settings[prefix + 'workload'] or default_workload(pool),
                    min_replicas=settings[prefix + 'min_replicas'],
                    max_replicas=settings[prefix + 'max_replicas'],
                    drive=Drive(settings[prefix + 'drive']),
                    selector=settings[prefix + 'selector'],
                    port=settings[prefix + 'port'],
                    min_interval_s=settings[prefix + 'scale_interval'],
                )
            except ValueError as error:
                raise ParameterError(f'parameter {prefix}workload: {error}') from None
        try:
            holder = KubernetesReplicas(
                configurations,
                ClusterConfig(
                    source=Source(values['kubeconfig'], values['context']),
                    namespace=values['namespace'],
                    lease_name=values['lease_name'],
                    lease_duration_s=values['lease_duration'],
                    max_age_s=values['max_age'],
                    metrics_listen=values['metrics_listen'],
                    keda_listen=values['keda_listen'],
                    tls_cert_file=values['tls_cert_file'],
                    tls_key_file=values['tls_key_file'],
                ),
                on_change=self.replicas_changed,
            )
        except CredentialsError as error:
            raise ParameterError(f'parameter kubeconfig: {error}') from None
        if values['prometheus_port']:
            try:
                self._pages = BridgePages(
                    values['prometheus_port'], self.numbers,
                    lambda: time.monotonic() - self._lived_at < _HANGS_S)
            except OSError as error:
                holder.close()
                raise ParameterError(
                    f'parameter prometheus_port: {values["prometheus_port"]} cannot be used: '
                    f'{error.strerror}; choose another port, or 0 for none') from None
        # Bridges hear of each other without the API server, too: one that has lost it must not go
        # on setting endpoints that another sets.
        self._announce = self.create_publisher(String, '~/acting', LATCHED)
        self.create_subscription(String, '~/acting', self._on_announced, LATCHED)
        return holder

    def knows(self, pool: str) -> bool:
        """Return whether the pool was looked at once."""
        known: bool = self.holder.known(pool)
        return known

    def tells_endpoints(self) -> bool:
        """Return whether this bridge is the one that acts; if so, say so to the others."""
        acting: bool = self.holder.acting
        if acting and self._acting != self.holder.identity:
            self._acting = self.holder.identity
            self._announce.publish(String(data=self._acting))
        elif not acting and self.holder.leader not in ('', self.holder.identity):
            self._step_back(self.holder.leader)
        return acting

    def each_second(self) -> None:
        """Stand by the dispatcher's numbers while it is there."""
        self._lived_at = time.monotonic()
        if self.remote.present:
            for pool in self.heard:
                self.ask_again(pool)

    def judge(self, pool: str, status: PoolStatus) -> tuple[bytes, str]:
        """Return level and text of a pool's diagnostics."""
        if not self.knows(pool):
            away = self.holder.away()
            why = (
                'the API server is away' if away is not None
                else '; '.join(self.holder.complaints(pool)) or 'not looked at yet')
            return DiagnosticStatus.ERROR, f'its replicas are not known: {why}'
        ready = status.count(ReplicaState.READY)
        text = f'{ready} of {self.holder.desired(pool)} ready'
        complaints = list(self.holder.complaints(pool))
        # What the scheduler says is told once for all replicas, with their number.
        complaints += sorted({
            r.reason for r in status.replicas
            if r.state is ReplicaState.FAILED and not r.reason.startswith('cannot be scheduled')})
        if complaints:
            level = DiagnosticStatus.WARN if ready else DiagnosticStatus.ERROR
            return level, f'{text}: {"; ".join(complaints)}'
        if not self.remote.present:
            name = self.get_parameter('dispatcher').value
            return (
                DiagnosticStatus.WARN,
                f'{text}; no dispatcher named {name}: the replicas stay as they are')
        return DiagnosticStatus.OK, text

    def further_facts(self, pool: str) -> dict[str, object]:
        """Return more key-value pairs for a pool's diagnostics."""
        return {
            'drive': self.get_parameter(f'pools.{pool}.drive').value,
            'workload': self.holder.workload(pool),
            'changes_written': self.holder.writes(pool),
        }

    def further_diagnostics(self) -> list[DiagnosticStatus]:
        """Return how it stands with the cluster as a whole."""
        holder = self.holder
        away = holder.away()
        level, text = DiagnosticStatus.OK, f'connected to {holder.server}'
        if away is not None:
            level = DiagnosticStatus.ERROR
            text = (
                f'the API server has been away for {away[0]:.0f} s: {away[1]}; '
                'the replicas stay as they are')
        elif holder.lease_trouble():
            level, text = DiagnosticStatus.ERROR, f'cannot act: {holder.lease_trouble()}'
        elif not holder.acting:
            text += f'; only watching: {holder.leader or "nobody yet"} acts'
        return [self.status_message(level, 'cluster', text, {
            'server': holder.server,
            'namespace': holder.namespace,
            'identity': holder.identity,
            'acting': holder.acting,
            'leader': holder.leader,
            'away_s': f'{away[0]:.1f}' if away is not None else '0.0',
        })]

    def numbers(self) -> dict[str, Any]:
        """Return what Prometheus is told; from any thread."""
        holder = self.holder
        pools = {}
        for pool in self.pools:
            status = holder.observe(pool)
            pools[pool] = {
                **{state.value: status.count(state) for state in ReplicaState},
                'desired': holder.desired(pool), 'start_up_s': quantile(status, 0.9)}
        away = holder.away()
        return {
            'acting': holder.acting, 'away_s': 0.0 if away is None else away[0], 'pools': pools}

    def close(self, timeout_s: float = 3.0) -> None:
        """Let go of the Lease and stop; the pods stay. Safe to call twice."""
        pages, self._pages = self._pages, None
        if pages is not None:
            pages.close()
        super().close(timeout_s)

    def _on_announced(self, message: String) -> None:
        if message.data != self.holder.identity and not self.holder.acting:
            self._step_back(message.data)

    def _step_back(self, other: str) -> None:
        if self._acting != other:
            self._acting = other
            self.remote.forget()


def default_workload(pool: str) -> str:
    """Return the workload of a pool that names none."""
    return f'deployment/laimr-worker-{pool.replace("_", "-").lower()}'


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM; return the process exit status."""
    return run_bridge('kubernetes_bridge', KubernetesBridge, args)


if __name__ == '__main__':
    sys.exit(main())
