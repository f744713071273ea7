"""Progress and failures of the set-up: short lines on the terminal, the noise in log files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import os
from pathlib import Path
import queue
import re
import subprocess
import sys
import threading
import time

# A line at least so often, so that nobody wonders whether it still runs.
HEARTBEAT_S = 15.0

# What the log of a failed step shows, and what its reader can do about it. The first match counts.
REMEDIES: tuple[tuple[str, str], ...] = (
    (
        r'No space left on device|Disk quota exceeded|OSError: \[Errno 28\]',
        'the disk is full. Free about 10 GB where this checkout lies',
    ),
    (
        r'CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError',
        'the package index has a certificate that pip does not trust. Behind a company proxy, '
        'set PIP_CERT to its CA file',
    ),
    (
        r'ProxyError|407 Proxy Authentication',
        'the proxy refused the connection. Check https_proxy',
    ),
    (
        r'Temporary failure in name resolution|Name or service not known|NameResolutionError'
        r'|NewConnectionError|Connection refused|Network is unreachable|No route to host',
        'the package index cannot be reached. Check the network (behind a proxy, set https_proxy; '
        'for a mirror, set PIP_INDEX_URL)',
    ),
    (
        r'Read timed out|ReadTimeoutError|IncompleteRead|Connection reset|Connection broken'
        r'|ConnectionResetError|ProtocolError|RemoteDisconnected|HTTP error 5\d\d'
        r'|DO NOT MATCH THE HASHES|BadZipFile',
        'a download broke off. Run the same command again',
    ),
    (
        r'No matching distribution found for (?P<name>[^\s;]+)',
        'the package index has no {name} for this Python. Try PYTHON=python3.12, or the index '
        'pip uses by default (PIP_INDEX_URL)',
    ),
    (
        r'ResolutionImpossible|conflicting dependencies',
        'pip found contradictory versions. Unset PIP_CONSTRAINT and PIP_REQUIREMENT if you set '
        'them',
    ),
    (
        r'Python\.h: No such file',
        "Python's headers are missing. On Debian and Ubuntu: sudo apt install python3-dev",
    ),
    (
        r'Cannot allocate memory|MemoryError|Killed signal terminated|cc1plus: out of memory',
        'the memory ran out. Close other programs and run the same command again',
    ),
    (r'Permission denied', 'a file cannot be written. Check who owns this checkout'),
)

# Failures that often pass when tried again.
TRANSIENT = re.compile(REMEDIES[4][0])


class SetupError(Exception):
    """The set-up cannot go on; the message says what is wrong and what to do, in one line."""


class Progress:
    """Prints one short line a step, with the seconds since the start."""

    def __init__(self) -> None:
        """Start the clock."""
        self._start = time.monotonic()
        self._last = self._start

    def say(self, text: str) -> None:
        """Print one line."""
        self._last = time.monotonic()
        print(f'[{self._last - self._start:4.0f} s] {text}', file=sys.stderr, flush=True)

    def beat(self, text: str) -> None:
        """Print a line only if there was none for a while."""
        if time.monotonic() - self._last >= HEARTBEAT_S:
            self.say(text)


def remedy(log: str) -> str | None:
    """Say what a failed step's log shows and what to do; None when it shows nothing known."""
    for pattern, advice in REMEDIES:
        match = re.search(pattern, log)
        if match:
            return advice.format(**match.groupdict())
    return None


def run_logged(
    command: Sequence[str | os.PathLike[str]],
    log: Path,
    progress: Progress,
    *,
    doing: str,
    env: Mapping[str, str],
    cwd: Path,
    on_line: Callable[[str], str | None] | None = None,
) -> None:
    """
    Run a command, its output in a log file, and show that it is alive.

    :param command: program and arguments.
    :param log: file the output goes to; replaced.
    :param progress: where lines are shown.
    :param doing: what is being done, for heartbeats and failures: ``downloading packages``.
    :param env: the command's whole environment.
    :param cwd: directory to run in.
    :param on_line: called with each line of output; may return a line to show.
    :raises SetupError: if the command fails; names what to do and the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open('w', encoding='utf-8', errors='replace') as out:
        process = subprocess.Popen(
            [os.fspath(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors='replace',
            env=dict(env),
            cwd=cwd,
        )
        try:
            doing_now = doing
            for line in _lines(process):
                if line is None:
                    progress.beat(f'... still {doing_now}')
                    continue
                out.write(line)
                shown = on_line(line) if on_line else None
                if shown:
                    progress.say(shown)
                    doing_now = shown
            status = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if status != 0:
        text = log.read_text(encoding='utf-8', errors='replace')
        advice = remedy(text) or f'{doing} failed. The last lines of the log say why'
        raise SetupError(f'{advice} (log: {log})')


def _lines(process: subprocess.Popen[str]) -> Iterator[str | None]:
    """Yield the lines of a process as they come, and None for each quiet second."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=1.0)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line
