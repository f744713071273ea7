"""Checks of what is installed: Python, ROS, its messages and middleware, torch, detectors."""

from __future__ import annotations

from collections.abc import Iterator
import json
import os
from pathlib import Path
import re
import subprocess
import sys

from laimr_ros.cli.findings import Finding, note, ok, wrong

MAKE_SETUP = 'run `make setup` in the checkout, and `.venv/bin/laimr doctor`'

# Of vision_msgs 4.1. Nodes with another hash for the same name cannot talk to each other.
TYPE_HASHES = {
    'Detection2DArray':
        'RIHS01_214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968',
    'LabelInfo':
        'RIHS01_3d37df4015cdf660cc851c51897f2acd957e1ca6205ba0a99aebffb9406b0783',
}

MESSAGES = (
    'diagnostic_msgs', 'lifecycle_msgs', 'rcl_interfaces', 'sensor_msgs', 'std_msgs',
    'vision_msgs',
)

# Run in a process of its own: a middleware that cannot be loaded may end the process.
_ECHO = """
import os, time, rclpy
rclpy.init()
from std_msgs.msg import UInt32
from rclpy.executors import SingleThreadedExecutor
node = rclpy.create_node('laimr_doctor_%d' % os.getpid())
topic = '/laimr_doctor_%d' % os.getpid()
got = []
node.create_subscription(UInt32, topic, got.append, 1)
publisher = node.create_publisher(UInt32, topic, 1)
executor = SingleThreadedExecutor()
executor.add_node(node)
deadline = time.monotonic() + 8.0
while not got and time.monotonic() < deadline:
    publisher.publish(UInt32())
    executor.spin_once(timeout_sec=0.1)
print(rclpy.get_rmw_implementation_identifier(), len(got))
"""


def python() -> Finding:
    """Check the interpreter."""
    version = '.'.join(map(str, sys.version_info[:3]))
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        return wrong('Python', f'{version} is not between 3.10 and 3.13',
                     'choose another: PYTHON=python3.12 make setup')
    return ok('Python', f'{version} in {sys.prefix}')


def ros() -> Finding:
    """Check rclpy."""
    status, text = _python(
        'import rclpy\n'
        'try:\n import rclpy.experimental as e; print(hasattr(e, "EventsExecutor"))\n'
        'except ImportError: print(False)')
    distro = os.environ.get('ROS_DISTRO')
    origin = f'ROS 2 {distro}' if distro else 'rclpy from wheels'
    if status != 0:
        fix = ('rclpy is built for the Python of the distribution: use /usr/bin/python3'
               if distro else f'source /opt/ros/jazzy/setup.bash; without ROS, {MAKE_SETUP}')
        return wrong('ROS', f'rclpy cannot be imported: {_last_line(text)}', fix)
    if text != 'True':
        return note('ROS', f'{origin}, without EventsExecutor: a frame costs several times the '
                           'CPU time with many robots', 'update rclpy to 7.1.5 or later')
    return ok('ROS', f'{origin}, with EventsExecutor')


def launch() -> Finding:
    """Check whether launch files can be used."""
    status, _ = _python('import launch.actions, launch_ros.actions')
    distro = os.environ.get('ROS_DISTRO')
    if status != 0 and distro:
        return note('launch', 'launch_ros is not installed',
                    f'sudo apt install ros-{distro}-launch-ros ros-{distro}-ros2launch')
    if status != 0:
        return note('launch', 'launch_ros is not installed (it comes with ROS, not as a wheel)',
                    'without ROS, start `laimr demo` or the nodes by their commands: camera, '
                    'dispatcher, worker, local_bridge')
    return ok('launch', 'launch_ros is installed')


def messages() -> Finding:
    """Check the message packages, and that vision_msgs is the one others use."""
    status, text = _python(
        'import importlib, sys\n'
        f'for name in {MESSAGES!r}:\n'
        ' try:\n'
        '  module = importlib.import_module(name + ".msg")\n'
        '  for message in dir(module): getattr(module, message)\n'
        ' except Exception as error: sys.exit(f"{name}: {error}")')
    if status != 0:
        package, _, reason = _last_line(text).partition(': ')
        distro = os.environ.get('ROS_DISTRO')
        apt = f'sudo apt install ros-{distro}-{package.replace("_", "-")}, or ' if distro else ''
        return wrong('messages', f'{package} cannot be imported: {reason}', f'{apt}{MAKE_SETUP}')
    for name, expected in TYPE_HASHES.items():
        found = _type_hash(name)
        if found is None:
            return note('messages', 'all there, but the type hashes of vision_msgs are not on '
                                    'disk and could not be compared')
        if found != expected:
            return wrong('messages', f'vision_msgs/{name} has type hash {found}, not that of '
                                     'vision_msgs 4.1: other ROS nodes will not match its topics',
                         'remove the vision_msgs that was built by hand, or update it to 4.1')
    return ok('messages', f'{", ".join(MESSAGES)}; vision_msgs has the type hashes of 4.1')


def middleware() -> Finding:
    """Send one message through the middleware, as the nodes would."""
    status, text = _python(_ECHO, timeout_s=30.0)
    wanted = os.environ.get('RMW_IMPLEMENTATION', '')
    named = f'RMW_IMPLEMENTATION={wanted}' if wanted else 'the default RMW'
    if status != 0:
        return wrong('RMW', f'{named} does not work: {_last_line(text)}',
                     'unset RMW_IMPLEMENTATION, or install it (the wheels bring '
                     'rmw_fastrtps_cpp only); see also "shared memory" below')
    name, count = text.splitlines()[-1].split()
    if count == '0':
        return wrong('RMW', f'{name}: a message to this very process did not arrive within 8 s',
                     'check ROS_DOMAIN_ID, FASTRTPS_DEFAULT_PROFILES_FILE, CYCLONEDDS_URI and the '
                     'firewall (UDP 7400 and up, multicast 239.255.0.1)')
    return ok('RMW', f'{name}; a message came back')


def domain() -> Finding:
    """Check which other hosts the nodes will see."""
    text = os.environ.get('ROS_DOMAIN_ID', '0') or '0'
    if not text.isdecimal() or int(text) > 232:
        return wrong('ROS domain', f'ROS_DOMAIN_ID={text} is not a number from 0 to 232',
                     'export ROS_DOMAIN_ID=0 (the same on every robot and edge host)')
    reach = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', '')
    if os.environ.get('ROS_LOCALHOST_ONLY') == '1' or reach in ('LOCALHOST', 'OFF'):
        return note('ROS domain', f'{text}, and only nodes on this host are seen',
                    'for robots on other hosts: unset ROS_LOCALHOST_ONLY and '
                    'ROS_AUTOMATIC_DISCOVERY_RANGE')
    if 101 < int(text) < 215:
        return note('ROS domain', f'{text}: its ports are those Linux hands out to other programs',
                    'prefer 0 to 101')
    return ok('ROS domain', f'{text}; the same must be set on every robot and edge host')


def torch() -> Finding:
    """Check torch and the GPU."""
    status, text = _python(
        'import torch; c = torch.cuda; n = c.device_count() if c.is_available() else 0\n'
        'print(torch.__version__, torch.get_num_threads(), n, sep="|")\n'
        'for i in range(n):\n'
        ' p = c.get_device_properties(i); free, total = c.mem_get_info(i)\n'
        ' (torch.ones(8, device=f"cuda:{i}") * 2).sum().item()\n'
        ' print(f"{p.name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")', timeout_s=120.0)
    has_gpu = Path('/proc/driver/nvidia/version').exists()
    if status != 0:
        return note('torch', f'not usable: {_last_line(text)}. Without it this host can serve no '
                             'detector but the emulated one; a robot needs none', MAKE_SETUP)
    rows = text.splitlines()
    version, threads, gpus = rows[-1 if len(rows) == 1 else 0].split('|')
    if gpus == '0':
        detail = f'{version} on the CPU, {threads} threads'
        if has_gpu:
            return wrong('torch', f'{detail}, though an NVIDIA driver is loaded',
                         'update the driver, or check CUDA_VISIBLE_DEVICES; `python -c "import '
                         'torch; torch.zeros(1).cuda()"` says why')
        return ok('torch', f'{detail}; no GPU')
    return ok('torch', f'{version}; GPU: {"; ".join(rows[1:])}')


def detectors() -> Iterator[Finding]:
    """Check the libraries detectors come from, and those that serve them."""
    for name, module, version, kind in (
        ('YOLO', 'ultralytics', 'ultralytics', 'yolo'),
        ('EfficientDet', 'effdet', 'effdet.version', 'efficientdet'),
    ):
        status, text = _python(
            f'import {module}\nfrom {version} import __version__\nprint(__version__)',
            timeout_s=120.0)
        if status == 0:
            yield ok(name, f'{module} {_last_line(text)}')
        else:
            yield note(name, f'{module} cannot be imported: {_last_line(text)}; no models of '
                             f'kind {kind} here', MAKE_SETUP)
    status, text = _python('import grpc, grpc_health.v1.health_pb2\n'
                           'from tritonclient.grpc import service_pb2_grpc\n'
                           'print(grpc.__version__)')
    if status == 0:
        yield ok('gRPC', f'grpcio {_last_line(text)} and the stubs of the inference protocol')
    else:
        yield wrong('gRPC', f'cannot be imported: {_last_line(text)}', MAKE_SETUP)


def _type_hash(name: str) -> str | None:
    """Return the type hash that the installed vision_msgs has on disk for one message."""
    prefixes = [*os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep), sys.prefix]
    for prefix in filter(None, prefixes):
        file = Path(prefix, 'share', 'vision_msgs', 'msg', f'{name}.json')
        try:
            hashes = json.loads(file.read_text(encoding='utf-8'))['type_hashes']
        except (OSError, ValueError, KeyError):
            continue
        for row in hashes:
            if row.get('type_name') == f'vision_msgs/msg/{name}':
                return str(row.get('hash_string'))
    return None


def _python(code: str, timeout_s: float = 60.0) -> tuple[int, str]:
    """Run code in an interpreter of its own; return its exit status and what it printed."""
    env = {'YOLO_OFFLINE': 'true', 'PYTHONWARNINGS': 'ignore', **os.environ}
    try:
        done = subprocess.run(
            [sys.executable, '-c', code], env=env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors='replace', timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return 124, f'no answer within {timeout_s:.0f} s'
    except OSError as error:
        return 127, str(error)
    if done.returncode < 0:
        return done.returncode, f'{done.stderr}\nended by signal {-done.returncode}'
    return done.returncode, (done.stdout if done.returncode == 0 else done.stderr).strip()


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    # An exception's own line says more than what follows it.
    errors = [line for line in lines if re.match(r'[\w.]+(Error|Exception): ', line)]
    return (errors or lines or ['no message'])[-1].strip()
