"""The calls of the Open Inference Protocol that tell about a worker and its models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
import json
from typing import Any, TYPE_CHECKING, TypeVar

import grpc
from laimr_ros import __version__
from laimr_ros.serving.codec import INPUT_NAME
from laimr_ros.serving.loaded_model import LoadedModel
from laimr_ros.serving.reply import BOXES, LABELS, SCORES
from tritonclient.grpc import model_config_pb2, service_pb2

if TYPE_CHECKING:
    from laimr_ros.serving.server import InferenceServer

SERVICE = 'inference.GRPCInferenceService'
PLATFORM = 'laimr_ros'

Request = TypeVar('Request')
Response = TypeVar('Response')
_Context = Any


class Refusal(Exception):
    """
    A request gets no reply but a status.

    :param code: for programs.
    :param message: for people; says what to do.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def handlers(
    describer: Describer,
    model_infer: Callable[[service_pb2.ModelInferRequest, _Context], Awaitable[bytes]],
) -> grpc.GenericRpcHandler:
    """
    Return what a server needs for the calls that there are; gRPC refuses all others itself.

    :param describer: answers every call but one.
    :param model_infer: answers that one, with a message that is serialised already.
    """
    calls: dict[str, Any] = {
        'ServerLive': describer.server_live,
        'ServerReady': describer.server_ready,
        'ServerMetadata': describer.server_metadata,
        'ModelReady': describer.model_ready,
        'ModelMetadata': describer.model_metadata,
        'ModelConfig': describer.model_config,
        'ModelStatistics': describer.model_statistics,
        'RepositoryIndex': describer.repository_index,
    }
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            _refusing(behaviour),
            request_deserializer=getattr(service_pb2, f'{name}Request').FromString,
            response_serializer=getattr(service_pb2, f'{name}Response').SerializeToString)
        for name, behaviour in calls.items()}
    methods['ModelInfer'] = grpc.unary_unary_rpc_method_handler(
        model_infer, request_deserializer=service_pb2.ModelInferRequest.FromString)
    return grpc.method_handlers_generic_handler(SERVICE, methods)


def _refusing(
    answer: Callable[[Any], Response],
) -> Callable[[Any, _Context], Awaitable[Response]]:
    """Return a behaviour that gives the answer, or the status of a refusal."""
    async def behaviour(request: Any, context: _Context) -> Response:
        try:
            return answer(request)
        except Refusal as refusal:
            await context.abort(refusal.code, str(refusal))
            raise AssertionError from refusal  # `abort` raises; type checkers do not know.
    return behaviour


class Describer:
    """
    Answer questions about a worker.

    :param server: the worker.
    """

    def __init__(self, server: InferenceServer) -> None:
        self._server = server

    def server_live(self, _: Any) -> service_pb2.ServerLiveResponse:
        """Return true unless only a restart can help."""
        return service_pb2.ServerLiveResponse(live=not self._server.failed.is_set())

    def server_ready(self, _: Any) -> service_pb2.ServerReadyResponse:
        """Return whether frames are taken."""
        return service_pb2.ServerReadyResponse(ready=self._server.ready)

    def server_metadata(self, _: Any) -> service_pb2.ServerMetadataResponse:
        """Return name and version."""
        return service_pb2.ServerMetadataResponse(
            name=PLATFORM, version=__version__,
            extensions=['model_configuration', 'model_repository', 'statistics'])

    def model_ready(self, request: Any) -> service_pb2.ModelReadyResponse:
        """Return whether frames for a model are taken."""
        ready = self._server.ready and self._server.loaded(request.name) is not None
        return service_pb2.ModelReadyResponse(
            ready=ready and request.version in ('', '1'))

    def model_metadata(self, request: Any) -> service_pb2.ModelMetadataResponse:
        """Return the tensors of a model."""
        model = self._server.find(request.name, request.version)
        make = service_pb2.ModelMetadataResponse.TensorMetadata
        return service_pb2.ModelMetadataResponse(
            name=model.name, versions=['1'], platform=f'{PLATFORM}_{model.spec.kind}',
            inputs=[make(name=INPUT_NAME, datatype='BYTES', shape=[1])],
            outputs=[
                make(name=BOXES, datatype='FP32', shape=[-1, 4]),
                make(name=SCORES, datatype='FP32', shape=[-1]),
                make(name=LABELS, datatype='BYTES', shape=[-1])])

    def model_config(self, request: Any) -> service_pb2.ModelConfigResponse:
        """Return the configuration of a model, with what only we tell as parameters."""
        model = self._server.find(request.name, request.version)
        config = model_config_pb2.ModelConfig(
            name=model.name, platform=f'{PLATFORM}_{model.spec.kind}', backend=PLATFORM)
        config.input.add(name=INPUT_NAME, data_type=model_config_pb2.TYPE_STRING, dims=[1])
        for name, kind, dims in (
            (BOXES, model_config_pb2.TYPE_FP32, [-1, 4]),
            (SCORES, model_config_pb2.TYPE_FP32, [-1]),
            (LABELS, model_config_pb2.TYPE_STRING, [-1]),
        ):
            config.output.add(name=name, data_type=kind, dims=dims)
        for key, value in _parameters(model).items():
            config.parameters[key].string_value = value
        return service_pb2.ModelConfigResponse(config=config)

    def model_statistics(self, request: Any) -> service_pb2.ModelStatisticsResponse:
        """Return sums over all inferences of one model, or of all."""
        names = [request.name] if request.name else self._server.model_names
        response = service_pb2.ModelStatisticsResponse()
        for name in names:
            model = self._server.find(name, request.version)
            sums = model.statistics
            stats = response.model_stats.add(
                name=name, version='1', last_inference=sums.last_inference_ms,
                inference_count=sums.successes, execution_count=sums.successes)
            total_s = sums.queue_s + sums.input_s + sums.infer_s + sums.output_s
            for field, seconds in (
                ('success', total_s), ('queue', sums.queue_s), ('compute_input', sums.input_s),
                ('compute_infer', sums.infer_s), ('compute_output', sums.output_s),
            ):
                duration = getattr(stats.inference_stats, field)
                duration.count, duration.ns = sums.successes, round(seconds * 1e9)
            stats.inference_stats.fail.count = sums.failures
        return response

    def repository_index(self, request: Any) -> service_pb2.RepositoryIndexResponse:
        """Return the models and their states."""
        response = service_pb2.RepositoryIndexResponse()
        reason = self._server.why_not_ready()
        for name in self._server.model_names:
            if reason and request.ready:
                continue
            response.models.add(
                name=name, version='1', state='UNAVAILABLE' if reason else 'READY', reason=reason)
        return response


def _parameters(model: LoadedModel) -> dict[str, str]:
    """Return what ModelConfig says about a model beyond its tensors."""
    return {
        'class_names': json.dumps(list(model.detector.class_names)),
        'random_weights': json.dumps(bool(model.detector.random_weights)),
        'service_time_s': f'{model.service_s:.6f}',
        'kind': model.spec.kind,
        'weights': model.spec.weights,
    }
