"""Values in memory within one bound of bytes, whatever their kind: the least recently used go first."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import Any, Final, Generic, TypeVar

import msgspec

from lamella.snapshot.cache.flights import Flights

_T = TypeVar("_T")
_Key = tuple[str, Hashable]

#: A number of up to 38 digits takes at most so much.
_NUMBER_BYTES: Final = 48
_NOTHING: Final = (type(None), bool)


class Counts(msgspec.Struct, gc=False):
    """What happened to values since they began to be held, and the bytes that are held now.

    ``hits``: a value was asked for and held, if only to see whether it is. ``misses``: one had to be made. ``evicted``:
    one made room for others.
    """

    hits: int = 0
    misses: int = 0
    evicted: int = 0
    size_bytes: int = 0


def held_bytes(value: object, shared: tuple[type, ...] = ()) -> int:
    """What a value of structs, tuples, lists, dicts, texts and numbers takes in memory.

    Values of the types ``shared`` are not counted. Parts that occur twice in it are counted twice, so it is seldom too
    little.
    """
    size_bytes = 0
    left = [value]
    for each in left:  # it grows meanwhile
        kind = type(each)
        if kind is int or kind is float:
            size_bytes += _NUMBER_BYTES
        elif kind in _NOTHING or kind in shared:
            continue
        else:
            size_bytes += sys.getsizeof(each)
            if isinstance(each, (tuple, list)):
                left += each
            elif isinstance(each, dict):
                left += each.keys()
                left += each.values()
            elif isinstance(each, msgspec.Struct):
                left += msgspec.structs.astuple(each)
    return size_bytes


class Resident:
    """At most ``max_bytes`` of values, by the sizes that they are put with. Thread-safe.

    A value that is larger than all of it is handed out and not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self._held: OrderedDict[_Key, tuple[Any, int, Counts]] = OrderedDict()
        self._counts: dict[str, Counts] = {}
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
            held[2].hits += 1
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
                found.append(one)
            for one in found:
                one[2].hits += 1
            return [one[0] for one in found]

    def put(self, key: _Key, value: object, size_bytes: int, *, was_missed: bool = True) -> None:
        """Hold a value from now on, instead of another under the same key.

        ``was_missed`` False: nobody had asked for it.
        """
        with self._lock:
            counts = self._counts.get(key[0])
            if counts is None:
                counts = self._counts[key[0]] = Counts()
            counts.misses += was_missed
            before = self._held.pop(key, None)
            if before is not None:
                self.size_bytes -= before[1]
                counts.size_bytes -= before[1]
            if size_bytes > self.max_bytes:
                return
            self._held[key] = (value, size_bytes, counts)
            self.size_bytes += size_bytes
            counts.size_bytes += size_bytes
            while self.size_bytes > self.max_bytes:
                _, (_, freed_bytes, of_freed) = self._held.popitem(last=False)
                self.size_bytes -= freed_bytes
                of_freed.size_bytes -= freed_bytes
                of_freed.evicted += 1

    def counts(self) -> dict[str, Counts]:
        """What happened so far, by kind of value; only kinds of which there ever was one."""
        with self._lock:
            return {kind: copy(counts) for kind, counts in self._counts.items()}

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

    def remember(self, name: Hashable, value: _T, size_bytes: int) -> None:
        """As :meth:`put`, for a value that nobody had asked for: it was just written."""
        self._resident.put((self._kind, name), value, size_bytes, was_missed=False)

    def load(self, name: Hashable, make: Callable[[], tuple[_T, int]]) -> _T:
        """As :meth:`Resident.load`."""
        return self._resident.load((self._kind, name), make)
