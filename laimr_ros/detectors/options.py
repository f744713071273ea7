"""Options of one kind of detector: defaults, and an error for what is unknown."""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from laimr_ros.detectors.base import DetectorError


def fill_in(kind: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the options with defaults for those not given.

    :param kind: kind of detector, for the message.
    :param given: what the user set.
    :param defaults: every option there is.
    :raises DetectorError: if an option is unknown.
    """
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        raise DetectorError(
            f'unknown option {unknown[0]!r} of detector kind {kind}; '
            f'it takes {", ".join(defaults)}')
    return {**defaults, **given}


def take_number(
    kind: str, options: Mapping[str, Any], name: str, least: float = 0.0, most: float = math.inf,
) -> float:
    """
    Return the number in an option.

    :raises DetectorError: if it is no number from ``least`` to ``most``.
    """
    value = options[name]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most):
        limits = f'from {least:g} to {most:g}' if math.isfinite(most) else f'of at least {least:g}'
        raise DetectorError(
            f'option {name} of detector kind {kind} is {value!r}; give a number {limits}')
    return number


def take_whole(kind: str, options: Mapping[str, Any], name: str) -> int:
    """
    Return the whole number in an option.

    :raises DetectorError: if it is no whole number from 0 up.
    """
    value = options[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise DetectorError(
            f'option {name} of detector kind {kind} is {value!r}; give a whole number from 0 up')
    return value


def take_names(kind: str, names: Any) -> tuple[str, ...]:
    """
    Return class names from an option.

    :raises DetectorError: if they are not a list of at least one name.
    """
    if isinstance(names, str) or not isinstance(names, (list, tuple)) or not names:
        raise DetectorError(
            f'option class_names of detector kind {kind} is {names!r}; give a list of names')
    return tuple(str(name) for name in names)
