"""Scores detections against what the drawn cells say is in the pictures, as they come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
import json
from pathlib import Path
from typing import Any, TextIO

from laimr_ros.cameras.scene import SceneObject
from laimr_ros.training.matching import Found, match, Tally

# Pictures of one robot whose detections may still come; and scores kept for the summary.
_WAITING = 2_000
_SCORES = 100_000


class Scores:
    """
    Compares detections with the truth files that cameras write.

    :param files: by robot, the file its camera writes; one that does not exist yet, or never
        will (photographs have no truth), is fine.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._truths = {robot: _Truth(path) for robot, path in files.items()}
        self._tallies: OrderedDict[tuple[str, float], Tally] = OrderedDict()
        self._total = Tally()

    def score(self, robot: str, stamp: float, detections: Sequence[Found]) -> None:
        """
        Score the detections of one picture; nothing if its truth is not known.

        :param stamp: of its capture, in seconds since the epoch.
        :param detections: class name, score and box of each.
        """
        truth = self._truths[robot].take(stamp)
        if truth is None:
            return
        tally = match(truth, detections)
        self._total.add(tally)
        self._tallies[robot, stamp] = tally
        if len(self._tallies) > _SCORES:
            self._tallies.popitem(last=False)

    @property
    def total(self) -> Tally:
        """Return the counts of all pictures scored so far."""
        return self._total

    def by_lane(self, records: Iterable[Mapping[str, Any]]) -> dict[str, Tally]:
        """
        Return the counts of each lane's pictures that were answered on time.

        :param records: the dispatcher's records.
        """
        lanes: dict[str, Tally] = {}
        for record in records:
            tally = self._tallies.get((record['robot'], record['stamp']))
            if tally is not None and record['on_time']:
                lanes.setdefault(record['lane'], Tally()).add(tally)
        return lanes

    def close(self) -> None:
        """Close the files."""
        for truth in self._truths.values():
            truth.close()


class _Truth:
    """What one camera wrote, line by line as it comes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._part = ''
        self._known: OrderedDict[float, tuple[SceneObject, ...]] = OrderedDict()

    def take(self, stamp: float) -> tuple[SceneObject, ...] | None:
        """Return what is in the picture of a time, once; None if it is not known."""
        self._read()
        return self._known.pop(stamp, None)

    def _read(self) -> None:
        if self._file is None:
            if not self._path.exists():
                return
            self._file = self._path.open(encoding='utf-8')
        *lines, self._part = (self._part + self._file.read()).split('\n')
        for line in lines:
            try:
                self._remember(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue  # A full disk may cut a line in two; that picture is not scored.
        while len(self._known) > _WAITING:
            self._known.popitem(last=False)

    def _remember(self, written: Any) -> None:
        when = written['stamp']
        self._known[(when['sec'] * 10**9 + when['nanosec']) / 1e9] = tuple(
            SceneObject(
                one['label'], (one['box'][0], one['box'][1], one['box'][2], one['box'][3]),
                one['visible_fraction'])
            for one in written['boxes'])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
