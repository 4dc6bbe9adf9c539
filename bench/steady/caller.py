"""HTTP requests on one connection per concurrent request, on one event loop, at little cost each."""

from __future__ import annotations

import asyncio
import time
from typing import Final, cast

import httptools
import msgspec

#: Maximum number of connections: a client has limits, too.
MAX_CONNECTIONS: Final = 6_000
#: A service closes connections that were idle for some seconds; a request sent at that moment is lost.
_IDLE_S: Final = 2.0


class Answer(msgspec.Struct, frozen=True):
    """The outcome of a request: an HTTP status, or 0 and a word for the failure."""

    status: int
    failure: str = ""


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answered: asyncio.Future[int] | None = None
        self.is_open = True
        self.is_last = False
        self.idle_since_s = 0.0
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self.answered is not None and not self.answered.done():
            self.answered.set_exception(exc or ConnectionResetError())

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        self.is_last = not self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(self._parser.get_status_code())
        self._parser = httptools.HttpResponseParser(self)


class Caller:
    """Sends requests to one port; those that get no answer within ``timeout_s`` failed."""

    def __init__(self, port: int, timeout_s: float) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._idle: list[_Connection] = []
        self.under_way = 0

    async def send(self, request: bytes) -> Answer:
        """The answer to a whole HTTP request."""
        if self.under_way >= MAX_CONNECTIONS:
            return Answer(0, "unsent")
        self.under_way += 1
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = self._free() or await self._opened()
                connection.answered = asyncio.get_running_loop().create_future()
                assert connection.transport is not None
                connection.transport.write(request)
                status = await connection.answered
        except TimeoutError:
            self._end(connection)
            return Answer(0, "timeout")
        except OSError as error:
            self._end(connection)
            return Answer(0, type(error).__name__)
        finally:
            self.under_way -= 1
        if connection.is_last:
            self._end(connection)
        else:
            connection.idle_since_s = time.monotonic()
            self._idle.append(connection)
        return Answer(status)

    def close(self) -> None:
        """Hang up."""
        for connection in self._idle:
            self._end(connection)
        self._idle = []

    def _free(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and time.monotonic() - connection.idle_since_s < _IDLE_S:
                return connection
            self._end(connection)
        return None

    async def _opened(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, "127.0.0.1", self._port)
        return connection

    def _end(self, connection: _Connection | None) -> None:
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
