"""The parts that are specific to the synchronous client: transport, sleep and background work.

``async_runtime`` defines the same names for asyncio. The rest of the client is written once, in ``aio``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from lamella.client.http.transport import Address, PooledTransport, Transport

sleep: Final = time.sleep


def open_transport(url: str, timeout_s: float) -> Transport:
    """The default transport."""
    return PooledTransport(url, timeout_s=timeout_s)


def open_embedded(
    folder: str | os.PathLike[str], settings: Mapping[str, Any], timeout_s: float
) -> tuple[Address, Transport]:
    """Open a folder in this process; raises as :meth:`lamella.client.Lamella.embedded`."""
    from lamella.client.http.embedded import EmbeddedService, EmbeddedTransport

    service = EmbeddedService(folder, settings)
    try:
        service.opened.result()
    except BaseException:
        service.close()
        raise
    return service.address, EmbeddedTransport(service, timeout_s)


@contextmanager
def in_background(work: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call ``work`` every ``every_s`` seconds in a separate thread while the block runs.

    An error in ``work`` ends the thread and is reported to ``threading.excepthook``; the block continues.
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
