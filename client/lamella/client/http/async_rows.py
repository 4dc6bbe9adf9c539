"""The handle of a table for asyncio. What reads and writes files runs in threads, by the synchronous client, whose
requests travel over the connections of the asynchronous one."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from lamella.client.http.aio.methods import AsyncLakeMethods, AsyncTableMethods
from lamella.client.http.client import Lamella, Table
from lamella.client.http.transport import AsyncTransport, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from lamella.client.scan import AsyncRows, AsyncScan, RowChanges, Scan

P = ParamSpec("P")
R = TypeVar("R")


class LoopTransport:
    """A :class:`~lamella.client.http.transport.Transport` for other threads, over the transport of an event loop."""

    def __init__(self, transport: AsyncTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop

    def send(self, request: HttpRequest) -> HttpResponse:
        """The response; raises TransportFailure, and RuntimeError in the event loop, which would wait for itself."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            raise RuntimeError("this would block the event loop: await a method of the asynchronous client")
        return asyncio.run_coroutine_threadsafe(self._transport.send(request), self._loop).result()

    def close(self) -> None:
        """Do nothing: the asynchronous client closes the connections."""


class AsyncLake(AsyncLakeMethods):
    """The client of a service for asyncio, with a synchronous one for what runs in threads."""

    def _for_threads(self) -> Lamella:
        """The synchronous client, over the connections of the running event loop.

        It shares the key, the policy and the traces of the asynchronous client. Raises RuntimeError outside of a loop.
        """
        transport = LoopTransport(self._transport, asyncio.get_running_loop())
        twin = Lamella(self._exchange.address, transport=transport)
        twin._exchange = self._exchange
        # A copy in another process connects by itself, as a synchronous client.
        twin._recipe, twin._has_own_transport = self._recipe, self._has_own_transport
        return twin


def awaited(method: Callable[Concatenate[Table, P], R]) -> Callable[Concatenate[AsyncTable, P], Awaitable[R]]:
    """The method of the asynchronous table that runs one of the synchronous table in a thread."""

    @functools.wraps(method)
    async def in_thread(self: AsyncTable, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self._for_threads(), *args, **kwargs)

    return in_thread


def awaited_scan(method: Callable[Concatenate[Table, P], Scan]) -> Callable[Concatenate[AsyncTable, P], AsyncScan]:
    """The method of the asynchronous table that returns the rows of a scan."""

    @functools.wraps(method)
    def begin(self: AsyncTable, /, *args: P.args, **kwargs: P.kwargs) -> AsyncScan:
        from lamella.client.scan import AsyncScan

        return AsyncScan(method(self._for_threads(), *args, **kwargs))

    return begin


def awaited_changes(
    method: Callable[Concatenate[Table, P], RowChanges],
) -> Callable[Concatenate[AsyncTable, P], AsyncRows[RowChanges]]:
    """The method of the asynchronous table that returns changed rows."""

    @functools.wraps(method)
    def begin(self: AsyncTable, /, *args: P.args, **kwargs: P.kwargs) -> AsyncRows[RowChanges]:
        from lamella.client.scan import AsyncRows

        return AsyncRows(method(self._for_threads(), *args, **kwargs))

    return begin


class AsyncTable(AsyncTableMethods):
    """One table of a service; made by :meth:`lamella.client.AsyncLamella.table`. Holds no state but its name.

    What writes or checks rows runs in a thread; cancelling the task that awaits it does not stop it.
    """

    _lake: AsyncLake

    def _for_threads(self) -> Table:
        """The synchronous handle of the table. Raises RuntimeError outside of a loop."""
        return Table(self._lake._for_threads(), self._name)

    scan = awaited_scan(Table.scan)
    row_changes = awaited_changes(Table.row_changes)
    append = awaited(Table.append)
    overwrite = awaited(Table.overwrite)
    upsert = awaited(Table.upsert)
    delete = awaited(Table.delete)
    add_check = awaited(Table.add_check)
    drop_check = awaited(Table.drop_check)
