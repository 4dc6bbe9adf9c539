"""How much a piece of code does, in numbers that no machine changes: calls, and what a store is asked for."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import msgspec

from lamella.snapshot.storage import EndReadingStore, ListedObject, ObjectStat, Store

#: Python 3.12 has no frames for these any more.
_INLINED: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of Python functions (comprehensions are none) and of functions in C."""

    python_calls: int
    c_calls: int


class Meter:
    """Counts what this thread does, and every thread that is started while it is installed, between start and stop."""

    def __init__(self) -> None:
        self._running = False
        self._calls: dict[int, list[int]] = {}  # by thread, since threads must not count into one number

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Ready to count. The garbage collector waits meanwhile, since what it runs comes whenever it likes."""
        was_enabled, before = gc.isenabled(), sys.getprofile()
        gc.disable()
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)
            if was_enabled:
                gc.enable()

    def start(self) -> None:
        """Count from zero."""
        self._calls.clear()
        self._running = True

    def stop(self, thread_id: int | None = None) -> Operations:
        """What was done since the start, in all threads or in one."""
        self._running = False
        counts = [each for thread, each in self._calls.items() if thread_id in (None, thread)]
        return Operations(python_calls=sum(each[0] for each in counts), c_calls=sum(each[1] for each in counts))

    def _on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if not self._running or event not in ("call", "c_call"):
            return
        counts = self._calls.setdefault(threading.get_ident(), [0, 0])
        if event == "c_call":
            counts[1] += 1
        else:
            counts[0] += frame.f_code.co_name not in _INLINED


def counted(call: Callable[[], object]) -> Operations:
    """What one call does in this thread."""
    meter = Meter()
    with meter.installed():
        meter.start()
        call()
        return meter.stop()


class CountedStore:
    """``store``, with every request to it counted: reads and writes, and their bytes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        if isinstance(store, EndReadingStore):
            self._end_reading = store
            self.reads_ends = store.reads_ends
            self.read_end = self._read_end
        self.reads = 0
        self.read_bytes = 0
        self.puts = 0
        self.put_bytes = 0
        self.others = 0

    def reset(self) -> None:
        """Count from zero again."""
        self.reads = self.read_bytes = self.puts = self.put_bytes = self.others = 0

    def read(self, location: str) -> bytes:
        """As the store does."""
        return self._read(self._store.read(location))

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """As the store does."""
        return self._read(self._store.read_range(location, start, length))

    def _read_end(self, location: str, length: int) -> tuple[ObjectStat, bytes]:
        stat, data = self._end_reading.read_end(location, length)
        return stat, self._read(data)

    def stat(self, location: str) -> ObjectStat:
        """As the store does."""
        self.others += 1
        return self._store.stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """As the store does."""
        self.puts += 1
        self.put_bytes += len(data)
        return self._store.put(location, data)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """As the store does."""
        self.others += 1
        return self._store.expand(url, plain=plain)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """As the store does."""
        self.others += 1
        return self._store.list(prefix, start_after=start_after)

    def delete(self, location: str) -> None:
        """As the store does."""
        self.others += 1
        self._store.delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """As the store does."""
        self.others += 1
        return self._store.delete_many(locations)

    def _read(self, data: bytes) -> bytes:
        self.reads += 1
        self.read_bytes += len(data)
        return data
