"""Which of several bridges acts: the one that holds a Lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timezone
import logging
import random
import time
from typing import Any

from laimr_ros.cluster.kubernetes.access import Access
from laimr_ros.cluster.kubernetes.errors import ApiError

_logger = logging.getLogger(__name__)


class Lease:
    """
    Hold a Lease, or wait for it.

    Expiry is judged by how long the Lease has not changed on our own clock, so clocks need not
    agree. Whoever cannot renew in time stops acting before others may begin.

    :param access: the API server.
    :param namespace: of the Lease.
    :param name: of the Lease.
    :param identity: who we are; must differ between bridges.
    :param duration_s: a holder that has not renewed for so long has lost it, in whole seconds.
    :param on_change: called after ``held`` or ``holder`` has changed.
    """

    def __init__(
        self, access: Access, namespace: str, name: str, identity: str, duration_s: int,
        on_change: Callable[[], None],
    ) -> None:
        self._access = access
        self._list = f'/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases'
        self._name = name
        self._identity = identity
        self._duration_s = duration_s
        self._on_change = on_change
        self._renewed_at = 0.0
        self._seen: tuple[Any, ...] = ()
        self._seen_at = 0.0
        self._was_held = False
        #: Who holds it, as last heard.
        self.holder = ''
        #: What keeps us from knowing; empty if nothing does.
        self.trouble = ''

    @property
    def held(self) -> bool:
        """Return whether we hold it this instant."""
        # A margin: others may take it when it has expired, and must not find us acting still.
        return (
            self.holder == self._identity
            and time.monotonic() < self._renewed_at + 0.7 * self._duration_s)

    async def run(self) -> None:
        """Acquire and renew until cancelled."""
        while True:
            pause = self._duration_s / 5.0
            try:
                await self._try()
                self.trouble = ''
            except ApiError as error:
                if error.status == 409:
                    pause = 0.1
                else:
                    self._say(str(error))
                    pause = max(min(1.0, pause), error.retry_after_s)
            self._tell()
            await asyncio.sleep(pause * random.uniform(0.8, 1.0))

    async def release(self) -> None:
        """Let another bridge take over at once; to be called when ``run`` has ended."""
        if self.holder != self._identity:
            return
        try:
            lease = await self._access.request(
                'GET', f'{self._list}/{self._name}', timeout_s=0.5)
            if (lease.get('spec') or {}).get('holderIdentity') == self._identity:
                lease['spec'].update(holderIdentity='', leaseDurationSeconds=1)
                await self._access.request(
                    'PUT', f'{self._list}/{self._name}', body=lease, timeout_s=0.5)
        except ApiError as error:
            _logger.debug('the lease runs out by itself: %s', error)
        self.holder = ''

    async def _try(self) -> None:
        now = time.monotonic()
        reply_s = max(1.0, 0.3 * self._duration_s)
        try:
            lease = await self._access.request(
                'GET', f'{self._list}/{self._name}', timeout_s=reply_s)
        except ApiError as error:
            if error.status != 404:
                raise
            await self._access.request('POST', self._list, timeout_s=reply_s, body={
                'apiVersion': 'coordination.k8s.io/v1', 'kind': 'Lease',
                'metadata': {'name': self._name}, 'spec': self._spec(None)})
            self._won(now)
            return
        spec = lease.get('spec') or {}
        holder = str(spec.get('holderIdentity') or '')
        seen = (holder, spec.get('renewTime'), spec.get('leaseTransitions'))
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        lasts_s = float(spec.get('leaseDurationSeconds') or self._duration_s)
        if holder not in ('', self._identity) and now < self._seen_at + lasts_s:
            self.holder = holder
            return
        lease['spec'] = self._spec(spec)
        # It carries the version that was read: of two takers the second is told 409.
        await self._access.request(
            'PUT', f'{self._list}/{self._name}', body=lease, timeout_s=reply_s)
        self._won(now)

    def _won(self, now: float) -> None:
        # From before the request: it may have been on its way for long.
        self.holder = self._identity
        self._renewed_at = now

    def _spec(self, before: dict[str, Any] | None) -> dict[str, Any]:
        now = datetime.now(timezone.utc).strftime('%Y-%m-%dT%H:%M:%S.%fZ')
        before = before or {}
        changes = before.get('holderIdentity') != self._identity
        return {
            'holderIdentity': self._identity,
            'leaseDurationSeconds': self._duration_s,
            'acquireTime': now if changes else before.get('acquireTime') or now,
            'renewTime': now,
            'leaseTransitions': int(before.get('leaseTransitions') or 0) + bool(
                changes and before),
        }

    def _say(self, text: str) -> None:
        if text != self.trouble:
            _logger.warning('lease %s: %s', self._name, text)
            self.trouble = text

    def _tell(self) -> None:
        held = self.held
        if held != self._was_held:
            self._was_held = held
            if held:
                _logger.info('this bridge acts: it holds lease %s', self._name)
            else:
                _logger.warning('this bridge only watches: %s holds lease %s',
                                self.holder if self.holder != self._identity else 'nobody',
                                self._name)
            self._on_change()
