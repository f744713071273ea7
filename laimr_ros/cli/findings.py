"""What ``laimr doctor`` can find, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
import json
import textwrap


class Verdict(Enum):
    """What a finding means for the user."""

    OK = 'ok'
    NOTE = 'note'
    WRONG = 'wrong'


@dataclass(frozen=True)
class Finding:
    """
    What one check found.

    :param name: what was looked at, in a word or two.
    :param verdict: ``OK``; ``NOTE``: works, but this is worth knowing; ``WRONG``: mend this first.
    :param detail: what was found.
    :param remedy: what to do; empty if nothing.
    """

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ''


def ok(name: str, detail: str) -> Finding:
    """Return a finding with which all is well."""
    return Finding(name, Verdict.OK, detail)


def note(name: str, detail: str, remedy: str = '') -> Finding:
    """Return a finding that is worth knowing but stops nothing."""
    return Finding(name, Verdict.NOTE, detail, remedy)


def wrong(name: str, detail: str, remedy: str) -> Finding:
    """Return a finding that has to be mended."""
    return Finding(name, Verdict.WRONG, detail, remedy)


def is_usable(findings: Sequence[Finding]) -> bool:
    """Say whether nothing has to be mended."""
    return all(finding.verdict is not Verdict.WRONG for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings for programs."""
    rows = [{**asdict(finding), 'verdict': finding.verdict.value} for finding in findings]
    return json.dumps({'usable': is_usable(findings), 'findings': rows}, indent=2)


def as_text(findings: Sequence[Finding], *, colour: bool, width: int) -> str:
    """
    Return the findings for people.

    :param findings: in the order they are shown.
    :param colour: whether the terminal takes colours.
    :param width: columns of the terminal.
    """
    colours = {Verdict.OK: '32', Verdict.NOTE: '33', Verdict.WRONG: '1;31'}
    names = max((len(finding.name) for finding in findings), default=0)
    indent = ' ' * (names + 9)
    lines = []
    for finding in findings:
        word = finding.verdict.value.upper().ljust(5)
        if colour:
            word = f'\033[{colours[finding.verdict]}m{word}\033[0m'
        text = textwrap.fill(
            finding.detail, width=max(width, len(indent) + 30), break_long_words=False,
            initial_indent=indent, subsequent_indent=indent)
        lines.append(f'{word}  {finding.name.ljust(names)}  {text.lstrip()}')
        if finding.remedy:
            lines.append(textwrap.fill(
                finding.remedy, width=max(width, len(indent) + 30), break_long_words=False,
                break_on_hyphens=False,
                initial_indent=f'{indent}-> ', subsequent_indent=f'{indent}   '))
    bad = sum(finding.verdict is Verdict.WRONG for finding in findings)
    notes = sum(finding.verdict is Verdict.NOTE for finding in findings)
    counted = f'{notes} note{"" if notes == 1 else "s"}'
    if bad:
        lines.append(f'\nnot usable yet: {bad} to mend (WRONG above), {counted}')
    else:
        lines.append(f'\nusable: nothing to mend, {counted}')
    return '\n'.join(lines)
