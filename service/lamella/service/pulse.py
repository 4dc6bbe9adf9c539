"""A beat of the event loop: how late it comes says whether requests wait for each other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from lamella.service.catalog import Catalog
from lamella.service.metrics import Metrics
from lamella.service.threads import ThreadUse

_LOG: Final = logging.getLogger("lamella.pulse")
_STEP_S: Final = 0.25


class Pulse:
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
