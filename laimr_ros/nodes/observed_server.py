"""A worker's server that counts what its diagnostics tell."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import grpc
from laimr_ros.serving.codec import ImagePayload
from laimr_ros.serving.inference_thread import Job
from laimr_ros.serving.loaded_model import LoadedModel, Outcome
from laimr_ros.serving.server import InferenceServer
import numpy as np
from tritonclient.grpc import service_pb2

# Service times kept a model: the last minutes of a busy worker.
_RECENT = 1000


class ObservedServer(InferenceServer):
    """
    An ``InferenceServer`` that also knows its refusals, its queue and its recent service times.

    The counts may be read in any thread.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.in_progress = 0
        self.refused: Counter[str] = Counter()
        self._service_s: dict[str, deque[float]] = {
            name: deque(maxlen=_RECENT) for name in self.model_names
        }

    def service_quantiles_s(self, model: str) -> tuple[float, float]:
        """Return P50 and P99 of recent service times, in seconds; 0.0 before the first."""
        # `deque.copy` is one step for the interpreter, so the inference thread cannot interfere.
        recent = self._service_s[model].copy()
        if not recent:
            return 0.0, 0.0
        p50, p99 = np.quantile(recent, (0.5, 0.99))
        return float(p50), float(p99)

    async def _infer(
        self, request: service_pb2.ModelInferRequest, context: grpc.aio.ServicerContext[Any, Any],
    ) -> service_pb2.ModelInferResponse:
        self.in_progress += 1
        try:
            return await super()._infer(request, context)
        except Exception as error:
            code = getattr(error, 'code', None)
            self.refused[code.name if isinstance(code, grpc.StatusCode) else 'INTERNAL'] += 1
            raise
        finally:
            self.in_progress -= 1

    def _work(self, model: LoadedModel, image: ImagePayload, job: Job[Outcome]) -> Outcome:
        outcome = super()._work(model, image, job)
        self._service_s[model.name].append(outcome.timings.service_s)
        return outcome
