"""Threads for one sort of blocking work, so that no sort takes another one's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter

from lamella.snapshot.errors import Overloaded

_T = TypeVar("_T")


class ThreadUse(msgspec.Struct, frozen=True):
    """Threads at work, as many as may be, and pieces of work that wait for one."""

    busy: int
    most: int
    waiting: int


class Threads:
    """``at_once`` pieces of work at a time; others wait for their turn and take no thread. Belongs to one event loop.

    ``most_waiting``: of those so many, and one more is refused (None: any number); ``what`` names the work then.
    """

    def __init__(self, at_once: int, *, most_waiting: int | None = None, what: str = "requests") -> None:
        self._at_once = at_once
        self._most_waiting = most_waiting
        self._what = what
        self._limiter: CapacityLimiter | None = None

    @property
    def use(self) -> ThreadUse:
        """How busy they are; to be asked on the event loop that they belong to."""
        if self._limiter is None:
            return ThreadUse(0, self._at_once, 0)
        now = self._limiter.statistics()
        return ThreadUse(now.borrowed_tokens, self._at_once, now.tasks_waiting)

    async def run(self, work: Callable[[], _T]) -> _T:
        """What ``work`` returns, or raises.

        Raises:
            Overloaded: too many are waiting; nothing was done.
        """
        if self._limiter is None:  # made here because it belongs to the event loop
            self._limiter = CapacityLimiter(self._at_once)
        if self._most_waiting is not None and self._limiter.statistics().tasks_waiting >= self._most_waiting:
            raise Overloaded(f"too many {self._what} are under way", retry_after_s=1)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)
