"""EfficientDet checkpoints that say what they are: safetensors with a few words beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import json
from pathlib import Path

import torch


@dataclass(frozen=True)
class Description:
    """
    What a checkpoint says of itself.

    :param architecture: as effdet calls it; '' if it does not say.
    :param class_names: one a class; empty if it does not say.
    :param image_size: side of the input it was trained with, in pixels; 0 if it does not say.
    """

    architecture: str = ''
    class_names: tuple[str, ...] = ()
    image_size: int = 0


def save_checkpoint(
    path: Path, state: Mapping[str, torch.Tensor], *, architecture: str,
    class_names: tuple[str, ...], image_size: int, half: bool = True,
) -> None:
    """
    Write a network's weights, and what a detector must know about them.

    :param state: the state dictionary.
    :param architecture: as effdet calls it.
    :param class_names: by class id.
    :param image_size: side of the input, in pixels.
    :param half: store numbers in half precision.
    """
    from safetensors.torch import save_file

    tensors = {
        key: (value.half() if half and value.is_floating_point() else value).contiguous()
        for key, value in state.items()}
    save_file(tensors, path, {
        'architecture': architecture, 'class_names': json.dumps(list(class_names)),
        'image_size': str(image_size)})
    # safetensors keeps what it writes from everybody else.
    path.chmod(0o644)


def read_description(path: Path) -> Description:
    """
    Return what a ``.safetensors`` file says of itself; one that says nothing is fine.

    :raises ValueError: if what it says makes no sense, or the file is damaged.
    """
    from safetensors import safe_open, SafetensorError

    try:
        with safe_open(path, 'pt') as file:
            found = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    try:
        names = json.loads(found.get('class_names', '[]'))
        size = int(found.get('image_size', '0'))
    except ValueError as error:
        raise ValueError(f'its description cannot be read: {error}') from error
    if not isinstance(names, list) or size < 0:
        raise ValueError(
            f'its description has class_names {names!r} and image_size {size}; write it with '
            'laimr_ros.detectors.checkpoint.save_checkpoint')
    return Description(
        found.get('architecture', ''), tuple(str(name) for name in names), size)
