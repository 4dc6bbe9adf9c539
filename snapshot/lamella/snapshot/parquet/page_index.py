"""Where the pages of a file are: its offset indexes, read in few ranged requests and checked before they are used.

An offset index is a help, not a need. One that is missing, cut off or contradicts its chunk leaves that chunk without
page places, with a reason; nothing here raises for what such an index says. Rules G1, G7, G9 and G11 of the notes on
Parquet statistics.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.layout.store import Store
from lamella.snapshot.parquet import thrift
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.parquet.metadata import Chunk
from lamella.snapshot.parquet.thrift import INT, Spec, ThriftError

Numbers = npt.NDArray[np.int64]

#: No more bytes of page indexes than this are decoded of one file, so that no file takes long; chunks beyond it are
#: without pages. About 400,000 pages fit.
MAX_INDEX_BYTES: Final = 16 << 20
#: Index regions nearer to each other than this are read by one request, which reads at most so much for nothing.
GAP_BYTES: Final = 64 << 10
WASTE_BYTES: Final = 1 << 20
#: Writers put all indexes beside each other; a file that would take more requests than this has no more of them read.
MAX_REQUESTS: Final = 64

_LOCATION: Final[Spec] = {1: INT, 2: INT, 3: INT}  # offset, compressed_page_size, first_row_index
#: The least bytes of a PageLocation: three fields and the end.
_MIN_LOCATION: Final = 7


class ChunkPages(msgspec.Struct, frozen=True):
    """The data pages of one column chunk, in order; they fill the chunk behind its dictionary page.

    ``offsets`` in the file and ``sizes`` in bytes (with page headers), ``first_rows`` relative to the row group: page i
    holds the rows from ``first_rows[i]`` up to the next page's. ``dictionary``: (offset, size in bytes), None without.
    """

    offsets: Numbers
    sizes: Numbers
    first_rows: Numbers
    num_rows: int
    dictionary: tuple[int, int] | None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def row_counts(self) -> Numbers:
        """The rows of each page."""
        return np.diff(self.first_rows, append=self.num_rows)

    def holding(self, first: int, stop: int) -> tuple[int, int]:
        """The pages that hold the rows ``first`` <= row < ``stop`` of the row group, as a half-open range."""
        start = int(np.searchsorted(self.first_rows, first, side="right")) - 1
        return start, max(start, int(np.searchsorted(self.first_rows, stop, side="left")))


class PageIndex(msgspec.Struct, frozen=True):
    """What a file's indexes say, by (row group, leaf): pages, or the reason why there are none.

    ``column_indexes`` are raw ColumnIndex structures, of those chunks that have pages too, when they were asked for.
    """

    pages: Mapping[tuple[int, int], ChunkPages]
    reasons: Mapping[tuple[int, int], str]
    column_indexes: Mapping[tuple[int, int], bytes]

    def at(self, row_group: int, leaf: int) -> ChunkPages | None:
        """The pages of a chunk; None when only the whole chunk can be read."""
        return self.pages.get((row_group, leaf))


def read_page_index(
    store: Store, footer: Footer, leaves: Iterable[int] | None = None, *, bounds: Collection[int] = ()
) -> PageIndex:
    """The pages of the given leaves (indexes into the file's schema; None: all) in every row group.

    ``bounds``: the leaves of which to fetch the column indexes too, for
    :func:`lamella.snapshot.parquet.page_bounds.page_zones`.

    Raises:
        ObjectNotFound, StoreError: as the store says.
    """
    groups = footer.metadata.row_groups
    schema = footer.metadata.schema
    chosen = range(len(schema.leaves)) if leaves is None else list(leaves)
    reasons: dict[tuple[int, int], str] = {}
    wanted: dict[tuple[int, int], Chunk] = {}
    left = MAX_INDEX_BYTES
    for number, group in enumerate(groups):
        for leaf in chosen:
            chunk = group.chunks[leaf]
            repeated = schema.leaves[leaf].max_rep > 0
            reason = _unusable(chunk, group.num_rows, repeated=repeated)
            if reason is None:
                left -= sum(length for _, length in _regions(chunk, bounds=leaf in bounds))
                if left < 0:
                    reason = f"the page indexes of the file are longer than {MAX_INDEX_BYTES} bytes"
            if reason is None:
                wanted[number, leaf] = chunk
            else:
                reasons[number, leaf] = reason
    data = _Regions(
        store,
        footer.location,
        (region for (_, leaf), chunk in wanted.items() for region in _regions(chunk, bounds=leaf in bounds)),
    )
    pages: dict[tuple[int, int], ChunkPages] = {}
    indexes: dict[tuple[int, int], bytes] = {}
    for key, chunk in wanted.items():
        found = chunk_pages(data.bytes_of(chunk.offset_index), chunk, groups[key[0]].num_rows)
        if isinstance(found, str):
            reasons[key] = found
            continue
        pages[key] = found
        if key[1] in bounds and chunk.column_index is not None:
            indexes[key] = data.bytes_of(chunk.column_index)
    return PageIndex(pages, reasons, indexes)


def chunk_pages(data: bytes, chunk: Chunk, num_rows: int) -> ChunkPages | str:
    """The pages that an OffsetIndex names, or why it is not believed."""
    try:
        offsets, sizes, first_rows = _locations(data)
    except ThriftError as error:
        return f"the offset index cannot be decoded: {error}"
    end = chunk.offset + chunk.compressed_size
    if not len(offsets):
        return "the offset index has no pages"
    if first_rows[0] != 0 or (np.diff(first_rows) <= 0).any() or first_rows[-1] >= num_rows:
        return "the pages' first rows are not those of a row group"  # G7
    if (offsets < chunk.offset).any() or (offsets > end).any() or (sizes <= 0).any() or (sizes > end).any():
        return "a page lies outside its chunk"
    # Every byte behind the dictionary belongs to a page: an index that leaves one out cannot be right about rows.
    if (offsets[1:] != offsets[:-1] + sizes[:-1]).any() or offsets[-1] + sizes[-1] != end:
        return "the pages do not fill their chunk"
    gap = int(offsets[0]) - chunk.offset  # G11
    return ChunkPages(offsets, sizes, first_rows, num_rows, (chunk.offset, gap) if gap else None)


def _unusable(chunk: Chunk, num_rows: int, *, repeated: bool) -> str | None:
    """Why a chunk's offset index is not even looked at."""
    if chunk.encrypted:
        return "the column is encrypted"
    if repeated:
        return "below a list or map: its pages need not begin with a row"  # G9
    if chunk.num_values != num_rows:
        return "the number of values differs from the number of rows"  # A6
    return "the file has no offset index" if chunk.offset_index is None else None


def _regions(chunk: Chunk, *, bounds: bool) -> list[tuple[int, int]]:
    found = (chunk.offset_index, chunk.column_index if bounds else None)
    return [region for region in found if region is not None]


def _locations(data: bytes) -> tuple[Numbers, Numbers, Numbers]:
    """The three arrays of an OffsetIndex; raises ThriftError."""
    offsets, sizes, first_rows = array("q"), array("q"), array("q")
    try:
        n, wire, p = thrift.list_header(data, thrift.find(data, 1, 9))
        if n and wire != 12:
            raise ThriftError("page locations are not structures")
        if n * _MIN_LOCATION > len(data) - p:
            raise ThriftError("more page locations than the data hold")
        varint = thrift.varint
        for _ in range(n):
            start = p
            if data[p] == 0x16:  # what every writer makes: an i64, an i32, an i64, each field one after the last
                offset, p = varint(data, p + 1)
                if data[p] == 0x15:
                    size, p = varint(data, p + 1)
                    if data[p] == 0x16:
                        row, p = varint(data, p + 1)
                        if data[p] == 0:
                            p += 1
                            offsets.append((offset >> 1) ^ -(offset & 1))
                            sizes.append((size >> 1) ^ -(size & 1))
                            first_rows.append((row >> 1) ^ -(row & 1))
                            continue
            fields, p = thrift.struct(data, start, _LOCATION)
            if not fields.keys() >= {1, 2, 3}:
                raise ThriftError("a page location lacks a field")
            offsets.append(fields[1])
            sizes.append(fields[2])
            first_rows.append(fields[3])
    except IndexError:
        raise ThriftError("the data end inside a value") from None
    return _numbers(offsets), _numbers(sizes), _numbers(first_rows)


def _numbers(values: array[int]) -> Numbers:
    return np.array(values, dtype=np.int64)


class _Regions:
    """Parts of a file, read by as few requests as their places allow."""

    def __init__(self, store: Store, location: str, regions: Iterable[tuple[int, int]]) -> None:
        runs: list[list[int]] = []  # start, end, bytes read for nothing
        for offset, length in sorted(set(regions)):
            waste = offset - runs[-1][1] if runs else 0
            if runs and waste <= GAP_BYTES and runs[-1][2] + waste <= WASTE_BYTES:
                runs[-1] = [runs[-1][0], max(runs[-1][1], offset + length), runs[-1][2] + max(waste, 0)]
            else:
                runs.append([offset, offset + length, 0])
        self._starts = [start for start, _, _ in runs[:MAX_REQUESTS]]
        self._parts = [store.read_range(location, start, end - start) for start, end, _ in runs[:MAX_REQUESTS]]

    def bytes_of(self, region: tuple[int, int] | None) -> bytes:
        """The bytes of one region; fewer, perhaps none, when the file ends before or it was not read."""
        if region is None or not self._starts:
            return b""
        offset, length = region
        part = max(bisect_right(self._starts, offset) - 1, 0)
        at = offset - self._starts[part]
        return self._parts[part][at : at + length] if at >= 0 else b""
