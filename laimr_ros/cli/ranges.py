"""Whole numbers that options take."""

from __future__ import annotations

import os

#: Pictures that are up to 1920 pixels wide have nothing more to show to a larger input, which
#: would take many gigabytes.
MOST_INPUT_PX = 4096
#: Pictures; a week of work.
MOST_FRAMES = 1_000_000


def most_threads() -> int:
    """Return how many threads help: more than cores wait for each other, or crash a runtime."""
    return os.cpu_count() or 1


def out_of_range(option: str, value: int, least: int, most: int, more: str = '') -> str:
    """
    Return what is wrong with a number, or ''.

    :param more: what else to say of the right ones.
    """
    return '' if least <= value <= most else f'{option} {value}; give {least} to {most}{more}'


def wrong_input_px(kind: str, value: int) -> str:
    """
    Return what is wrong with ``--input-px``, or ''.

    :param kind: of detector.
    :param value: in pixels; 0 for the network's own.
    """
    if value == 0:
        return ''
    # Each network halves its input a few times, and at least a cell must be left.
    least = 32 if kind == 'yolo' else 128
    problem = out_of_range(
        '--input-px', value, least, MOST_INPUT_PX, ", or 0 for the network's own")
    if not problem and kind == 'yolo' and value % 32:
        return (f'--input-px {value} is no multiple of 32, as YOLO networks take it; give '
                f'{value // 32 * 32} or {-(-value // 32) * 32}')
    return problem
