"""The event loop around the controller: frames in, inferences out and back, detections out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import math
import threading
import time
import traceback
from typing import Any, Protocol

from laimr_ros.control.actions import Cancel, Ended, Scale, Send, Wake
from laimr_ros.control.controller import Controller
from laimr_ros.control.events import (
    CameraLeft,
    Cause,
    ConfigurationChanged,
    FrameArrived,
    FrameDone,
    FrameFailed,
    PoolObserved,
    ReplicaDraining,
    ReplicaLost,
    ReplicaReady,
    Tick,
)
from laimr_ros.control.nouns import Configuration, Frame, Outcome
from laimr_ros.nodes.detection_messages import write_detections
from laimr_ros.nodes.image_faults import grouped, ImageFaults
from laimr_ros.nodes.image_messages import ImageMessage, MessageError
from laimr_ros.nodes.outages import Need, Outages
from laimr_ros.nodes.records import Records
from laimr_ros.nodes.replicas import Level, ReplicaLink
from laimr_ros.nodes.robots import Robot
from laimr_ros.serving.codec import ImagePayload
from laimr_ros.serving.endpoint import parse as parse_endpoint
from laimr_ros.serving.errors import ErrorKind, InferenceError
from laimr_ros.serving.reply import InferenceReply

# Frames taken in one go, before replies get their turn.
_BATCH = 32
# Frames that may wait to be taken in; with more, the oldest are given up.
_INBOX = 256
# Between two looks for pools that leave frames unanswered.
_LOOK_S = 1.0

_CAUSES = {
    ErrorKind.BUSY: Cause.BUSY,
    ErrorKind.UNAVAILABLE: Cause.UNAVAILABLE,
    ErrorKind.DEADLINE: Cause.DEADLINE,
    # Not by us: a worker that stops cancels what it has. Another one can still do it.
    ErrorKind.CANCELLED: Cause.UNAVAILABLE,
    ErrorKind.UNKNOWN_MODEL: Cause.UNAVAILABLE,
    ErrorKind.BAD_IMAGE: Cause.BAD_FRAME,
    ErrorKind.BAD_REPLY: Cause.INTERNAL,
    ErrorKind.INTERNAL: Cause.INTERNAL,
}


class Outlet(Protocol):
    """Where results go; called in the loop's thread."""

    def scale(self, pool: str, replicas: int) -> None:
        """Ask for a number of replicas."""

    def class_names(self, lane: str, names: Sequence[str]) -> None:
        """Tell the class names of a lane's model."""

    def robot_gone(self, robot: Robot) -> None:
        """Forget a robot that left: its last frame has ended."""

    def say(self, text: str, level: Level = 'info') -> None:
        """Tell people."""


@dataclass(frozen=True)
class Tuning:
    """
    What the loop itself needs of the parameters.

    :param score_threshold: detections with a lower score are not published.
    :param max_image_bytes: larger images are rejected.
    """

    score_threshold: float = 0.0
    max_image_bytes: int = 32_000_000


class _Hand:
    """A frame in hand: where it came from, and by which replicas it is being inferred."""

    __slots__ = ('answer', 'image', 'out', 'robot')

    def __init__(self, robot: Robot, image: ImageMessage | None) -> None:
        self.robot = robot
        self.image = image
        self.out: dict[ReplicaLink, asyncio.Task[None]] = {}
        self.answer: InferenceReply | None = None


class DispatchLoop:
    """
    Owns the controller and the connections to replicas, in a thread of its own.

    :param configuration: of the controller, at first.
    :param tuning: of the loop, at first.
    :param outlet: gets the results.
    :param records: gets every frame that ended; None for no records.
    """

    def __init__(
        self, configuration: Configuration, tuning: Tuning, outlet: Outlet,
        records: Records | None = None,
    ) -> None:
        self.controller = Controller(configuration)
        self.tuning = tuning
        self.records = records
        self._outlet = outlet
        self._slo = {name: lane.slo for name, lane in configuration.lanes.items()}
        self._inbox: deque[tuple[Robot, bytes, float, int]] = deque()
        self._notified = False
        self._open = True
        self._hands: dict[int, _Hand] = {}
        self._links: dict[str, ReplicaLink] = {}
        self._next_id = 0
        self._wake: asyncio.TimerHandle | None = None
        self._named: dict[str, tuple[str, ...]] = {}
        self._errors_said: dict[str, float] = {}
        self._faults = ImageFaults()
        self._outages = Outages()
        self._desired: dict[str, int] = {}
        self._doers: dict[type, Callable[[Any], None]] = {
            Send: self._send, Cancel: self._cancel, Ended: self._ended, Scale: self._scale,
            Wake: self._set_wake,
        }
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name='dispatch', daemon=True)

    # ----- life

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        self.call(self._tick)
        self.call(self._look)

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called in the loop's thread, from any thread."""
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            pass  # The loop is closed: nothing matters any more.

    def ask(self, function: Callable[..., Any], *args: Any, timeout: float = 5.0) -> Any:
        """
        Call a function in the loop's thread and return its result, from any other thread.

        :raises TimeoutError: if the loop does not come to it in time.
        """
        async def run() -> Any:
            return function(*args)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(timeout)

    def stop(self, finish_s: float = 1.0, then: Callable[[], None] = lambda: None) -> None:
        """
        Take no more frames, give open ones ``finish_s`` seconds, and end the thread.

        :param then: called in the loop's thread once every frame has ended.
        """
        self._open = False
        if self._thread.is_alive():
            future = asyncio.run_coroutine_threadsafe(self._finish(finish_s, then), self.loop)
            try:
                future.result(finish_s + 1.0)
            except (TimeoutError, asyncio.TimeoutError):
                pass
            self.call(self.loop.stop)
            self._thread.join(1.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._on_exception)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get('exception')
        trace = ''.join(traceback.format_exception(error)) if error is not None else ''
        self._outlet.say(f'{context.get("message")}\n{trace}', 'error')

    async def _finish(self, finish_s: float, then: Callable[[], None]) -> None:
        self._drain(rest=True)
        deadline = time.monotonic() + finish_s
        while self._hands and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        # A replica that one frame leaves gets the next: so until none is being inferred.
        while sent := [(i, h) for i, h in self._hands.items() if h.out]:
            for frame_id, hand in sent:
                for link in list(hand.out):
                    self._release(hand, link, cancel=True)
                    self._handle(FrameFailed(
                        frame_id, link.name, Cause.CANCELLED, 'the dispatcher stops'))
        if self._hands:
            self._give_up()
        then()
        await asyncio.gather(
            *(link.close() for link in self._links.values()), return_exceptions=True)
        await asyncio.sleep(0)

    def _give_up(self) -> None:
        """End the frames that wait for a replica: move on to when their time is up."""
        lanes = self.controller.configuration.lanes.values()
        horizon = time.monotonic() + 2.0 * max(lane.slo for lane in lanes) + 1.0
        for action in self.controller.handle(horizon, Tick()):
            if isinstance(action, Ended):
                self._ended(action)

    # ----- frames in (any thread)

    def receive(self, robot: Robot, message: bytes, received: float, clock_ns: int) -> None:
        """
        Take a serialised image in, from the executor's thread.

        :param received: a monotonic clock in seconds.
        :param clock_ns: the ROS clock in nanoseconds.
        """
        if not self._open:
            return
        inbox = self._inbox
        inbox.append((robot, message, received, clock_ns))
        if len(inbox) > _INBOX:
            try:
                inbox.popleft()[0].overrun += 1
            except IndexError:
                pass
        if not self._notified:
            self._notified = True
            self.call(self._drain)

    # ----- frames in (loop)

    def _drain(self, rest: bool = False) -> None:
        inbox = self._inbox
        # Before looking, so that whatever comes after the look is told again.
        self._notified = False
        for _ in range(_INBOX if rest else _BATCH):
            try:
                robot, message, received, clock_ns = inbox.popleft()
            except IndexError:
                return
            if robot.overrun != robot.overrun_told:
                self._count_overrun(robot, received)
            self._arrive(robot, message, received, clock_ns)
        if inbox and not self._notified:
            self._notified = True
            self.loop.call_soon(self._drain)

    def _arrive(self, robot: Robot, message: bytes, received: float, clock_ns: int) -> None:
        defect = ''
        detail = ''
        captured = received
        image = None
        try:
            image = robot.read(message)
        except MessageError as error:
            detail = f'unreadable message: {error}'
            defect = grouped(detail)
        else:
            size = len(image.data)
            if size == 0:
                defect = detail = 'empty image'
            elif size > self.tuning.max_image_bytes:
                defect = 'image is larger than max_image_bytes'
                detail = f'{defect}: {size} bytes, and at most {self.tuning.max_image_bytes}'
            captured = robot.clock.captured(
                image.sec * 1_000_000_000 + image.nanosec, clock_ns, received)
        if defect:
            self._warn_of_image(robot, detail)
        self._take(robot, image, captured, received, defect)

    def _take(
        self, robot: Robot, image: ImageMessage | None, captured: float, received: float,
        defect: str,
    ) -> None:
        self._next_id = frame_id = self._next_id + 1
        self._hands[frame_id] = _Hand(robot, image)
        robot.open += 1
        robot.received += 1
        robot.last_received = received
        self._handle(FrameArrived(Frame(frame_id, robot.name, robot.lane, captured, received),
                                  defect))

    def _count_overrun(self, robot: Robot, received: float) -> None:
        for _ in range(robot.overrun - robot.overrun_told):
            robot.overrun_told += 1
            self._take(robot, None, received, received, 'dispatcher overloaded')

    # ----- the controller

    def _handle(self, event: Any) -> None:
        doers = self._doers
        for action in self.controller.handle(time.monotonic(), event):
            doers[type(action)](action)

    def _tick(self) -> None:
        self._wake = None
        self._handle(Tick())

    def _set_wake(self, action: Wake) -> None:
        if self._wake is not None:
            self._wake.cancel()
        # asyncio's clock is the monotonic one.
        self._wake = self.loop.call_later(max(0.0, action.at - time.monotonic()), self._tick)

    def _send(self, action: Send) -> None:
        hand = self._hands.get(action.frame.id)
        link = self._links.get(action.replica)
        if hand is None:
            return
        if link is None or hand.image is None:
            self.loop.call_soon(self._handle, FrameFailed(
                action.frame.id, action.replica, Cause.UNAVAILABLE, 'replica unknown'))
            return
        link.begin()
        hand.out[link] = self.loop.create_task(self._infer(action, hand, hand.image, link))

    async def _infer(
        self, action: Send, hand: _Hand, image: ImageMessage, link: ReplicaLink,
    ) -> None:
        frame_id = action.frame.id
        try:
            reply = await link.client.infer(
                action.model,
                ImagePayload(image.data, image.encoding, image.height, image.width, image.step,
                             image.is_bigendian),
                action.timeout)
        except InferenceError as error:
            if self._release(hand, link):
                self._handle(FrameFailed(
                    frame_id, link.name, _CAUSES[error.kind],
                    self._explain(error, robot=hand.robot, link=link, model=action.model)))
            return
        except asyncio.CancelledError:
            return  # Whoever cancelled has settled everything.
        except Exception as error:
            # A fault of ours must not leave a frame open for ever.
            self._outlet.say(f'inference failed in an unknown way: {error!r}', 'error')
            if self._release(hand, link):
                self._handle(FrameFailed(frame_id, link.name, Cause.INTERNAL, repr(error)))
            return
        if not self._release(hand, link):
            return
        hand.answer = reply
        timings = reply.timings
        if timings is None:
            self._handle(FrameDone(frame_id, link.name))
        else:
            self._handle(FrameDone(frame_id, link.name, timings.queue_s, timings.service_s))

    @staticmethod
    def _release(hand: _Hand, link: ReplicaLink, *, cancel: bool = False) -> bool:
        """Note that a replica does not infer a frame any more; return whether it did."""
        task = hand.out.pop(link, None)
        if task is None:
            return False
        if cancel:
            task.cancel()
        link.end()
        return True

    def _cancel(self, action: Cancel) -> None:
        hand = self._hands.get(action.frame.id)
        if hand is not None:
            for link in [link for link in hand.out if link.name == action.replica]:
                self._release(hand, link, cancel=True)

    def _ended(self, ended: Ended) -> None:
        hand = self._hands.pop(ended.frame.id, None)
        if hand is None:
            return
        for link in list(hand.out):
            self._release(hand, link, cancel=True)
        robot, image, answer = hand.robot, hand.image, hand.answer
        count = 0
        if ended.outcome is Outcome.ANSWERED and answer is not None and image is not None:
            threshold = self.tuning.score_threshold
            scores = answer.scores.tolist()
            count = len(scores)
            if threshold > 0.0:
                count = sum(score >= threshold for score in scores)
            robot.publish(write_detections(
                image.sec, image.nanosec, image.frame_id, answer.boxes.tolist(), scores,
                answer.labels, threshold))
        if self.records is not None:
            self.records.add(
                ended, image.stamp_ns if image is not None else 0,
                self._slo.get(ended.frame.lane, 0.0), count, robot.clock.agrees)
        robot.open -= 1
        if robot.left and robot.open == 0:
            self._outlet.robot_gone(robot)

    def _scale(self, action: Scale) -> None:
        before = self._desired.get(action.pool)
        if before != action.replicas:
            self._desired[action.pool] = action.replicas
            self._outlet.say(self._why_scaled(action, before))
        self._outlet.scale(action.pool, action.replicas)

    def _why_scaled(self, action: Scale, before: int | None) -> str:
        pool = self.controller.pools[action.pool]
        lanes = [state for state in self.controller.lanes.values()
                 if action.pool in state.queue.lane.pools]
        now = time.monotonic()
        # The reading that decided: replicas are taken away by the slow one only.
        down = before is not None and action.replicas < before
        rate = sum(state.arrivals.slow(now) if down else max(
            state.arrivals.fast(now), state.arrivals.slow(now)) for state in lanes)
        slo = min((state.queue.lane.slo for state in lanes), default=math.inf)
        change = 'at first' if before is None else f'{before} ->'
        if not pool.ready:
            predicted = 'unknown as none serves'
        elif math.isinf(pool.predicted):
            predicted = f'without bound with {pool.ready} serving'
        elif pool.predicted > 0.0:
            predicted = f'{pool.predicted:.3g} s with {pool.ready} serving'
        else:
            predicted = 'unknown yet'  # Before any frame was looked at.
        percent = 100.0 * self.controller.configuration.limits.quantile
        return (f'pool {action.pool}: desired replicas {change} {action.replicas} '
                f'({rate:.1f} frames/s, predicted P{percent:g} {predicted}, SLO {slo:g} s)')

    def _look(self) -> None:
        """Tell of pools that leave frames unanswered."""
        self.loop.call_later(_LOOK_S, self._look)
        lanes = {}
        for name, state in self.controller.lanes.items():
            counts = state.counters.as_dict()
            lanes[name] = Need(
                state.queue.lane.pools,
                counts['received'] - counts['in_flight'] - counts['answered'])
        replicas: dict[str, dict[str, str]] = {
            pool: {} for pool in self.controller.configuration.pools}
        for link in self._links.values():
            if link.pool in replicas:
                replicas[link.pool][link.name] = (
                    '' if link.serving else link.reason or 'it does not say why')
        for text, bad in self._outages.update(time.monotonic(), lanes, replicas):
            self._outlet.say(text, 'warning' if bad else 'info')

    def _warn_of_image(self, robot: Robot, text: str) -> None:
        warning = self._faults.warning(time.monotonic(), robot.name, robot.source.topic, text)
        if warning is not None:
            self._outlet.say(warning, 'warning')

    def _explain(
        self, error: InferenceError, *, robot: Robot, link: ReplicaLink, model: str,
    ) -> str:
        """Return a short reason to count by; log the whole text once a minute at most."""
        text = str(error)
        if error.kind in (ErrorKind.DEADLINE, ErrorKind.BUSY):
            return ''
        if error.kind is ErrorKind.BAD_IMAGE:
            # It is the robot's fault, whichever replica found it.
            text = text.removeprefix(f'{link.name}, model {model!r}: ')
            self._warn_of_image(robot, text)
            return f'bad image: {grouped(text.removeprefix("image is "))}'
        now = time.monotonic()
        key: str = error.kind.value
        if now - self._errors_said.get(key, -60.0) >= 60.0:
            self._errors_said[key] = now
            self._outlet.say(
                f'{key}: {text} (further ones are counted, not logged, for 60 s)', 'warning')
        # Texts of single frames would make counters without end.
        return key

    # ----- robots, pools, configuration (loop)

    def robot_left(self, robot: Robot, *, for_good: bool) -> None:
        """
        Note that a robot publishes no more on this topic.

        :param for_good: false if it goes on with another topic.
        """
        robot.left = True
        if for_good:
            self._handle(CameraLeft(robot.name))
        if robot.open == 0:
            self._outlet.robot_gone(robot)

    def pool_observed(self, event: PoolObserved) -> None:
        """Take in what the bridge says of a pool."""
        self._handle(event)

    def configure(self, configuration: Configuration, tuning: Tuning) -> None:
        """Use other numbers from now on."""
        self.tuning = tuning
        if configuration != self.controller.configuration:
            self._slo = {name: lane.slo for name, lane in configuration.lanes.items()}
            self._handle(ConfigurationChanged(configuration))
            for link in self._links.values():
                self._tell_class_names(link)

    def set_endpoints(self, endpoints: Mapping[str, Sequence[str]]) -> None:
        """
        Connect to new replicas, let go of those that are not named any more.

        :param endpoints: of each pool.
        """
        wanted = {
            str(parse_endpoint(text)): pool for pool, texts in endpoints.items() for text in texts}
        for name, link in list(self._links.items()):
            if wanted.get(name) != link.pool and not link.retired:
                link.retire()
        configuration = self.controller.configuration
        pools = configuration.pools
        for name, pool in wanted.items():
            known = self._links.get(name)
            if known is not None and known.pool == pool and not known.closing:
                if known.retired:
                    known.start()
                continue
            if known is not None:
                # Of another pool until now, or just being closed.
                known.abandon()
                self._handle(ReplicaLost(name, 'moved'))
            users = {
                lane.model: f'lane {lane.name}' for lane in configuration.lanes.values()
                if pool in lane.pools}
            link = self._links[name] = ReplicaLink(
                name, pool, list(pools[pool].models), self, users)
            link.start()

    # ----- what links tell

    def link_ready(self, link: ReplicaLink) -> None:
        """Let the controller send to a replica."""
        if self._links.get(link.name) is link:
            self._tell_class_names(link)
            self._handle(ReplicaReady(link.pool, link.name))

    def link_draining(self, link: ReplicaLink) -> None:
        """Let the controller send nothing more to a replica."""
        if self._links.get(link.name) is link:
            self._handle(ReplicaDraining(link.name))

    def link_lost(self, link: ReplicaLink, reason: str) -> None:
        """Let the controller forget a replica."""
        if self._links.get(link.name) is link:
            self._handle(ReplicaLost(link.name, reason))

    def link_closed(self, link: ReplicaLink) -> None:
        """Forget a replica that was let go of."""
        if self._links.get(link.name) is link:
            del self._links[link.name]

    def link_says(self, text: str, level: Level) -> None:
        """Pass on to people."""
        self._outlet.say(text, level)

    def _tell_class_names(self, link: ReplicaLink) -> None:
        for lane in self.controller.configuration.lanes.values():
            names = link.class_names.get(lane.model, ())
            if link.pool in lane.pools and names and self._named.get(lane.name) != names:
                self._named[lane.name] = names
                self._outlet.class_names(lane.name, names)

    def links(self) -> list[dict[str, Any]]:
        """Return the state of each replica, for diagnostics."""
        return [
            {'endpoint': link.name, 'pool': link.pool, 'serving': link.serving,
             'in_flight': link.in_flight, 'reason': link.reason}
            for link in self._links.values()]

