"""How much a piece of code does, in numbers that no machine changes: calls, and what a store is asked for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Final

import msgspec

from lamella.snapshot.layout import ListedObject, ObjectStat, Store

#: Python 3.12 has no frames for these any more.
_INLINED: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of Python functions (comprehensions are none) and of functions in C, by the thread that was counted."""

    python_calls: int
    c_calls: int


def counted(call: Callable[[], object]) -> Operations:
    """What one call does. The garbage collector waits meanwhile, since what it runs comes whenever it likes."""
    python_calls = c_calls = 0

    def on_event(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal python_calls, c_calls
        if event == "call":
            python_calls += frame.f_code.co_name not in _INLINED
        elif event == "c_call":
            c_calls += 1

    gc.collect()
    was_enabled, before = gc.isenabled(), sys.getprofile()
    gc.disable()
    sys.setprofile(on_event)
    try:
        call()
    finally:
        sys.setprofile(before)
        if was_enabled:
            gc.enable()
    return Operations(python_calls=python_calls, c_calls=c_calls)


class CountedStore:
    """``store``, with every request to it counted: reads and writes, and their bytes."""

    def __init__(self, store: Store) -> None:
        self._store = store
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

    def stat(self, location: str) -> ObjectStat:
        """As the store does."""
        self.others += 1
        return self._store.stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """As the store does."""
        self.puts += 1
        self.put_bytes += len(data)
        return self._store.put(location, data)

    def expand(self, url: str) -> list[str]:
        """As the store does."""
        self.others += 1
        return self._store.expand(url)

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
