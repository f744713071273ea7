"""Label selectors as text."""

from __future__ import annotations

from typing import Any


def from_object(selector: dict[str, Any]) -> str:
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


def contradicts(selector: str, labels: dict[str, str]) -> bool:
    """
    Return whether a selector surely does not select an object with these labels.

    Only its plain ``key=value`` parts are judged; the rest is for the server.
    """
    if '(' in selector:
        return False
    for part in selector.split(','):
        key, equals, value = part.replace('==', '=').partition('=')
        if equals and not key.endswith('!') and labels.get(key.strip()) != value.strip():
            return True
    return False
