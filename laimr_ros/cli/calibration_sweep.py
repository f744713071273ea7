"""Drive a live worker through a sweep over arrival rates, and keep what became of every frame."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
import time
from typing import Any

from laimr_ros.serving.client import ImagePayload, ReplicaClient
from laimr_ros.serving.errors import ErrorKind, InferenceError
import numpy as np

# Frames one after the other before anything counts.
_WARM_UP = 5
# A visit is disturbed if this share of its frames was sent late: by half a service time or more,
# but not by less than what any scheduler may take.
_DISTURBED, _LATE_S = 0.05, 0.005
_FATAL = (ErrorKind.UNKNOWN_MODEL, ErrorKind.BAD_IMAGE, ErrorKind.BAD_REPLY)


class SweepError(Exception):
    """The worker cannot be measured; the message says why and what to do."""


@dataclass(frozen=True)
class Visit:
    """
    A while at one rate.

    :param block: its number, in the order of the visits.
    :param rate: frames per second.
    :param moments: of the frames' arrivals, in seconds after its begin.
    """

    block: int
    rate: float
    moments: tuple[float, ...]


@dataclass(frozen=True)
class FrameRecord:
    """
    One frame; all times in seconds.

    :param block: number of the visit.
    :param rate: of the visit, frames per second.
    :param at: planned moment after the visit's begin.
    :param late_s: how much later it was really sent.
    :param outcome: ``ok``, or the kind of error.
    :param latency_s: from sending to the reply.
    :param queue_s: in the worker's queue, as the worker says; so are the following.
    :param decode_s: from bytes to pixels.
    :param preprocess_s: to prepare the input.
    :param inference_s: in the network.
    :param postprocess_s: on boxes.
    :param disturbed: whether this host was too busy to measure, and the visit was repeated.
    """

    block: int
    rate: float
    at: float
    late_s: float
    outcome: str
    latency_s: float
    queue_s: float = 0.0
    decode_s: float = 0.0
    preprocess_s: float = 0.0
    inference_s: float = 0.0
    postprocess_s: float = 0.0
    disturbed: bool = False

    @property
    def ok(self) -> bool:
        """Return whether it was answered."""
        return self.outcome == 'ok'

    @property
    def service_s(self) -> float:
        """Return the time the worker was occupied."""
        return self.decode_s + self.preprocess_s + self.inference_s + self.postprocess_s

    @property
    def network_s(self) -> float:
        """Return what is neither queue nor service: there, back, and both ends' gRPC."""
        return max(0.0, self.latency_s - self.queue_s - self.service_s)

    def as_json(self) -> dict[str, Any]:
        """Return it for a line of JSON, with the sums."""
        return {**asdict(self), 'service_s': self.service_s, 'network_s': self.network_s}


def plan(rates: Sequence[float], rounds: int, frames: int, seed: int) -> list[Visit]:
    """
    Plan Poisson arrivals: every rate once a round, in an order drawn by lot.

    Several visits in another order each keep a disturbance that passes by (a hot processor, a
    neighbour) from looking like an effect of the rate.

    :param rates: frames per second.
    :param rounds: how often to visit each.
    :param frames: in each visit.
    :param seed: of the order and of the arrivals.
    """
    random = np.random.default_rng(seed)
    visits = []
    for _ in range(rounds):
        for rate in random.permutation(np.asarray(rates, np.float64)):
            gaps = random.exponential(1.0 / rate, frames)
            visits.append(Visit(
                len(visits), float(rate), tuple(np.cumsum(gaps).tolist())))
    return visits


async def service_alone(
    client: ReplicaClient, model: str, images: Sequence[ImagePayload], timeout_s: float,
    frames: int = 20,
) -> float:
    """
    Return the mean service time in seconds of frames one after the other, warmed up.

    :raises SweepError: if the worker cannot be measured.
    """
    times = []
    for number in range(_WARM_UP + frames):
        try:
            reply = await client.infer(model, images[number % len(images)], timeout_s)
        except InferenceError as error:
            raise SweepError(str(error)) from None
        if reply.timings is None:
            raise SweepError(
                f'{client.endpoint} does not tell queue_us and inference_us with its replies, so '
                'that service and queue cannot be told apart; calibrate against `laimr worker`')
        if number >= _WARM_UP:
            times.append(reply.timings.service_s)
    return float(np.mean(times))


async def sweep(
    client: ReplicaClient, model: str, images: Sequence[ImagePayload], visits: Sequence[Visit],
    timeout_s: float, alone_s: float, progress: Callable[[FrameRecord], None],
) -> list[FrameRecord]:
    """
    Send every frame at its moment, whatever became of those before (open loop).

    Between two visits the worker is left to work off what it has. A visit during which this host
    could not send in time says nothing of the worker; it is repeated after the others, as long
    as no more visits are repeated than were planned. Its frames are kept, and marked. What is
    repeated is settled by the sender's own clock alone, never by what the worker did.

    :param alone_s: service time of one frame alone, in seconds.
    :param progress: called after each frame.
    :raises SweepError: if the worker cannot be measured.
    """
    records: list[FrameRecord] = []

    async def send(visit: Visit, at: float, late: float, image: ImagePayload) -> None:
        sent = time.monotonic()
        try:
            reply = await client.infer(model, image, timeout_s)
        except InferenceError as error:
            if error.kind in _FATAL:
                raise SweepError(str(error)) from None
            record = FrameRecord(visit.block, visit.rate, at, late, error.kind.value,
                                 time.monotonic() - sent)
        else:
            latency, told = time.monotonic() - sent, reply.timings
            assert told is not None, 'asked for in service_alone'
            record = FrameRecord(
                visit.block, visit.rate, at, late, 'ok', latency, told.queue_s, told.decode_s,
                told.preprocess_s, told.inference_s, told.postprocess_s)
        records.append(record)
        progress(record)

    late_s = max(_LATE_S, 0.5 * alone_s)
    waiting = list(visits)
    for block in range(2 * len(visits)):
        if not waiting:
            break
        visit = replace(waiting.pop(0), block=block)
        async with _group() as start:
            begin = time.monotonic()
            for number, at in enumerate(visit.moments):
                left = begin + at - time.monotonic()
                if left > 0.0:
                    await asyncio.sleep(left)
                start(send(visit, at, max(0.0, time.monotonic() - begin - at),
                           images[number % len(images)]))
        recent = [record for record in records if record.block == visit.block]
        if not any(record.ok for record in recent):
            raise SweepError(
                f'none of {len(recent)} frames at {visit.rate:g}/s was answered '
                f'({recent[-1].outcome}); is the worker still there?')
        late = sum(record.late_s > late_s for record in recent)
        if late > _DISTURBED * len(recent) and block + 1 + len(waiting) < 2 * len(visits):
            waiting.append(visit)
            records = [replace(record, disturbed=True) if record.block == block else record
                       for record in records]
    return records


class _group:  # noqa: N801 - used like a function
    """Tasks that all end before it does; the first failure ends it (3.10 has no TaskGroup)."""

    async def __aenter__(self) -> Callable[[Any], None]:
        self._tasks: list[asyncio.Task[None]] = []
        return lambda work: self._tasks.append(asyncio.ensure_future(work))

    async def __aexit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            for task in self._tasks:
                task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        if kind is None:
            for result in results:
                if isinstance(result, BaseException):
                    raise result
