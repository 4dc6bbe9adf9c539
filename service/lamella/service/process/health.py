"""Health probes, which cost as little as possible, and the event-loop monitor.

A frozen database, or a store that hangs, may not answer for any length of time. So each part is checked in a thread of
its own, one check at a time, and a probe waits for it only so long. However many probes arrive, at most one thread
waits for each part, and nothing else of the service waits with it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Final

from lamella.service.catalog import Catalog
from lamella.service.process.single_flight import AsyncSingleFlight
from lamella.service.process.threads import ThreadUse
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import Unavailable

#: Never refused, and neither logged nor traced.
PATHS: Final = frozenset({"/health/startup", "/health/live", "/health/ready", "/metrics"})
#: How long the result of a check is used, good or bad, in seconds.
RESULT_TTL_S: Final = 1.0


class Probe:
    """Runs ``check`` once a second at most, since probes are open to everyone.

    A probe waits until ``timeout_s`` after the check has begun (None: no limit); a check that takes longer goes on, and
    no other is started until it ends. A good result is used for ``result_ttl_s`` (default: :data:`RESULT_TTL_S`), a
    bad one for :data:`RESULT_TTL_S`. ``what`` names the part in errors. Belongs to one event loop. ``timer`` returns
    seconds that never go back.
    """

    def __init__(
        self,
        check: Callable[[], Awaitable[None]],
        timer: Callable[[], float] = time.monotonic,
        *,
        what: str = "the service",
        timeout_s: float | None = None,
        result_ttl_s: float | None = None,
    ) -> None:
        self._check = check
        self._timer = timer
        self._what = what
        self._timeout_s = timeout_s
        self._good_s = result_ttl_s
        self._flight: AsyncSingleFlight[None] = AsyncSingleFlight(self._no_answer)
        self._error: BaseException | None = None
        self._begun_s = 0.0
        self._until_s = -math.inf

    async def check(self) -> None:
        """Return if the last check passed; otherwise raise its error.

        Raises:
            Unavailable: the check did not end within its time.
        """
        if not self._flight.is_running(self):
            if self._timer() < self._until_s:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                return
            self._begun_s = self._timer()
        time_left_s = None if self._timeout_s is None else self._timeout_s - (self._timer() - self._begun_s)
        await self._flight.run(self, self._start_check, None if time_left_s is None else max(0.0, time_left_s))

    async def _start_check(self) -> None:
        self._error = None
        result_ttl_s = RESULT_TTL_S if self._good_s is None else self._good_s
        try:
            await self._check()
        except BaseException as error:
            self._error = error
            result_ttl_s = RESULT_TTL_S
            raise
        finally:
            self._until_s = self._timer() + result_ttl_s

    def _no_answer(self) -> Unavailable:
        message = f"{self._what} did not answer within {self._timeout_s:g} s"
        return Unavailable(message, retry_after_s=1, reason="no_answer")


async def check_all(findings: tuple[Probe, ...]) -> None:
    """Run several checks at once; raise the error of the first, in their order, that failed."""
    for error in await asyncio.gather(*(each.check() for each in findings), return_exceptions=True):
        if error is not None:
            raise error


async def in_own_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a daemon thread of its own, which does not delay the end of the process."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()  # who stops waiting cannot cancel it: the thread goes on

    def run() -> None:
        try:
            work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="lamella-probe", daemon=True).start()
    await asyncio.wrap_future(done)


_LOG: Final = logging.getLogger("lamella.event_loop")
_STEP_S: Final = 0.25


class EventLoopMonitor:
    """Updates the metrics that are sampled; values of other workers are at most one interval old.

    ``pools`` returns the use of threads by purpose; ``sampled`` is called after each round, and must not wait.
    """

    def __init__(
        self,
        metrics: Metrics,
        catalog: Catalog,
        pools: Callable[[], Mapping[str, ThreadUse]],
        sampled: Callable[[], None] = lambda: None,
    ) -> None:
        self._metrics = metrics
        self._catalog = catalog
        self._pools = pools
        self._sampled = sampled

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Run the monitor on this event loop."""
        beat = asyncio.ensure_future(self._beat())
        try:
            with self._metrics.process.watching_pauses():
                yield
        finally:
            beat.cancel()
            with suppress(asyncio.CancelledError):
                await beat

    def look(self) -> None:
        """Sample everything except the loop itself; called on the event loop."""
        in_use, max_connections = self._catalog.connections
        self._metrics.catalog.pool(in_use, max_connections)
        pools = self._pools()
        for name, use in pools.items():
            self._metrics.process.threads(name, busy=use.busy, max_threads=use.max_threads, waiting=use.waiting)
        self._metrics.limits.abandoned.set(sum(use.abandoned for use in pools.values()))
        self._metrics.fold()
        self._sampled()

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _STEP_S
            await asyncio.sleep(_STEP_S)
            self._metrics.process.loop_lag.observe(max(0.0, loop.time() - due_s))
            try:
                self.look()
            except Exception as error:  # the next round may succeed; without one, values would silently stop changing
                _LOG.warning("metrics could not be updated", exc_info=error)
