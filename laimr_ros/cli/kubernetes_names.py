"""What Kubernetes takes as names; it would refuse the objects, one after the other."""

from __future__ import annotations

import re

_LABEL = re.compile(r'[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?')
_PART = r'[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*'
_IMAGE = re.compile(
    # Registry, path, tag, digest.
    r'(?:(?:\[[0-9A-Fa-f:]+\]|[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)(?::[0-9]+)?/)?'
    rf'{_PART}(?:/{_PART})*'
    r'(?::[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(?:@[a-z0-9+._-]+:[0-9a-f]{32,})?')


def wrong_namespace(option: str, text: str) -> str:
    """
    Return what is wrong with the name of a namespace, or ''.

    :param option: or parameter that gives it, for the message.
    """
    if _LABEL.fullmatch(text):
        return ''
    return (f'{option} {text!r} is no name of a namespace; give 1 to 63 lower-case letters, '
            'digits and hyphens, a letter or digit first and last')


def wrong_image(option: str, text: str) -> str:
    """
    Return what is wrong with the name of an image, or ''.

    :param option: or parameter that gives it, for the message.
    """
    if _IMAGE.fullmatch(text):
        return ''
    return (f'{option} {text!r} is no name of an image; give [REGISTRY/]NAME[:TAG], the name in '
            'lower-case letters, such as ghcr.io/me/laimr-worker:1.0')
