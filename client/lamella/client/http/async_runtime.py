"""What the asynchronous client has of its own: the transport, sleep, and work in the background.

``runtime`` has the same names for the synchronous client. ``asyncio`` is imported late: not every use needs it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from lamella.client.http.transport import AsyncTransport


async def sleep(delay_s: float) -> None:
    """Wait, and let other tasks run."""
    import asyncio

    await asyncio.sleep(delay_s)


def open_transport(url: str, timeout_s: float) -> AsyncTransport:
    """The transport of a client that is given none; raises ModuleNotFoundError without ``lamella[aio]``."""
    try:
        from lamella.client.http.httpx_transport import HttpxTransport
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "AsyncLamella needs httpx2: pip install 'lamella[aio]' (or pass a transport)", name=error.name
        ) from error
    return HttpxTransport(url, timeout_s=timeout_s)


@asynccontextmanager
async def in_background(work: Callable[[], Awaitable[None]], every_s: float) -> AsyncIterator[None]:
    """Call ``work`` every ``every_s`` seconds while the block runs, in the event loop.

    An error of ``work`` ends these calls, and is reported by the event loop; it does not end the block.
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
        if not task.done():  # cancelling one that failed would keep the event loop from reporting its error
            task.cancel()
        await asyncio.wait([task])
