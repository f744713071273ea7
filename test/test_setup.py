"""The set-up of a checkout: which interpreter, which steps, and one line when it cannot go on."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
import subprocess
import sys

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
TOOLS = CHECKOUT / 'tools'


def load(name: str):
    """Import a module of tools/, which is no package."""
    if str(TOOLS) not in sys.path:
        sys.path.append(str(TOOLS))
    spec = importlib.util.spec_from_file_location(name, TOOLS / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


progress = load('progress')
environment = load('environment')
lock = load('lock')


# -- the interpreter -------------------------------------------------------------------------


@pytest.fixture
def commands(tmp_path):
    """Return a directory with nothing but the few commands that env.sh uses."""
    folder = tmp_path / 'bin'
    folder.mkdir()
    for name in ('sh', 'dirname', 'head'):
        source = next(p for p in (Path('/bin'), Path('/usr/bin')) if (p / name).exists())
        (folder / name).symlink_to(source / name)
    return folder


def fake_python(folder: Path, name: str, version: str) -> None:
    """Make a command that answers as that Python would, and prints its arguments else."""
    supported = '3.10' <= version[:4] <= '3.13'
    file = folder / name
    file.write_text(
        '#!/bin/sh\n'
        f'case "$1" in -c) exit {0 if supported else 1};; '
        f'--version) echo "Python {version}";; *) echo "{name} runs";; esac\n')
    file.chmod(0o755)


def run_env_sh(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(folder / 'sh'), str(TOOLS / 'env.sh')], env={'PATH': str(folder), **variables},
        capture_output=True, text=True, timeout=30, check=False)


def test_python_that_is_chosen_is_used(commands):
    fake_python(commands, 'python3', '3.11.2')
    fake_python(commands, 'python3.13', '3.13.0')
    assert run_env_sh(commands, PYTHON='python3.13').stdout == 'python3.13 runs\n'


def test_python3_is_used_if_it_is_supported(commands):
    fake_python(commands, 'python3', '3.11.2')
    fake_python(commands, 'python3.12', '3.12.1')
    assert run_env_sh(commands).stdout == 'python3 runs\n'


def test_another_python_is_used_if_python3_is_not_supported(commands):
    fake_python(commands, 'python3', '3.14.0')
    fake_python(commands, 'python3.10', '3.10.1')
    assert run_env_sh(commands).stdout == 'python3.10 runs\n'


@pytest.mark.parametrize(
    ('name', 'version', 'chosen', 'expected'),
    [
        ('python3', '3.14.0', '', 'no Python 3.10 to 3.13 found'),
        ('python2', '2.7.18', 'python2', 'PYTHON=python2 is Python 2.7.18'),
        ('python3', '3.11.0', 'python3.12', 'PYTHON=python3.12 is not a command here'),
    ],
)
def test_unsupported_python_ends_in_one_line(commands, name, version, chosen, expected):
    fake_python(commands, name, version)
    done = run_env_sh(commands, **({'PYTHON': chosen} if chosen else {}))
    assert done.returncode == 1
    assert done.stdout == ''
    assert done.stderr.count('\n') == 1
    assert done.stderr.startswith(f'set-up stopped: {expected}')
    assert 'python3.12' in done.stderr


# -- the steps -------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return a checkout whose steps only note that they ran."""
    root = tmp_path / 'checkout'
    (root / 'requirements').mkdir(parents=True)
    (root / 'requirements' / 'run.txt').write_text('numpy\n')
    (root / 'interfaces' / 'vision_msgs').mkdir(parents=True)
    (root / 'interfaces' / 'vision_msgs' / 'A.msg').write_text('int8 a\n')
    for name in ('setup.py', 'setup.cfg'):
        (root / name).write_text('')
    monkeypatch.setattr(environment, 'ROOT', root)
    monkeypatch.setattr(environment, 'WORK', root / '.setup')
    monkeypatch.setattr(environment, 'REQUIREMENTS', root / 'requirements')
    monkeypatch.setattr(environment, 'INTERFACES', root / 'interfaces' / 'vision_msgs')
    monkeypatch.setattr(environment.Environment, '_check_machine', lambda *_, **__: None)
    monkeypatch.setattr(
        environment.Environment, '_is_usable', lambda self: self.python.exists())
    return root


@pytest.fixture
def steps(checkout, monkeypatch):
    """Return the list of steps that ran; a step named in it as 'fail:NAME' fails once."""
    ran: list[str] = []

    def step(name):
        def run(self):
            if f'fail:{name}' in ran:
                ran.remove(f'fail:{name}')
                raise progress.SetupError(name)
            ran.append(name)
            if name == 'create':
                self.python.parent.mkdir(parents=True)
                self.python.touch()
        return run

    for name, method in (
        ('create', '_create'),
        ('packages', '_install_packages'),
        ('messages', '_build_messages'),
        ('checkout', '_install_checkout'),
    ):
        monkeypatch.setattr(environment.Environment, method, step(name))
    return ran


def complete() -> None:
    environment.Environment('').complete()


def test_everything_is_done_once(steps):
    assert not environment.Environment('').is_complete()
    complete()
    assert steps == ['create', 'packages', 'messages', 'checkout']
    assert environment.Environment('').is_complete()
    complete()
    assert steps == ['create', 'packages', 'messages', 'checkout']


@pytest.mark.parametrize(
    ('file', 'again'),
    [
        ('requirements/run.txt', ['packages', 'messages', 'checkout']),
        ('interfaces/vision_msgs/A.msg', ['messages', 'checkout']),
        ('setup.py', ['checkout']),
    ],
)
def test_what_changed_and_what_builds_on_it_is_done_again(checkout, steps, file, again):
    complete()
    steps.clear()
    (checkout / file).write_text('changed\n')
    assert not environment.Environment('').is_complete()
    complete()
    assert steps == again


def test_an_interrupted_set_up_goes_on_where_it_stopped(steps):
    steps.append('fail:messages')
    with pytest.raises(progress.SetupError):
        complete()
    assert steps == ['create', 'packages']
    assert not environment.Environment('').is_complete()
    steps.clear()
    complete()
    assert steps == ['messages', 'checkout']


def test_a_checkout_that_moved_is_set_up_anew(checkout, steps, monkeypatch, tmp_path):
    complete()
    steps.clear()
    moved = checkout.rename(tmp_path / 'moved')
    for name, path in (
        ('ROOT', moved), ('WORK', moved / '.setup'), ('REQUIREMENTS', moved / 'requirements'),
        ('INTERFACES', moved / 'interfaces' / 'vision_msgs'),
    ):
        monkeypatch.setattr(environment, name, path)
    assert not environment.Environment('').is_complete()


def test_damaged_stamp_counts_as_nothing_done(checkout, steps):
    complete()
    steps.clear()
    (checkout / '.venv' / 'laimr_setup.json').write_text('{"packages": ')
    complete()
    assert steps == ['packages', 'messages', 'checkout']


def test_each_ros_distribution_has_an_environment_of_its_own(checkout):
    assert environment.Environment('jazzy').path == checkout / '.venv-jazzy'
    assert environment.Environment('').path == checkout / '.venv'


def test_commands_write_nothing_outside_the_checkout(checkout, monkeypatch):
    for name in ('ROS_LOG_DIR', 'MPLCONFIGDIR', 'HF_HOME'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('TORCH_HOME', '/the/user/chose/this')
    monkeypatch.setenv('_ROS_WHEELS_BOOTSTRAP_COMPLETE', '1')
    variables = environment.Environment('').variables()
    for name in ('ROS_LOG_DIR', 'MPLCONFIGDIR', 'HF_HOME'):
        assert Path(variables[name]).is_relative_to(checkout)
    assert variables['TORCH_HOME'] == '/the/user/chose/this'
    assert variables['PATH'].split(os.pathsep)[0] == str(checkout / '.venv' / 'bin')
    assert '_ROS_WHEELS_BOOTSTRAP_COMPLETE' not in variables


def test_libraries_of_another_environment_are_not_found_first(checkout, monkeypatch, tmp_path):
    (tmp_path / 'other' / 'lib').mkdir(parents=True)
    (tmp_path / 'other' / 'pyvenv.cfg').touch()
    monkeypatch.setenv('LD_LIBRARY_PATH', f'{tmp_path / "other" / "lib"}:/usr/local/lib')
    assert environment.Environment('').variables()['LD_LIBRARY_PATH'] == '/usr/local/lib'


def test_pip_keeps_the_index_of_the_user(checkout, monkeypatch):
    monkeypatch.setenv('PIP_INDEX_URL', 'https://mirror.example/simple')
    monkeypatch.setenv('PIP_CERT', '/etc/company.pem')
    monkeypatch.setenv('PIP_TARGET', '/elsewhere')
    monkeypatch.delenv('PIP_CACHE_DIR', raising=False)
    monkeypatch.delenv('PIP_NO_CACHE_DIR', raising=False)
    variables = environment.Environment('')._pip_variables()
    assert variables['PIP_INDEX_URL'] == 'https://mirror.example/simple'
    assert variables['PIP_CERT'] == '/etc/company.pem'
    assert 'PIP_TARGET' not in variables
    assert Path(variables['PIP_CACHE_DIR']).is_relative_to(checkout)
    assert Path(variables['TMPDIR']).is_relative_to(checkout)


# -- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ('log', 'advice'),
    [
        ("WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError("
         "'<HTTPSConnection>: Failed to establish a new connection: [Errno -3] Temporary failure "
         "in name resolution')': /simple/numpy/\nERROR: Could not find a version that satisfies "
         'the requirement numpy (from versions: none)\nERROR: No matching distribution found for '
         'numpy', 'cannot be reached'),
        ('ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device',
         'the disk is full'),
        ("ERROR: HTTPSConnectionPool(host='files', port=443): Read timed out.",
         'a download broke off'),
        ("ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 407 Proxy "
         "Authentication Required'))", 'the proxy refused'),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate "
         "verify failed'))", 'PIP_CERT'),
        ('ERROR: No matching distribution found for ros-jazzy-rclpy==7.1.6',
         'has no ros-jazzy-rclpy==7.1.6 for this Python'),
        ('fatal error: Python.h: No such file or directory', 'python3-dev'),
    ],
)
def test_a_failure_says_what_to_do(log, advice):
    assert advice in progress.remedy(log)


def test_an_unknown_failure_is_not_explained_away():
    assert progress.remedy('Segmentation fault') is None


def run_logged(tmp_path, code: str, **options) -> None:
    progress.run_logged(
        [sys.executable, '-c', code], tmp_path / 'log' / 'step.log', progress.Progress(),
        doing='testing', env=dict(os.environ), cwd=tmp_path, **options)


def test_output_goes_to_the_log_and_chosen_lines_to_the_terminal(tmp_path, capfd):
    run_logged(
        tmp_path, 'print("noise"); print("news")',
        on_line=lambda line: line.strip() if 'news' in line else None)
    assert (tmp_path / 'log' / 'step.log').read_text() == 'noise\nnews\n'
    shown = capfd.readouterr()
    assert shown.out == ''
    assert shown.err.endswith('] news\n')
    assert 'noise' not in shown.err


def test_a_failing_step_names_its_log(tmp_path):
    with pytest.raises(progress.SetupError) as caught:
        run_logged(tmp_path, 'print("No space left on device"); raise SystemExit(3)')
    text = str(caught.value)
    assert 'the disk is full' in text
    assert str(tmp_path / 'log' / 'step.log') in text
    assert '\n' not in text


def test_a_quiet_step_shows_that_it_is_alive(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(progress, 'HEARTBEAT_S', 0.5)
    run_logged(tmp_path, 'import time; time.sleep(2.5)')
    assert '... still testing' in capfd.readouterr().err


def test_missing_compiler_is_said_before_anything_is_fetched(checkout, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(environment, 'ROOT', checkout)
    for name in ('CC', 'CXX'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(environment.shutil, 'which', lambda *_, **__: None)
    with pytest.raises(progress.SetupError, match='gcc is missing.*build-essential'):
        environment.Environment('')._check_machine(all_steps=True)


@pytest.mark.parametrize(
    ('line', 'shown'),
    [
        ('  Downloading torch-2.14.1-cp311-cp311-manylinux_2_28_x86_64.whl (554.6 MB)\n',
         'downloading torch (555 MB)'),
        ('  Downloading rich-15.0.0-py3-none-any.whl (1.4 MB)\n', None),
        ('Installing collected packages: a, b, c\n', 'installing 3 packages'),
    ],
)
def test_progress_shows_what_takes_long(line, shown):
    text = environment._pip_line(line)
    assert text is None if shown is None else text.startswith(shown)


# -- pins ------------------------------------------------------------------------------------


def test_pins_that_differ_between_pythons_get_a_marker():
    text = lock.merge({
        '3.10': {'numpy': '2.2.6', 'rich': '15.0.0', 'tomli': '2.0.0'},
        '3.11': {'numpy': '2.4.6', 'rich': '15.0.0'},
    })
    assert [line for line in text.splitlines() if not line.startswith('#')] == [
        "numpy==2.2.6; python_version == '3.10'",
        "numpy==2.4.6; python_version == '3.11'",
        'rich==15.0.0',
        'tomli==2.0.0',
    ]
