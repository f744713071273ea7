"""The package as colcon and pip see it, its dependencies and its message definitions."""

from __future__ import annotations

import ast
import configparser
import importlib.metadata
import json
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipfile

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
EXECUTABLES = {
    'camera', 'dispatcher', 'worker', 'local_bridge', 'kubernetes_bridge', 'laimr'}
PYTHONS = ('3.10', '3.11', '3.12', '3.13')

# Where the name to import is not that of the package to install.
DISTRIBUTIONS = {
    'PIL': 'pillow',
    'cv2': 'opencv-python-headless',
    'google': 'protobuf',
    'grpc': 'grpcio',
    'grpc_health': 'grpcio-health-checking',
    'ultralytics': 'ultralytics-opencv-headless',
    'yaml': 'pyyaml',
}
# Where ROS is not installed these are not either: imported only after a look whether they are.
ONLY_WITH_ROS = {'launch', 'launch_ros'}

# Of the real definitions of vision_msgs 4.1.1, by rosidl_generator_type_description.
TYPE_HASHES = {
    'BoundingBox2D': '008eacbb0cf8f26e83795547bed013eec3675485ef386ec056d80eaaf1c1ce2f',
    'Detection2D': '0d12b69df5c593b3455b7346fac8205437a7d4bcb09b9e0e0b2dde787ded38ea',
    'Detection2DArray': '214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968',
    'LabelInfo': '3d37df4015cdf660cc851c51897f2acd957e1ca6205ba0a99aebffb9406b0783',
    'ObjectHypothesis': '51da43cec11c01957a64d1e05a24acd18aae7745ec30b74348ad5f6d634f7f90',
    'ObjectHypothesisWithPose': '41c12344c0396c48b81df12467c192d99b2a0eb1463c5c37194e4223251c80bc',
    'Point2D': 'eab0e83f44ab4de92ceaf76dd7d0e7638f2bdd1d16ffbe16c7a136c48e407247',
    'Pose2D': 'b0b5d1d7b4c20dd4fcde3ed1d4b289a919290572007d67a97043814db25d3648',
    'VisionClass': '1e4a11f0fed50b5623cb8ff26ca0e37952a48a9c074d16f804b44e9164c2037a',
}


def manifest() -> ElementTree.Element:
    return ElementTree.parse(CHECKOUT / 'package.xml').getroot()


def normalised(name: str) -> str:
    return re.sub(r'[-_.]+', '-', name).lower()


def requirement_lines(name: str) -> list[str]:
    lines = (CHECKOUT / 'requirements' / name).read_text(encoding='utf-8').splitlines()
    return [text for text in (line.split('#')[0].strip() for line in lines) if text]


def required_names(*files: str) -> set[str]:
    return {
        normalised(re.match(r'[A-Za-z0-9._-]+', line)[0])
        for name in files
        for line in requirement_lines(name)
    }


def imported_modules(folder: Path) -> set[str]:
    """Return the top-level names of every module that the sources of a folder import."""
    found = set()
    for file in folder.rglob('*.py'):
        for node in ast.walk(ast.parse(file.read_text(encoding='utf-8'))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split('.')[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module.split('.')[0])
    return found - set(sys.stdlib_module_names) - {'laimr_ros'}


def is_ros_module(name: str) -> bool:
    ros = ('rclpy', 'ament_index_python', 'launch', 'launch_ros', 'builtin_interfaces')
    return name in ros or name.endswith(('_msgs', '_srvs', '_interfaces'))


# -- version ---------------------------------------------------------------------------------


def test_version_is_the_same_everywhere():
    from laimr_ros import __version__

    version = manifest().findtext('version')
    changelog = (CHANGELOG := CHECKOUT / 'CHANGELOG.rst').read_text(encoding='utf-8')
    newest = re.search(r'^(\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)\n-+$', changelog, re.MULTILINE)
    assert re.fullmatch(r'\d+\.\d+\.\d+', version)
    assert __version__ == version
    assert newest is not None, f'{CHANGELOG}: no heading "1.2.3 (2026-01-31)"'
    assert newest[1] == version


def test_installed_version_is_that_of_the_checkout():
    try:
        installed = importlib.metadata.version('laimr_ros')
    except importlib.metadata.PackageNotFoundError:
        pytest.skip('laimr_ros is not installed in this environment: run `make setup`')
    assert installed == manifest().findtext('version')


# -- colcon and pip --------------------------------------------------------------------------


@pytest.fixture(scope='module')
def sources(tmp_path_factory) -> Path:
    """Return a copy of what the build reads, so that it leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp('package') / 'laimr_ros'
    ignore = shutil.ignore_patterns('__pycache__', '*.egg-info')
    for name in ('laimr_ros', 'launch', 'config', 'resource', 'requirements'):
        shutil.copytree(CHECKOUT / name, copy / name, ignore=ignore)
    for name in ('package.xml', 'setup.py', 'setup.cfg', 'pyproject.toml', 'LICENSE'):
        shutil.copy(CHECKOUT / name, copy)
    return copy


def run_build(sources: Path, *command: str) -> None:
    done = subprocess.run(
        [sys.executable, *command], cwd=sources, capture_output=True, text=True, timeout=120,
        env={**os.environ, 'PYTHONWARNINGS': 'ignore'}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_colcon_install_lays_files_where_ros_looks_for_them(sources, tmp_path):
    # As colcon's ament_python task calls it.
    run_build(
        sources, 'setup.py', 'build', '--build-base', str(tmp_path / 'build'),
        'install', '--prefix', str(tmp_path / 'prefix'), '--record', str(tmp_path / 'log'),
        '--single-version-externally-managed')
    prefix = tmp_path / 'prefix'
    share = prefix / 'share' / 'laimr_ros'
    assert {p.name for p in (prefix / 'lib' / 'laimr_ros').iterdir()} == EXECUTABLES
    for name in EXECUTABLES:
        script = prefix / 'lib' / 'laimr_ros' / name
        assert script.read_text(encoding='utf-8').splitlines()[0] == '#!/usr/bin/env python3'
        assert os.access(script, os.X_OK)
    index = prefix / 'share' / 'ament_index' / 'resource_index' / 'packages'
    assert [p.name for p in index.iterdir()] == ['laimr_ros']
    assert (share / 'package.xml').is_file()
    for folder in ('launch', 'config'):
        wanted = {p.name for p in (CHECKOUT / folder).iterdir() if p.is_file()}
        assert wanted
        assert {p.name for p in (share / folder).iterdir()} == wanted
    assert list(prefix.rglob('laimr_ros/py.typed'))


def test_wheel_brings_the_commands_and_every_room(sources, tmp_path):
    run_build(
        sources, '-m', 'pip', 'wheel', '--quiet', '--no-deps', '--no-build-isolation',
        '--no-index', '--wheel-dir', str(tmp_path), '.')
    (wheel,) = tmp_path.glob('*.whl')
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = (n for n in names if n.endswith('entry_points.txt'))
        parser = configparser.ConfigParser()
        parser.read_string(archive.read(entry_points).decode())
    assert set(parser['console_scripts']) == EXECUTABLES
    for file in (CHECKOUT / 'laimr_ros').rglob('*.py'):
        assert str(file.relative_to(CHECKOUT)) in names
    assert any(name.endswith('share/laimr_ros/package.xml') for name in names)


def defined_functions(module):
    """Return the functions that a module of the package defines, without importing it."""
    file = CHECKOUT / 'laimr_ros' / (module.replace('.', '/') + '.py')
    assert file.is_file(), f'{file} is missing'
    tree = ast.parse(file.read_text(encoding='utf-8'))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize('name', sorted(EXECUTABLES))
def test_every_executable_has_a_function(name):
    text = (CHECKOUT / 'setup.py').read_text(encoding='utf-8')
    target = re.search(rf"f'{name} = \{{package_name\}}\.([a-z_.]+):([a-z_]+)'", text)
    assert target[2] in defined_functions(target[1])
    if target[1] == 'nodes.entry':
        # The entry point imports the node's own module by its name, and calls its main.
        assert target[2] == name
        assert 'main' in defined_functions(f'nodes.{name}')


def test_manifest_is_a_valid_package_of_format_3():
    package = pytest.importorskip(
        'catkin_pkg.package', reason='catkin_pkg is missing: run `make setup`')
    parsed = package.parse_package(str(CHECKOUT / 'package.xml'))
    assert parsed.package_format == 3
    assert parsed.name == 'laimr_ros'
    assert parsed.licenses == ['Apache-2.0']
    assert parsed.get_build_type() == 'ament_python'


def test_licence_is_the_whole_apache_licence():
    text = (CHECKOUT / 'LICENSE').read_text(encoding='utf-8')
    assert 'Apache License' in text
    assert 'Version 2.0, January 2004' in text
    assert 'END OF TERMS AND CONDITIONS' in text


# -- dependencies ----------------------------------------------------------------------------


def test_every_ros_package_that_is_imported_is_in_the_manifest():
    declared = {element.text for element in manifest().iter('exec_depend')}
    modules = imported_modules(CHECKOUT / 'laimr_ros') | imported_modules(CHECKOUT / 'launch')
    used = {name for name in modules if is_ros_module(name)}
    assert used
    assert used <= declared, f'missing in package.xml: {sorted(used - declared)}'


def test_every_other_package_that_is_imported_is_required():
    used = {
        normalised(DISTRIBUTIONS.get(name, name))
        for name in imported_modules(CHECKOUT / 'laimr_ros')
        if not is_ros_module(name)
    }
    declared = required_names('run.txt')
    assert used
    assert used <= declared, f'missing in requirements/run.txt: {sorted(used - declared)}'


@pytest.mark.parametrize('python', PYTHONS)
def test_every_requirement_has_one_pin_for_every_python(python):
    requirements = pytest.importorskip('packaging.requirements')
    pins: dict[str, list[str]] = {}
    for line in requirement_lines('constraints.txt'):
        pin = requirements.Requirement(line)
        where = {'python_version': python, 'sys_platform': 'linux', 'platform_machine': 'x86_64'}
        if pin.marker is None or pin.marker.evaluate(where):
            pins.setdefault(normalised(pin.name), []).append(str(pin.specifier))
    for name in required_names('ros.txt', 'run.txt', 'dev.txt'):
        assert len(pins.get(name, ())) == 1, f'{name} on Python {python}: {pins.get(name)}'
        assert pins[name][0].startswith('==')
    assert all(len(found) == 1 for found in pins.values())


# -- vision_msgs -----------------------------------------------------------------------------


def test_installed_vision_msgs_has_the_type_hashes_of_the_real_one():
    prefixes = [*os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep), sys.prefix]
    folders = [Path(p, 'share', 'vision_msgs', 'msg') for p in prefixes if p]
    folder = next((f for f in folders if f.is_dir()), None)
    assert folder is not None, f'vision_msgs is in none of {prefixes}: run `make setup`'
    found = {}
    for name in TYPE_HASHES:
        rows = json.loads((folder / f'{name}.json').read_text(encoding='utf-8'))['type_hashes']
        hashes = {row['type_name']: row['hash_string'] for row in rows}
        found[name] = hashes[f'vision_msgs/msg/{name}'].removeprefix('RIHS01_')
    assert found == TYPE_HASHES


def test_every_definition_is_built():
    listed = (CHECKOUT / 'interfaces' / 'vision_msgs' / 'CMakeLists.txt').read_text()
    files = {p.name for p in (CHECKOUT / 'interfaces' / 'vision_msgs' / 'msg').iterdir()}
    assert set(re.findall(r'msg/(\w+\.msg)', listed)) == files == {f'{n}.msg' for n in TYPE_HASHES}


def test_colcon_leaves_the_stand_in_alone():
    assert (CHECKOUT / 'interfaces' / 'COLCON_IGNORE').exists()
