"""Signals that become calls."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def on_signals(act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` for each SIGTERM and SIGINT, in a thread of its own: a handler may not take locks.

    Only in the main thread.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)

    def note(_number: int, _frame: FrameType | None) -> None:
        os.write(writable, b".")

    def pass_on() -> None:
        while os.read(readable, 1):
            act()

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writable)
        thread.join()
        os.close(readable)
