"""``laimr doctor``: check this machine and say how to mend what is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
import os
import shutil
import sys

from laimr_ros.cli import machine_checks, software_checks
from laimr_ros.cli.findings import as_json, as_text, Finding, is_usable, note

_EPILOGUE = """
Exit status 0: usable. 1: something is WRONG, and the line below it says how to mend it. A NOTE
stops nothing. Whether robots' clocks agree with this one is measured by the dispatcher while it
runs, from their stamps; see /diagnostics.
"""

CHECKS: tuple[Callable[[], Finding | Iterable[Finding]], ...] = (
    software_checks.python,
    software_checks.ros,
    software_checks.messages,
    software_checks.middleware,
    software_checks.domain,
    software_checks.launch,
    software_checks.torch,
    software_checks.detectors,
    machine_checks.cluster,
    machine_checks.clock,
    machine_checks.ports,
    machine_checks.shared_memory,
    machine_checks.receive_buffer,
    machine_checks.processor,
    machine_checks.memory,
    machine_checks.disk,
    machine_checks.open_files,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOGUE
    parser.add_argument('--json', action='store_true', help='print the findings as JSON')


def run(args: argparse.Namespace) -> int:
    """Run every check; return 0 if nothing has to be mended."""
    findings = examine()
    if args.json:
        print(as_json(findings))
    else:
        colour = sys.stdout.isatty() and 'NO_COLOR' not in os.environ
        print(as_text(findings, colour=colour, width=shutil.get_terminal_size((99, 24)).columns))
    return 0 if is_usable(findings) else 1


def examine() -> list[Finding]:
    """Run every check, a few at a time (most wait for a process); return all findings in order."""
    with ThreadPoolExecutor(max_workers=3) as pool:
        results = pool.map(_guarded, CHECKS)
        return [finding for findings in results for finding in findings]


def _guarded(check: Callable[[], Finding | Iterable[Finding]]) -> list[Finding]:
    """Run one check; one that fails itself becomes a finding, the others still count."""
    try:
        result = check()
        return [result] if isinstance(result, Finding) else list(result)
    except Exception as error:
        return [note(check.__name__.replace('_', ' '),
                     f'this check itself failed: {type(error).__name__}: {error}',
                     'please report it')]
