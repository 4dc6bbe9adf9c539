"""What the synchronous client has of its own: the transport, sleep, and work in the background.

``async_runtime`` has the same names for asyncio. The rest of the client is written once, in ``aio``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from lamella.client.http.transport import PooledTransport, Transport

sleep: Final = time.sleep


def open_transport(url: str, timeout_s: float) -> Transport:
    """The transport of a client that is given none."""
    return PooledTransport(url, timeout_s=timeout_s)


@contextmanager
def in_background(work: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call ``work`` every ``every_s`` seconds while the block runs, in a thread of its own.

    An error of ``work`` ends the thread, which reports it to ``threading.excepthook``, and not the block.
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_s):
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
