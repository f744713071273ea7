"""What makes numbers of an experiment too few to be trusted, told beside them."""

from __future__ import annotations

from collections.abc import Sequence

from laimr_ros.evaluation.kept import Row

# Fewer tell nothing of how much numbers differ from seed to seed.
_SEEDS = 3
# A P99 of fewer frames rests on less than ten of them.
_FRAMES = 1000


def no_frames(rows: Sequence[Row]) -> bool:
    """Return whether frames were counted, and there were none in any run."""
    counted = [row['frames'] for row in rows if 'frames' in row]
    return bool(counted) and not any(counted)


def cautions(seeds: int, rows: Sequence[Row]) -> list[str]:
    """
    Return what a reader must be warned of.

    :param seeds: how many there were.
    """
    told = []
    if seeds < _SEEDS:
        told.append(f'{seeds} seed{"s" * (seeds > 1)}: too few to tell how much numbers differ '
                    'from seed to seed; the default is 10.')
    counted = [row['frames'] for row in rows if 'frames' in row]
    least = min(counted, default=_FRAMES)
    if least < _FRAMES:
        few = sum(frames < _FRAMES for frames in counted)
        told.append(
            f'{few} of {len(counted)} runs have fewer than {_FRAMES} frames (the least: '
            f'{least:g}): their P99 rests on less than {_FRAMES // 100} frames, which is too '
            'little; a greater --measured gives more.')
    return told
