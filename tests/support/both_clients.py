"""The sync and the async client behind one face, so that a test holds for both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from lamella.client.http import AsyncLamella, Lamella
from lamella.client.http.fake_transport import AsyncFakeTransport, FakeTransport, Handler
from lamella.client.http.transport import HttpRequest


class RecordingClient(Protocol):
    """A client over a handler: ``run`` gives a client to a function and takes what comes, awaited where needed."""

    requests: list[HttpRequest]
    waits: list[float]

    def run(self, use: Callable[[Any], Any]) -> Any:
        """The result of ``use(client)``; an iterator's items as a list."""


class SyncRecordingClient:
    """Over the sync client."""

    def __init__(self, handler: Handler, **options: Any) -> None:
        transport = FakeTransport(handler)
        self.requests = transport.requests
        self.waits: list[float] = []
        self._lake = Lamella("http://lake.test", transport=transport, sleep=self.waits.append, **options)

    def run(self, use: Callable[[Any], Any]) -> Any:
        result = use(self._lake)
        return list(result) if inspect.isgenerator(result) else result


class AsyncRecordingClient:
    """Over the async client."""

    def __init__(self, handler: Handler, **options: Any) -> None:
        transport = AsyncFakeTransport(handler)
        self.requests = transport.requests
        self.waits: list[float] = []
        self._lake = AsyncLamella("http://lake.test", transport=transport, sleep=self._wait, **options)

    async def _wait(self, delay_s: float) -> None:
        self.waits.append(delay_s)

    def run(self, use: Callable[[Any], Any]) -> Any:
        async def go() -> Any:
            result = use(self._lake)
            if inspect.isasyncgen(result):
                return [item async for item in result]
            return await result

        return asyncio.run(go())


#: Makes either over a handler and options of the client.
ClientFor = Callable[..., RecordingClient]
