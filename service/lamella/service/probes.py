"""What machines ask every few seconds to know how the service is, and an answer to it that costs as little."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

#: Never refused, and neither logged nor traced.
PATHS: Final = frozenset({"/health/startup", "/health/live", "/health/ready", "/metrics"})
#: How long what was found holds, good or bad, in seconds.
HOLDS_S: Final = 1.0


class Findings:
    """Asks ``check`` once a second at most, however many ask this: nobody has to say who they are for that.

    Belongs to one event loop. ``timer`` gives seconds that only go up.
    """

    def __init__(self, check: Callable[[], Awaitable[None]], timer: Callable[[], float] = time.monotonic) -> None:
        self._check = check
        self._timer = timer
        self._asked: asyncio.Task[None] | None = None
        self._found_s = 0.0

    async def check(self) -> None:
        """Return when all was well, or raise what ``check`` raised, now or within the last second."""
        asked = self._asked
        if asked is None or (asked.done() and self._timer() >= self._found_s + HOLDS_S):
            asked = self._asked = asyncio.ensure_future(self._ask())
        await asyncio.shield(asked)  # who goes away takes nobody else's answer along

    async def _ask(self) -> None:
        try:
            await self._check()
        finally:
            self._found_s = self._timer()
