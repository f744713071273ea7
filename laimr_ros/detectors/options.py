"""Options of one kind of detector: defaults, and an error for what is unknown."""

from __future__ import annotations

from collections.abc import Mapping
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


def take_names(kind: str, names: Any) -> tuple[str, ...]:
    """
    Return class names from an option.

    :raises DetectorError: if they are not a list of at least one name.
    """
    if isinstance(names, str) or not isinstance(names, (list, tuple)) or not names:
        raise DetectorError(
            f'option class_names of detector kind {kind} is {names!r}; give a list of names')
    return tuple(str(name) for name in names)
