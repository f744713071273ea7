"""Detectors behind the Open Inference Protocol: loaded, served, drained, unloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
import logging
import math
import time
from typing import Any

import grpc
from grpc_health.v1 import health_pb2_grpc
from laimr_ros.detectors.base import Detector, DetectorError, DetectorSpec
from laimr_ros.serving import codec, listening
from laimr_ros.serving.config import ServerOptions
from laimr_ros.serving.endpoint import Endpoint
from laimr_ros.serving.health import HealthService, MAX_WATCHERS
from laimr_ros.serving.inference_thread import DeadlinePassed, InferenceThread, Job, QueueFull
from laimr_ros.serving.link import EmulatedLink
from laimr_ros.serving.loaded_model import LoadedModel, Outcome
from laimr_ros.serving.protocol import Describer, handlers, Refusal
from laimr_ros.serving.reply import encode_reply
from tritonclient.grpc import service_pb2

_logger = logging.getLogger(__name__)

_GRPC_OPTIONS = [
    ('grpc.max_receive_message_length', codec.MAX_MESSAGE_BYTES),
    ('grpc.max_send_message_length', codec.MAX_MESSAGE_BYTES),
    # Two workers on one port would share its connections, and neither would know.
    ('grpc.so_reuseport', 0),
    # A whole frame in one flight: with the usual window of 64 KiB, the first frames of a
    # connection would each take two round trips.
    ('grpc.http2.lookahead_bytes', 4 * 1024 * 1024),
    # Notice clients that have vanished, and allow clients to notice us.
    ('grpc.keepalive_time_ms', 10_000),
    ('grpc.keepalive_timeout_ms', 5_000),
    ('grpc.http2.ping_timeout_ms', 5_000),
    ('grpc.keepalive_permit_without_calls', 1),
    ('grpc.http2.min_ping_interval_without_data_ms', 1_000),
    ('grpc.http2.max_ping_strikes', 0),
]

# Calls that have ended get so long to leave the socket buffers, in seconds.
_FLUSH_S = 0.5

# After so many failures in a row that are not the image's fault, the detector is tried out.
_FAILURES_BEFORE_CHECK = 5


class InferenceServer:
    """
    A worker: some models, one inference at a time, a bounded queue.

    The order of use is that of a lifecycle node: ``load`` (configure), ``start`` (activate),
    ``drain`` and ``stop`` (deactivate), ``unload`` (cleanup). ``start`` may come before ``load``:
    it then answers that it is not ready yet, which probes want to hear early.

    :param models: what to serve, by name.
    :param options: limits of the server.
    :param create: makes a detector; the factory of the detectors if left out.
    """

    def __init__(
        self, models: Mapping[str, DetectorSpec], options: ServerOptions | None = None,
        create: Callable[[DetectorSpec], Detector] | None = None,
    ) -> None:
        self.options = options or ServerOptions()
        self._specs = dict(models)
        self._create = create
        self._link = EmulatedLink(
            self.options.emulated_rtt_s, self.options.emulated_rtt_cv,
            self.options.emulated_rtt_seed)
        self._loaded: dict[str, LoadedModel] = {}
        self._thread: InferenceThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: grpc.aio.Server | None = None
        self._health = HealthService()
        self._endpoints: tuple[Endpoint, ...] = ()
        self._draining = False
        self._broken = ''
        self._failures = 0
        self._active = 0
        self._idle = asyncio.Event()
        self.failed = asyncio.Event()

    # -- life ---------------------------------------------------------------------------------

    def load(self) -> dict[str, float]:
        """
        Make the detectors and warm them up. Takes seconds; does nothing if they are there.

        :return: measured time of one image alone, by model, in seconds.
        :raises DetectorError: naming the model that cannot be loaded; then none is.
        """
        return self.begin_load().result()

    def begin_load(self) -> Future[dict[str, float]]:
        """Start to load in the inference thread; see ``load``."""
        if self._thread is None:
            self._thread = InferenceThread(self.options.max_queue)
        return self._thread.call(self._load)

    def _load(self) -> dict[str, float]:
        if not self._loaded:
            create = self._create
            if create is None:
                from laimr_ros.detectors.factory import create_detector
                create = create_detector
            loaded: dict[str, LoadedModel] = {}
            try:
                for name, spec in self._specs.items():
                    loaded[name] = LoadedModel.load(name, spec, create)
            except BaseException:
                for model in loaded.values():
                    model.detector.close()
                raise
            self._broken, self._failures = '', 0
            self._loaded = loaded
            self._tell_health()
        return {name: model.service_s for name, model in self._loaded.items()}

    def unload(self) -> None:
        """Free the memory of the detectors, on the GPU too. Waits for a running inference."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.call(self._unload).result()
            thread.close()

    def _unload(self) -> None:
        loaded, self._loaded = self._loaded, {}
        self._tell_health()
        for model in loaded.values():
            model.detector.close()

    async def start(self, listen: Sequence[str]) -> tuple[str, ...]:
        """
        Listen, and serve as soon as the models are loaded.

        :param listen: ``host:port`` (0 for any free port) or ``unix:/path``, one or several.
        :return: the endpoints with their ports.
        :raises EndpointError: if an address cannot be used.
        """
        if self._server is not None:
            raise RuntimeError('the server has been started already; stop it first')
        # A watch stream is a call that lasts; each frame in flight is another.
        server = grpc.aio.server(
            options=_GRPC_OPTIONS, maximum_concurrent_rpcs=MAX_WATCHERS + 1000)
        health = HealthService()
        server.add_generic_rpc_handlers((handlers(Describer(self), self._model_infer),))
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        endpoints = listening.bind(server, listen)
        await server.start()
        self._loop = asyncio.get_running_loop()
        self._idle, self.failed = asyncio.Event(), asyncio.Event()
        self._active, self._draining = 0, False
        self._server, self._health, self._endpoints = server, health, endpoints
        self._set_health()
        return self.endpoints

    async def drain(self, grace_s: float) -> bool:
        """
        Take no more frames, and wait for those that were taken.

        :param grace_s: how long, in seconds.
        :return: whether all of them have been answered.
        """
        self._draining = True
        self._set_health()
        deadline = time.monotonic() + grace_s
        while self._active and (left := deadline - time.monotonic()) > 0.0:
            self._idle.clear()
            idle = asyncio.ensure_future(self._idle.wait())
            await asyncio.wait({idle}, timeout=left)
            idle.cancel()
        return not self._active

    async def stop(self) -> None:
        """Stop listening, and break off what is left. May be started again."""
        server, self._server = self._server, None
        if server is None:
            return
        self._draining = True
        self._set_health()
        self._health.close()
        await server.stop(_FLUSH_S)
        listening.release(self._endpoints)
        self._endpoints = ()
        self._loop = None

    # -- state --------------------------------------------------------------------------------

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Return where it listens."""
        return tuple(map(str, self._endpoints))

    @property
    def ready(self) -> bool:
        """Return whether frames are taken."""
        return not self.why_not_ready()

    @property
    def model_names(self) -> tuple[str, ...]:
        """Return the names of the models it has, loaded or not."""
        return tuple(self._specs)

    @property
    def service_times_s(self) -> dict[str, float]:
        """Return the measured time of one image alone in seconds, by model that is loaded."""
        return {name: model.service_s for name, model in self._loaded.items()}

    def loaded(self, name: str) -> LoadedModel | None:
        """Return a model, or None if it is unknown or not loaded."""
        return self._loaded.get(name)

    def why_not_ready(self) -> str:
        """Return why no frames are taken, for people; empty if they are."""
        if self._broken:
            return self._broken
        if self._server is None:
            return 'the worker is not listening'
        if self._draining:
            return 'the worker is draining; send to another replica'
        if not self._loaded:
            return 'the worker is still loading its models; try again in a few seconds'
        return ''

    def _tell_health(self) -> None:
        """Update the health service, from any thread."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._set_health)
            except RuntimeError:
                pass  # The loop is closed, and with it whoever was watching.

    def _set_health(self) -> None:
        ready = self.ready
        self._health.set({
            '': ready, 'inference.GRPCInferenceService': ready,
            **{name: ready and name in self._loaded for name in self._specs}})
        if self._broken:
            self.failed.set()

    # -- inference ----------------------------------------------------------------------------

    async def _model_infer(
        self, request: service_pb2.ModelInferRequest, context: grpc.aio.ServicerContext[Any, Any],
    ) -> bytes:
        rtt_s = self._link.sample()
        if rtt_s:
            await self._link.pass_half(rtt_s)
        self._active += 1
        try:
            try:
                response = await self._infer(request, context)
            except Refusal as refusal:
                await self._link.pass_half(rtt_s)
                await context.abort(refusal.code, str(refusal))
            if rtt_s:
                await self._link.pass_half(rtt_s)
            return response
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()

    async def _infer(
        self, request: service_pb2.ModelInferRequest, context: grpc.aio.ServicerContext[Any, Any],
    ) -> bytes:
        reason = self.why_not_ready()
        thread = self._thread
        if reason or thread is None:
            raise Refusal(grpc.StatusCode.UNAVAILABLE, reason or 'the worker is unloading')
        model = self.find(request.model_name, request.model_version)
        remaining_s = context.time_remaining()
        deadline = math.inf if remaining_s is None else time.monotonic() + remaining_s
        try:
            image = codec.decode_request(request)
        except codec.RequestError as error:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None

        def work(job: Job[Outcome]) -> Outcome:
            return self._work(model, image, job)

        try:
            job = thread.submit(work, deadline)
        except QueueFull:
            raise Refusal(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f'the queue is full: {self.options.max_queue} are waiting, as many as max_queue '
                'allows; send to another replica, or raise max_queue') from None
        try:
            outcome = await job.future
        except asyncio.CancelledError:
            # The client has gone, has given up, or its deadline has passed.
            job.cancel()
            raise
        except DeadlinePassed:
            raise Refusal(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                'the deadline passed while the frame was waiting; it was not inferred') from None
        except DetectorError as error:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        except Exception as error:
            raise Refusal(
                grpc.StatusCode.INTERNAL,
                f'model {model.name!r} failed: {type(error).__name__}: {error}') from None
        return encode_reply(
            model.name, request.id, outcome.detections.boxes, outcome.detections.scores,
            outcome.labels, outcome.timings, outcome.image_size)

    def find(self, name: str, version: str = '') -> LoadedModel:
        """Return a model that is loaded. :raises Refusal: if there is none of that name."""
        model = self._loaded.get(name)
        if model is None:
            raise Refusal(
                grpc.StatusCode.NOT_FOUND,
                f'no model {name!r} here; there are {", ".join(self._specs)}')
        if version not in ('', '1'):
            raise Refusal(
                grpc.StatusCode.NOT_FOUND,
                f'model {name!r} has no version {version!r}; leave the version out')
        return model

    def _work(self, model: LoadedModel, image: codec.ImagePayload, job: Job[Outcome]) -> Outcome:
        """Infer, in the inference thread, and tell a broken detector from a broken image."""
        try:
            outcome = model.infer(image, job, self.options.max_pixels)
        except DeadlinePassed:
            raise
        except DetectorError:
            model.statistics.failures += 1
            raise
        except Exception as error:
            model.statistics.failures += 1
            self._failures += 1
            if self._failures == 1:
                _logger.exception('model %s failed on an image', model.name)
            if self._failures >= _FAILURES_BEFORE_CHECK and not self._broken:
                self._check(model, error)
            raise
        self._failures = 0
        return outcome

    def _check(self, model: LoadedModel, error: Exception) -> None:
        """Find out whether a detector that keeps failing can do anything at all."""
        try:
            model.detector.warm_up()
        except Exception:
            # A GPU that is lost stays lost for this process.
            self._broken = (
                f'model {model.name!r} keeps failing ({type(error).__name__}: {error}); '
                'restart the worker')
            _logger.error('%s', self._broken)
            self._tell_health()
        else:
            self._failures = 1  # It is well; so the images are not. Already logged.
