"""The worker as a ROS lifecycle node: configure loads, activate serves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Set
import math
import os
import socket
import sys
import threading
import time
from typing import Any, TypeVar

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from laimr_ros import lifeline
from laimr_ros.detectors.base import DetectorError
from laimr_ros.nodes.background import BackgroundSpin
from laimr_ros.nodes.executor import make_executor
from laimr_ros.nodes.observed_server import ObservedServer
from laimr_ros.nodes.parameters import (
    declare,
    on_change,
    ParameterError,
    ParameterSpec,
    Values,
    warn_unknown,
)
from laimr_ros.serving.config import (
    ConfigError,
    from_mapping,
    MODEL_SETTINGS,
    Setting,
    WORKER_SETTINGS,
    WorkerConfig,
)
from laimr_ros.serving.endpoint import EndpointError
import rclpy
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.signals import SignalHandlerOptions

T = TypeVar('T')

_DIAGNOSTICS_S = 1.0
# When the process ends, frames in progress get so long, and all of it together so long; under the
# 5 s after which `ros2 launch` loses patience.
_LAST_DRAIN_S = 3.0
_END_S = 4.0

AUTOSTART = ParameterSpec(
    'autostart', True,
    'load and serve at once, and end with status 1 when a detector is broken beyond repair; false '
    'leaves both to a lifecycle manager')


class Worker(LifecycleNode):
    """
    Detectors over the Open Inference Protocol, under a lifecycle.

    ``configure`` loads, ``activate`` serves, ``deactivate`` drains and stops serving, ``cleanup``
    frees the memory, on the GPU too. Parameters may change while it is unconfigured.

    :param node_options: as for ``rclpy.lifecycle.LifecycleNode``.
    :raises ParameterError: if a parameter has a value of a wrong type.
    """

    def __init__(self, **node_options: Any) -> None:
        super().__init__('worker', **node_options)
        self._server: ObservedServer | None = None
        self._config: WorkerConfig | None = None
        self._trouble = ''
        self.broken = threading.Event()
        self._values: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        self._loop_thread = threading.Thread(
            target=self._loop.run_forever, name='grpc', daemon=True)
        self._loop_thread.start()
        try:
            self.autostart: bool = declare(self, [AUTOSTART])['autostart']
            self._declare_settings()
        except ParameterError:
            self.destroy_node()
            raise
        warn_unknown(self)
        on_change(self, self._validate_change, self._apply_change)
        # A plain publisher, not a managed one: diagnostics matter most when it is not active.
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.create_timer(
            _DIAGNOSTICS_S, self._publish_diagnostics,
            clock=Clock(clock_type=ClockType.STEADY_TIME))

    def start(self) -> None:
        """Configure and activate, as far as it goes."""
        if self.trigger_configure() is TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()

    def destroy_node(self) -> None:
        """Stop the thread of gRPC, then destroy the node."""
        if self._loop_thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join()
            self._loop.close()
        super().destroy_node()

    # Transitions. An exception would be swallowed by rclpy, so none leaves them.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the models. One that cannot be loaded leaves the node unconfigured."""
        try:
            config = from_mapping(self._values)
        except ConfigError as error:
            return self._fail(str(error))
        for name, spec in config.models.items():
            self.get_logger().info(
                f'loading model {name} ({spec.kind} {spec.weights}) on {spec.device} ...')
        server = ObservedServer(config.models, config.server)
        began = time.monotonic()
        try:
            service_times_s = server.load()
        except DetectorError as error:
            server.unload()
            return self._fail(str(error))
        except Exception as error:
            server.unload()
            return self._fail(f'{type(error).__name__}: {error}')
        self._server, self._config, self._trouble = server, config, ''
        times = ', '.join(f'{name} {s * 1e3:.1f} ms' for name, s in service_times_s.items())
        self.get_logger().info(
            f'loaded in {time.monotonic() - began:.2f} s; an image alone takes: {times}')
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Serve. An address that cannot be used leaves the node inactive."""
        assert self._server is not None and self._config is not None
        try:
            endpoints = self._run(self._server.start(self._config.listen))
        except EndpointError as error:
            return self._fail(str(error))
        except Exception as error:
            return self._fail(f'{type(error).__name__}: {error}')
        self._trouble = ''
        self.get_logger().info(f'serving on {", ".join(endpoints)}')
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Take no more frames, finish those in progress, stop listening."""
        assert self._config is not None
        self._stop_serving(self._config.drain_grace_s)
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the memory of the detectors."""
        self._unload()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End in order, from whatever state."""
        self._stop_serving(_LAST_DRAIN_S)
        self._unload()
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free everything, to be configured afresh."""
        self._stop_serving(0.0)
        self._unload()
        return TransitionCallbackReturn.SUCCESS

    def _fail(self, trouble: str) -> TransitionCallbackReturn:
        self._trouble = trouble
        self.get_logger().error(trouble)
        return TransitionCallbackReturn.FAILURE

    def _stop_serving(self, grace_s: float) -> None:
        server, config = self._server, self._config
        if server is None or config is None or not server.endpoints:
            return
        grace_s = min(grace_s, config.drain_grace_s)
        if not self._run(server.drain(grace_s)):
            self.get_logger().warning(
                f'{grace_s:g} s were not enough to finish all frames; the rest is broken off')
        self._run(server.stop())

    def _unload(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.unload()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread of gRPC; return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    # Parameters.

    def _declare_settings(self) -> None:
        self._values.update(declare(self, map(specification, WORKER_SETTINGS)))
        # rclpy has no public way to read what was set from outside but is not declared yet.
        overrides: Mapping[str, Any] = getattr(self, '_parameter_overrides', {})
        described = [name.split('.')[1] for name in overrides if name.startswith('models.')]
        for model in dict.fromkeys([*filter(None, self._values['model_names']), *described]):
            prefix = f'models.{model}.'
            specs = [specification(setting, prefix) for setting in MODEL_SETTINGS]
            specs += [
                ParameterSpec(
                    name, override.value, f'an option of the detector of {model}', live=True)
                for name, override in overrides.items()
                if name.startswith(prefix + 'options.')
            ]
            self._values.update(declare(self, specs))

    def _validate_change(self, values: Values, names: Set[str]) -> None:
        if self._server is not None:
            raise ParameterError(
                f'{", ".join(sorted(names))}: cannot change while models are loaded; first '
                f'"ros2 lifecycle set {self.get_fully_qualified_name()} deactivate", then '
                'cleanup; then change, configure, activate'
            )

    def _apply_change(self, values: Values, names: Set[str]) -> None:
        self._values.update({name: values[name] for name in names})

    # Diagnostics.

    def _publish_diagnostics(self) -> None:
        server = self._server
        broken = server is not None and server.failed.is_set()
        if server is not None and broken and not self.broken.is_set():
            self._trouble = server.why_not_ready()
            self.broken.set()
        elif server is None:
            self.broken.clear()
        message = DiagnosticArray()
        message.header.stamp = self.get_clock().now().to_msg()
        state = self._state_machine.current_state[1]
        level, text = DiagnosticStatus.OK, state
        if self._trouble:
            level, text = DiagnosticStatus.ERROR, f'{state}: {self._trouble}'
        elif state != 'active':
            level = DiagnosticStatus.WARN
        facts = dict(self._facts())
        message.status.append(DiagnosticStatus(
            level=level,
            name=f'{self.get_name()}: serving',
            message=text,
            hardware_id=socket.gethostname(),
            values=[KeyValue(key=key, value=str(value)) for key, value in facts.items()],
        ))
        self._diagnostics.publish(message)

    def _facts(self) -> Iterator[tuple[str, Any]]:
        yield 'state', self._state_machine.current_state[1]
        server = self._server
        if server is None:
            return
        yield 'endpoints', ' '.join(server.endpoints)
        yield 'in_progress', server.in_progress
        # One of those in progress is in the detector, the rest waits for it.
        yield 'queue_length', max(0, server.in_progress - 1)
        yield 'rejected', server.refused['RESOURCE_EXHAUSTED']
        yield 'expired', server.refused['DEADLINE_EXCEEDED']
        yield 'bad_images', server.refused['INVALID_ARGUMENT']
        for name in server.model_names:
            model = server.loaded(name)
            if model is None:
                continue
            p50_s, p99_s = server.service_quantiles_s(name)
            yield f'{name}.served', model.statistics.successes
            yield f'{name}.failed', model.statistics.failures
            yield f'{name}.service_p50_s', f'{p50_s:.4f}'
            yield f'{name}.service_p99_s', f'{p99_s:.4f}'
            yield f'{name}.device', getattr(model.detector, 'device', model.spec.device)
            yield f'{name}.random_weights', model.detector.random_weights


def specification(setting: Setting, prefix: str = '') -> ParameterSpec:
    """Return the parameter of a setting."""
    return ParameterSpec(
        prefix + setting.name,
        setting.default,
        setting.description,
        minimum=setting.minimum if math.isfinite(setting.minimum) else None,
        maximum=setting.maximum if math.isfinite(setting.maximum) else None,
        # A default outside the choices says that there must be one; `configure` sees to that.
        choices=setting.choices if setting.default in setting.choices else (),
        live=True,
    )


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM; return the process exit status."""
    lifeline.attach()
    # Otherwise gRPC's core prints C++ source locations beside our own messages.
    os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    try:
        try:
            node = Worker()
        except ParameterError as error:
            print(f'worker: {error}', file=sys.stderr)
            return 2
        executor = make_executor()
        executor.add_node(node)
        if node.autostart:
            executor.create_task(node.start)
        with BackgroundSpin(executor) as spinning:
            status = _wait(spinning, node)
            ended = threading.Event()
            executor.create_task(_shut_down, node, ended)
            if not ended.wait(_END_S):
                # Nothing can stop a library that is loading, and taking the interpreter apart
                # around its threads could crash.
                os._exit(status)
        node.destroy_node()
    finally:
        rclpy.try_shutdown()
    return status


def _wait(spinning: BackgroundSpin, node: Worker) -> int:
    """Wait for a signal, or for a detector that is beyond repair; return the exit status."""
    while not spinning.wait_for_signal(timeout_s=1.0):
        if node.autostart and node.broken.is_set():
            return 1
    return 0


def _shut_down(node: Worker, ended: threading.Event) -> None:
    try:
        node.trigger_shutdown()
    except Exception as error:
        node.get_logger().debug(str(error))
    finally:
        ended.set()


if __name__ == '__main__':
    sys.exit(main())
