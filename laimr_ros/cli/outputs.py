"""Where a command is to leave what it makes: found out before the work, not after it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import contextlib
import os
from pathlib import Path
import sys
import tempfile


def named_path(text: str) -> Path:
    """Return the path that an option names; the empty text names none (`type=` of argparse)."""
    if not text:
        raise argparse.ArgumentTypeError("'' is no path; give the name of a file or directory")
    return Path(text)


def problem_with_file(option: str, path: Path, inputs: Sequence[Path] = ()) -> str:
    """
    Return why a file cannot be written, or ''. Leaves nothing behind.

    Devices and pipes are left to whoever names them.

    :param option: that names it, for the message.
    :param inputs: files that the command reads, which it must not overwrite.
    """
    if os.path.isdir(path):
        return f'{option} {str(path)!r} is a directory; give the name of a file'
    for given in inputs:
        with contextlib.suppress(OSError):
            if path.samefile(given):
                return f'{option} {str(path)!r} is what is to be read; give another file'
    if os.path.exists(path) and not path.is_file():
        return ''
    reason = _why_not_in(path.parent)
    if not reason and os.path.exists(path) and not os.access(path, os.W_OK):
        reason = 'it is write-protected'
    return f'{option} {str(path)!r} cannot be written: {reason}; give another file' if (
        reason) else ''


def problem_with_directory(option: str, path: Path) -> str:
    """
    Return why nothing can be written into a directory, which need not exist, or ''.

    :param option: that names it, for the message.
    """
    reason = _why_not_in(path)
    return f'{option} {str(path)!r} cannot be used: {reason}; give another directory' if (
        reason) else ''


def write_whole(path: Path, text: str) -> None:
    """
    Write a file whole or not at all.

    :raises OSError: if it cannot be written; what was there before is there still.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding='utf-8')
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.resolve()  # What a link points to, not the link.
    part = path.with_name(f'.{path.name}.{os.getpid()}.part')
    try:
        part.write_text(text, encoding='utf-8')
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def say_whole(text: str) -> str:
    """Write to standard output and see that it got there; return why it did not, or ''."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would be tried again, and complained of, at the end.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        return error.strerror or str(error)
    return ''



def _why_not_in(directory: Path) -> str:
    """Return why no file can be made in a directory, by making one and removing it again."""
    made: list[Path] = []
    try:
        lacking = [p for p in (directory, *directory.parents) if not os.path.exists(p)]
        for parent in reversed(lacking):
            parent.mkdir()
            made.append(parent)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        there = next(p for p in (directory, *directory.parents) if os.path.exists(p))
        if not os.path.isdir(there):
            return f'{str(there)!r} is a file'
        return f'{error.strerror or error} in {str(there)!r}'
    finally:
        for parent in reversed(made):
            with contextlib.suppress(OSError):
                parent.rmdir()
    return ''
