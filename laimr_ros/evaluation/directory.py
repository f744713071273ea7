"""The directory of a report: of one experiment, and of one command at a time."""

from __future__ import annotations

import json
from pathlib import Path

from laimr_ros.evaluation.kept import InUseError, Kept

#: Finished runs.
RUNS = 'runs.jsonl'
# The one that names the experiment, and the others that a report overwrites.
_RESULT, _OTHERS = 'result.json', ('report.html', 'runs.csv')
_FIX = 'give another --out, or remove what is there'


class DirectoryError(RuntimeError):
    """A report cannot go there; the message says why and what to do."""


def occupy(out: Path, experiment: str) -> Kept:
    """
    Return the finished runs of a directory, which is made if need be.

    :raises DirectoryError: if files cannot be written, or are of another experiment or of none, or
        if another process is at work there.
    """
    for name in (RUNS, _RESULT, *_OTHERS):
        if (out / name).is_dir():
            raise DirectoryError(f'{out / name} is a directory; {_FIX}')
    try:
        named = _named(out / _RESULT)
        if named is None:
            foreign = [name for name in _OTHERS if (out / name).exists()]
            if foreign:
                raise DirectoryError(f'{out / foreign[0]} is of no experiment; {_FIX}')
        _demand(out / _RESULT, named, experiment)
        kept = Kept(out / RUNS)
    except InUseError as error:
        raise DirectoryError(f'{error}; wait for it, or give another --out') from None
    except OSError as error:
        raise DirectoryError(
            f'--out {out}: {error.filename}: {error.strerror}; give another directory') from None
    try:
        _demand(out / RUNS, kept.experiment, experiment)
        kept.name(experiment)
    except OSError as error:
        kept.close()
        raise DirectoryError(
            f'--out {out}: {out / RUNS}: {error.strerror}; give another directory') from None
    except BaseException:
        kept.close()
        raise
    return kept


def _demand(file: Path, found: str | None, experiment: str) -> None:
    if found not in (None, experiment):
        raise DirectoryError(f'{file} is of the experiment {found}, not of {experiment}; {_FIX}')


def _named(result: Path) -> str | None:
    """Return the experiment that a result is of; None if there is none."""
    try:
        return str(json.loads(result.read_bytes())['experiment'])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DirectoryError(f'{result} is of no experiment; {_FIX}') from None
