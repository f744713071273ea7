"""How the detectors that come with the package were trained."""

from __future__ import annotations

from laimr_ros.training.session import Recipe, Stage

# One a lane of the demonstration. Small inputs first: most of what is to be learned can be seen
# in them, at a third of the cost.
RECIPES: dict[str, Recipe] = {
    'efficientdet_lite0': Recipe(
        'efficientdet', 'tf_efficientdet_lite0',
        (Stage(192, 13_000), Stage(256, 7_000), Stage(320, 4_000)), rate=0.0015, batch=8, seed=2),
    'yolov5n': Recipe(
        'yolo', 'yolov5n.yaml',
        (Stage(256, 16_000), Stage(320, 16_000), Stage(416, 16_000)), rate=0.002, seed=1),
    # The same network, which learns to use a larger picture.
    'yolov5n_512': Recipe(
        'yolo', 'yolov5n.yaml', (Stage(512, 16_000),), rate=0.0008, seed=3, start='yolov5n'),
}

SUFFIXES = {'yolo': '.pt', 'efficientdet': '.safetensors'}
LICENCES = {'yolo': 'AGPL-3.0', 'efficientdet': 'Apache-2.0'}


def file_name(name: str) -> str:
    """Return the name of the file of weights of a recipe."""
    return f'cell_{name}{SUFFIXES[RECIPES[name].kind]}'
