"""The parts that are specific to the asynchronous client: transport, sleep and background work.

``runtime`` defines the same names for the synchronous client. ``asyncio`` is imported late: not every use needs it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from lamella.client.http.transport import Address, AsyncTransport


async def sleep(delay_s: float) -> None:
    """Wait, and let other tasks run."""
    import asyncio

    await asyncio.sleep(delay_s)


def open_transport(url: str, timeout_s: float) -> AsyncTransport:
    """The default transport; raises ModuleNotFoundError without ``lamella[aio]``."""
    try:
        from lamella.client.http.httpx_transport import HttpxTransport
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "AsyncLamella needs httpx2: pip install 'lamella[aio]' (or pass a transport)", name=error.name
        ) from error
    return HttpxTransport(url, timeout_s=timeout_s)


async def open_embedded(
    folder: str | os.PathLike[str], settings: Mapping[str, Any], timeout_s: float
) -> tuple[Address, AsyncTransport]:
    """Open a folder in this process; raises as :meth:`lamella.client.AsyncLamella.embedded`."""
    import asyncio

    from lamella.client.http.embedded import AsyncEmbeddedTransport, EmbeddedService

    service = EmbeddedService(folder, settings)
    transport = AsyncEmbeddedTransport(service, timeout_s)
    try:
        await asyncio.wrap_future(service.opened)
    except BaseException:
        await transport.close()
        raise
    return service.address, transport


@asynccontextmanager
async def in_background(work: Callable[[], Awaitable[None]], every_s: float) -> AsyncIterator[None]:
    """Call ``work`` every ``every_s`` seconds in the event loop while the block runs.

    An error in ``work`` ends these calls and is reported by the event loop; the block continues.
    """
    import asyncio

    async def repeat() -> None:
        while True:
            await asyncio.sleep(every_s)
            await work()

    task = asyncio.ensure_future(repeat())
    try:
        yield
    finally:
        if not task.done():  # if a failed task were cancelled, the event loop would not report its error
            task.cancel()
        await asyncio.wait([task])
