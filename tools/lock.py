"""
Write ``requirements/constraints.txt``: every version, for every Python that is supported.

For maintainers: ``python3 tools/lock.py PYTHON [PYTHON ...]`` with one interpreter of each
version, for example ``python3.10 python3.11 python3.12 python3.13``. Nothing is installed. What is
pinned already stays, unless ``--upgrade`` is given.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
import re
import subprocess
import sys
import tempfile

REQUIREMENTS = Path(__file__).resolve().parent.parent / 'requirements'
CONSTRAINTS = REQUIREMENTS / 'constraints.txt'
HEADER = """\
# Written by tools/lock.py; do not edit. Every package that `make setup` installs, at the versions
# the tests run with.
"""


def resolve(python: str, upgrade: bool) -> tuple[str, dict[str, str]]:
    """Return a Python's version and the versions pip would install there, by package."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, '-m', 'venv', folder], check=True)
        report = Path(folder, 'report.json')
        command = [
            f'{folder}/bin/python', '-m', 'pip', 'install', '--quiet', '--dry-run',
            '--ignore-installed', '--report', str(report),
        ]
        for name in ('ros.txt', 'run.txt', 'dev.txt'):
            command += ['-r', str(REQUIREMENTS / name)]
        if CONSTRAINTS.exists() and not upgrade:
            command += ['-c', str(CONSTRAINTS)]
        subprocess.run(command, check=True)
        content = json.loads(report.read_text(encoding='utf-8'))
    found = {
        re.sub(r'[-_.]+', '-', item['metadata']['name']).lower(): item['metadata']['version']
        for item in content['install']
    }
    return content['environment']['python_version'], found


def merge(found: dict[str, dict[str, str]]) -> str:
    """Return the text of the constraints; `found` maps Python version to package to version."""
    lines = []
    for name in sorted({name for versions in found.values() for name in versions}):
        pythons: dict[str, list[str]] = {}
        for python, versions in found.items():
            if name in versions:
                pythons.setdefault(versions[name], []).append(python)
        if len(pythons) == 1:
            lines.append(f'{name}=={next(iter(pythons))}')
            continue
        for version, where in pythons.items():
            marker = ' or '.join(f"python_version == '{python}'" for python in where)
            lines.append(f'{name}=={version}; {marker}')
    return HEADER + '\n'.join(lines) + '\n'


def main() -> int:
    """Resolve for each Python and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('python', nargs='+', help='an interpreter, one of each version')
    parser.add_argument('--upgrade', action='store_true', help='look for newer versions')
    args = parser.parse_args()
    found = {}
    for python in args.python:
        print(f'resolving for {python}', file=sys.stderr, flush=True)
        version, versions = resolve(python, args.upgrade)
        found[version] = versions
    CONSTRAINTS.write_text(merge(found), encoding='utf-8')
    return 0


if __name__ == '__main__':
    sys.exit(main())
