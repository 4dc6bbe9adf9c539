"""An application of this process behind a real server on a loopback port."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from support.ports import free_port


class LoopbackServer(uvicorn.Server):
    """A uvicorn server that leaves no connection open when its event loop ends.

    uvicorn gives up after ``timeout_graceful_shutdown``, and does not wait for a connection that was accepted a moment
    ago. On a busy machine a transport then stays open, and a later test of the process gets the ResourceWarning.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=1)
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)


@contextmanager
def on_loopback(app: ASGIApp, *, lifespan: Literal["auto", "off"] = "auto") -> Iterator[str]:
    """Its address; it is stopped, and has ended, after the block."""
    port = free_port()
    server = LoopbackServer(uvicorn.Config(app, port=port, lifespan=lifespan, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
