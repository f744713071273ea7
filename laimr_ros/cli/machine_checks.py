"""Checks of the machine: processor, memory, disk, network, clock, cluster."""

from __future__ import annotations

from collections.abc import Iterator
import ctypes
import os
from pathlib import Path
import resource
import shutil
import socket
import subprocess
import tempfile

from laimr_ros.cli.findings import Finding, note, ok, wrong

WORKER_PORT = 8500
SHM = Path('/dev/shm')
RMEM_MAX = Path('/proc/sys/net/core/rmem_max')
CGROUP_CPU = Path('/sys/fs/cgroup/cpu.max')
MEMINFO = Path('/proc/meminfo')
MIB = 2**20
# A raw 1280x720 colour image has 2.6 MiB; its fragments arrive in one burst.
RMEM_WANTED = 4 * MIB


def processor() -> Finding:
    """Check how many cores these processes may use."""
    cores = float(len(os.sched_getaffinity(0)))
    quota = ''
    try:
        limit, period = CGROUP_CPU.read_text(encoding='utf-8').split()
        if limit != 'max':
            cores = min(cores, int(limit) / int(period))
            quota = ' (container limit)'
    except (OSError, ValueError):
        pass
    load = os.getloadavg()[0]
    detail = f'{cores:g} cores{quota}, load {load:.1f}'
    if cores < 2:
        return note('CPU', detail, 'the demonstration wants two cores; with one, frames of its '
                                   'burst will be late')
    if load > 0.7 * cores:
        return note('CPU', f'{detail}: other programs are busy', 'measure on an idle machine')
    return ok('CPU', detail)


def memory() -> Finding:
    """Check free memory."""
    try:
        rows = dict(line.split(':', 1) for line in MEMINFO.read_text().splitlines() if ':' in line)
        free_gib = int(rows['MemAvailable'].split()[0]) / MIB
    except (OSError, KeyError, ValueError):
        return note('memory', 'not known')
    if free_gib < 2.0:
        return note('memory', f'{free_gib:.1f} GiB are free',
                    'a worker with a real detector takes about 1 GiB: start fewer')
    return ok('memory', f'{free_gib:.1f} GiB are free')


def disk() -> Finding:
    """Check free disk space where results would go."""
    free_gb = shutil.disk_usage(Path.cwd()).free / 1e9
    detail = f'{free_gb:.1f} GB are free at {Path.cwd()}'
    if free_gb < 0.2:
        return wrong('disk', detail, 'free some: records, logs and plots need it')
    if free_gb < 2.0:
        return note('disk', detail, 'records and logs may fill it')
    return ok('disk', detail)


def open_files() -> Finding:
    """Check the limit on open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 1024:
        return note('open files', f'at most {soft} a process',
                    f'ulimit -n {min(hard, 65536)} (many robots and workers need more)')
    return ok('open files', f'at most {soft} a process')


def shared_memory() -> Finding:
    """Check /dev/shm, through which Fast DDS passes messages on one host."""
    name = 'shared memory'
    try:
        with tempfile.NamedTemporaryFile(dir=SHM):
            pass
        free_mib = shutil.disk_usage(SHM).free / MIB
    except OSError as error:
        return wrong(name, f'{SHM} cannot be written: {error.strerror}',
                     'mount it (Docker: --ipc=host or --shm-size=1g), or let Fast DDS do without: '
                     'FASTDDS_BUILTIN_TRANSPORTS=UDPv4')
    left = len(list(SHM.glob('fastrtps_*')))
    if free_mib < 128:
        return note(name, f'{free_mib:.0f} MiB are free in {SHM}',
                    'raise it (Docker: --ipc=host or --shm-size=1g), or remove what is left of '
                    'dead nodes: `fastdds shm clean`')
    if left > 500:
        return note(name, f'{left} Fast DDS segments lie in {SHM}',
                    '`fastdds shm clean` removes those of dead nodes')
    return ok(name, f'{free_mib:.0f} MiB are free in {SHM}')


def receive_buffer() -> Finding:
    """Check how large a burst from another host the kernel can hold."""
    name = 'network buffer'
    try:
        size = int(RMEM_MAX.read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return note(name, f'{RMEM_MAX} cannot be read (a container?): ask on the host')
    detail = f'net.core.rmem_max is {size / MIB:.1f} MiB'
    if size < RMEM_WANTED:
        return note(name, f'{detail}: raw images from other hosts may lose fragments (compressed '
                          'ones of 100 kB pass)', 'sudo sysctl -w net.core.rmem_max=16777216')
    return ok(name, detail)


def ports() -> Finding:
    """Check that a worker could listen where it does unless told otherwise."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(('0.0.0.0', WORKER_PORT))
        except OSError as error:
            return note('ports', f'TCP {WORKER_PORT}, where `worker` listens by default: '
                                 f'{error.strerror}{_holder(WORKER_PORT)}',
                        'if it is not a worker of yours, give yours another: laimr worker '
                        '--listen 0.0.0.0:8600 (laimr demo and local_bridge take free ones)')
    return ok('ports', f'TCP {WORKER_PORT}, where `worker` listens by default, is free')


def clock() -> Finding:
    """
    Check whether the kernel's clock is kept in step with others.

    More cannot be known from one host: the dispatcher compares each robot's stamps while it runs.
    """
    judged = ("the dispatcher checks every robot's stamps while it runs and says in /diagnostics "
              'which clocks disagree')
    remedy = ('with robots on other hosts: sudo apt install chrony, on each of them; until then '
              'deadlines count from reception')
    state = _kernel_clock()
    if state is None:
        return note('clock', f'whether it is synchronised cannot be known here; {judged}', remedy)
    synchronised, error_s = state
    if not synchronised:
        return note('clock', f'not synchronised with any other; {judged}', remedy)
    offset = _chrony_offset()
    known = f', {offset}' if offset else f', off by at most {1e3 * error_s:.0f} ms'
    return ok('clock', f'synchronised{known}; {judged}')


def cluster() -> Iterator[Finding]:
    """Check access to a Kubernetes cluster, if one is configured."""
    try:
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException
    except ImportError as error:
        yield note('cluster', f'the kubernetes package cannot be imported: {error}',
                   'only needed to scale pools in a cluster: make setup')
        return
    configured = os.environ.get('KUBECONFIG') or str(Path('~/.kube/config').expanduser())
    try:
        if 'KUBERNETES_SERVICE_HOST' in os.environ and 'KUBECONFIG' not in os.environ:
            config.load_incluster_config()
        elif 'KUBECONFIG' in os.environ or Path(configured).exists():
            config.load_kube_config(configured)
        else:
            yield note('cluster', 'no kubeconfig: pools are local processes, which needs none',
                       'to scale pools in a cluster, set KUBECONFIG')
            return
    except (ConfigException, OSError, TypeError, ValueError) as error:
        yield wrong('cluster', f'{configured} cannot be used: {error}',
                    'mend it (`kubectl version` must work), or unset KUBECONFIG')
        return
    api = client.ApiClient()
    host = api.configuration.host
    try:
        # Without retries, a host that does not answer costs three seconds, not twelve.
        api.rest_client.pool_manager.connection_pool_kw['retries'] = False
        version = client.VersionApi(api).get_code(_request_timeout=3.0)
    except Exception as error:  # The client lets exceptions of every layer below it through.
        reason = getattr(error, 'reason', None) or error
        yield wrong('cluster', f'{host} does not answer: {reason}',
                    '`kubectl version` must work first; or unset KUBECONFIG if no cluster is used')
        return
    yield ok('cluster', f'Kubernetes {version.git_version} at {host}')


class _Timex(ctypes.Structure):
    """The kernel's ``struct timex``, as far as it is read here."""

    _fields_ = [
        ('modes', ctypes.c_uint),
        ('offset', ctypes.c_long),
        ('freq', ctypes.c_long),
        ('maxerror', ctypes.c_long),
        ('esterror', ctypes.c_long),
        ('status', ctypes.c_int),
        ('rest', ctypes.c_long * 32),
    ]


def _kernel_clock() -> tuple[bool, float] | None:
    """Return whether the clock is synchronised and its largest error in seconds, if known."""
    unsynchronised = 0x0040
    timex = _Timex(modes=0)
    try:
        result = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return None
    if result < 0:
        return None
    return not timex.status & unsynchronised, timex.maxerror * 1e-6


def _chrony_offset() -> str:
    """Return what chrony says about the clock's offset; empty without chrony."""
    try:
        text = subprocess.run(
            ['chronyc', '-n', 'tracking'], capture_output=True, text=True, timeout=3.0, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ''
    rows = (line.split(':', 1) for line in text.splitlines() if ':' in line)
    return next((f'chrony: {v.strip()}' for k, v in rows if k.strip() == 'System time'), '')


def _holder(port: int) -> str:
    """Name the process that listens on a port, where that can be seen."""
    try:
        import psutil
        for connection in psutil.net_connections('tcp'):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f' (by {psutil.Process(connection.pid).name()}, process {connection.pid})'
    except Exception:  # Absent, or not allowed to look: the name is only a help.
        return ''
    return ''
