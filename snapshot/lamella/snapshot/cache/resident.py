"""Values in memory within one bound of bytes, whatever their kind: the least recently used go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from lamella.snapshot.cache.flights import Flights

_T = TypeVar("_T")
_Key = tuple[str, Hashable]


class Resident:
    """At most ``max_bytes`` of values, by the sizes that they are put with. Thread-safe.

    A value that is larger than all of it is handed out and not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self._held: OrderedDict[_Key, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._flights = Flights()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: _Key) -> Any:
        """The value, or None when it is not held."""
        with self._lock:
            held = self._held.get(key)
            if held is None:
                return None
            self._held.move_to_end(key)
            return held[0]

    def get_all(self, keys: Sequence[_Key]) -> list[Any] | None:
        """The values of all keys, or None when one is not held."""
        with self._lock:
            held = self._held
            found = []
            for key in keys:
                one = held.get(key)
                if one is None:
                    return None
                held.move_to_end(key)
                found.append(one[0])
            return found

    def put(self, key: _Key, value: object, size_bytes: int) -> None:
        """Hold a value from now on, instead of another under the same key."""
        with self._lock:
            before = self._held.pop(key, None)
            if before is not None:
                self.size_bytes -= before[1]
            if size_bytes > self.max_bytes:
                return
            self._held[key] = (value, size_bytes)
            self.size_bytes += size_bytes
            while self.size_bytes > self.max_bytes:
                _, (_, freed_bytes) = self._held.popitem(last=False)
                self.size_bytes -= freed_bytes

    def load(self, key: _Key, make: Callable[[], tuple[_T, int]]) -> _T:
        """The value that is held, or else that of ``make`` (with its size in bytes); threads wait for each other."""
        found: _T | None = self.get(key)
        return found if found is not None else self._flights.run(key, lambda: self._made(key, make))

    def _made(self, key: _Key, make: Callable[[], tuple[_T, int]]) -> _T:
        found: _T | None = self.get(key)  # another thread may have been done just before
        if found is not None:
            return found
        value, size_bytes = make()
        self.put(key, value, size_bytes)
        return value


class Shelf(Generic[_T]):
    """The values of one kind in a :class:`Resident`; none of them is None."""

    def __init__(self, resident: Resident, kind: str) -> None:
        self._resident = resident
        self._kind = kind

    def get(self, name: Hashable) -> _T | None:
        """The value, or None when it is not held."""
        found: _T | None = self._resident.get((self._kind, name))
        return found

    def get_all(self, names: Iterable[Hashable]) -> list[_T] | None:
        """The values of all names, or None when one is not held."""
        return self._resident.get_all([(self._kind, name) for name in names])

    def put(self, name: Hashable, value: _T, size_bytes: int) -> None:
        """Hold a value from now on."""
        self._resident.put((self._kind, name), value, size_bytes)

    def load(self, name: Hashable, make: Callable[[], tuple[_T, int]]) -> _T:
        """As :meth:`Resident.load`."""
        return self._resident.load((self._kind, name), make)
