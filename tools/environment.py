"""
Set this checkout up, then run a command in it. Called by ``tools/env.sh``; standard library only.

Where ROS 2 is sourced, its packages are used and only what it lacks is installed, into
``.venv-<distro>``. Elsewhere everything comes from the package index, ROS 2 included, into
``.venv``. Steps that are done are skipped: each leaves the hash of what it was made from. Nothing
outside the checkout is written.
"""

from __future__ import annotations

from collections.abc import Sequence
import fcntl
import hashlib
import json
import os
from pathlib import Path
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from typing import NoReturn

from progress import Progress, run_logged, SetupError, TRANSIENT

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / '.setup'
REQUIREMENTS = ROOT / 'requirements'
INTERFACES = ROOT / 'interfaces' / 'vision_msgs'
# Not that of an active virtual environment: it may be the one that has to be made anew.
BASE_PYTHON = getattr(sys, '_base_executable', None) or sys.executable
DISK_NEEDED_GB = 10
LARGE_MB = 50.0


class Environment:
    """
    The Python environment of this checkout, on this machine.

    :param distro: the ROS 2 distribution that is sourced; empty if none is.
    """

    def __init__(self, distro: str) -> None:
        """Look at what is there; change nothing."""
        self.distro = distro
        self.path = ROOT / (f'.venv-{distro}' if distro else '.venv')
        self.python = self.path / 'bin' / 'python'
        self._stamp = self.path / 'laimr_setup.json'
        self._progress = Progress()

    def is_complete(self) -> bool:
        """Say whether every step is done and made from what is there now."""
        return self.python.exists() and self._done() == self._wanted()

    def complete(self) -> None:
        """
        Do the steps that are missing.

        :raises SetupError: if one cannot be done.
        """
        wanted = self._wanted()
        done = self._done()
        if not self._is_usable():
            self._check_machine(all_steps=True)
            self._create()
            done = {}
        steps = {
            'packages': self._install_packages,
            'messages': self._build_messages,
            'checkout': self._install_checkout,
        }
        # A later step builds on the earlier ones: from the first that is out of date, redo all.
        fresh = True
        for name, step in steps.items():
            fresh = fresh and done.get(name) == wanted[name]
            if fresh:
                continue
            if name != 'checkout':
                self._check_machine(all_steps=name == 'packages')
            step()
            done[name] = wanted[name]
            self._write_stamp({key: done[key] for key in steps if key in done})
        self._write_stamp(wanted)
        shutil.rmtree(WORK / 'tmp', ignore_errors=True)
        shutil.rmtree(WORK / 'cache' / 'pip', ignore_errors=True)
        self._progress.say(f'ready: {self.path}')

    def variables(self) -> dict[str, str]:
        """Return the environment variables for commands run in it."""
        env = dict(os.environ)
        env['VIRTUAL_ENV'] = str(self.path)
        env['PATH'] = f'{self.path / "bin"}{os.pathsep}{env.get("PATH", os.defpath)}'
        env['PYTHONNOUSERSITE'] = '1'
        env.pop('PYTHONHOME', None)
        # Set by another environment's wheels, it would keep ours from finding their libraries.
        env.pop('_ROS_WHEELS_BOOTSTRAP_COMPLETE', None)
        if not self.distro:
            _drop_other_environments(env, 'LD_LIBRARY_PATH')
        if self.distro and (self.path / 'share' / 'vision_msgs').is_dir():
            _prepend(env, 'AMENT_PREFIX_PATH', self.path)
            _prepend(env, 'LD_LIBRARY_PATH', self.path / 'lib')
        for name, folder in {
            'ROS_LOG_DIR': ROOT / 'log' / 'ros',
            'XDG_CACHE_HOME': WORK / 'cache',
            'MPLCONFIGDIR': WORK / 'cache' / 'matplotlib',
            'YOLO_CONFIG_DIR': WORK / 'cache' / 'ultralytics',
            'TORCH_HOME': WORK / 'cache' / 'torch',
            'HF_HOME': WORK / 'cache' / 'huggingface',
            'TRITON_CACHE_DIR': WORK / 'cache' / 'triton',
        }.items():
            if name not in env:
                folder.mkdir(parents=True, exist_ok=True)
                env[name] = str(folder)
        return env

    # -- what is there ---------------------------------------------------------------------

    def _done(self) -> dict[str, str]:
        try:
            done = json.loads(self._stamp.read_text(encoding='utf-8'))
        except (OSError, ValueError):
            return {}
        return done if isinstance(done, dict) else {}

    def _wanted(self) -> dict[str, str]:
        # A virtual environment holds its own path: moved with the checkout, it is made anew.
        machine = [str(ROOT), self.distro]
        packages = _digest(machine, sorted(REQUIREMENTS.glob('*.txt')))
        messages = _digest([packages], sorted(p for p in INTERFACES.rglob('*') if p.is_file()))
        checkout = _digest([messages], [ROOT / name for name in ('setup.py', 'setup.cfg')])
        return {'packages': packages, 'messages': messages, 'checkout': checkout}

    def _write_stamp(self, done: dict[str, str]) -> None:
        partial = self._stamp.with_suffix('.partial')
        partial.write_text(json.dumps(done, indent=2) + '\n', encoding='utf-8')
        partial.replace(self._stamp)

    def _is_usable(self) -> bool:
        """Say whether there is a working environment, of the Python that was asked for."""
        ask = 'import sys, pip; print(sys.prefix); print("%d.%d" % sys.version_info[:2])'
        try:
            answer = _ask([str(self.python), '-c', ask], env=self.variables())
        except (OSError, subprocess.SubprocessError):
            return False
        prefix, version = answer.splitlines()[-2:]
        chosen = 'LAIMR_PYTHON_CHOSEN' not in os.environ or version == _version()
        return Path(prefix) == self.path and chosen and version in ('3.10', '3.11', '3.12', '3.13')

    def _check_machine(self, *, all_steps: bool) -> None:
        """Find what would make a later step fail before minutes are spent on the earlier ones."""
        if not self.distro:
            if platform.system() != 'Linux' or platform.machine() != 'x86_64':
                raise SetupError(
                    f'there are no ROS 2 wheels for {platform.system()} {platform.machine()}. '
                    'Install ROS 2 Jazzy, source its setup.bash and run this again'
                )
            libc, version = platform.libc_ver()
            if libc != 'glibc' or tuple(map(int, version.split('.')[:2])) < (2, 28):
                raise SetupError(
                    f'the ROS 2 wheels need glibc 2.28 or later, this is {libc or "another libc"} '
                    f'{version}. Use Debian 10, Ubuntu 20.04 or later'
                )
        if self._needs_messages():
            for tool, variable in (('gcc', 'CC'), ('g++', 'CXX')):
                if not (os.environ.get(variable) or shutil.which(tool)):
                    raise SetupError(
                        f'{tool} is missing, and vision_msgs has to be compiled. '
                        'On Debian and Ubuntu: sudo apt install build-essential'
                    )
            header = Path(sysconfig.get_paths()['include'], 'Python.h')
            if not self.python.exists() and not header.exists():
                raise SetupError(
                    f'{header} is missing, and vision_msgs has to be compiled. '
                    f'On Debian and Ubuntu: sudo apt install python{_version()}-dev'
                )
        if all_steps and not (self.path / 'bin' / 'torchrun').exists():
            free_gb = shutil.disk_usage(ROOT).free / 1e9
            if free_gb < DISK_NEEDED_GB:
                raise SetupError(
                    f'{free_gb:.1f} GB are free at {ROOT}, and {DISK_NEEDED_GB} GB are needed. '
                    'Free some, or move the checkout to a larger disk'
                )

    def _needs_messages(self) -> bool:
        if not self.distro:
            return True
        env = dict(os.environ, PYTHONNOUSERSITE='1')
        return not _imports(sys.executable, 'vision_msgs.msg', env)

    # -- steps -----------------------------------------------------------------------------

    def _create(self) -> None:
        with_ros = f', over ROS 2 {self.distro}' if self.distro else ''
        self._progress.say(f'creating {self.path.name} with Python {_version()}{with_ros}')
        shutil.rmtree(self.path, ignore_errors=True)
        command = [BASE_PYTHON, '-m', 'venv', str(self.path)]
        if self.distro:
            command.insert(3, '--system-site-packages')
        try:
            run_logged(
                command,
                WORK / 'venv.log',
                self._progress,
                doing='creating the virtual environment',
                env=self._pip_variables(),
                cwd=ROOT,
            )
        except SetupError as error:
            shutil.rmtree(self.path, ignore_errors=True)
            if 'ensurepip' in (WORK / 'venv.log').read_text(encoding='utf-8'):
                raise SetupError(
                    'this Python cannot make virtual environments. '
                    f'On Debian and Ubuntu: sudo apt install python{_version()}-venv'
                ) from error
            raise

    def _install_packages(self) -> None:
        names = ['run.txt', 'dev.txt'] if self.distro else ['ros.txt', 'run.txt', 'dev.txt']
        command = [str(self.python), '-m', 'pip', 'install', '--no-warn-script-location']
        for name in names:
            command += ['-r', str(REQUIREMENTS / name)]
        command += ['-c', str(REQUIREMENTS / 'constraints.txt'), '--progress-bar', 'off']
        self._progress.say('resolving packages (about 3 GB to download the first time)')
        for attempt in (1, 2, 3):
            try:
                run_logged(
                    command,
                    WORK / 'packages.log',
                    self._progress,
                    doing='fetching packages',
                    env=self._pip_variables(),
                    cwd=ROOT,
                    on_line=_pip_line,
                )
                return
            except SetupError:
                log = (WORK / 'packages.log').read_text(encoding='utf-8', errors='replace')
                if attempt == 3 or not TRANSIENT.search(log):
                    raise
                self._progress.say('a download broke off; trying again')
                time.sleep(3.0 * attempt)

    def _build_messages(self) -> None:
        if not self._needs_messages():
            return
        self._progress.say('building vision_msgs (about 30 s)')
        env = self.variables()
        prefixes = os.environ.get('AMENT_PREFIX_PATH', '') if self.distro else str(self.path)
        env['AMENT_PREFIX_PATH'] = prefixes
        env['CMAKE_PREFIX_PATH'] = prefixes
        if not self.distro:
            _relocate_cmake_files(self.path, self.python, env)
        cmake = shutil.which('cmake', path=env['PATH'])
        generator = 'Ninja' if shutil.which('ninja', path=env['PATH']) else 'Unix Makefiles'
        if not cmake:
            raise SetupError(
                f'vision_msgs is missing. Run: sudo apt install ros-{self.distro}-vision-msgs'
            )
        build = WORK / 'vision_msgs'
        shutil.rmtree(build, ignore_errors=True)
        configure = [
            cmake, '-G', generator, '-S', str(INTERFACES), '-B', str(build),
            f'-DCMAKE_INSTALL_PREFIX={self.path}', f'-DPython3_EXECUTABLE={self.python}',
            '-DCMAKE_BUILD_TYPE=Release', '-DBUILD_TESTING=OFF',
        ]
        jobs = str(min(os.cpu_count() or 1, 8))
        for name, command in (
            ('configure', configure),
            ('build', [cmake, '--build', str(build), '--parallel', jobs]),
            ('install', [cmake, '--install', str(build)]),
        ):
            run_logged(
                command,
                WORK / f'vision_msgs_{name}.log',
                self._progress,
                doing=f'building vision_msgs ({name})',
                env=env,
                cwd=ROOT,
            )
        shutil.rmtree(build, ignore_errors=True)
        if not _imports(str(self.python), 'vision_msgs.msg', self.variables()):
            raise SetupError(
                'vision_msgs was built but cannot be imported. Delete '
                f'{self.path.name} and run this again; if it stays, report it with {WORK}/*.log'
            )

    def _install_checkout(self) -> None:
        self._progress.say('installing laimr_ros in place')
        run_logged(
            [
                self.python, '-m', 'pip', 'install', '--no-deps', '--no-build-isolation',
                '--no-index', '--editable', str(ROOT),
            ],
            WORK / 'checkout.log',
            self._progress,
            doing='installing laimr_ros',
            env=self._pip_variables(),
            cwd=ROOT,
        )

    def _pip_variables(self) -> dict[str, str]:
        """Keep pip inside the checkout; index, certificates and the rest stay the user's."""
        env = self.variables()
        env['TMPDIR'] = str(WORK / 'tmp')
        env['PIP_USER'] = '0'
        env['PIP_DISABLE_PIP_VERSION_CHECK'] = '1'
        env['PIP_NO_INPUT'] = '1'
        env.pop('PIP_TARGET', None)
        env.pop('PIP_PREFIX', None)
        if 'PIP_CACHE_DIR' not in env and 'PIP_NO_CACHE_DIR' not in env:
            # Kept until all is installed: what the index lets pip cache is not fetched twice.
            env['PIP_CACHE_DIR'] = str(WORK / 'cache' / 'pip')
        (WORK / 'tmp').mkdir(parents=True, exist_ok=True)
        return env


def _relocate_cmake_files(prefix: Path, python: Path, env: dict[str, str]) -> None:
    """Replace two paths of the machine that built the wheels by this environment's."""
    ask = (
        'import sysconfig, numpy\n'
        'print(sysconfig.get_paths()["include"], numpy.get_include(), sep="\\n")'
    )
    include, numpy_include = _ask([str(python), '-c', ask], env=env).splitlines()[-2:]
    built_on = r'/opt/python/cp\d+-cp\d+t?'
    for file in prefix.glob('share/*/cmake/*.cmake'):
        text = file.read_text(encoding='utf-8')
        new = re.sub(
            built_on + r'/lib/python[\d.]+t?/site-packages/numpy/_?core/include',
            lambda _: numpy_include,
            text,
        )
        new = re.sub(built_on + r'/include/python[\d.]+t?', lambda _: include, new)
        if new != text:
            file.write_text(new, encoding='utf-8')


def _pip_line(line: str) -> str | None:
    """Pick what is worth a line of progress from pip's output."""
    match = re.match(r'\s+Downloading (\S+?)-\d\S* \(([\d.]+) MB\)', line)
    if match and float(match[2]) >= LARGE_MB:
        return f'downloading {match[1]} ({float(match[2]):.0f} MB)'
    if line.startswith('Installing collected packages:'):
        return f'installing {line.count(",") + 1} packages (a minute or two)'
    return None


def _become(program: str, command: Sequence[str], env: dict[str, str]) -> NoReturn:
    # In this very process: signals and the exit status need no passing on.
    os.execve(program, list(command), env)


def _prepend(env: dict[str, str], name: str, path: Path) -> None:
    rest = env.get(name, '')
    env[name] = f'{path}{os.pathsep}{rest}' if rest else str(path)


def _drop_other_environments(env: dict[str, str], name: str) -> None:
    paths = env.pop(name, '').split(os.pathsep)
    kept = [p for p in paths if p and not Path(p).parent.joinpath('pyvenv.cfg').exists()]
    if kept:
        env[name] = os.pathsep.join(kept)


def _version() -> str:
    return f'{sys.version_info.major}.{sys.version_info.minor}'


def _digest(texts: Sequence[str], files: Sequence[Path]) -> str:
    digest = hashlib.sha256('\n'.join(texts).encode())
    for file in files:
        digest.update(f'\n{file.relative_to(ROOT)}\n'.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _ask(command: Sequence[str], env: dict[str, str] | None = None) -> str:
    return subprocess.run(
        command, env=env, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120
    ).stdout.strip()


def _imports(python: str, module: str, env: dict[str, str]) -> bool:
    try:
        _ask([python, '-c', f'import {module}'], env=env)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _sourced_distro() -> str:
    """
    Return the ROS 2 distribution that is sourced and whose rclpy this Python can use, or ''.

    :raises SetupError: if ROS is sourced for another Python.
    """
    distro = os.environ.get('ROS_DISTRO', '')
    if not distro or not os.environ.get('AMENT_PREFIX_PATH'):
        return ''
    # Known from an earlier run: importing rclpy takes half a second.
    if Environment(distro).is_complete():
        return distro
    if not _imports(sys.executable, 'rclpy', dict(os.environ, PYTHONNOUSERSITE='1')):
        raise SetupError(
            f'ROS 2 {distro} is sourced, but {sys.executable} (Python {_version()}) cannot import '
            'its rclpy. Run PYTHON=/usr/bin/python3 make setup, or use a shell without ROS'
        )
    return distro


def main(command: Sequence[str]) -> int:
    """Set up what is missing, then become the command."""
    try:
        WORK.mkdir(exist_ok=True)
        environment = Environment(_sourced_distro())
        changed_python = 'LAIMR_PYTHON_CHOSEN' in os.environ
        if changed_python or not environment.is_complete():
            with (WORK / 'lock').open('w') as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    print('waiting for another set-up of this checkout', file=sys.stderr)
                    fcntl.flock(lock, fcntl.LOCK_EX)
                if not (environment.is_complete() and environment._is_usable()):
                    environment.complete()
    except SetupError as error:
        print(f'set-up stopped: {error}.', file=sys.stderr)
        return 1
    except OSError as error:
        where = f'{error.filename}: ' if error.filename else ''
        print(f'set-up stopped: {where}{error.strerror}.', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\nset-up interrupted; run the same command again to go on', file=sys.stderr)
        return 130
    if not command:
        return 0
    env = environment.variables()
    program = shutil.which(command[0], path=env['PATH'])
    if program is None:
        print(f'{command[0]}: no such command', file=sys.stderr)
        return 127
    _become(program, command, env)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
