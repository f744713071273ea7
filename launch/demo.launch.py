"""
Start robots, dispatcher and workers on this machine.

`laimr demo` does the same without launch, with a live table, a burst and a summary.
"""

from __future__ import annotations

from collections.abc import Mapping

from launch import (
    LaunchContext,
    LaunchDescription,
    LaunchDescriptionEntity,
    SomeSubstitutionsType,
)
from launch.actions import (
    DeclareLaunchArgument,
    GroupAction,
    IncludeLaunchDescription,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
    Shutdown,
)
from launch.event_handlers import OnProcessExit
from launch.events.process import ProcessExited
from launch.substitutions import (
    EnvironmentVariable,
    LaunchConfiguration,
    PathJoinSubstitution,
    ThisLaunchFileDir,
)
from launch_ros.substitutions import FindPackageShare

MAX_ROBOTS = 100
# Arguments that the included launch files have too.
COMMON = ('use_sim_time', 'params_file', 'log_level')
CAMERA = ('source', 'path', 'rate')


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, and all that is started from them."""
    return LaunchDescription([
        DeclareLaunchArgument(
            'namespace', default_value='',
            description='Namespace of all nodes; those of the robots are below it.'),
        DeclareLaunchArgument(
            'use_sim_time', default_value='false',
            choices=['false', 'true', 'False', 'True'],
            description='Whether the nodes take their time from the topic /clock.'),
        DeclareLaunchArgument(
            'params_file',
            default_value=[FindPackageShare('laimr_ros'), '/config/demo.yaml'],
            description='YAML file with the parameters of all nodes and of the workers.'),
        DeclareLaunchArgument(
            'log_level', default_value='info',
            choices=['debug', 'info', 'warn', 'error', 'fatal'],
            description='Least severity of the messages that are logged.'),
        DeclareLaunchArgument(
            'robots', default_value='6',
            description=f'Number of robots, 1 to {MAX_ROBOTS}; they are called robot1, robot2, '
                        'and so on.'),
        DeclareLaunchArgument(
            'source', default_value='', choices=['', 'scene', 'directory', 'video'],
            description='Where the frames of all robots come from; empty, here and below, for '
                        'what params_file says.'),
        DeclareLaunchArgument(
            'path', default_value='',
            description='Directory of images or video file, for the sources of that name.'),
        DeclareLaunchArgument(
            'rate', default_value='',
            description='Frames per second of each robot; the mean where arrivals are random.'),
        # Robots elsewhere on the network shall not join by chance.
        SetEnvironmentVariable(
            'ROS_AUTOMATIC_DISCOVERY_RANGE',
            EnvironmentVariable('ROS_AUTOMATIC_DISCOVERY_RANGE', default_value='LOCALHOST')),
        RegisterEventHandler(OnProcessExit(on_exit=end_with)),
        # Robots first: what is wrong in the arguments must show before the first process runs,
        # since launch, if it stops on an error, may leave processes that it had just begun.
        OpaqueFunction(function=start_robots),
        include('edge.launch.py', {
            'namespace': LaunchConfiguration('namespace'),
            'bridge': 'local',
            'worker_params_file': '',
        }),
    ])


def include(
    file: str, arguments: Mapping[str, SomeSubstitutionsType]
) -> LaunchDescriptionEntity:
    """Return a launch file of this directory, in a scope so that its arguments stay its own."""
    common = {name: LaunchConfiguration(name) for name in COMMON}
    return GroupAction([IncludeLaunchDescription(
        PathJoinSubstitution([ThisLaunchFileDir(), file]),
        launch_arguments={**common, 'respawn': 'false', **arguments}.items(),
    )])


def start_robots(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """
    Return the robots.

    :raises RuntimeError: if their number cannot be used.
    """
    text = context.launch_configurations['robots']
    if not text.isdecimal() or not 1 <= int(text) <= MAX_ROBOTS:
        raise RuntimeError(
            f"robots: '{text}' is not a number of robots; give a whole number from 1 to "
            f'{MAX_ROBOTS}')
    namespace = context.launch_configurations['namespace']
    camera = {name: LaunchConfiguration(name) for name in CAMERA}
    return [
        include('robot.launch.py', {
            'namespace': f'{namespace}/robot{number}' if namespace else f'robot{number}',
            # Robots that all saw the same at the same time would be no test.
            'seed': str(number),
            **camera,
        })
        for number in range(1, int(text) + 1)
    ]


def end_with(event: ProcessExited, context: LaunchContext) -> list[LaunchDescriptionEntity] | None:
    """End the demonstration with the first node that ends: without it, it would show nothing."""
    if context.is_shutdown:
        return None
    return [Shutdown(reason=f'{event.process_name} ended with status {event.returncode}')]
