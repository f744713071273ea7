"""The model card: what a file of weights is, how it came about and how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from laimr_ros.cameras.scene import CLASSES
from laimr_ros.training.cells import HELD_OUT_SEED
from laimr_ros.training.recipes import LICENCES
from laimr_ros.training.session import Recipe

#: Of mAP50; below it a detector is none.
USELESS = 0.05


def write_card(
    path: Path, name: str, recipe: Recipe, *, command: str, machine: str, elapsed_s: float,
    version: str, accuracy: Mapping[str, float], frames: int,
) -> None:
    """
    Write a model card in Markdown.

    :param path: of the card.
    :param name: of the model.
    :param command: that trains it.
    :param machine: what it was trained on.
    :param elapsed_s: what training took, in seconds.
    :param version: of laimr_ros.
    :param accuracy: figures by name, 0 to 1, on held-out scenes.
    :param frames: how many scenes they rest on.
    """
    stages = '; '.join(f'{s.images:,} at {s.input_px} px' for s in recipe.stages)
    start = f'the weights of `{recipe.start}`' if recipe.start else 'random weights'
    figures = '\n'.join(f'| {key} | {value:.3f} |' for key, value in accuracy.items())
    warning = '' if accuracy.get('mAP50', 1.0) >= USELESS else (
        '\n**It finds next to nothing and is of no use: it learned from too few pictures.**\n')
    path.write_text(f"""# {name}

Finds {', '.join(f'`{label}`' for label in CLASSES)} in pictures of a CloudGripper cell's base
camera, {recipe.input_px} pixels wide at the network's input. {recipe.architecture}, a detector
of kind `{recipe.kind}`; weights in half precision.

## Accuracy

On {frames} drawn scenes of held-out seeds ({HELD_OUT_SEED} and above, which training never
sees). What shows less than a quarter of itself counts neither way.

| figure | value |
|---|---|
{figures}
{warning}
## Data

Nothing but pictures that `laimr_ros.training.cells` draws while training, each seen once:
{stages}, seed {recipe.seed}. They vary in pose, size, tint, lens, clutter, cables and ropes,
shadows, glow, blur, noise, exposure, white balance, compression and aspect ratio. No photograph
was used to train it.

## Training

From {start}, {recipe.images:,} pictures in batches of {recipe.batch}, AdamW with steps of at most
{recipe.rate:g}, weights averaged exponentially; {_time(elapsed_s)} on {machine}.
Made with laimr_ros {version} by

    {command}

## Limits

It knows four things of one kind of cell, drawn. On real photographs of such cells it was tried
on a few only. It is there to show and test the dispatcher with; train your own for your robots.

## Licence

{LICENCES[recipe.kind]}.
""")


def made_by(path: Path, command: str) -> bool:
    """Return whether there is a card that says that this command made the weights."""
    try:
        return f'\n    {command}\n' in path.read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError):
        return False


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f'{seconds:.0f} seconds'
    return f'{minutes} minute{"s" if minutes > 1 else ""}'
