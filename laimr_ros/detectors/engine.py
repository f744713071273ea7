"""Networks exported to OpenVINO, and the runtime that runs them on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
import functools
import json
from pathlib import Path
import sys
import tempfile
from typing import Any
import warnings

from laimr_ros.detectors.base import DetectorError
from laimr_ros.detectors.contents import why_not_engine
from laimr_ros.detectors.reasons import in_short
import numpy as np
import torch

# OpenVINO tells its makers whenever it is imported; a robot tells nobody. Without this package it
# tells nothing, and works.
sys.modules.setdefault('openvino_telemetry', None)  # type: ignore[arg-type]

SUFFIX = '.xml'
_WORDS = 'laimr'


class EngineWriteError(DetectorError):
    """An engine was made but cannot be written."""


def is_engine(weights: Path) -> bool:
    """Return whether weights are an exported network of ours rather than PyTorch's."""
    return weights.suffix.lower() == SUFFIX


class Engine:
    """
    An exported network. Where the CPU has bfloat16 units OpenVINO uses them by itself.

    :param path: of the ``.xml`` file; its weights lie beside it in a ``.bin`` file.
    :param kind: of detector that it must be for.
    :param threads: CPU threads; 0 leaves the library's choice.
    :raises DetectorError: if it cannot be loaded or is another kind's.
    """

    def __init__(self, path: Path, kind: str, threads: int) -> None:
        require_openvino()
        weights = path.with_suffix('.bin')
        if not weights.exists():
            raise DetectorError(
                f'{str(path)!r} lacks its weights, {weights.name!r}; copy both files, or export '
                'again with `laimr export`')
        if problem := why_not_engine(path):
            raise DetectorError(
                f'cannot load {str(path)!r}: it {problem}; give a file that `laimr export` wrote')
        try:
            core = _core()
            model = core.read_model(path)
            self.words: Mapping[str, Any] = json.loads(model.get_rt_info([_WORDS]).astype(str))
        # Whatever the library raises on a damaged or foreign file is the user's wrong file to us.
        except Exception as error:
            raise DetectorError(
                f'cannot load {str(path)!r}: it is damaged, does not belong to {weights.name!r} '
                'or is not ours; copy both files again, or make them with `laimr export`'
            ) from error
        if self.words.get('kind') != kind:
            raise DetectorError(
                f'{str(path)!r} was exported for kind {self.words.get("kind")!r}, not {kind!r}; '
                'set the kind of the model')
        settings: dict[str, Any] = {'PERFORMANCE_HINT': 'LATENCY', 'NUM_STREAMS': 1}
        if threads:
            settings['INFERENCE_NUM_THREADS'] = threads
        try:
            self._request: Any = core.compile_model(model, 'CPU', settings).create_infer_request()
        except RuntimeError as error:
            raise DetectorError(
                f'cannot load {str(path)!r}: the CPU runtime does not take it; make it anew with '
                '`laimr export`') from error

    def __call__(self, pixels: torch.Tensor) -> list[torch.Tensor]:
        """
        Run the network.

        :param pixels: float32, shape (1, 3, height, width).
        :returns: its outputs; valid until the next call.
        """
        self._request.infer([np.ascontiguousarray(pixels.numpy())], share_inputs=True)
        return [
            torch.from_numpy(self._request.get_output_tensor(number).data)
            for number in range(len(self._request.model_outputs))]


def save_engine(
    network: torch.nn.Module, example: torch.Tensor, path: Path, words: Mapping[str, Any], *,
    any_size: bool,
) -> None:
    """
    Convert a PyTorch network and write it, weights in half precision.

    :param network: in evaluation mode, on the CPU.
    :param example: an input, float32 of shape (1, 3, height, width).
    :param path: of the ``.xml`` file. It and its weights are written under other names first:
        what is there is not touched before all is well.
    :param words: what a detector must know; ``kind`` above all.
    :param any_size: take inputs of any height and width, not the example's only.
    :raises EngineWriteError: if it cannot be written.
    """
    openvino = require_openvino()
    with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
        # OpenVINO traces, which PyTorch would have done otherwise.
        warnings.simplefilter('ignore')
        model = openvino.convert_model(
            network, example_input=example, input=None if any_size else [list(example.shape)])
    if any_size:
        model.reshape({0: [1, 3, -1, -1]})
    model.set_rt_info(json.dumps(dict(words)), [_WORDS])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f'.{path.stem}.', dir=path.parent) as folder:
            made = Path(folder) / path.name
            openvino.save_model(model, made, compress_to_fp16=True)
            for suffix in ('.bin', path.suffix):
                made.with_suffix(suffix).replace(path.with_suffix(suffix))
    # OpenVINO says of a full disk that it could not write.
    except (OSError, RuntimeError) as error:
        raise EngineWriteError(
            f'cannot write {str(path)!r} ({in_short(error)}); free some space, or give another '
            'file') from error


@functools.cache
def _core() -> Any:
    """
    Return OpenVINO's core, one for as long as this process lives.

    Where a CPU has AMX its plugin gives the calling thread another stack for signal handlers, and
    frees it when it goes, not always telling the thread: the next signal would end the process.
    """
    return require_openvino().Core()


def require_openvino() -> Any:
    """
    Return OpenVINO.

    :raises DetectorError: if it is not installed.
    """
    try:
        import openvino
    except ImportError as error:
        raise DetectorError(
            f'exported networks need a package ({error}); pip install openvino') from error
    return openvino
