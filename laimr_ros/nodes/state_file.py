"""A small file of JSON that is written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
import json
import math
import os
from pathlib import Path
import time
from typing import Any

# What this writes is a thousandth of it.
_MOST_BYTES = 16 * 1024 * 1024


class StateFile:
    """
    Keeps plain values over a restart.

    :param path: the file; missing directories are made when it is first written.
    :param log: gets one message if it cannot be read, and one if it cannot be written.
    """

    def __init__(self, path: str, log: Callable[[str], None]) -> None:
        self._path = Path(path).expanduser()
        self._log = log
        self._failing = False

    def load(self) -> tuple[dict[str, Any], float] | None:
        """Return what was saved and its age in seconds; None if there is nothing of use."""
        try:
            with self._path.open('rb') as file:
                raw = file.read(_MOST_BYTES + 1)
            if len(raw) > _MOST_BYTES:
                raise ValueError(f'it is longer than {_MOST_BYTES} bytes')
            content = json.loads(raw.decode())
            state, age_s = content['state'], time.time() - float(content['saved'])
            if not math.isfinite(age_s):
                raise ValueError(f'it was saved at {content["saved"]}')
            if not isinstance(state, dict):
                raise TypeError(f'its state is {type(state).__name__}, not an object')
            return state, age_s
        except FileNotFoundError:
            return None
        except (OSError, ArithmeticError, LookupError, RecursionError, TypeError,
                ValueError) as error:
            self._log(f'{self._path} cannot be used ({str(error)[:200]}): starting from the '
                      'calibration; it will be written anew')
            return None

    def save(self, state: dict[str, Any]) -> None:
        """Replace what was saved; a failure is logged once, not raised."""
        new = self._path.with_name(f'{self._path.name}.new')
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(
                json.dumps({'saved': time.time(), 'state': state}, allow_nan=False) + '\n',
                encoding='utf-8')
            os.replace(new, self._path)
            self._failing = False
        except (OSError, ValueError) as error:
            if not self._failing:
                self._failing = True
                self._log(f'cannot write {self._path} ({error}): a restart will start from the '
                          'calibration; free some space, or mend the permissions')
