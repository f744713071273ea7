"""What holds for every test: kept to this host, and the run says what ran and what it left."""

from __future__ import annotations

from collections import Counter
import os
from pathlib import Path
import random
import time
import uuid

from hypothesis import settings
import pytest

# A busy host is slow, which is no defect. What CI tries is the same each time; people's runs look
# further, and keep what they find.
settings.register_profile('anywhere', deadline=None)
settings.register_profile('ci', deadline=None, derandomize=True)
settings.load_profile('ci' if os.environ.get('CI') else 'anywhere')

CHECKOUT = Path(__file__).resolve().parent.parent
SESSION = uuid.uuid4().hex

# Inherited by every process the tests start, so that those left behind can be told apart.
os.environ['LAIMR_TEST_SESSION'] = SESSION
# A domain of its own: two runs on one network, or on one host, do not hear each other.
os.environ.setdefault('ROS_DOMAIN_ID', str(random.SystemRandom().randint(1, 101)))
os.environ.setdefault('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
os.environ.setdefault('ROS_LOG_DIR', str(CHECKOUT / 'log' / 'ros'))
os.environ.setdefault('MPLBACKEND', 'Agg')
# Nothing may wait on a model hub.
os.environ['YOLO_OFFLINE'] = 'true'
os.environ['HF_HUB_OFFLINE'] = '1'


def processes_left() -> list[str]:
    """Return the command lines of processes that tests started and that still run."""
    mark = f'LAIMR_TEST_SESSION={SESSION}'.encode()
    left = []
    for folder in Path('/proc').glob('[0-9]*'):
        try:
            if int(folder.name) == os.getpid() or mark not in (folder / 'environ').read_bytes():
                continue
            command = (folder / 'cmdline').read_bytes().replace(b'\0', b' ').decode().strip()
        except (OSError, UnicodeDecodeError):
            continue
        # Empty: a zombie, which its parent has yet to collect. The tracker ends with this process.
        if command and 'multiprocessing.resource_tracker' not in command:
            left.append(f'{folder.name}: {command[:200]}')
    return left


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run if a process outlives it."""
    deadline = time.monotonic() + 5.0
    left = processes_left()
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = processes_left()
    session.config.stash[LEFT] = left
    if left and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how many tests ran, and why each of the others did not."""
    stats = terminalreporter.stats
    ran = sum(len(stats.get(kind, ())) for kind in ('passed', 'failed', 'xfailed', 'xpassed'))
    reasons: Counter[str] = Counter()
    for report in stats.get('skipped', ()):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[text.removeprefix('Skipped: ')] += 1
    terminalreporter.section('what ran')
    terminalreporter.line(f'{ran} tests ran, {reasons.total()} were skipped')
    for reason, count in reasons.most_common():
        terminalreporter.line(f'  {count} skipped: {reason}')
    left = config.stash.get(LEFT, [])
    if left:
        terminalreporter.line('Processes left behind, so this run FAILED:', red=True)
        for process in left:
            terminalreporter.line(f'  {process}')


LEFT = pytest.StashKey[list[str]]()
