"""What a file of weights is by what is in it, found out without loading it."""

from __future__ import annotations

import json
import os
from pathlib import Path
import re
import zipfile

_ZIP = b'PK\x03\x04'
# The oldest files of PyTorch are bare pickles, of protocol 2 and later.
_PICKLE = re.compile(rb'\x80[\x02-\x05]')
_BEGIN = 512
_DAMAGED = 'is damaged or cut off'


def why_not_pytorch(path: Path) -> str:
    """Return why a file is none of PyTorch's, such as 'is a directory', or ''."""
    begin, problem = _begin(path)
    if problem:
        return problem
    if not begin.startswith(_ZIP):
        return '' if _PICKLE.match(begin) else f'is {_kind(begin)}, not weights of PyTorch'
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return _DAMAGED
    if not any(name.endswith('data.pkl') for name in names):
        return 'is a ZIP file, not weights of PyTorch'
    if any(name.endswith('constants.pkl') for name in names):
        return 'is TorchScript, a program, not weights of PyTorch'
    return ''


def why_not_safetensors(path: Path) -> str:
    """Return why a file is none of safetensors, or ''."""
    begin, problem = _begin(path)
    if problem:
        return problem
    if not _looks_like_safetensors(begin):
        return f'is {_kind(begin)}, not safetensors'
    length = int.from_bytes(begin[:8], 'little')
    try:
        with path.open('rb') as file:
            file.seek(8)
            head = json.loads(file.read(min(length, 100_000_000)))
        end = max((tensor['data_offsets'][1] for name, tensor in head.items()
                   if name != '__metadata__'), default=0)
        whole = 8 + length + end == path.stat().st_size
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OSError):
        whole = False
    return '' if whole else _DAMAGED


def why_not_engine(path: Path) -> str:
    """Return why a file is no network of OpenVINO, or ''."""
    begin, problem = _begin(path)
    if problem:
        return problem
    return '' if b'<net' in begin else f'is {_kind(begin)}, not an engine'


def is_safetensors(path: Path) -> bool:
    """Return whether a file begins as those of safetensors do."""
    return _looks_like_safetensors(_begin(path)[0])


def _begin(path: Path) -> tuple[bytes, str]:
    """Return the first bytes of a file, or what is wrong with it."""
    if os.path.isdir(path):
        return b'', 'is a directory'
    try:
        with path.open('rb') as file:
            begin = file.read(_BEGIN)
    except OSError as error:
        return b'', f'cannot be read ({error.strerror})'
    return begin, '' if begin else 'is empty'


def _looks_like_safetensors(begin: bytes) -> bool:
    # The length of a JSON text, in 64 bits, and the text.
    return begin[5:9] == b'\0\0\0{'


def _kind(begin: bytes) -> str:
    """Return what a file is, by its first bytes, for people."""
    if begin.startswith(_ZIP) or _PICKLE.match(begin):
        return 'a file of PyTorch'
    if _looks_like_safetensors(begin):
        return 'a file of safetensors'
    if begin.startswith(b'version https://git-lfs'):
        return 'a pointer of Git LFS (see `git lfs pull`)'
    if b'<net' in begin:
        return 'an engine of OpenVINO'
    # The last character may be cut in two.
    text = begin.decode(errors='replace').rstrip('\ufffd')
    readable = all(c.isprintable() or c.isspace() for c in text) and '\ufffd' not in text
    return 'text' if readable else 'something else'
