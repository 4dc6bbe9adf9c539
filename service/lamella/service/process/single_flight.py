"""Work that many requests wait for and one task does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from lamella.snapshot.errors import LamellaError

_T = TypeVar("_T")


class AsyncSingleFlight(Generic[_T]):
    """Work in progress by key, each a task of its own: no caller does the work, so none can give it up.

    Belongs to one event loop; threads have :class:`lamella.snapshot.concurrency.SingleFlight`. ``timeout_error``
    makes the error for a caller whose time is over.
    """

    def __init__(self, timeout_error: Callable[[], LamellaError]) -> None:
        self._timeout_error = timeout_error
        self._running: dict[Hashable, asyncio.Task[_T]] = {}

    def is_running(self, key: Hashable) -> bool:
        """Whether the work of ``key`` is under way."""
        return key in self._running

    async def run(
        self, key: Hashable, begin: Callable[[], Coroutine[Any, Any, _T]], within_s: float | None = None
    ) -> _T:
        """What the work of ``key`` returns or raises; ``begin`` begins it (or raises) where none is under way.

        It goes on when nobody waits for it any more, so that what it finds is there for those who ask again. Raises the
        error of ``timeout_error`` when it takes longer than ``within_s`` seconds (None: as long as it takes).
        """
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.create_task(begin())
            running.add_done_callback(lambda done: self._end(key, done))
        await asyncio.wait([running], timeout=within_s)
        if not running.done():
            raise self._timeout_error()
        error = running.exception()
        if isinstance(error, LamellaError):
            raise type(error)(error.message, **error.details) from error.__cause__  # callers add details to theirs
        return running.result()

    def _end(self, key: Hashable, done: asyncio.Task[_T]) -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # asked for here too: perhaps nobody waits for it
