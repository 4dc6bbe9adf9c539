"""Look-ups of who shows something: one at a time for each thing that is shown, whoever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from lamella.service.access.principal import Principal
from lamella.snapshot.errors import LamellaError, Unavailable


class LookUps:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Principal]] = {}

    async def run(
        self, key: Hashable, begin: Callable[[], Coroutine[Any, Any, Principal]], within_s: float | None = None
    ) -> Principal:
        """What the look-up of ``key`` finds or raises; ``begin`` begins it (or raises) where none is under way.

        It goes on when nobody waits for it any more, so that what it finds is there for those who ask again.

        Raises:
            Unavailable: it takes longer than ``within_s`` seconds (None: as long as it takes).
        """
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.create_task(begin())
            running.add_done_callback(lambda done: self._end(key, done))
        await asyncio.wait([running], timeout=within_s)
        if not running.done():
            raise Unavailable("who asks could not be looked up in time", retry_after_s=1, limit="look_up")
        error = running.exception()
        if isinstance(error, LamellaError):
            raise type(error)(error.message, **error.details) from error  # callers take details from theirs
        return running.result()

    def _end(self, key: Hashable, done: asyncio.Task[Principal]) -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # asked for here too: perhaps nobody waits for it
