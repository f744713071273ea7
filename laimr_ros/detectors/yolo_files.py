"""Files of ultralytics' networks: what is taken, what is refused and why."""

from __future__ import annotations

import os
from pathlib import Path
import pickle
import re
import tempfile
import threading
from typing import Any
import warnings

# All of these are read when ultralytics is imported: never look anything up on the network,
# never install a package, keep the log for what matters.
os.environ['YOLO_OFFLINE'] = 'true'
os.environ['YOLO_AUTOINSTALL'] = 'false'
os.environ.setdefault('YOLO_VERBOSE', 'false')

from laimr_ros.detectors.base import DetectorError
from laimr_ros.detectors.contents import is_safetensors, why_not_pytorch
from laimr_ros.detectors.engine import SUFFIX
from laimr_ros.detectors.reasons import in_short
from ultralytics.nn import tasks as _tasks

# Typed in part only.
tasks: Any = _tasks

# What PyTorch calls an object that it was not told to be harmless.
_FOREIGN = re.compile(r'(?:GLOBAL|type|class|instantiate)\s+`?([\w.]+\.[\w.]+)')

# Loading switches a setting of ultralytics for the whole process.
_loading = threading.Lock()


def read_network(path: Path, trusted: bool = False) -> Any:
    """
    Return the network of a ``.pt`` file, not fused.

    :param trusted: load other Python objects than ultralytics' own; they can run any code.
    :raises DetectorError: if the file is no such, is damaged, or holds other objects and is not
        trusted.
    """
    _require_checkpoint(path)
    with _loading, warnings.catch_warnings():
        # PyTorch's, about files of others; the error comes by itself.
        warnings.simplefilter('ignore', UserWarning)
        before = tasks.SAFE_LOAD
        tasks.SAFE_LOAD = not trusted
        try:
            with tempfile.TemporaryDirectory() as directory:
                # By some names, yolov5n.pt among them, ultralytics would look for another file.
                link = Path(directory) / 'weights.pt'
                link.symlink_to(path.resolve())
                model, _ = tasks.load_checkpoint(str(link))
            return model
        # Whatever a library raises on a damaged or foreign file is the user's wrong file to us.
        except Exception as error:
            raise DetectorError(_refusal(path, error)) from error
        finally:
            tasks.SAFE_LOAD = before


def _require_checkpoint(path: Path) -> None:
    """
    Check that a file may hold a checkpoint of ultralytics, before anything of it is loaded.

    :raises DetectorError: naming what it is instead.
    """
    if is_safetensors(path):
        raise DetectorError(
            f'{str(path)!r} is a file of safetensors, as detectors of kind efficientdet take it; '
            'give kind efficientdet, or a checkpoint of ultralytics (.pt)')
    if problem := why_not_pytorch(path):
        raise DetectorError(f'{str(path)!r} {problem}; give a checkpoint of ultralytics')


def require_format(path: Path) -> None:
    """
    Check that ultralytics runs exported models with such a name.

    :raises DetectorError: if it does not.
    """
    from ultralytics.engine.exporter import export_formats

    name = path.name.lower()
    suffixes = [suffix for suffix in export_formats()['Suffix'] if suffix]
    if not any(name.endswith(suffix.rstrip('/').lower()) for suffix in suffixes):
        _require_checkpoint(path)
        raise DetectorError(
            f'{str(path)!r} has no name of weights for kind yolo; give a checkpoint of '
            f'ultralytics (.pt), an engine of `laimr export` ({SUFFIX}), or name it so')


def _refusal(path: Path, error: BaseException) -> str:
    """Return why a checkpoint was not loaded, in our words."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, pickle.UnpicklingError):
            foreign = _FOREIGN.search(str(cause))
            if foreign:
                return (
                    f"{str(path)!r} holds {foreign.group(1)!r} beside ultralytics' own objects; "
                    'such a file can run any code and is not loaded. Only if you made it '
                    'yourself: a parameter file can say models.NAME.options.trusted: true')
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, (TypeError, AttributeError, KeyError)):
        return (f'{str(path)!r} holds no network of ultralytics (a state dictionary alone is not '
                'enough); give a checkpoint that ultralytics wrote')
    if isinstance(error, ImportError):
        return f'{str(path)!r} needs {in_short(error)}; give a checkpoint of ultralytics'
    return f'{str(path)!r} is damaged or no checkpoint of ultralytics; give one'
