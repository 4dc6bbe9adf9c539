"""Byte ranges of files, fetched by few requests in parallel."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from lamella.snapshot.errors import BlockReplaced
from lamella.snapshot.layout import Store

#: Ranges nearer to each other than this are fetched by one request: another one would take longer than these bytes.
GAP_BYTES: Final = 16 << 10
#: No request is for more than this, so that large ranges come in parallel.
REQUEST_BYTES: Final = 8 << 20

#: (offset, size), in bytes.
Range = tuple[int, int]


def requests(ranges: Iterable[Range]) -> list[Range]:
    """The requests for some ranges: near ones together, large ones in parts."""
    runs: list[list[int]] = []
    for offset, size in sorted(ranges):
        if not size:
            continue
        if runs and offset <= runs[-1][1] + GAP_BYTES:
            runs[-1][1] = max(runs[-1][1], offset + size)
        else:
            runs.append([offset, offset + size])
    return [
        (start, min(REQUEST_BYTES, end - start)) for first, end in runs for start in range(first, end, REQUEST_BYTES)
    ]


class Fetched:
    """Some ranges of one file."""

    def __init__(self, parts: list[tuple[int, bytes]]) -> None:
        self._starts = [offset for offset, _ in parts]
        self._parts = [data for _, data in parts]

    def bytes_of(self, wanted: Range) -> bytes:
        """One of the ranges that were asked for."""
        offset, size = wanted
        if not size:
            return b""
        at = bisect_right(self._starts, offset) - 1
        start = offset - self._starts[at]
        found = self._parts[at][start : start + size]
        while len(found) < size:
            at += 1
            found += self._parts[at][: size - len(found)]
        return found


class Fetcher:
    """Fetches from a store, up to ``threads`` requests at a time. Safe to share between threads; close it."""

    def __init__(self, store: Store, threads: int) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="lamella-fetch")

    def fetch(self, location: str, ranges: Iterable[Range]) -> Fetched:
        """Fetch ranges of a file.

        Raises:
            BlockReplaced: the file ends before.
            ObjectNotFound, StoreError: as the store says.
        """
        wanted = requests(ranges)
        if len(wanted) < 2:
            return Fetched([(offset, self._one(location, offset, size)) for offset, size in wanted])
        parts = self._pool.map(lambda request: self._one(location, *request), wanted)
        return Fetched([(offset, data) for (offset, _), data in zip(wanted, parts, strict=True)])

    def close(self) -> None:
        """Give back the threads; requests that have not begun are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _one(self, location: str, offset: int, size: int) -> bytes:
        data = self.store.read_range(location, offset, size)
        if len(data) != size:
            raise BlockReplaced(f"{location} ends before the bytes that its footer names", location=location)
        return data
