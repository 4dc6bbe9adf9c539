"""Caches in memory: the interface of derived columns, values within a byte limit, and checksummed buffers."""

from __future__ import annotations

import struct
import sys
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.concurrency import SingleFlight

Buffer = bytes | bytearray | memoryview | npt.NDArray[Any]

#: Read-only bytes (format ``B``), one view per buffer; they stay valid while they are referenced.
Views = tuple[memoryview, ...]

#: ``hit``: a file was opened. ``miss``: the data had to be built. ``damaged``: the file did not match its checksum and
#: was deleted. ``evicted``: the file was deleted to free space. ``failed``: the disk failed; the caller did not notice.
Event = Literal["hit", "miss", "damaged", "evicted", "failed"]


class CacheListener(Protocol):
    """Receives the events of a disk cache; called from any thread, and must not raise."""

    def cache_event(self, event: Event, files: int, size_bytes: int, /) -> None:
        """The event happened to ``files`` files, of ``size_bytes`` together; 0 if the size is unknown."""

    def cache_size(self, size_bytes: int, /) -> None:
        """The bytes of all files together, after a file was added."""


class DerivedCache(Protocol):
    """Buffers by name, built when missing. Thread-safe.

    A repeated request for a key returns the same bytes, cached or rebuilt. So a key must name all that they depend on:
    the hashes of the source content, and a version of the algorithm.
    """

    @property
    def max_bytes(self) -> int:
        """Returns the limit of all buffers together, which other values may share."""
        ...

    def derived(self, key: str, make: Callable[[], Sequence[Buffer]]) -> Views:
        """Returns the buffers of a key: one read-only view each; mapped views are aligned to 64 bytes.

        ``key``: any text. ``make`` is called on a miss, by one thread of the process at a time; another process may
        build the same. It returns contiguous buffers that do not change afterwards. It may request other keys, but
        never its own. If it raises, every caller that waits for the key gets the exception.
        """
        ...

    def derived_with_heap(self, key: str, make: Callable[[], Sequence[Buffer]]) -> tuple[Views, int]:
        """Returns the buffers as :meth:`derived`, and the bytes of the heap that they take and that only the caller
        knows of."""
        ...

    def has_derived(self, key: str) -> bool:
        """Returns whether :meth:`derived` will most likely not have to build the buffers."""
        ...


# A file of the cache: some buffers, each on a multiple of 64 bytes, under one checksum.
#
#     8 bytes  LAMCACHE        4 bytes  CRC-32 of all that follows it      4 bytes  number of buffers n
#     8 bytes  size of the file        32 bytes  SHA-256 of the key        8 bytes  zero
#     n lengths (uint64), zeros up to a multiple of 64; each buffer, zeros up to a multiple of 64
#
# Numbers are little-endian; what is in the buffers is as the machine has it, since such a file never leaves it.

ALIGNMENT_BYTES: Final = 64

_MAGIC: Final = b"LAMCACHE"
_HEAD: Final = struct.Struct("<8sIIQ32s8x")
_SUMMED_FROM: Final = 12  # magic and checksum come before it
_EMPTY: Final = memoryview(b"")


class Damaged(Exception):
    """A file does not match its checksum; raised and handled within the cache only."""


def read_only(buffer: Buffer) -> memoryview:
    """Returns the bytes of a contiguous buffer of native numbers; raises TypeError or ValueError for any other."""
    view = memoryview(buffer)  # type: ignore[arg-type]  # NumPy's types call an array a buffer from Python 3.12 on
    if not view.nbytes:
        return _EMPTY
    return view.cast("B").toreadonly()


def pack(digest: bytes, buffers: Views) -> list[memoryview]:
    """Returns the parts of a file, in order; ``digest`` is the SHA-256 of the key."""
    lengths = struct.pack(f"<{len(buffers)}Q", *(view.nbytes for view in buffers))
    parts = [_EMPTY, memoryview(lengths), _padding(_HEAD.size + len(lengths))]
    for view in buffers:
        parts += (view, _padding(view.nbytes))
    size_bytes = _HEAD.size + sum(part.nbytes for part in parts)
    parts[0] = memoryview(_HEAD.pack(_MAGIC, 0, len(buffers), size_bytes, digest))
    checksum = zlib.crc32(parts[0][_SUMMED_FROM:])
    for part in parts[1:]:
        checksum = zlib.crc32(part, checksum)
    parts[0] = memoryview(_HEAD.pack(_MAGIC, checksum, len(buffers), size_bytes, digest))
    return parts


def check(file: memoryview, digest: bytes) -> None:
    """Raise Damaged unless ``file`` is the output of :func:`pack` for that key."""
    if file.nbytes < _HEAD.size:
        raise Damaged("shorter than its header")
    magic, checksum, count, size_bytes, found = _HEAD.unpack_from(file)
    if magic != _MAGIC or size_bytes != file.nbytes or found != digest:
        raise Damaged("the file of another key, or truncated")
    if zlib.crc32(file[_SUMMED_FROM:]) != checksum:
        raise Damaged("the checksum does not match")
    if _HEAD.size + 8 * count > file.nbytes:
        raise Damaged("more buffers than fit")


def buffer_views(file: memoryview) -> Views:
    """Returns the buffers of a verified file."""
    count = _HEAD.unpack_from(file)[2]
    lengths: Sequence[int] = np.frombuffer(file, dtype="<u8", count=count, offset=_HEAD.size).tolist()
    found = []
    start = _aligned(_HEAD.size + 8 * count)
    for length in lengths:
        found.append(file[start : start + length])
        start = _aligned(start + length)
    return tuple(found)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _padding(size_bytes: int) -> memoryview:
    return memoryview(bytes(_aligned(size_bytes) - size_bytes))


#: Approximate size of a view without its bytes.
_VIEW_BYTES = 4 * ALIGNMENT_BYTES


class MemoryCache:
    """A :class:`~lamella.snapshot.cache.memory.DerivedCache` whose buffers are values of ``memory_cache``."""

    def __init__(self, memory_cache: BoundedCache) -> None:
        self._views: CacheNamespace[Views] = CacheNamespace(memory_cache, "derived")

    @property
    def max_bytes(self) -> int:
        """Returns the limit of the memory cache."""
        return self._views.max_bytes

    def derived(self, key: str, make: Callable[[], Sequence[Buffer]]) -> Views:
        """Returns the buffers of a key."""

        def made() -> tuple[Views, int]:
            views = tuple(read_only(buffer) for buffer in make())
            return views, len(key) + sum(view.nbytes + _VIEW_BYTES for view in views)

        return self._views.load(key, made)

    def derived_with_heap(self, key: str, make: Callable[[], Sequence[Buffer]]) -> tuple[Views, int]:
        """Returns the buffers of a key, and 0: the memory cache counts them."""
        return self.derived(key, make), 0

    def has_derived(self, key: str) -> bool:
        """Returns whether the buffers of a key are cached."""
        return self._views.get(key) is not None


_T = TypeVar("_T")
_Key = tuple[str, Hashable]

#: Maximum size of a number of up to 38 digits.
_NUMBER_BYTES: Final = 48
_NOTHING: Final = (type(None), bool)


class Counts(msgspec.Struct, gc=False):
    """Counters of a kind of values since it was first cached, and the bytes cached now.

    ``hits``: a value was requested and cached, also if only its presence was checked. ``misses``: a value had to be
    built. ``evicted``: a value was removed to free space.
    """

    hits: int = 0
    misses: int = 0
    evicted: int = 0
    size_bytes: int = 0


def estimated_bytes(value: object, shared: tuple[type, ...] = ()) -> int:
    """Estimates the memory of a value of structs, tuples, lists, dicts, texts and numbers.

    Values of the types ``shared`` are not counted. Parts that occur twice are counted twice, so the estimate is seldom
    too low.
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


class BoundedCache:
    """At most ``max_bytes`` of values, by the sizes given to :meth:`put`. Thread-safe.

    A value larger than the whole cache is returned to the caller but not cached.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self._entries: OrderedDict[_Key, tuple[Any, int, Counts]] = OrderedDict()
        self._counts: dict[str, Counts] = {}
        self._lock = threading.Lock()
        self._single_flight = SingleFlight()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: _Key) -> Any:
        """Returns the value, or None if it is not cached."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            entry[2].hits += 1
            return entry[0]

    def get_all(self, keys: Sequence[_Key]) -> list[Any] | None:
        """Returns the values of all keys, or None if one is not cached."""
        with self._lock:
            entries = self._entries
            found = []
            for key in keys:
                one = entries.get(key)
                if one is None:
                    return None
                entries.move_to_end(key)
                found.append(one)
            for one in found:
                one[2].hits += 1
            return [one[0] for one in found]

    def put(self, key: _Key, value: object, size_bytes: int, *, was_missed: bool = True) -> None:
        """Cache a value, replacing any other under the same key.

        ``was_missed`` False: the value had not been requested.
        """
        with self._lock:
            counts = self._counts.get(key[0])
            if counts is None:
                counts = self._counts[key[0]] = Counts()
            counts.misses += was_missed
            before = self._entries.pop(key, None)
            if before is not None:
                self.size_bytes -= before[1]
                counts.size_bytes -= before[1]
            if size_bytes > self.max_bytes:
                return
            self._entries[key] = (value, size_bytes, counts)
            self.size_bytes += size_bytes
            counts.size_bytes += size_bytes
            self._evict()

    def resize(self, key: _Key, value: object, size_bytes: int) -> None:
        """Record that a cached value has grown or shrunk; ignored if another value, or none, is cached under the
        key."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry[0] is not value:
                return
            counts = entry[2]
            self._entries[key] = (value, size_bytes, counts)
            self.size_bytes += size_bytes - entry[1]
            counts.size_bytes += size_bytes - entry[1]
            self._evict()

    def _evict(self) -> None:
        while self.size_bytes > self.max_bytes:
            _, (_, freed_bytes, of_freed) = self._entries.popitem(last=False)
            self.size_bytes -= freed_bytes
            of_freed.size_bytes -= freed_bytes
            of_freed.evicted += 1

    def kind_bytes(self, kind: str) -> int:
        """Returns the bytes of all values of a kind."""
        with self._lock:
            counts = self._counts.get(kind)
            return 0 if counts is None else counts.size_bytes

    def counts(self) -> dict[str, Counts]:
        """Returns the counters by kind of value; only kinds that have ever had a value."""
        with self._lock:
            return {kind: copy(counts) for kind, counts in self._counts.items()}

    def load(self, key: _Key, make: Callable[[], tuple[_T, int]]) -> _T:
        """Returns the cached value, or that of ``make`` (with its size in bytes); threads wait for each other."""
        found: _T | None = self.get(key)
        return found if found is not None else self._single_flight.run(key, lambda: self._made(key, make))

    def _made(self, key: _Key, make: Callable[[], tuple[_T, int]]) -> _T:
        found: _T | None = self.get(key)  # another thread may have finished in the meantime
        if found is not None:
            return found
        value, size_bytes = make()
        self.put(key, value, size_bytes)
        return value


class CacheNamespace(Generic[_T]):
    """The values of one kind in a :class:`BoundedCache`; none of them is None."""

    def __init__(self, memory_cache: BoundedCache, kind: str) -> None:
        self._memory_cache = memory_cache
        self._kind = kind

    @property
    def max_bytes(self) -> int:
        """Returns the limit of the cache, which values of other kinds share."""
        return self._memory_cache.max_bytes

    @property
    def size_bytes(self) -> int:
        """Returns the bytes of the values of this kind."""
        return self._memory_cache.kind_bytes(self._kind)

    def get(self, name: Hashable) -> _T | None:
        """Returns the value, or None if it is not cached."""
        found: _T | None = self._memory_cache.get((self._kind, name))
        return found

    def get_all(self, names: Iterable[Hashable]) -> list[_T] | None:
        """Returns the values of all names, or None if one is not cached."""
        return self._memory_cache.get_all([(self._kind, name) for name in names])

    def put(self, name: Hashable, value: _T, size_bytes: int) -> None:
        """Cache a value."""
        self._memory_cache.put((self._kind, name), value, size_bytes)

    def remember(self, name: Hashable, value: _T, size_bytes: int) -> None:
        """Cache a value that had not been requested: it was just written."""
        self._memory_cache.put((self._kind, name), value, size_bytes, was_missed=False)

    def resize(self, name: Hashable, value: _T, size_bytes: int) -> None:
        """Record the new size of a cached value, as :meth:`BoundedCache.resize`."""
        self._memory_cache.resize((self._kind, name), value, size_bytes)

    def load(self, name: Hashable, make: Callable[[], tuple[_T, int]]) -> _T:
        """Returns the cached value or loads it, as :meth:`BoundedCache.load`."""
        return self._memory_cache.load((self._kind, name), make)
