"""The port to columns that were derived from immutable content, and who is told what a cache does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy.typing as npt

Buffer = bytes | bytearray | memoryview | npt.NDArray[Any]

#: Read-only bytes (format ``B``), one view for each buffer; they stay valid as long as they are held.
Views = tuple[memoryview, ...]

#: ``hit``: a file was opened. ``miss``: it had to be made. ``damaged``: it was not what had been written, and was
#: thrown away. ``evicted``: it made room. ``failed``: the disk did not do what it should; the caller did not notice.
Event = Literal["hit", "miss", "damaged", "evicted", "failed"]


class CacheListener(Protocol):
    """Is told what happens in a cache on disk; called from any thread, and must not raise."""

    def cache_event(self, event: Event, files: int, size_bytes: int, /) -> None:
        """It happened to some files, of ``size_bytes`` together; 0 where the size is not known."""

    def cache_size(self, size_bytes: int, /) -> None:
        """The bytes of all files together, after a file was added."""


class DerivedCache(Protocol):
    """Buffers by name, made when they are not there. Thread-safe.

    Whoever asks for the same key again gets the same bytes, from this cache or made anew, so a key must name all
    that they depend on: the hashes of the content that they are made of, and a version of how they are made.
    """

    def derived(self, key: str, make: Callable[[], Sequence[Buffer]]) -> Views:
        """The buffers of that key: one read-only view each, on an address that is a multiple of 64 where mapped.

        ``key``: any text. ``make`` is called when the cache has none, by one thread of the process at a time; another
        process may make the same. It gives contiguous buffers, which nobody changes afterwards, and may ask for
        other keys, never for its own. What it raises, everyone gets who is waiting for the same key.
        """
        ...

    def has_derived(self, key: str) -> bool:
        """True when :meth:`derived` will most likely not have to make them."""
        ...
