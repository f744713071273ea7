"""Inverse questions without derivatives: the fewest, the most, that still holds."""

from __future__ import annotations

from collections.abc import Callable


def fewest(holds: Callable[[int], bool], least: int, most: int) -> int | None:
    """
    Return the least number for which something holds, by doubling and halving.

    :param holds: false up to some number and true from there on.
    :param least: first number to try.
    :param most: last number to try.
    :return: None if it does not even hold for ``most``.
    """
    below, step, above = least - 1, 1, least
    while above < most and not holds(above):
        below, above, step = above, min(most, above + step), 2 * step
    if above >= most:
        above = most
        if least > most or not holds(most):
            return None
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (below, middle) if holds(middle) else (middle, above)
    return above


def largest(holds: Callable[[float], bool], most: float, *, tolerance: float = 1e-9) -> float:
    """
    Return the largest number for which something holds, by halving.

    :param holds: true up to some number and false from there on.
    :param most: a finite number that it cannot exceed.
    :param tolerance: relative to ``most``.
    :return: 0 if it holds for nothing above.
    """
    if holds(most):
        return most
    below, above = 0.0, most
    while above - below > tolerance * most:
        middle = 0.5 * (below + above)
        below, above = (middle, above) if holds(middle) else (below, middle)
    return below
