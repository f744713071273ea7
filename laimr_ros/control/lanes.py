"""Waiting frames of one lane: earliest deadline first, newest frame of a camera wins."""

from __future__ import annotations

from collections.abc import Iterator
import heapq

from laimr_ros.control.jobs import Job, Stage
from laimr_ros.control.nouns import Lane


class _Place:
    """A place in the queue; whose frame stands there can change."""

    __slots__ = ('job',)

    def __init__(self, job: Job | None) -> None:
        self.job = job


class LaneQueue:
    """
    The waiting frames of one lane.

    A newer frame of a camera takes over the *place* of the older one: were it to queue at its
    own later deadline, a fast camera would be put off for ever under overload.

    Frames that can hardly be on time any more stand back for those that can: under overload
    the earliest deadline is always the one just missed, and serving it first would make every
    frame late.

    :ivar late: frames that stand back, by id; the last to do so has the most time left.
    """

    def __init__(self, lane: Lane) -> None:
        """Start empty."""
        self.lane = lane
        self._heap: list[tuple[float, int, _Place]] = []
        self._places: dict[int, _Place] = {}
        self._by_camera: dict[str, _Place] = {}
        self._sequence = 0
        self.late: dict[int, _Place] = {}

    def __len__(self) -> int:
        """Return how many frames wait."""
        return len(self._places)

    def __iter__(self) -> Iterator[Job]:
        """Iterate over the waiting frames, in no order."""
        return iter([place.job for place in self._places.values() if place.job is not None])

    def push(self, job: Job) -> Job | None:
        """
        Let a frame wait.

        :return: the frame that thereby is superseded: the camera's older one. It can be ``job``
            itself, when a frame comes back from a failed worker after a newer one was queued.
        """
        job.stage = Stage.QUEUED
        camera = job.frame.camera
        if self.lane.supersede:
            place = self._by_camera.get(camera)
            if place is not None and place.job is not None:
                older = place.job
                if older.frame.captured > job.frame.captured:
                    return job
                job.urgency = min(older.urgency, job.urgency)
                place.job = job
                del self._places[older.frame.id]
                self._places[job.frame.id] = place
                if self.late.pop(older.frame.id, None) is not None:
                    self._line_up(place, job.urgency)
                return older
        place = _Place(job)
        self._places[job.frame.id] = place
        self._by_camera[camera] = place
        self._line_up(place, job.urgency)
        return None

    def _line_up(self, place: _Place, urgency: float) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (urgency, self._sequence, place))
        # Places emptied out of turn stay in the heap until they surface; keep them few.
        if len(self._heap) > 2 * len(self._places) + 64:
            self._heap = [entry for entry in self._heap if entry[2].job is not None]
            heapq.heapify(self._heap)

    def head(self) -> Job | None:
        """Return the most urgent waiting frame that does not stand back, or None."""
        heap = self._heap
        while heap:
            job = heap[0][2].job
            if job is not None:
                return job
            heapq.heappop(heap)
        return None

    def stand_back(self) -> None:
        """Let the head stand back for all that can still be on time."""
        job = self.head()
        if job is not None:
            self.late[job.frame.id] = heapq.heappop(self._heap)[2]

    def last_resort(self) -> Job | None:
        """Return the frame with the best chance of those that stand back, or None."""
        return next(reversed(self.late.values())).job if self.late else None

    def holds(self, camera: str) -> bool:
        """Return whether a frame of this camera waits."""
        return camera in self._by_camera

    def discard(self, job: Job) -> None:
        """Take a frame out, if it waits here."""
        place = self._places.pop(job.frame.id, None)
        if place is None:
            return
        place.job = None
        self.late.pop(job.frame.id, None)
        if self._by_camera.get(job.frame.camera) is place:
            del self._by_camera[job.frame.camera]
