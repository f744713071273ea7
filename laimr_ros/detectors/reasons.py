"""What libraries raise, in few words."""

from __future__ import annotations

import re

_COLOURS = re.compile(r'\x1b\[[0-9;]*m')
_MOST = 120
# Whatever advises to run a file's code, to look something up or to ask somebody else.
_ADVICE = re.compile(r'weights_only|https?://|trust|recommended|autoinstall', re.IGNORECASE)


def in_short(error: BaseException) -> str:
    """
    Return why something failed, in one short line.

    Without colours, pictures, the library's advice and the place in its source; that is what the
    error's cause is for.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = ' '.join(_COLOURS.sub('', str(error)).encode('ascii', 'ignore').decode().split())
    text = re.sub(r'^(?:\w*error\s*[:.-]?\s+)+', '', text, flags=re.IGNORECASE)
    sentences = re.split(r'(?<=[.;!])\s', text)
    kept = []
    for sentence in sentences:
        if _ADVICE.search(sentence):
            break
        kept.append(sentence)
    text = ' '.join(kept).rstrip('.;: ') or type(error).__name__
    if len(text) > _MOST:
        text = text[:_MOST].rsplit(' ', 1)[0] + ' ...'
    return text
