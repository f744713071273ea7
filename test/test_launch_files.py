"""What launch files declare, and what they make of it; the first without launch, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
import importlib.util
from itertools import pairwise
import os
from pathlib import Path
import re
import sys
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / 'launch').glob('*.launch.py'))
COMMON = {'namespace', 'use_sim_time', 'params_file', 'log_level'}
HAVE_LAUNCH = importlib.util.find_spec('launch_ros') is not None
needs_launch = pytest.mark.skipif(
    not HAVE_LAUNCH,
    reason='launch is not installed: source ROS 2 Jazzy; everything else is tested without it')
MODULES = (
    'launch', 'launch.actions', 'launch.event_handlers', 'launch.events', 'launch.events.process',
    'launch.substitutions', 'launch_ros', 'launch_ros.actions',
    'launch_ros.parameter_descriptions', 'launch_ros.substitutions',
)
PARAMETERS = """
/**/local_bridge:
  ros__parameters:
    pool_names: [edge, cloud, far]
    pools:
      edge: {max_replicas: 2}
      cloud: {worker_params_file: /opt/cloud.yaml}
      far.worker_params_file: ''
/**/dispatcher:
  ros__parameters:
    pool_names: [other]
"""


def declared(path: Path) -> dict[str, dict[str, ast.expr]]:
    """Return the keywords of every DeclareLaunchArgument of a file, by name of the argument."""
    arguments = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == 'DeclareLaunchArgument':
            name, = node.args
            assert isinstance(name, ast.Constant)
            assert name.value not in arguments, f'{name.value} is declared twice'
            arguments[name.value] = {k.arg: k.value for k in node.keywords if k.arg}
    return arguments


def text(expression: ast.expr) -> str:
    """Return the constant parts of a string, of an f-string and of a list of them."""
    return ''.join(
        str(node.value) for node in ast.walk(expression) if isinstance(node, ast.Constant))


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that imports a launch file; where launch is missing, over a stand-in."""
    if not HAVE_LAUNCH:
        for name in MODULES:
            monkeypatch.setitem(sys.modules, name, MagicMock())

    def load_file(name: str) -> ModuleType:
        path = ROOT / 'launch' / f'{name}.launch.py'
        spec = importlib.util.spec_from_file_location(f'{name}_launch', path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return load_file


def test_the_three_launch_files_are_there() -> None:
    assert [path.name for path in FILES] == [
        'demo.launch.py', 'edge.launch.py', 'robot.launch.py']


@pytest.mark.parametrize('path', FILES, ids=lambda path: path.name)
def test_every_argument_is_described(path: Path) -> None:
    arguments = declared(path)
    assert arguments.keys() >= COMMON
    for name, keywords in arguments.items():
        assert re.fullmatch(r'[A-Z].{10,}\.', text(keywords['description'])), name
        assert 'default_value' in keywords, f'{name} would have to be given'


@pytest.mark.parametrize('path', FILES, ids=lambda path: path.name)
def test_no_namespace_is_baked_in(path: Path) -> None:
    assert text(declared(path)['namespace']['default_value']) == ''


@pytest.mark.parametrize('path', FILES, ids=lambda path: path.name)
def test_the_parameter_file_is_that_of_the_package(path: Path) -> None:
    default = ast.unparse(declared(path)['params_file']['default_value'])
    match = re.fullmatch(r"\[FindPackageShare\('laimr_ros'\), '/(config/\w+\.yaml)'\]", default)
    assert match, default
    content = yaml.safe_load((ROOT / match[1]).read_text())
    # It must fit nodes in any namespace.
    assert all(key.startswith('/**/') for key in content)


@pytest.mark.parametrize('path', FILES, ids=lambda path: path.name)
def test_included_files_get_arguments_that_they_declare(path: Path) -> None:
    """Launch takes any argument without a word: a misspelt one would only do nothing."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == 'include':
            file, given = node.args
            assert isinstance(file, ast.Constant) and isinstance(given, ast.Dict)
            names = {key.value for key in given.keys if isinstance(key, ast.Constant)}
            assert names <= declared(ROOT / 'launch' / file.value).keys()


def test_the_camera_has_the_parameters_that_arguments_set(load: Any) -> None:
    pytest.importorskip('rclpy', reason='rclpy is not installed: run `make setup`')
    from laimr_ros.nodes.camera_parameters import SOURCES, SPECS

    specs = {spec.name: spec for spec in SPECS}
    robot = load('robot')
    for name, kind in robot.CAMERA_ARGUMENTS.items():
        assert type(specs[name].default) is kind, name
    choices = ast.literal_eval(declared(ROOT / 'launch' / 'robot.launch.py')['source']['choices'])
    assert choices == ['', *SOURCES]


def test_pools_without_a_worker_file_get_one(load: Any) -> None:
    edge = load('edge')
    assert edge.pools_without_worker_file(yaml.safe_load(PARAMETERS)) == ['edge', 'far']


@pytest.mark.parametrize('key', ['local_bridge', '/cell/local_bridge', '/**', '/*/local_bridge'])
def test_parameters_of_the_bridge_are_found_under_any_key(load: Any, key: str) -> None:
    content = {key: {'ros__parameters': {'pool_names': ['edge']}}}
    assert load('edge').pools_without_worker_file(content) == ['edge']


def test_parameters_of_the_bridge_are_found_in_nested_namespaces(load: Any) -> None:
    content = {'site': {'cell': {'local_bridge': {'ros__parameters': {'pool_names': ['edge']}}}}}
    assert load('edge').pools_without_worker_file(content) == ['edge']


@pytest.mark.parametrize('content', [
    None, [], 'text', {'local_bridge': None}, {'local_bridge': {'ros__parameters': None}},
    {'local_bridge': {'ros__parameters': {'pool_names': 'edge'}}},
    {'my_local_bridge': {'ros__parameters': {'pool_names': ['edge']}}},
])
def test_what_names_no_pools_is_left_to_the_bridge(load: Any, content: Any) -> None:
    assert load('edge').pools_without_worker_file(content) == []


@pytest.mark.parametrize('file', ['edge', 'robot'])
def test_a_parameter_file_that_cannot_be_used_is_one_clear_error(
    load: Any, tmp_path: Path, file: str
) -> None:
    module = load(file)
    missing = tmp_path / 'missing.yaml'
    with pytest.raises(RuntimeError, match=(
            f"params_file: '{missing}' cannot be read: No such file or directory; name an ")):
        module.yaml_file({'params_file': str(missing)}, 'params_file')
    with pytest.raises(RuntimeError, match='cannot be read: Is a directory'):
        module.yaml_file({'params_file': str(tmp_path)}, 'params_file')
    bad = tmp_path / 'bad.yaml'
    bad.write_text('a: [1\nb: 2\n')
    with pytest.raises(RuntimeError, match=f"params_file: '{bad}' is not YAML: .*line 2") as found:
        module.yaml_file({'params_file': str(bad)}, 'params_file')
    assert '\n' not in str(found.value)
    bad.write_bytes(b'\xff\xfe\x00')
    with pytest.raises(RuntimeError, match='is not YAML'):
        module.yaml_file({'params_file': str(bad)}, 'params_file')


def test_a_number_that_is_none_is_one_clear_error(load: Any) -> None:
    robot = load('robot')
    empty = dict.fromkeys(robot.CAMERA_ARGUMENTS, '')
    assert robot.camera_parameters(empty) == []
    with pytest.raises(RuntimeError, match="rate: 'fast' cannot be used; give a number"):
        robot.camera_parameters({**empty, 'rate': 'fast'})
    with pytest.raises(RuntimeError, match=r"seed: '1\.5' cannot be used; give a whole number"):
        robot.camera_parameters({**empty, 'seed': '1.5'})


@pytest.mark.parametrize('robots', ['0', '-1', '101', 'six', '', '2.0'])
def test_a_number_of_robots_that_is_none_is_one_clear_error(load: Any, robots: str) -> None:
    context = MagicMock(launch_configurations={'robots': robots})
    with pytest.raises(RuntimeError, match=(
            f"robots: '{robots}' is not a number of robots; give a whole number from 1 to 100")):
        load('demo').start_robots(context)


class Started:
    """One node that a launch file would have started."""

    def __init__(self, executable: str, command: list[str]) -> None:
        """Take its executable and its command line without the executable."""
        self.executable = executable
        self.command = command
        self.parameters = {}
        for option, value in pairwise(command):
            if option == '-p':
                name, _, raw = value.partition(':=')
                self.parameters[name] = yaml.safe_load(raw)
        self.files = [v for o, v in pairwise(command) if o == '--params-file']
        self.namespace, = (
            value.removeprefix('__ns:=') for value in command if value.startswith('__ns:='))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that runs a launch file, but of each node only notes it."""
    from launch import LaunchDescription, LaunchService
    from launch.actions import IncludeLaunchDescription
    from launch.launch_description_sources import PythonLaunchDescriptionSource
    from launch.utilities import perform_substitutions
    from launch_ros.actions import Node

    share = tmp_path / 'prefix' / 'share'
    (share / 'ament_index' / 'resource_index' / 'packages').mkdir(parents=True)
    (share / 'ament_index' / 'resource_index' / 'packages' / 'laimr_ros').touch()
    (share / 'laimr_ros').mkdir()
    (share / 'laimr_ros' / 'config').symlink_to(ROOT / 'config')
    monkeypatch.setenv('AMENT_PREFIX_PATH', os.pathsep.join(
        [str(tmp_path / 'prefix'), os.environ.get('AMENT_PREFIX_PATH', '')]))
    monkeypatch.setenv('ROS_LOG_DIR', str(tmp_path / 'log'))
    started: list[Started] = []

    def note(node: Any, context: Any) -> None:
        node._perform_substitutions(context)
        context.extend_locals({'ros_specific_arguments': {
            'ns': f'__ns:={node.node_name.rpartition("/")[0] or "/"}'}})
        started.append(Started(node.node_executable, [
            perform_substitutions(context, part) for part in node.cmd[1:]]))

    monkeypatch.setattr(Node, 'execute', note)

    def start_file(name: str, **arguments: str) -> list[Started]:
        started.clear()
        service = LaunchService(noninteractive=True)
        service.include_launch_description(LaunchDescription([IncludeLaunchDescription(
            PythonLaunchDescriptionSource(str(ROOT / 'launch' / f'{name}.launch.py')),
            launch_arguments=arguments.items())]))
        status = service.run()
        assert status == 0, f'launch ended with status {status}'
        return list(started)

    yield start_file


@needs_launch
def test_robot_starts_a_camera_in_its_namespace(start: Any) -> None:
    camera, = start('robot', namespace='robot19', rate='5', path='~/x', log_level='warn')
    assert (camera.executable, camera.namespace) == ('camera', '/robot19')
    assert camera.parameters == {
        'use_sim_time': False, 'rate': 5.0, 'path': str(Path('~/x').expanduser())}
    assert isinstance(camera.parameters['rate'], float)
    assert [Path(file).name for file in camera.files] == ['robot.yaml']
    assert camera.command[1:3] == ['--log-level', 'warn']


@needs_launch
def test_edge_starts_dispatcher_and_bridge(start: Any, tmp_path: Path) -> None:
    file = tmp_path / 'mine.yaml'
    file.write_text(PARAMETERS)
    dispatcher, bridge = start('edge', params_file=str(file), use_sim_time='true')
    assert (dispatcher.executable, bridge.executable) == ('dispatcher', 'local_bridge')
    assert dispatcher.parameters == {'use_sim_time': True}
    assert bridge.parameters == {
        'use_sim_time': True,
        'pools.edge.worker_params_file': str(file), 'pools.far.worker_params_file': str(file)}
    assert dispatcher.files == bridge.files == [str(file)]


@needs_launch
def test_edge_starts_no_bridge_where_there_is_to_be_none(start: Any) -> None:
    dispatcher, = start('edge', bridge='none', namespace='cell')
    assert (dispatcher.executable, dispatcher.namespace) == ('dispatcher', '/cell')


@needs_launch
def test_edge_starts_the_bridge_to_a_cluster(start: Any) -> None:
    dispatcher, bridge = start('edge', bridge='kubernetes')
    assert (dispatcher.executable, bridge.executable) == ('dispatcher', 'kubernetes_bridge')
    assert bridge.parameters == {'use_sim_time': False}


@needs_launch
def test_workers_may_have_a_file_of_their_own(start: Any, tmp_path: Path) -> None:
    (tmp_path / 'mine.yaml').write_text(PARAMETERS)
    (tmp_path / 'workers.yaml').write_text('worker: {}\n')
    _, bridge = start(
        'edge', params_file=str(tmp_path / 'mine.yaml'),
        worker_params_file=str(tmp_path / 'workers.yaml'))
    assert bridge.parameters['pools.edge.worker_params_file'] == str(tmp_path / 'workers.yaml')


@needs_launch
def test_demo_starts_everything_with_one_file(start: Any) -> None:
    *cameras, dispatcher, bridge = start('demo', robots='3')
    assert [camera.namespace for camera in cameras] == ['/robot1', '/robot2', '/robot3']
    assert len({camera.parameters['seed'] for camera in cameras}) == 3
    assert dispatcher.executable == 'dispatcher'
    assert {Path(f).name for n in (*cameras, dispatcher, bridge) for f in n.files} == {'demo.yaml'}
    content = yaml.safe_load((ROOT / 'config' / 'demo.yaml').read_text())
    for pool in content['/**/local_bridge']['ros__parameters']['pool_names']:
        assert bridge.parameters[f'pools.{pool}.worker_params_file'] == bridge.files[0]


@needs_launch
def test_demo_goes_below_a_namespace_as_a_whole(start: Any) -> None:
    nodes = start('demo', robots='2', namespace='site')
    assert [node.namespace for node in nodes] == [
        '/site/robot1', '/site/robot2', '/site', '/site']


@needs_launch
def test_demo_has_six_robots_unless_told_otherwise(start: Any) -> None:
    assert sum(node.executable == 'camera' for node in start('demo')) == 6
