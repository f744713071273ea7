"""What libraries say, in few words."""

from __future__ import annotations

from laimr_ros.detectors.reasons import in_short
import pytest


@pytest.mark.parametrize('error, says', [
    (OSError(28, 'No space left on device', 'x'), 'No space left on device'),
    (ValueError('\x1b[31mERROR \u274c\ufe0f it is bad.\x1b[0m\n\nRecommended fixes are many.'),
     'it is bad'),
    (RuntimeError('Weights only load failed. Re-running `torch.load` with weights_only=False'),
     'Weights only load failed'),
    (KeyError(), 'KeyError'), (RuntimeError('see https://a.b'), 'RuntimeError'),
    (ValueError('a\nb'), 'a b'),
])
def test_it_is_short_and_gives_no_advice(error: Exception, says: str) -> None:
    """No colours, no pictures, one line."""
    assert in_short(error) == says


def test_long_ones_end_at_a_word() -> None:
    """And say that they do."""
    text = in_short(ValueError('word ' * 100))
    assert len(text) < 130 and text.endswith('word ...')
