"""Start the camera of one robot: `ros2 launch laimr_ros robot.launch.py namespace:=robot1`."""

from __future__ import annotations

from pathlib import Path

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import Parameter
from launch_ros.substitutions import FindPackageShare
import yaml

# Arguments that are parameters of the camera too; an empty one leaves params_file to decide.
CAMERA_ARGUMENTS: dict[str, type] = {
    'source': str, 'path': str, 'device': str, 'url': str, 'robot': str, 'rate': float,
    'seed': int,
}


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, and the camera node made from them."""
    return LaunchDescription([
        DeclareLaunchArgument(
            'namespace', default_value='',
            description='Name of the robot, for example robot1; its topics go below it.'),
        DeclareLaunchArgument(
            'use_sim_time', default_value='false',
            choices=['false', 'true', 'False', 'True'],
            description='Whether the node takes its time from the topic /clock.'),
        DeclareLaunchArgument(
            'params_file',
            default_value=[FindPackageShare('laimr_ros'), '/config/robot.yaml'],
            description='YAML file with the parameters of the node.'),
        DeclareLaunchArgument(
            'log_level', default_value='info',
            choices=['debug', 'info', 'warn', 'error', 'fatal'],
            description='Least severity of the messages that are logged.'),
        DeclareLaunchArgument(
            'respawn', default_value='false', choices=['false', 'true', 'False', 'True'],
            description='Whether the node is started again 2 s after it ended.'),
        DeclareLaunchArgument(
            'source', default_value='',
            choices=['', 'scene', 'directory', 'video', 'v4l2', 'cloudgripper'],
            description='Where the frames come from; empty, here and below, for what params_file '
                        'says.'),
        DeclareLaunchArgument(
            'path', default_value='',
            description='Directory of images or video file, for the sources of that name.'),
        DeclareLaunchArgument(
            'device', default_value='',
            description='Device of the source v4l2, for example /dev/video0.'),
        DeclareLaunchArgument(
            'url', default_value='',
            description='Address of the API of the source cloudgripper.'),
        DeclareLaunchArgument(
            'robot', default_value='',
            description='Name of the robot at the API of the source cloudgripper.'),
        DeclareLaunchArgument(
            'rate', default_value='',
            description='Frames per second; the mean where arrivals are random.'),
        DeclareLaunchArgument(
            'seed', default_value='',
            description='Seed of the drawn scene and of random arrivals, a whole number.'),
        OpaqueFunction(function=start_camera),
    ])


def start_camera(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """
    Return the camera node.

    :raises RuntimeError: if an argument cannot be used.
    """
    arguments = context.launch_configurations
    params_file = yaml_file(arguments, 'params_file')
    entities: list[LaunchDescriptionEntity] = []
    if not (arguments['namespace'] or arguments.get('ros_namespace')):
        entities.append(LogInfo(msg=(
            'robot.launch.py: no namespace is given, so frames go to /image_raw/compressed, '
            'where the dispatcher finds no name of a robot; give namespace:=NAME, or set the '
            "dispatcher's topics to ['NAME=/image_raw/compressed']")))
    entities.append(Node(
        package='laimr_ros',
        executable='camera',
        namespace=LaunchConfiguration('namespace'),
        parameters=[
            params_file,
            Parameter('use_sim_time', LaunchConfiguration('use_sim_time'), value_type=bool),
            *camera_parameters(arguments),
        ],
        ros_arguments=['--log-level', LaunchConfiguration('log_level')],
        output='screen',
        respawn=LaunchConfiguration('respawn'),
        respawn_delay=2.0,
    ))
    return entities


def camera_parameters(arguments: dict[str, str]) -> list[Parameter]:
    """
    Return the parameters that arguments set.

    :raises RuntimeError: if one is not of its type.
    """
    parameters = []
    for name, kind in CAMERA_ARGUMENTS.items():
        text = arguments[name]
        if not text:
            continue
        try:
            value = str(Path(text).expanduser()) if name in ('path', 'device') else kind(text)
        except ValueError:
            what = 'a number, such as 2.5' if kind is float else 'a whole number, such as 3'
            raise RuntimeError(f"{name}: '{text}' cannot be used; give {what}") from None
        parameters.append(Parameter(name, value, value_type=kind))
    return parameters


def yaml_file(arguments: dict[str, str], name: str) -> Path:
    """
    Return the absolute path of the YAML file that an argument names.

    :raises RuntimeError: if there is none; launch_ros would only warn, and start the node without.
    """
    path = Path(arguments[name]).expanduser().absolute()
    try:
        yaml.safe_load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise RuntimeError(
            f"{name}: '{path}' cannot be read: {error.strerror}; name an existing YAML file"
        ) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise RuntimeError(
            f"{name}: '{path}' is not YAML: {' '.join(str(error).split())}") from None
    return path
