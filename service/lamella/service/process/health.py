"""Whether the service is well: probes that cost as little as they can, and the event-loop monitor.

A database that is frozen, or a store that hangs, answers nothing for as long as it likes. So each part is asked in a
thread of its own, by one question at a time, and a probe waits for it only so long: however many probes come, no more
than one thread waits for each part, and nothing else of the service waits with it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Final

from lamella.service.catalog import Catalog
from lamella.service.process.threads import ThreadUse
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import Unavailable

#: Never refused, and neither logged nor traced.
PATHS: Final = frozenset({"/health/startup", "/health/live", "/health/ready", "/metrics"})
#: How long what was found holds, good or bad, in seconds.
HOLDS_S: Final = 1.0


class Probe:
    """Asks ``check`` once a second at most, however many ask this: nobody has to say who they are for that.

    A probe waits at most until ``timeout_s`` after the check has begun (None: as long as it takes); a check that takes
    longer goes on, and until it ends no other is begun. A good result holds for ``holds_s`` (default: :data:`HOLDS_S`),
    a bad one for :data:`HOLDS_S`. ``what`` names the part in errors. Belongs to one event loop. ``timer`` gives
    seconds that only go up.
    """

    def __init__(
        self,
        check: Callable[[], Awaitable[None]],
        timer: Callable[[], float] = time.monotonic,
        *,
        what: str = "the service",
        timeout_s: float | None = None,
        holds_s: float | None = None,
    ) -> None:
        self._check = check
        self._timer = timer
        self._what = what
        self._timeout_s = timeout_s
        self._good_s = holds_s
        self._asked: asyncio.Task[None] | None = None
        self._begun_s = 0.0
        self._until_s = 0.0

    async def check(self) -> None:
        """Return when all was well, or raise what ``check`` raised, now or as long as that holds.

        Raises:
            Unavailable: the check was not done within its time.
        """
        asked = self._asked
        if asked is None or (asked.done() and self._timer() >= self._until_s):
            self._begun_s = self._timer()
            asked = self._asked = asyncio.ensure_future(self._ask())
            asked.add_done_callback(_seen)
        if not asked.done():
            left_s = None if self._timeout_s is None else self._timeout_s - (self._timer() - self._begun_s)
            # Neither its end nor a prober that goes away ends the check: others wait for it.
            await asyncio.wait({asked}, timeout=None if left_s is None else max(0.0, left_s))
            if not asked.done():
                raise Unavailable(
                    f"{self._what} did not answer within {self._timeout_s:g} s", retry_after_s=1, reason="no_answer"
                )
        asked.result()

    async def _ask(self) -> None:
        holds_s = HOLDS_S
        try:
            await self._check()
            holds_s = HOLDS_S if self._good_s is None else self._good_s
        finally:
            self._until_s = self._timer() + holds_s


async def check_all(findings: tuple[Probe, ...]) -> None:
    """Make several checks at once; raises the error of the first of them, in their order, that failed."""
    for error in await asyncio.gather(*(each.check() for each in findings), return_exceptions=True):
        if error is not None:
            raise error


async def in_own_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread that nothing else needs, and that does not keep the process from ending."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="lamella-probe", daemon=True).start()
    await asyncio.wrap_future(done)


def _seen(asked: asyncio.Task[None]) -> None:
    """Look at the error of a check that nobody waited for to the end, so that the loop does not report it as lost."""
    if not asked.cancelled():
        asked.exception()


_LOG: Final = logging.getLogger("lamella.pulse")
_STEP_S: Final = 0.25


class EventLoopMonitor:
    """Brings the metrics up to date that nobody tells of; those that other workers show are as old as a beat at most.

    ``pools`` gives the use of threads by what they are for.
    """

    def __init__(self, metrics: Metrics, catalog: Catalog, pools: Callable[[], Mapping[str, ThreadUse]]) -> None:
        self._metrics = metrics
        self._catalog = catalog
        self._pools = pools

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Beat on this event loop."""
        beat = asyncio.ensure_future(self._beat())
        try:
            with self._metrics.process.watching_pauses():
                yield
        finally:
            beat.cancel()
            with suppress(asyncio.CancelledError):
                await beat

    def look(self) -> None:
        """One look at everything but the loop itself; to be taken on the event loop."""
        in_use, most = self._catalog.connections
        self._metrics.catalog.pool(in_use, most)
        pools = self._pools()
        for name, use in pools.items():
            self._metrics.process.threads(name, busy=use.busy, most=use.most, waiting=use.waiting)
        self._metrics.limits.abandoned.set(sum(use.abandoned for use in pools.values()))
        self._metrics.fold()

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _STEP_S
            await asyncio.sleep(_STEP_S)
            self._metrics.process.loop_lag.observe(max(0.0, loop.time() - due_s))
            try:
                self.look()
            except Exception as error:  # the next beat may succeed; without one, figures would stand still unnoticed
                _LOG.warning("the metrics could not be brought up to date", exc_info=error)
