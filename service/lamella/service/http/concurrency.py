"""Concurrency limits: how many requests run at once, and how many wait."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal

from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.concurrency import deadline_exceeded, time_left_s
from lamella.snapshot.errors import Overloaded

#: What is counted: read requests, or large answers.
What = Literal["requests", "large_answers"]
#: Why a request is refused although the line is not full: one principal has its share of slots, or the running and
#: waiting requests cost too much.
_OF_ONE: Final = "share"
_WORK: Final = "work"


class ConcurrencyLimit:
    """Runs ``at_once`` requests; ``waiting`` more wait for up to ``wait_s`` (None: until their deadline).

    Belongs to one event loop, so it needs no lock.

    If ``shared``, one ``owner`` gets at most half of the slots and half of the line. The principals that wait are
    served in rotation, each with its oldest request first, so that none waits behind the line of another. ``kind``
    names the slots in metrics, ``what`` in errors.

    Requests that state a ``cost`` count against ``max_cost``, running and waiting together (None: no limit); of one
    ``owner`` against half of it. A request that alone costs more is admitted when no other one is there.
    """

    def __init__(
        self,
        kind: Literal["read", "wide", "change", "answer"],
        *,
        at_once: int,
        waiting: int,
        wait_s: float | None,
        shared: bool,
        metrics: Metrics,
        what: What = "requests",
        max_cost: int | None = None,
    ) -> None:
        self._max_cost = max_cost
        self._own_cost = None if max_cost is None else (max(1, max_cost // 2) if shared else max_cost)
        self._cost = 0
        self._cost_by: Counter[str] = Counter()
        self._at_once = at_once
        self._wait_s = wait_s
        self._max_waiting = waiting
        self._own = max(1, at_once // 2) if shared else at_once
        self._own_waiting = (waiting + 1) // 2 if shared else waiting
        self._used = 0
        self._waiting = 0
        self._used_by: Counter[str] = Counter()
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._what = what
        limits = (what, _OF_ONE) if max_cost is None else (what, _OF_ONE, _WORK)
        self._refused = {limit: metrics.limits.refused.labels(kind, limit) for limit in limits}
        self._shown = metrics.limits.waiting.labels(kind)

    def take(self, owner: str) -> bool:
        """Take a slot if one is free; otherwise return False."""
        # If a slot is free, those that wait have reached their share.
        if self._used < self._at_once and self._used_by[owner] < self._own:
            self._used += 1
            self._used_by[owner] += 1
            return True
        return False

    def check(self, owner: str) -> None:
        """Raise Overloaded if no slot is free and the line is full."""
        is_full = self._used >= self._at_once
        if not is_full and self._used_by[owner] < self._own:
            return
        limit = self._what if is_full else _OF_ONE
        if self._waiting < self._max_waiting:
            if len(self._lines.get(owner, ())) < self._own_waiting:
                return
            limit = _OF_ONE
        raise self._overloaded(limit)

    @asynccontextmanager
    async def slot(self, owner: str, cost: int = 0) -> AsyncIterator[None]:
        """Wait for a slot for work of that cost, and release it at the end. Raises as :meth:`wait`."""
        self.check_cost(owner, cost)
        self._cost += cost
        self._cost_by[owner] += cost
        try:
            await self.wait(owner)
            try:
                yield
            finally:
                self.give_back(owner)
        finally:
            self._cost -= cost
            self._cost_by[owner] -= cost
            if not self._cost_by[owner]:
                del self._cost_by[owner]

    def check_cost(self, owner: str, cost: int) -> None:
        """Raise Overloaded if that cost is too much in addition to the current requests."""
        if self._max_cost is None or self._own_cost is None:
            return
        own = self._cost_by[owner]
        if self._cost and self._cost + cost > self._max_cost:
            raise self._overloaded(_WORK)
        if own and own + cost > self._own_cost:
            raise self._overloaded(_OF_ONE)

    async def wait(self, owner: str) -> None:
        """Wait for a slot and take it.

        Raises:
            Overloaded: too many requests wait, or the waiting time is over.
            Unavailable: the request's deadline passed while it waited.
        """
        if self.take(owner):
            return
        self.check(owner)
        turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(owner, deque()).append(turn)
        self._waiting += 1
        self._shown.set(self._waiting)
        left, wait_s = time_left_s(), self._wait_s
        is_last = left is not None and (wait_s is None or left <= wait_s)
        try:
            async with asyncio.timeout(left if is_last else wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(owner)  # it got its slot at the very moment that it gave up
            else:
                self._leave(owner, turn)
            if isinstance(error, TimeoutError):
                raise (deadline_exceeded() if is_last else self._overloaded(self._what)) from error
            raise

    def give_back(self, owner: str) -> None:
        """Release a slot to the next request."""
        self._used -= 1
        left = self._used_by[owner] - 1
        if left:
            self._used_by[owner] = left
        else:
            del self._used_by[owner]
        if self._waiting:
            self._hand_on()

    def _overloaded(self, limit: str) -> Overloaded:
        self._refused[limit].inc()
        of_yours = " of yours" if limit == _OF_ONE else ""
        text = f"too many {self._what.replace('_', ' ')}{of_yours} are running"
        if limit == _WORK:
            text = "the running and waiting requests have too much work"
        return Overloaded(text, retry_after_s=1, limit=limit)

    def _hand_on(self) -> None:
        for owner, line in self._lines.items():
            # A request that gave up leaves the line by itself.
            turn = next((each for each in line if not each.done()), None)
            if turn is not None and self._used_by[owner] < self._own:
                line.remove(turn)
                self._waiting -= 1
                self._shown.set(self._waiting)
                if line:
                    self._lines.move_to_end(owner)
                else:
                    del self._lines[owner]
                self._used += 1
                self._used_by[owner] += 1
                turn.set_result(None)
                return

    def _leave(self, owner: str, turn: asyncio.Future[None]) -> None:
        line = self._lines[owner]
        line.remove(turn)
        if not line:
            del self._lines[owner]
        self._waiting -= 1
        self._shown.set(self._waiting)
