"""Label selectors as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import re
from typing import Any

Requirement = Callable[[Mapping[str, str]], bool]

_KEY = r'[A-Za-z0-9][-A-Za-z0-9_./]*'
_VALUE = r'[-A-Za-z0-9_.]*'


def from_object(selector: Mapping[str, Any]) -> str:
    """Return the text of a selector that the API gives as an object."""
    parts = [f'{key}={value}' for key, value in (selector.get('matchLabels') or {}).items()]
    for expression in selector.get('matchExpressions') or ():
        key, operator = expression['key'], expression['operator']
        values = ','.join(expression.get('values') or ())
        parts.append({
            'In': f'{key} in ({values})', 'NotIn': f'{key} notin ({values})',
            'Exists': key, 'DoesNotExist': f'!{key}',
        }[operator])
    return ','.join(sorted(parts))


def parse(text: str) -> tuple[Requirement, ...]:
    """
    Return the requirements that a selector makes of labels.

    :param text: as in ``kubectl get --selector``; empty for none.
    :raises ValueError: naming the part that is not understood.
    """
    # Commas within parentheses separate values, not requirements.
    parts = re.findall(r'(?:\([^)]*\)|[^,(])+', text)
    return tuple(_requirement(part.strip()) for part in parts if part.strip())


def matches(text: str, labels: Mapping[str, str]) -> bool:
    """Return whether a selector selects what has these labels. :raises ValueError: as parse."""
    return all(requirement(labels) for requirement in parse(text))


def _requirement(text: str) -> Requirement:
    if found := re.fullmatch(rf'({_KEY})\s*(==?|!=)\s*({_VALUE})', text):
        key, operator, value = found.groups()
        if operator == '!=':
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := re.fullmatch(rf'({_KEY})\s+(in|notin)\s*\(([^)]*)\)', text):
        key, operator, listed = found.groups()
        values = {value.strip() for value in listed.split(',')}
        if operator == 'notin':
            return lambda labels: labels.get(key) not in values
        return lambda labels: labels.get(key) in values
    if found := re.fullmatch(rf'(!?)\s*({_KEY})', text):
        negated, key = found.groups()
        return lambda labels: (key in labels) is not bool(negated)
    raise ValueError(
        f'selector part {text!r} is not understood; write KEY=VALUE, KEY!=VALUE, KEY in (A,B), '
        'KEY notin (A,B), KEY or !KEY')
