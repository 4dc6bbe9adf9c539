"""The state of a process (starting, serving, stopping), and how SIGTERM and SIGINT stop it.

The server (uvicorn) has a signal handler of its own: it accepts no new connections, waits for running requests, and
ends the app. The handler here runs before it, so that a proxy can notice first.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, Final

from fastapi import FastAPI
from structlog.typing import FilteringBoundLogger

from lamella.service.config.settings import Settings
from lamella.snapshot.errors import Unavailable

#: Header of answers while the process is stopping, so that clients connect to another replica.
_LAST_ANSWER: Final = ((b"connection", b"close"),)


class Lifecycle:
    """Read by the probes and for every answer. Changed in a signal handler, so it takes no lock."""

    def __init__(self) -> None:
        self.is_started = False
        self.is_draining = False
        #: Headers of every answer.
        self.headers: tuple[tuple[bytes, bytes], ...] = ()

    def drain(self) -> None:
        """Mark the process as not ready, whatever else it still does."""
        self.is_draining = True
        self.headers = _LAST_ANSWER

    def require_serving(self) -> None:
        """Raise Unavailable if the process is stopping."""
        if self.is_draining:
            raise Unavailable(
                "the service is stopping; send the request to another replica", retry_after_s=1, reason="draining"
            )


SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
#: How long the shutdown may take after the running requests' grace period; after that something hangs.
CLOSING_S: Final = 15.0


def drain_on_signals(
    app: FastAPI, lifecycle: Lifecycle, settings: Settings, log: FilteringBoundLogger, *, is_alone: bool
) -> None:
    """Drain the app for ``drain_s`` at a signal, before the server handles it.

    ``is_alone``: this process has no supervisor, and a second signal ends it at once. A worker process gets signals
    twice if its whole group gets them, so its supervisor handles the second one.
    """
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(started: FastAPI) -> AsyncIterator[Any]:
        with _handled(_Drain(lifecycle, settings, log, is_alone=is_alone)):
            async with inner(started) as state:
                yield state

    app.router.lifespan_context = lifespan


def end_by(number: int) -> None:
    """End this process as the signal does without a handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class _Drain:
    """A signal handler for the running event loop."""

    def __init__(self, lifecycle: Lifecycle, settings: Settings, log: FilteringBoundLogger, *, is_alone: bool) -> None:
        self.servers: dict[int, Any] = {}
        self._lifecycle = lifecycle
        self._drain_s = settings.drain_s
        self._max_s = settings.drain_s + settings.shutdown_grace_s + CLOSING_S
        self._log = log
        self._is_alone = is_alone
        self._loop = asyncio.get_running_loop()

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if not self._lifecycle.is_draining:
            self._lifecycle.drain()
            self._loop.call_soon_threadsafe(self._begin, number)
        elif self._is_alone:
            end_by(number)

    def _begin(self, number: int) -> None:
        self._log.info("draining", pid=os.getpid(), signal=signal.Signals(number).name, drain_s=self._drain_s)
        stop: Callable[[int, FrameType | None], Any] = self.servers[number]
        self._loop.call_later(self._drain_s, stop, number, None)
        forced_stop = threading.Timer(self._max_s, self._give_up)
        forced_stop.daemon = True
        try:
            forced_stop.start()
        except RuntimeError as error:  # no thread can be started now, but the process must end nevertheless
            self._log.warning("no watchdog for the shutdown", pid=os.getpid(), exc_info=error)

    def _give_up(self) -> None:
        self._log.error("the service did not stop in time", pid=os.getpid(), after_s=self._max_s)
        os._exit(1)


@contextmanager
def _handled(drain: _Drain) -> Iterator[None]:
    """Install the handler before the server's; do nothing if the server does not handle signals here."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            before = signal.getsignal(number)
            if callable(before) and before is not signal.default_int_handler:
                drain.servers[number] = before
                signal.signal(number, drain)
    try:
        yield
    finally:
        for handled, before in drain.servers.items():
            signal.signal(handled, before)
