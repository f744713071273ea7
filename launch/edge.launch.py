"""Start the dispatcher of an edge host, and the bridge that holds its workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import Parameter
from launch_ros.substitutions import FindPackageShare
import yaml


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, and the nodes made from them."""
    return LaunchDescription([
        DeclareLaunchArgument(
            'namespace', default_value='',
            description='Namespace of the nodes.'),
        DeclareLaunchArgument(
            'use_sim_time', default_value='false',
            choices=['false', 'true', 'False', 'True'],
            description='Whether the nodes take their time from the topic /clock.'),
        DeclareLaunchArgument(
            'params_file',
            default_value=[FindPackageShare('laimr_ros'), '/config/edge.yaml'],
            description='YAML file with the parameters of the nodes.'),
        DeclareLaunchArgument(
            'log_level', default_value='info',
            choices=['debug', 'info', 'warn', 'error', 'fatal'],
            description='Least severity of the messages that are logged.'),
        DeclareLaunchArgument(
            'respawn', default_value='false', choices=['false', 'true', 'False', 'True'],
            description='Whether a node is started again 2 s after it ended.'),
        DeclareLaunchArgument(
            'bridge', default_value='local', choices=['local', 'kubernetes', 'none'],
            description='What holds the replicas: local for worker processes on this host, '
                        'kubernetes for pods of a cluster, none where the dispatcher is told '
                        'their endpoints otherwise.'),
        DeclareLaunchArgument(
            'worker_params_file', default_value='',
            description='YAML file with the parameters of the workers of every pool for which '
                        'params_file names none; empty for params_file itself.'),
        OpaqueFunction(function=start_nodes),
    ])


def start_nodes(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """
    Return the dispatcher and, unless there is to be none, the bridge.

    :raises RuntimeError: if a parameter file cannot be used.
    """
    arguments = context.launch_configurations
    params_file, content = yaml_file(arguments, 'params_file')
    worker_params_file = params_file
    if arguments['worker_params_file']:
        worker_params_file, _ = yaml_file(arguments, 'worker_params_file')
    nodes: list[LaunchDescriptionEntity] = [make_node('dispatcher', params_file)]
    if arguments['bridge'] == 'local':
        nodes.append(make_node('local_bridge', params_file, *(
            Parameter(
                f'pools.{pool}.worker_params_file', str(worker_params_file), value_type=str)
            for pool in pools_without_worker_file(content)
        )))
    elif arguments['bridge'] == 'kubernetes':
        nodes.append(make_node('kubernetes_bridge', params_file))
    return nodes


def make_node(executable: str, params_file: Path, *parameters: Parameter) -> Node:
    """Return a node with what all nodes here have in common, and further parameters."""
    return Node(
        package='laimr_ros',
        executable=executable,
        namespace=LaunchConfiguration('namespace'),
        parameters=[
            params_file,
            Parameter('use_sim_time', LaunchConfiguration('use_sim_time'), value_type=bool),
            *parameters,
        ],
        ros_arguments=['--log-level', LaunchConfiguration('log_level')],
        output='screen',
        respawn=LaunchConfiguration('respawn'),
        respawn_delay=2.0,
    )


def yaml_file(arguments: dict[str, str], name: str) -> tuple[Path, Any]:
    """
    Return the absolute path and the content of the YAML file that an argument names.

    :raises RuntimeError: if there is none; launch_ros would only warn, and start the node without.
    """
    path = Path(arguments[name]).expanduser().absolute()
    try:
        return path, yaml.safe_load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise RuntimeError(
            f"{name}: '{path}' cannot be read: {error.strerror}; name an existing YAML file"
        ) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise RuntimeError(
            f"{name}: '{path}' is not YAML: {' '.join(str(error).split())}") from None


def pools_without_worker_file(content: Any) -> list[str]:
    """
    Return the local bridge's pools for which nobody names a worker_params_file.

    :param content: of the parameter file.
    """
    found: dict[str, Any] = {}
    for parameters in parameters_of('local_bridge', content):
        found.update(flatten(parameters))
    pools = found.get('pool_names')
    if not isinstance(pools, list):
        # The bridge itself says what is wrong.
        return []
    return [pool for pool in pools if not found.get(f'pools.{pool}.worker_params_file')]


def parameters_of(node: str, content: Any) -> Iterator[dict[str, Any]]:
    """Yield what a parameter file holds for a node, whatever its namespace."""
    for key, value in content.items() if isinstance(content, dict) else ():
        if not isinstance(value, dict):
            continue
        if key.rpartition('/')[2] in (node, '*', '**') and 'ros__parameters' in value:
            yield value['ros__parameters'] or {}
        elif 'ros__parameters' not in value:
            yield from parameters_of(node, value)


def flatten(parameters: dict[str, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
    """Yield dotted names with their values."""
    for key, value in parameters.items():
        if isinstance(value, dict):
            yield from flatten(value, f'{prefix}{key}.')
        else:
            yield f'{prefix}{key}', value
