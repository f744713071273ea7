"""The node that holds replicas as worker processes on this host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
import sys
from typing import Any

from laimr_ros.cluster.local import LocalPool, LocalReplicas
from laimr_ros.nodes.bridge import Bridge, DISPATCHER, LATCHED, limit_parameters, run_bridge
from laimr_ros.nodes.parameters import ParameterError, ParameterSpec, Values
import rclpy.logging

__all__ = ['LATCHED', 'PARAMETERS', 'LocalBridge', 'main', 'pool_parameters']

PARAMETERS = (
    DISPATCHER,
    ParameterSpec('pool_names', [], 'pools whose workers run on this host'),
    ParameterSpec(
        'max_starting', 2, 'workers that may start at once, over all pools', minimum=1),
    ParameterSpec(
        'start_nice', 0,
        'nice level of a worker until it is ready; needs the right to set it back',
        minimum=0, maximum=19),
    ParameterSpec(
        'socket_directory', '',
        'where the private directory of Unix sockets is made, a short path; empty for the '
        'runtime directory of the user or /tmp'),
    ParameterSpec(
        'log_directory', '',
        'where the output of the workers is kept, at most 2 MB a replica; empty for a directory '
        'named like this node under the log directory of ROS'),
)


def pool_parameters(pool: str) -> tuple[ParameterSpec, ...]:
    """Return the parameters of one pool."""
    prefix = f'pools.{pool}.'
    return (
        ParameterSpec(
            prefix + 'worker_params_file', '', 'YAML file with the parameters of the workers'),
        ParameterSpec(
            prefix + 'worker_args', [], 'further arguments of the command "laimr worker"'),
        *limit_parameters(prefix),
        ParameterSpec(
            prefix + 'initial_replicas', -1,
            'replicas until the dispatcher asks for a number; -1 for min_replicas',
            minimum=-1, maximum=1000),
        ParameterSpec(
            prefix + 'start_timeout', 120.0,
            'a worker not ready by then is killed and counts as failed', unit='s',
            minimum=0.1, maximum=3600.0),
        ParameterSpec(
            prefix + 'drain_grace', 10.0, 'time to drain before a worker is killed', unit='s',
            minimum=0.0, maximum=3600.0),
        ParameterSpec(
            prefix + 'deregister_delay', 0.3,
            'from telling the dispatcher that a replica goes to asking it to drain', unit='s',
            minimum=0.0, maximum=60.0),
    )


class LocalBridge(Bridge):
    """
    Hold as many workers of each pool as the dispatcher asks for, and tell it where they serve.

    Without a dispatcher the replicas stay as they are: no news means no change.

    :param node_options: as for ``rclpy.node.Node``.
    :raises ParameterError: if the parameters cannot be used.
    """

    general_parameters = PARAMETERS
    takes_replicas_along = True

    def __init__(self, **node_options: Any) -> None:
        super().__init__('local_bridge', **node_options)

    def parameters_of_pool(self, pool: str) -> Sequence[ParameterSpec]:
        """Return the parameters of one pool."""
        return pool_parameters(pool)

    def make_holder(self, values: Values, pools: Mapping[str, Values]) -> LocalReplicas:
        """Return the holder of processes. :raises ValueError: if the values cannot be used."""
        log_directory = Path(
            values['log_directory']
            or rclpy.logging.get_logging_directory() / _file_name(self.get_fully_qualified_name())
        ).expanduser()
        configurations = {
            pool: _local_pool(pools[pool], pool, log_directory) for pool in pools
        }
        directory = values['socket_directory']
        try:
            return LocalReplicas(
                configurations,
                directory=Path(directory).expanduser() if directory else None,
                max_starting=values['max_starting'],
                start_nice=values['start_nice'],
                on_change=self.replicas_changed,
            )
        except OSError as error:
            raise ParameterError(
                f'parameter socket_directory: {directory!r} cannot be used: '
                f'{error}; name a short path where this user may write'
            ) from None

    def first_number(self, pool: str, values: Values) -> int | None:
        """Return how many workers to start before the dispatcher says so."""
        initial: int = values[f'pools.{pool}.initial_replicas']
        return values[f'pools.{pool}.min_replicas'] if initial < 0 else initial


def _local_pool(values: Values, pool: str, log_directory: Path) -> LocalPool:
    """Return the configuration of a pool for its holder."""
    prefix = f'pools.{pool}.'
    path = Path(values[prefix + 'worker_params_file']).expanduser()
    if not values[prefix + 'worker_params_file']:
        raise ParameterError(
            f'parameter {prefix}worker_params_file: is not set; name the YAML file with the '
            'parameters of the workers'
        )
    try:
        path.open('rb').close()
    except OSError as error:
        raise ParameterError(
            f'parameter {prefix}worker_params_file: {str(path)!r} cannot be read: '
            f'{error.strerror}; name the YAML file with the parameters of the workers'
        ) from None
    return LocalPool(
        command=(
            sys.executable, '-m', 'laimr_ros.cli.main', 'worker',
            '--params-file', str(path.absolute()), '--listen', '{listen}',
            *values[prefix + 'worker_args'],
        ),
        min_replicas=values[prefix + 'min_replicas'],
        max_replicas=values[prefix + 'max_replicas'],
        log_directory=log_directory,
        start_timeout_s=values[prefix + 'start_timeout'],
        deregister_s=values[prefix + 'deregister_delay'],
        drain_grace_s=values[prefix + 'drain_grace'],
    )


def _file_name(node_name: str) -> str:
    return node_name.strip('/').replace('/', '.')


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM; return the process exit status."""
    return run_bridge('local_bridge', LocalBridge, args)


if __name__ == '__main__':
    sys.exit(main())
