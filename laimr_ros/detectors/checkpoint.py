"""EfficientDet checkpoints that say what they are: safetensors with a few words beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import json
from pathlib import Path
import pickle
from typing import Any
import warnings

from laimr_ros.detectors.base import DetectorError
from laimr_ros.detectors.contents import why_not_pytorch, why_not_safetensors
from laimr_ros.detectors.network import require_file
import torch

_ULTRALYTICS = 'it is a checkpoint of ultralytics, for kind yolo'


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
        raise ValueError('it is damaged') from error
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


def read_checkpoint(weights: str) -> tuple[dict[str, torch.Tensor], Description]:
    """
    Return the state dictionary in a file, and what it says of itself. No code in it is run.

    :param weights: ``.safetensors``, ``.pt`` or ``.pth``.
    :raises DetectorError: if it holds none.
    """
    path = require_file(
        'efficientdet', weights, 'an architecture such as tf_efficientdet_lite0 '
        'for random weights')
    said = Description()
    safe = path.suffix.lower() == '.safetensors'
    problem = (why_not_safetensors if safe else why_not_pytorch)(path)
    try:
        if problem:
            raise ValueError(f'it {problem}')
        if safe:
            from safetensors.torch import load_file
            said = read_description(path)
            found: Any = load_file(path)
        else:
            with warnings.catch_warnings():
                # PyTorch's, about files of others; the error comes by itself.
                warnings.simplefilter('ignore', UserWarning)
                found = torch.load(path, map_location='cpu', weights_only=True)
    # Whatever a library raises on a damaged or foreign file is the user's wrong file to us.
    except Exception as error:
        raise DetectorError(
            f'cannot load {weights!r} as an EfficientDet: {_refusal(error)}; give a state '
            'dictionary saved with torch.save or as safetensors') from error
    # Where ultralytics is imported it has told PyTorch that its own objects are harmless.
    if isinstance(found, dict) and isinstance(found.get('model'), torch.nn.Module):
        raise DetectorError(
            f'cannot load {weights!r} as an EfficientDet: {_ULTRALYTICS}; give kind yolo')
    # Training scripts keep averaged weights beside the last ones; they are the better ones.
    for key in ('state_dict_ema', 'state_dict', 'model'):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
            break
    if not isinstance(found, dict) or not found:
        raise DetectorError(f'{weights!r} holds no state dictionary; save model.state_dict()')
    state = {str(key): value for key, value in found.items()}
    # Wrappers for training on several GPUs, and effdet's own, put their name in front.
    for prefix in ('module.', 'model.'):
        if all(key.startswith(prefix) for key in state if not key.startswith('anchors.')):
            state = {key[len(prefix):]: value for key, value in state.items()
                     if key.startswith(prefix)}
    return state, said


def _refusal(error: Exception) -> str:
    """Return why a file was not loaded, in our words."""
    if isinstance(error, pickle.UnpicklingError):
        if 'ultralytics' in str(error):
            return _ULTRALYTICS
        if 'GLOBAL' in str(error) or 'instantiate' in str(error):
            return 'it holds Python objects, which could run any code, not weights alone'
        return 'it is damaged'
    if isinstance(error, ValueError):
        return str(error)
    return 'it is damaged'
