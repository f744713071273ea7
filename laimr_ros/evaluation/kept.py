"""The file of finished runs: one JSON line each, checked, so that a damaged one is seen."""

from __future__ import annotations

from collections.abc import Iterable
import contextlib
import fcntl
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

#: A run as kept: what it was of, and its numbers.
Row = dict[str, Any]

# Names of what a line has besides its row.
_CHECK, _TOOK, _OWNER = 'check', 'took_s', 'experiment'


class InUseError(RuntimeError):
    """Another process appends to the file."""


class Kept:
    """
    Finished runs, read from a file and appended to it; nobody else appends meanwhile.

    A line of this class ends with a check of what it holds. Lines of older versions have none,
    and are taken as they are; they can only stand before a line that names the experiment.

    :param path: of the file, which need not exist, nor its directory.
    :raises InUseError: if another process has it open like this.
    :raises OSError: if it can be neither read nor written.
    """

    def __init__(self, path: Path) -> None:
        #: Rows by their key; seconds that each took, where known; what is wrong, by line number.
        self.rows: dict[str, Row] = {}
        self.seconds: dict[str, float] = {}
        self.damaged: dict[int, str] = {}
        #: The experiment that the runs are of, where the file says so.
        self.experiment: str | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open('ab')
        try:
            _lock(self._file.fileno(), path)
            self._read(path)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others append."""
        # What a full disk did not take must not be tried again.
        with contextlib.suppress(OSError):
            self._file.close()

    def name(self, experiment: str) -> None:
        """Write down which experiment the runs are of."""
        if self.experiment is None:
            self._append({_OWNER: experiment})
            self.experiment = experiment

    def add(self, row: Row, seconds: float) -> None:
        """Keep a finished run. :param seconds: that it took."""
        self.rows[row['key']] = row
        self.seconds[row['key']] = seconds
        told = {**plain(row), _TOOK: round(seconds, 3)}
        self._append({**told, _CHECK: _check(told)})

    def took(self, keys: Iterable[str]) -> float:
        """Return the seconds that runs took, one after the other; NaN if one's is not known."""
        return sum(self.seconds.get(key, math.nan) for key in keys)

    def _append(self, line: Row) -> None:
        self._file.write(json.dumps(line, allow_nan=False).encode() + b'\n')
        self._file.flush()

    def _read(self, path: Path) -> None:
        content = path.read_bytes()
        *whole, last = content.split(b'\n')
        for number, line in enumerate([*whole, last] if last else whole, 1):
            try:
                self._take(line)
            except ValueError as error:
                self.damaged[number] = str(error)
        if last:
            if len(whole) + 1 in self.damaged:
                # The process was stopped while it wrote: nothing is lost that was ever there.
                self._file.truncate(len(content) - len(last))
            else:
                self._file.write(b'\n')
                self._file.flush()

    def _take(self, line: bytes) -> None:
        """Take note of a line. :raises ValueError: if it is damaged."""
        if not line.strip():
            return
        try:
            found = json.loads(line, parse_constant=_refuse)
        except UnicodeDecodeError:
            raise ValueError('no text') from None
        except RecursionError:
            raise ValueError('no run') from None
        except json.JSONDecodeError:
            raise ValueError('no whole line of JSON') from None
        if isinstance(found, dict) and found.keys() == {_OWNER}:
            self.experiment = str(found[_OWNER])
            return
        if not isinstance(found, dict) or not isinstance(found.get('key'), str):
            raise ValueError('no run')
        check = found.pop(_CHECK, None)
        lacking = check is None and self.experiment is not None
        if lacking or check not in (None, _check(found)):
            raise ValueError('altered after it was written')
        seconds = found.pop(_TOOK, None)
        key = found['key']
        self.rows[key] = {name: value if name == 'measured' else _number(value)
                          for name, value in found.items()}
        if isinstance(seconds, float):
            self.seconds[key] = seconds


def plain(value: Any) -> Any:
    """Return a value with infinities as text and NaN as null, which JSON has no numbers for."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ('inf' if value > 0 else '-inf')
    return value


def _check(line: Row) -> str:
    text = json.dumps(line, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _refuse(word: str) -> None:
    raise ValueError(f'{word} is no JSON')


def _number(value: Any) -> Any:
    if value is None:
        return math.nan
    return float(value) if value in ('inf', '-inf') else value


def _lock(descriptor: int, path: Path) -> None:
    # Where a file system knows no locks, as some networks' do, there is none.
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(f'another command is at work on {os.fspath(path)}') from None
