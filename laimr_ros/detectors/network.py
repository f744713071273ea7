"""What the PyTorch detectors have in common: device, precision, threads, timing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import gc
import logging
from pathlib import Path
import statistics
import time

import cv2
from laimr_ros.detectors.base import DetectorError, DetectorSpec
from laimr_ros.detectors.files import find_file
import numpy as np
import numpy.typing as npt
import torch

_logger = logging.getLogger(__name__)


def choose_device(spec: DetectorSpec) -> torch.device:
    """
    Return the device a specification asks for.

    :raises DetectorError: if there is no such device.
    """
    if spec.device == 'auto':
        return torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    if spec.device == 'cpu':
        return torch.device('cpu')
    name, _, number = spec.device.partition(':')
    if name != 'cuda' or (':' in spec.device and not number.isdigit()):
        raise DetectorError(f'unknown device {spec.device!r}; use auto, cpu, cuda or cuda:N')
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= count:
        raise DetectorError(
            f'device {spec.device!r} is asked for but PyTorch sees {count} GPUs; '
            'use device auto or cpu, or mend the NVIDIA driver')
    return torch.device('cuda', int(number or 0))


def choose_half(spec: DetectorSpec, device: torch.device) -> bool:
    """Return whether to use half precision; warn where it is asked for and there is none."""
    if spec.half and device.type == 'cpu':
        _logger.warning('half precision needs a GPU: %s runs in single precision', spec.weights)
        return False
    return spec.half


def require_file(kind: str, weights: str, instead: str) -> Path:
    """
    Return the path of a file of weights.

    :param instead: what could be given in its place, for the message.
    :raises DetectorError: if there is no such file.
    """
    path = find_file(weights)
    if not weights or not path.exists():
        raise DetectorError(
            f'no file of weights {weights!r} for detector kind {kind}; nothing is downloaded: '
            f'give the path of a file, or {instead}')
    return path


def limit_threads(threads: int) -> None:
    """
    Limit the CPU threads of PyTorch in the calling thread.

    :param threads: number of threads; 0 leaves the library's choice.
    """
    # The number belongs to the thread that calls, and a server may call from several.
    if threads and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    # Resizing one camera frame is over before a pool of threads would be awake.
    cv2.setNumThreads(0)


def wait_for(device: torch.device) -> None:
    """Wait until the device has done all its work, so that a clock can be read."""
    if device.type == 'cuda':
        torch.cuda.synchronize(device)


def time_of(run: Callable[[], object], times: int = 3) -> float:
    """
    Run something once to warm up and then a few times.

    :return: median time of a run, in seconds.
    """
    run()
    measured = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        measured.append(time.perf_counter() - begin)
    return statistics.median(measured)


def camera_frame(side: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Return a grey image of a camera's usual 4:3 that fills a network's input."""
    return np.full((side[1] * 3 // 4, side[1], 3), 114, np.uint8)


def why_not_fitting(built: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> str:
    """Return how a state dictionary differs from what a network takes, or ''."""
    own = built.state_dict()
    lacking = [key for key in own if key not in state]
    more = [key for key in state if key not in own]
    shapes = [(key, tuple(getattr(state[key], 'shape', ())), tuple(value.shape))
              for key, value in own.items() if key in state
              and tuple(getattr(state[key], 'shape', ())) != tuple(value.shape)]
    if shapes:
        key, found, wanted = shapes[0]
        return f'{key} is {_shape(found)} in it, not {_shape(wanted)}'
    if lacking:
        return f'it lacks {len(lacking)} of {len(own)} tensors, {lacking[0]!r} among them'
    if more:
        return f'it has {len(more)} tensors too many, {more[0]!r} among them'
    return ''


def _shape(sizes: tuple[int, ...]) -> str:
    return 'x'.join(map(str, sizes)) or 'one number'


def free(device: torch.device) -> None:
    """Give memory that is no longer referred to back, on the GPU too."""
    gc.collect()
    if device.type == 'cuda':
        torch.cuda.empty_cache()
