"""One JSON line a frame, written behind the back of whoever has the frames."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
import json
import os
from pathlib import Path
import threading
from typing import Any, BinaryIO

from laimr_ros.control.actions import Ended

# Frames not yet written; at 1,200 frames/s ten seconds of a disk that does not answer.
_BACKLOG = 12_000
_FLUSH_S = 0.25


class Records:
    """
    Writes what became of each frame, prediction beside actual.

    Frames are noted at the cost of an append and written by a thread of its own. Of the space
    allowed half is for the current file, half for the one before it (``<name>.1``).

    :param path: the file; continued if it exists. Missing directories are made.
    :param max_mb: most space taken, in 10**6 bytes.
    :param log: gets one message if writing fails, and one when it works again.
    :raises OSError: if the file cannot be opened.
    """

    def __init__(self, path: str, max_mb: float, log: Callable[[str], None]) -> None:
        self.max_mb = max_mb
        #: Frames not recorded, because the disk was too slow or failed.
        self.lost = 0
        self._path = Path(path).expanduser()
        self._log = log
        self._failing = False
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._stop = threading.Event()
        self._file = self._open()
        self._thread = threading.Thread(target=self._write, name='records', daemon=True)
        self._thread.start()

    def add(
        self, ended: Ended, stamp_ns: int, slo: float, detections: int, clock_agrees: bool,
    ) -> None:
        """
        Note a frame that ended.

        :param ended: how.
        :param stamp_ns: its stamp in nanoseconds.
        :param slo: of its lane, in seconds.
        :param detections: how many were published.
        :param clock_agrees: whether its deadline counted from its stamp.
        """
        if len(self._waiting) >= _BACKLOG:
            self.lost += 1
            return
        self._waiting.append((ended, stamp_ns, slo, detections, clock_agrees))

    def close(self, timeout: float = 1.0) -> None:
        """Write what is left and close the file, within ``timeout`` seconds."""
        self._stop.set()
        self._thread.join(timeout)

    def _write(self) -> None:
        while not self._stop.wait(_FLUSH_S):
            self._flush()
        self._flush()
        try:
            self._file.close()
        except OSError:
            pass

    def _flush(self) -> None:
        waiting = self._waiting
        while waiting:
            # In portions, so that others come to their turn between them.
            lines = []
            for _ in range(min(len(waiting), 200)):
                lines.append(to_line(*waiting.popleft()))
            try:
                self._follow()
                self._file.write(b''.join(lines))
                self._file.flush()
                if self._file.tell() > self.max_mb * 1e6 / 2.0:
                    self._rotate()
            except (OSError, ValueError) as error:
                self._failed(error, len(lines))
                continue
            if self._failing:
                self._failing = False
                self._log(f'records are written to {self._path} again; {self.lost} are missing')

    def _follow(self) -> None:
        """Go on in a new file if somebody has moved or removed ours, as logrotate does."""
        try:
            there = os.stat(self._path)
            ours = os.fstat(self._file.fileno())
            if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                return
        except FileNotFoundError:
            pass
        self._file.close()
        self._file = self._open()

    def _rotate(self) -> None:
        self._file.close()
        os.replace(self._path, f'{self._path}.1')
        self._file = self._open()

    def _open(self) -> BinaryIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = open(self._path, 'ab')  # noqa: SIM115 (kept open)
        try:
            with open(self._path, 'rb') as written:
                written.seek(-1, os.SEEK_END)
                # Cut off in the middle of a line: keep the next one whole.
                if written.read(1) != b'\n':
                    file.write(b'\n')
        except OSError:
            pass  # Empty, or nothing to look back on.
        return file

    def _failed(self, error: Exception, count: int) -> None:
        self.lost += count
        if not self._failing:
            self._failing = True
            self._log(f'cannot write records to {self._path} ({error}): frames go on without; '
                      'free some space, or mend the permissions')
        try:
            self._file.close()
        except OSError:
            pass
        try:
            self._file = self._open()
        except OSError:
            pass


def to_line(
    ended: Ended, stamp_ns: int, slo: float, detections: int, clock_agrees: bool,
) -> bytes:
    """Return one record; see :meth:`Records.add`. Times are in seconds."""
    frame = ended.frame
    record: dict[str, Any] = {
        'robot': frame.camera,
        'stamp': stamp_ns / 1e9,
        'stamp_ns': stamp_ns,
        'clock_agrees': clock_agrees,
        'lane': frame.lane,
        'pool': ended.pool,
        'replica': ended.replica,
        'outcome': ended.outcome.value,
        'reason': ended.reason,
        'on_time': ended.on_time,
        'offloaded': ended.offloaded,
        'attempts': ended.attempts,
        'detections': detections,
        'slo_s': slo,
        'received_s': round(frame.received, 6),
        'age_s': round(frame.received - frame.captured, 6),
        'latency_s': round(ended.latency, 6),
        'queued_s': round(ended.queued, 6),
        'network_s': round(ended.network, 6),
        'worker_queue_s': round(ended.worker_queue, 6),
        'service_s': round(ended.service, 6),
        'predicted': None,
    }
    prediction = ended.prediction
    if prediction is not None:
        record['predicted'] = {
            'wait_s': round(prediction.wait, 6),
            'network_s': round(prediction.network, 6),
            'service_s': round(prediction.service, 6),
            'completion_s': round(prediction.completion, 6),
        }
    return json.dumps(record, separators=(',', ':')).encode() + b'\n'
