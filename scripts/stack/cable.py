"""A proxy between a service and its clients that can pass, drop or cut connections."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from typing import Final, Literal

Way = Literal["pass", "swallow", "cut"]
_PIECE_BYTES: Final = 64 << 10
_POLL_S: Final = 0.02


class FaultProxy:
    """Listens at ``outside`` and connects to ``inside``, both an address and a port, in a thread of its own.

    While nobody listens inside nobody does outside, so that connections are refused as they would be without it.
    """

    def __init__(self, outside: tuple[str, int], inside: tuple[str, int]) -> None:
        self._outside = outside
        self._inside = inside
        self._way: Way = "pass"
        self._changed = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop holds them weakly
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"cable {outside}", daemon=True)
        self._thread.start()

    def switch(self, way: Way) -> None:
        """Change the mode: ``swallow`` keeps connections open and delivers nothing; ``cut`` resets them and refuses new
        ones."""
        asyncio.run_coroutine_threadsafe(self._switch(way), self._loop).result()

    def close(self) -> None:
        """Reset all connections and stop."""
        self.switch("cut")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _switch(self, way: Way) -> None:
        self._way = way
        self._changed.set()
        self._changed = asyncio.Event()
        if way == "cut":
            self._refuse()
            for writer in list(self._open):
                _reset(writer)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.create_task(self._watch())
        self._loop.run_forever()
        self._refuse()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        """Cancel all that runs, and return once its connections are closed."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # asyncio closes a socket one step after it was told to

    async def _watch(self) -> None:
        """Listen while the service does, which an idle connection to it shows."""
        while True:
            try:
                reader, writer = await asyncio.open_connection(*self._inside)
            except OSError:
                self._refuse()
                await asyncio.sleep(_POLL_S)
                continue
            try:
                while self._way == "cut":
                    await self._changed.wait()
                self._listen()
                with suppress(OSError, TimeoutError):
                    # it ends when the service stops, or closes the idle connection
                    await asyncio.wait_for(reader.read(1), 1.0)
            finally:
                writer.close()

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(self._outside)
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _refuse(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        """Take one connection. Not by ``asyncio.start_server``: Python 3.11 forgets, and leaves open, a connection that
        it accepts in the moment in which the server is closed."""
        with suppress(OSError):  # it is gone again
            accepted, _ = listener.accept()
            task = self._loop.create_task(self._connected(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda done: accepted.close() if done.cancelled() else None)

    async def _connected(self, accepted: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted)
        self._open.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            await self._passing()
            back, other = await asyncio.open_connection(*self._inside)
            self._open.add(other)
            await asyncio.gather(self._carry(reader, other), self._carry(back, writer))
        except OSError:
            _reset(writer)
        finally:
            for each in (writer, other):
                if each is not None:
                    self._open.discard(each)
                    each.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_PIECE_BYTES):
            await self._passing()
            writer.write(piece)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()

    async def _passing(self) -> None:
        while self._way == "swallow":
            await self._changed.wait()
        if self._way == "cut":
            raise ConnectionResetError


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a reset (RST), which the other side notices."""
    found = writer.get_extra_info("socket")
    with suppress(OSError):
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
