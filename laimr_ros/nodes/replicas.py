"""One replica as the dispatcher sees it: connected, watched, and let go of when it is idle."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
import difflib
import time
from typing import Literal, Protocol

from laimr_ros.serving.client import ReplicaClient
from laimr_ros.serving.errors import ErrorKind, InferenceError

Level = Literal['info', 'warning', 'error']

# Between two questions to a worker that lacks a model: somebody may load it.
_ASK_AGAIN_S = 2.0
# Of one link no more lines are logged in so many seconds.
_LINES = 10
_LINES_S = 30.0


class LinkListener(Protocol):
    """What happens to a link; called in the event loop."""

    def link_ready(self, link: ReplicaLink) -> None:
        """Send to it from now on."""

    def link_draining(self, link: ReplicaLink) -> None:
        """Send nothing more to it."""

    def link_lost(self, link: ReplicaLink, reason: str) -> None:
        """Forget it: it is gone, or idle and not serving; it may come back."""

    def link_closed(self, link: ReplicaLink) -> None:
        """Drop the link: it was let go of and has been closed."""

    def link_says(self, text: str, level: Level) -> None:
        """Tell people."""


class ReplicaLink:
    """
    The connection to one replica. To be used in one event loop.

    :param endpoint: where it serves; its name, too.
    :param pool: the pool it belongs to.
    :param models: the models it must serve.
    :param listener: is told what happens.
    :param users: of each model, who asks for it, for messages.
    """

    def __init__(
        self, endpoint: str, pool: str, models: Sequence[str], listener: LinkListener,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.name = endpoint
        self.pool = pool
        self.client = ReplicaClient(endpoint)
        #: Whether the controller may send to it.
        self.serving = False
        #: Why it is not serving; empty if it is.
        self.reason = 'not connected yet'
        #: Whether it is to be closed as soon as nothing is in flight.
        self.retired = False
        #: Class names by model, as far as the replica tells.
        self.class_names: dict[str, tuple[str, ...]] = {}
        self._models = tuple(models)
        self._listener = listener
        self._users = users or {}
        self._in_flight = 0
        self._known = False
        self._said = ''
        self._said_at: deque[float] = deque(maxlen=_LINES)
        self._watcher: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def closing(self) -> bool:
        """Return whether it is too late to take it back into service."""
        return self._closing is not None

    @property
    def in_flight(self) -> int:
        """Return how many frames are being inferred."""
        return self._in_flight

    def start(self) -> None:
        """Connect and watch; also takes back ``retire``."""
        self.retired = False
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def retire(self) -> None:
        """Take no more frames; close when the last one has come back."""
        self.retired = True
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
        self._stop_serving('its endpoint was removed')

    def abandon(self) -> None:
        """Close without telling anybody: another link takes the name."""
        self._known = False
        self.retired = True
        self.serving = False
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self.close())

    async def close(self) -> None:
        """Close the connection at once."""
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
        self.serving = False
        await self.client.close()
        self._listener.link_closed(self)

    def begin(self) -> None:
        """Note that a frame is sent."""
        self._in_flight += 1

    def end(self) -> None:
        """Note that a frame came back, or was cancelled."""
        self._in_flight -= 1
        if self._in_flight == 0 and not self.serving:
            # Not now: what came back with the last frame is to be told first.
            asyncio.get_running_loop().call_soon(self._forget_if_idle)

    async def _watch(self) -> None:
        try:
            checker: asyncio.Task[None] | None = None
            async for health in self.client.watch(self._models):
                if checker is not None:
                    checker.cancel()
                    checker = None
                if health.serving:
                    checker = asyncio.get_running_loop().create_task(self._check_models())
                else:
                    # One that is not there yet is no loss.
                    self._say(f'{self._where()} does not serve: {health.reason}',
                              'warning' if self._known else 'info')
                    self._stop_serving(health.reason)
        except InferenceError as error:
            self._say(f'{self._where()}: {error}', 'error')
            self._stop_serving(str(error))
        finally:
            if checker is not None:
                checker.cancel()

    async def _check_models(self) -> None:
        """Wait until the replica has our models, then let frames come."""
        while True:
            try:
                await self.client.wait_ready(self._models, timeout_s=0.0)
                for model in self._models:
                    self.class_names[model] = await self.client.class_names(model)
                break
            except InferenceError as error:
                self.reason = await self._why_not_ours() or str(error)
                # Unreachable is for the watch to tell.
                if error.kind is not ErrorKind.DEADLINE:
                    self._say(f'{self._where()}: {self.reason}', 'error')
            except Exception as error:
                # Whatever a server may answer, it must not be given up without a word.
                self.reason = f'its answer cannot be understood: {error!r:.200}'
                self._say(f'{self._where()}: {self.reason}', 'error')
            await asyncio.sleep(_ASK_AGAIN_S)
        self.serving = self._known = True
        self.reason = ''
        self._say(f'{self._where()} serves {", ".join(self._models)}')
        self._listener.link_ready(self)

    async def _why_not_ours(self) -> str:
        """Return which of our models a replica that has others lacks; empty if none."""
        try:
            served = await self.client.served_models()
        except InferenceError:
            return ''  # Unreachable, or a server that does not list its models.
        missing = [model for model in self._models if model not in served]
        if not missing:
            return ''
        texts = []
        for model in missing:
            text = repr(model)
            if model in self._users:
                text += f' ({self._users[model]} asks for it)'
            if near := difflib.get_close_matches(model, served, 1):
                text += f'; did you mean {near[0]!r}?'
            texts.append(text)
        return f'it serves [{", ".join(served)}], not {", ".join(texts)}'

    def _stop_serving(self, reason: str) -> None:
        self.reason = reason
        if self.serving:
            self.serving = False
            self._listener.link_draining(self)
        self._forget_if_idle()

    def _forget_if_idle(self) -> None:
        if self._in_flight or self.serving:
            return
        if self._known:
            self._known = False
            self._listener.link_lost(self, self.reason)
        if self.retired and self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self.close())

    def _where(self) -> str:
        return f'replica {self.name} of pool {self.pool}'

    def _say(self, text: str, level: Level = 'info') -> None:
        """Log a change, but not the same thing twice in a row, and not a flood of them."""
        if text == self._said:
            return
        self._said = text
        now = time.monotonic()
        if len(self._said_at) == _LINES and now - self._said_at[0] < _LINES_S:
            return
        self._said_at.append(now)
        if len(self._said_at) == _LINES and now - self._said_at[0] < _LINES_S:
            text += f' (it changes so often that no more is said of it for up to {_LINES_S:g} s)'
        self._listener.link_says(text, level)

