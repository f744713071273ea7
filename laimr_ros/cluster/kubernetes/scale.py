"""Setting the number of replicas through the scale subresource."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
import logging
import time
from typing import Any

from laimr_ros.cluster.backoff import Backoff
from laimr_ros.cluster.kubernetes.access import Access, MERGE_PATCH
from laimr_ros.cluster.kubernetes.errors import ApiError
from laimr_ros.cluster.kubernetes.pool import Workload
from laimr_ros.cluster.kubernetes.rivals import Rivals

_logger = logging.getLogger(__name__)

#: The name under which our changes stand in ``managedFields``.
FIELD_MANAGER = 'laimr-bridge'
_LONGEST_PAUSE_S = 2.0
# A rival or a missing permission is for people to mend; nobody waits for us to notice in less.
_ASK_AGAIN_S = 5.0
# Attempts in a row when others write at the same time, before pausing.
_CONFLICTS = 5


class ScaleDriver:
    """
    Keep the replicas of one workload at the number wanted.

    Level-triggered: it acts when the number wanted and the number in the cluster differ, whoever
    changed either. It writes only on top of what it has read, so that it never undoes in
    ignorance, and not at all beside an autoscaler of the same workload.

    :param access: the API server.
    :param workload: what is scaled.
    :param min_interval_s: shortest time between two writes, in seconds.
    :param may_write: whether this bridge is the one to act.
    :param on_change: called after what it says about itself has changed.
    """

    def __init__(
        self, access: Access, workload: Workload, min_interval_s: float,
        may_write: Callable[[], bool], on_change: Callable[[], None],
    ) -> None:
        self._access = access
        self._workload = workload
        self._rivals = Rivals(access, workload)
        self._min_interval_s = min_interval_s
        self._may_write = may_write
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._backoff = Backoff(0.1, _LONGEST_PAUSE_S)
        self._observed: int | None = None
        self._applied: int | None = None
        self._written_at = -min_interval_s
        #: Replicas wanted; None before anybody has said so.
        self.wanted: int | None = None
        #: Why the number wanted is not in the cluster; empty if it is.
        self.trouble = ''
        #: How often the number was written.
        self.writes = 0

    def want(self, count: int) -> None:
        """Ask for a number of replicas."""
        if count != self.wanted:
            self.wanted = count
            self._wake.set()

    def observed(self, count: int | None) -> None:
        """Take what the workload's specification says; None if there is no workload."""
        self._observed = count
        if count != self.wanted:
            self._wake.set()

    def nudge(self) -> None:
        """Look again now: something has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Keep the number until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.wanted is None or not self._may_write():
                self._say('')
                continue
            if self._observed == self.wanted and not self.trouble:
                continue
            pause = self._written_at + self._min_interval_s - time.monotonic()
            if pause > 0.0:
                await asyncio.sleep(pause)
            try:
                await self._apply()
            except ApiError as error:
                await self._failed(error)
            else:
                self._backoff.reset()
                self._say('')

    async def _apply(self) -> None:
        path = f'{self._workload.path}/{self._workload.name}/scale'
        for _ in range(_CONFLICTS):
            # The rival first: between that look and the write there is only one reading.
            rival = await self._rivals.find()
            if rival:
                raise _Refused(
                    f'{rival} sets the replicas of {self._workload} too; remove it, or set drive '
                    'to external_metric or keda')
            scale = await self._access.request('GET', path)
            current = int((scale.get('spec') or {}).get('replicas') or 0)
            self._observed = current
            # What is wanted may have changed while we waited for the answer.
            wanted = self.wanted
            if wanted is None or current == wanted or not self._may_write():
                return
            if self._applied == wanted:
                _logger.warning(
                    '%s was set to %d replicas by somebody else; setting it to %d again',
                    self._workload, current, wanted)
            try:
                await self._access.request(
                    'PATCH', path, query={'fieldManager': FIELD_MANAGER},
                    content_type=MERGE_PATCH, body=self._patch(scale, wanted))
            except ApiError as error:
                if error.status != 409:
                    raise
                continue
            self.writes += 1
            self._written_at = time.monotonic()
            self._observed = self._applied = wanted
            _logger.info('%s: %d replicas, was %d', self._workload, wanted, current)
            if self.wanted == wanted:
                return
            await asyncio.sleep(self._min_interval_s)
        raise ApiError(409, f'{self._workload} is changed by others faster than we can')

    @staticmethod
    def _patch(scale: dict[str, Any], wanted: int) -> dict[str, Any]:
        # With the version that was read: if it is no longer that one, the server answers 409.
        version = (scale.get('metadata') or {}).get('resourceVersion')
        return {'metadata': {'resourceVersion': version}, 'spec': {'replicas': wanted}}

    async def _failed(self, error: ApiError) -> None:
        delay = max(self._backoff.failed(), error.retry_after_s)
        if isinstance(error, _Refused):
            text = str(error)
            delay = _ASK_AGAIN_S
        elif error.status == 404:
            text = f'{self._workload} does not exist in namespace {self._workload.namespace} yet'
            self._observed = None
        elif error.status == 403:
            text = f'no permission to scale {self._workload}: {error}'
            delay = max(delay, _ASK_AGAIN_S)
        else:
            text = f'{self._workload} stays as it is: {error}'
        self._say(text)
        # A new wish ends the pause only where it can change the outcome.
        if error.status in (404,) and not error.retry_after_s:
            try:
                await asyncio.wait_for(self._wake.wait(), delay)
            except asyncio.TimeoutError:
                pass
        else:
            await asyncio.sleep(delay)
        self._wake.set()

    def _say(self, text: str) -> None:
        if text == self.trouble:
            return
        if text:
            _logger.warning('%s', text)
        else:
            _logger.info('%s: nothing is in the way any more', self._workload)
        self.trouble = text
        self._on_change()


class _Refused(ApiError):
    """We will not write, for a reason that is not the server's."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)
