"""One replica as its client sees it: infer, watch, ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
import json
import math
import random
import time
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from laimr_ros.serving import codec
from laimr_ros.serving.codec import ImagePayload
from laimr_ros.serving.endpoint import parse
from laimr_ros.serving.errors import ErrorKind, InferenceError
from laimr_ros.serving.reply import decode_reply, InferenceReply, MAX_LABEL_BYTES, NeedsClassNames
from tritonclient.grpc import service_pb2

_SERVICE = '/inference.GRPCInferenceService/'

_KINDS = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorKind.BUSY,
    grpc.StatusCode.UNAVAILABLE: ErrorKind.UNAVAILABLE,
    grpc.StatusCode.ABORTED: ErrorKind.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorKind.DEADLINE,
    grpc.StatusCode.CANCELLED: ErrorKind.CANCELLED,
    grpc.StatusCode.NOT_FOUND: ErrorKind.UNKNOWN_MODEL,
    grpc.StatusCode.INVALID_ARGUMENT: ErrorKind.BAD_IMAGE,
    grpc.StatusCode.OUT_OF_RANGE: ErrorKind.BAD_IMAGE,
}


@dataclass(frozen=True)
class ClientOptions:
    """
    How patient a client is; all in seconds.

    :param keepalive_s: after so long without a byte, a replica with calls in progress is probed.
    :param keepalive_timeout_s: a probe, or bytes on the way, unanswered for so long mean that the
        host has vanished.
    :param reconnect_min_s: pause before the second attempt to connect, doubled for each further.
    :param reconnect_max_s: longest pause, and longest attempt.
    :param poll_s: pause between two questions to a server without a health service.
    :param ask_timeout_s: for answers about a server or a model.
    """

    keepalive_s: float = 3.0
    keepalive_timeout_s: float = 3.0
    reconnect_min_s: float = 0.1
    reconnect_max_s: float = 2.0
    poll_s: float = 1.0
    ask_timeout_s: float = 2.0


@dataclass(frozen=True)
class ReplicaHealth:
    """
    What ``watch`` tells.

    :param serving: whether the replica takes frames.
    :param reason: why not, for people.
    """

    serving: bool
    reason: str = ''


class ReplicaClient:
    """
    A connection to one replica. To be used in one event loop, in which it was made.

    Connects by itself when first used, and again whenever the connection is lost; there are no
    retries, because a dispatcher has better ideas than the same replica again.

    :param endpoint: ``host:port``, ``grpc://host:port`` or ``unix:/path``.
    :param class_names: names by class id, by model, for servers whose labels are numbers and
        whose model configuration does not name them.
    :param options: time limits.
    :raises EndpointError: if the endpoint is something else.
    """

    def __init__(
        self, endpoint: str, *, class_names: Mapping[str, Sequence[str]] | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        self._endpoint = parse(endpoint)
        self.options = options or ClientOptions()
        self._given_names = {name: tuple(names) for name, names in (class_names or {}).items()}
        self._names = dict(self._given_names)
        self._closed = False
        self._channel = grpc.aio.insecure_channel(
            str(self._endpoint), options=_channel_options(self.options, bool(self._endpoint.path)))
        # No serialisers: requests are bytes already, and replies are read with care.
        self._infer = self._channel.unary_unary(_SERVICE + 'ModelInfer')
        self._watch = self._channel.unary_stream(
            '/grpc.health.v1.Health/Watch',
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString)
        self._calls: dict[str, Any] = {}

    @property
    def endpoint(self) -> str:
        """Return where the replica serves, in the form that ``ReplicaClient`` takes."""
        return str(self._endpoint)

    async def infer(
        self, model: str, image: ImagePayload, timeout_s: float, frame_id: str = '',
    ) -> InferenceReply:
        """
        Have one image inferred. Cancelling this cancels it in the replica.

        :param model: name of the model.
        :param image: the image; it is copied before this waits for anything.
        :param timeout_s: the remaining budget in seconds; the replica knows it, too.
        :param frame_id: for the replica's log.
        :raises InferenceError: if there is no reply, or one that makes no sense.
        """
        if not timeout_s > 0.0:
            raise InferenceError(
                ErrorKind.DEADLINE, f'no time is left for model {model!r} ({timeout_s:g} s)')
        if self._closed:
            raise self._closed_error()
        try:
            request = codec.encode_request(model, image, frame_id)
        except codec.RequestError as error:
            raise InferenceError(ErrorKind.BAD_IMAGE, str(error)) from None
        try:
            raw = await self._infer(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._error(error, f'model {model!r}') from None
        except asyncio.CancelledError:
            # Closing a channel cancels its calls; but that is not what the caller asked for.
            if self._closed and not _is_cancelled():
                raise self._closed_error() from None
            raise
        try:
            return decode_reply(raw, self._names.get(model))
        except NeedsClassNames:
            # Once a model: of a server whose labels are numbers.
            self._names[model] = await self.class_names(model)
            return decode_reply(raw, self._names[model])

    async def class_names(self, model: str) -> tuple[str, ...]:
        """
        Return a model's class names by class id; none if the server does not tell.

        :raises InferenceError: if the server cannot be asked, or has no such model.
        """
        if model in self._given_names:
            return self._given_names[model]
        try:
            response = await self._ask('ModelConfig', self.options.ask_timeout_s, name=model)
        except InferenceError as error:
            if error.kind in (ErrorKind.INTERNAL, ErrorKind.BAD_IMAGE):
                return ()  # No ModelConfig there: it is an extension of the protocol.
            raise
        parameters = response.config.parameters
        if 'class_names' not in parameters:
            return ()
        try:
            names = json.loads(parameters['class_names'].string_value)
        except (ValueError, RecursionError):
            return ()  # No JSON, or brackets within brackets without end.
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return ()
        return tuple(_clean(name) for name in names)

    async def served_models(self) -> tuple[str, ...]:
        """
        Return the names of the models that the server has.

        :raises InferenceError: if it cannot be asked, or does not list them.
        """
        response = await self._ask('RepositoryIndex', self.options.ask_timeout_s)
        return tuple(dict.fromkeys(model.name for model in response.models))

    async def wait_ready(self, models: Sequence[str] = (), timeout_s: float = 60.0) -> None:
        """
        Wait until the replica serves all of some models.

        :param models: names of the models.
        :param timeout_s: how long, in seconds.
        :raises InferenceError: ``UNAVAILABLE``, saying what was missing, if it takes longer.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            reason = await self._why_not_ready(models, min(max(left, 0.1), 2.0))
            if not reason:
                return
            if left <= 0.0:
                waited = (
                    f'was not ready within {timeout_s:g} s' if timeout_s > 0.0 else 'is not ready')
                raise InferenceError(
                    ErrorKind.UNAVAILABLE, f'{self.endpoint} {waited}: {reason}')
            await asyncio.sleep(min(self.options.reconnect_min_s, max(left, 0.0)))

    async def watch(self, models: Sequence[str] = ()) -> AsyncIterator[ReplicaHealth]:
        """
        Tell whether the replica serves: at once, and whenever that changes, for ever.

        The replica pushes it, so that one which drains is left alone at once. A server without a
        health service is asked again and again. Outlives restarts of the replica.

        :param models: what a server without a health service has to have ready.
        """
        last: ReplicaHealth | None = None
        pause = self.options.reconnect_min_s
        pushing = True
        while not self._closed:
            reason = ''
            if pushing:
                call = self._watch(health_pb2.HealthCheckRequest())
                try:
                    async for response in call:
                        if response.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
                            # It has a health service, but not for the server as a whole.
                            pushing = False
                            break
                        serving = response.status == health_pb2.HealthCheckResponse.SERVING
                        health = ReplicaHealth(serving, '' if serving else 'it says so itself')
                        pause = self.options.reconnect_min_s
                        if health != last:
                            last = health
                            yield health
                    reason = 'it has stopped'
                except grpc.aio.AioRpcError as error:
                    pushing = error.code() is not grpc.StatusCode.UNIMPLEMENTED
                    reason = _summary(error)
                except asyncio.CancelledError:
                    if not self._closed or _is_cancelled():
                        raise
                    return
                finally:
                    call.cancel()
                if not pushing:
                    continue
            else:
                reason = await self._why_not_ready(models, self.options.ask_timeout_s)
                if not reason:
                    if last is None or not last.serving:
                        last = ReplicaHealth(True)
                        yield last
                    pause = self.options.reconnect_min_s
                    await asyncio.sleep(_jittered(self.options.poll_s))
                    continue
                # It may have been replaced by one that has a health service.
                pushing = 'unreachable' in reason
            if last is None or last.serving:
                last = ReplicaHealth(False, reason)
                yield last
            await asyncio.sleep(_jittered(pause))
            pause = min(2.0 * pause, self.options.reconnect_max_s)

    async def close(self) -> None:
        """Close the connection. Calls in progress end with an error of kind ``CANCELLED``."""
        self._closed = True
        await self._channel.close()

    async def __aenter__(self) -> ReplicaClient:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        await self.close()

    async def _why_not_ready(self, models: Sequence[str], timeout_s: float) -> str:
        """Ask the server and return why it does not serve; empty if it does."""
        try:
            if not (await self._ask('ServerReady', timeout_s)).ready:
                return 'the server says that it is not ready'
            for model in models:
                if not (await self._ask('ModelReady', timeout_s, name=model)).ready:
                    return f'the server says that model {model!r} is not ready'
        except InferenceError as error:
            if self._closed:
                return 'this client has been closed'
            unreachable = error.kind in (ErrorKind.UNAVAILABLE, ErrorKind.DEADLINE)
            return f'unreachable: {error}' if unreachable else str(error)
        return ''

    async def _ask(self, method: str, timeout_s: float, **fields: str) -> Any:
        if self._closed:
            raise self._closed_error()
        call = self._calls.get(method)
        if call is None:
            call = self._calls[method] = self._channel.unary_unary(
                _SERVICE + method,
                request_serializer=getattr(service_pb2, f'{method}Request').SerializeToString,
                response_deserializer=getattr(service_pb2, f'{method}Response').FromString)
        try:
            return await call(
                getattr(service_pb2, f'{method}Request')(**fields), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._error(error, method) from None
        except asyncio.CancelledError:
            if self._closed and not _is_cancelled():
                raise self._closed_error() from None
            raise

    def _error(self, error: grpc.aio.AioRpcError, what: str) -> InferenceError:
        kind = _KINDS.get(error.code(), ErrorKind.INTERNAL)
        details = error.details() or ''
        if error.code() is grpc.StatusCode.UNKNOWN and details.startswith('Stream removed'):
            kind = ErrorKind.UNAVAILABLE  # The connection broke, which gRPC does not know why.
        elif kind is ErrorKind.BUSY and 'larger than max' in details:
            # Not a busy replica, and not better elsewhere: gRPC's own limit on messages.
            kind = ErrorKind.BAD_IMAGE
        return InferenceError(kind, f'{self.endpoint}, {what}: {_summary(error)}')

    def _closed_error(self) -> InferenceError:
        return InferenceError(
            ErrorKind.CANCELLED, f'{self.endpoint}: this client has been closed')


def _channel_options(options: ClientOptions, local: bool) -> list[tuple[str, Any]]:
    def milliseconds(seconds: float) -> int:
        return max(1, math.ceil(seconds * 1e3))

    chosen: list[tuple[str, Any]] = [
        ('grpc.max_send_message_length', codec.MAX_MESSAGE_BYTES),
        ('grpc.max_receive_message_length', codec.MAX_MESSAGE_BYTES),
        # A cable that is pulled sends no goodbye. The time-out is also that of TCP for bytes
        # which nobody acknowledges. Not without calls in progress: strict servers would hang up.
        ('grpc.keepalive_time_ms', milliseconds(options.keepalive_s)),
        ('grpc.keepalive_timeout_ms', milliseconds(options.keepalive_timeout_s)),
        # The time-out that counts for a probe (measured with gRPC 1.85; by default a minute).
        ('grpc.http2.ping_timeout_ms', milliseconds(options.keepalive_timeout_s)),
        ('grpc.keepalive_permit_without_calls', 0),
        ('grpc.http2.max_pings_without_data', 0),
        ('grpc.initial_reconnect_backoff_ms', milliseconds(options.reconnect_min_s)),
        ('grpc.max_reconnect_backoff_ms', milliseconds(options.reconnect_max_s)),
        # In spite of its name the longest time for one attempt to connect, by default 20 s.
        ('grpc.min_reconnect_backoff_ms', milliseconds(options.reconnect_max_s)),
        # Replicas are on our own network; a proxy for the web has no business there.
        ('grpc.enable_http_proxy', 0),
        # gRPC shares connections between channels to one address, with the back-off and the
        # options of the first; a new client must not inherit the troubles of an old one.
        ('grpc.use_local_subchannel_pool', 1),
        ('grpc.enable_retries', 0),
        ('grpc.service_config_disable_resolution', 1),
    ]
    if local:
        # The path of a socket is no host name, and some servers refuse it as one.
        chosen.append(('grpc.default_authority', 'localhost'))
    return chosen


def _summary(error: grpc.aio.AioRpcError) -> str:
    """Return gRPC's details in one short line, or the name of the status."""
    details = ' '.join((error.details() or '').split())
    return details[:500] or error.code().name.lower().replace('_', ' ')


def _clean(name: str) -> str:
    """Return a name that can be published: JSON may hold half characters, and any length."""
    return name.encode('utf-8', 'replace')[:MAX_LABEL_BYTES].decode('utf-8', 'ignore')


def _jittered(seconds: float) -> float:
    """Return a time nearby, so that many clients do not come back together."""
    return seconds * random.uniform(0.75, 1.25)


def _is_cancelled() -> bool:
    """Return whether the running task itself has been cancelled."""
    task = asyncio.current_task()
    cancelling = getattr(task, 'cancelling', None)  # Python 3.11
    # Before 3.11 nobody knows; then better to be cancelled than to swallow it.
    return bool(cancelling()) if cancelling is not None else task is not None
