"""Parquet page indexes: the locations of a file's pages, and what a column index proves of each.

An offset index is optional. One that is missing, truncated or contradicts its chunk leaves that chunk without page
locations, with a reason; nothing here raises for the content of an index.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, NULLS_KNOWN
from lamella.snapshot.parquet import thrift
from lamella.snapshot.parquet.columns import PlannedColumn
from lamella.snapshot.parquet.footer import Chunk, Footer
from lamella.snapshot.parquet.statistics_rules import (
    Origin,
    discredited,
    lower_bound,
    nan_count,
    null_count,
    upper_bound,
)
from lamella.snapshot.parquet.thrift import BINARY, BOOL, INT, Fields, Spec, ThriftError
from lamella.snapshot.stats import ColumnStats, from_bound
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.storage.store import Store

Numbers = npt.NDArray[np.int64]

#: Maximum bytes of page indexes that are decoded of one file, so that no file takes long; chunks beyond it have no
#: pages. About 400,000 pages fit.
MAX_INDEX_BYTES: Final = 16 << 20
#: Index regions closer to each other than this are read by one request, which reads at most this many unused bytes per
#: gap.
GAP_BYTES: Final = 64 << 10
WASTE_BYTES: Final = 1 << 20
#: Writers place all indexes together; of a file that would take more requests than this, the rest is not read.
MAX_REQUESTS: Final = 64

_LOCATION: Final[Spec] = {1: INT, 2: INT, 3: INT}  # offset, compressed_page_size, first_row_index
#: The minimum size of a PageLocation: three fields and the end.
_MIN_LOCATION: Final = 7


class ChunkPages(msgspec.Struct, frozen=True):
    """The data pages of one column chunk, in order; they fill the chunk after its dictionary page.

    ``offsets`` in the file and ``sizes`` in bytes (with page headers), ``first_rows`` relative to the row group: page i
    has the rows from ``first_rows[i]`` up to the next page's. ``dictionary``: (offset, size in bytes), or None.
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
        """Returns the rows of each page."""
        return np.diff(self.first_rows, append=self.num_rows)

    def holding(self, first: int, stop: int) -> tuple[int, int]:
        """Returns the pages with the rows ``first`` <= row < ``stop`` of the row group, as a half-open range."""
        start = int(np.searchsorted(self.first_rows, first, side="right")) - 1
        return start, max(start, int(np.searchsorted(self.first_rows, stop, side="left")))


class PageIndex(msgspec.Struct, frozen=True):
    """The content of a file's indexes, by (row group, leaf): pages, or the reason why there are none.

    ``column_indexes`` are raw ColumnIndex structures, of those chunks that have pages too, if they were requested.
    """

    pages: Mapping[tuple[int, int], ChunkPages]
    reasons: Mapping[tuple[int, int], str]
    column_indexes: Mapping[tuple[int, int], bytes]

    def at(self, row_group: int, leaf: int) -> ChunkPages | None:
        """Returns the pages of a chunk; None if only the whole chunk can be read."""
        return self.pages.get((row_group, leaf))


def read_page_index(
    store: Store, footer: Footer, leaves: Iterable[int] | None = None, *, bounds: Collection[int] = ()
) -> PageIndex:
    """Returns the pages of the given leaves (indexes into the file's schema; None: all) in every row group.

    ``bounds``: the leaves whose column indexes are fetched too, for
    :func:`lamella.snapshot.parquet.page_index.page_zones`.

    Raises:
        ObjectNotFound, StoreError: as the store.
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
    """Returns the pages of an OffsetIndex, or why it is not trusted."""
    try:
        offsets, sizes, first_rows = _locations(data)
    except ThriftError as error:
        return f"the offset index cannot be decoded: {error}"
    end = chunk.offset + chunk.compressed_size
    if not len(offsets):
        return "the offset index has no pages"
    if first_rows[0] != 0 or (np.diff(first_rows) <= 0).any() or first_rows[-1] >= num_rows:
        return "the first rows of the pages do not match the row group"  # they must begin at 0 and ascend
    if (offsets < chunk.offset).any() or (offsets > end).any() or (sizes <= 0).any() or (sizes > end).any():
        return "a page is outside its chunk"
    # Every byte after the dictionary belongs to a page: an index that leaves one out cannot be right about rows.
    if (offsets[1:] != offsets[:-1] + sizes[:-1]).any() or offsets[-1] + sizes[-1] != end:
        return "the pages do not fill their chunk"
    gap = int(offsets[0]) - chunk.offset  # the dictionary page
    return ChunkPages(offsets, sizes, first_rows, num_rows, (chunk.offset, gap) if gap else None)


def _unusable(chunk: Chunk, num_rows: int, *, repeated: bool) -> str | None:
    """Returns why a chunk's offset index is not used."""
    if chunk.encrypted:
        return "the column is encrypted"
    if repeated:
        return "inside a list or map: its pages need not begin with a row"
    if chunk.num_values != num_rows:
        return "the number of values differs from the number of rows"
    return "the file has no offset index" if chunk.offset_index is None else None


def _regions(chunk: Chunk, *, bounds: bool) -> list[tuple[int, int]]:
    found = (chunk.offset_index, chunk.column_index if bounds else None)
    return [region for region in found if region is not None]


def _locations(data: bytes) -> tuple[Numbers, Numbers, Numbers]:
    """Returns the three arrays of an OffsetIndex; raises ThriftError."""
    offsets, sizes, first_rows = array("q"), array("q"), array("q")
    try:
        n, wire, p = thrift.list_header(data, thrift.find(data, 1, 9))
        if n and wire != 12:
            raise ThriftError("page locations are not structures")
        if n * _MIN_LOCATION > len(data) - p:
            raise ThriftError("more page locations than fit in the data")
        varint = thrift.varint
        for _ in range(n):
            start = p
            if data[p] == 0x16:  # what every writer produces: an i64, an i32, an i64, in field order
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
                raise ThriftError("a page location is missing a field")
            offsets.append(fields[1])
            sizes.append(fields[2])
            first_rows.append(fields[3])
    except IndexError:
        raise ThriftError("the data ends inside a value") from None
    return _numbers(offsets), _numbers(sizes), _numbers(first_rows)


def _numbers(values: array[int]) -> Numbers:
    return np.array(values, dtype=np.int64)


class _Regions:
    """Parts of a file, read by as few requests as their positions allow."""

    def __init__(self, store: Store, location: str, regions: Iterable[tuple[int, int]]) -> None:
        runs: list[list[int]] = []  # start, end, unused bytes read
        for offset, length in sorted(set(regions)):
            waste = offset - runs[-1][1] if runs else 0
            if runs and waste <= GAP_BYTES and runs[-1][2] + waste <= WASTE_BYTES:
                runs[-1] = [runs[-1][0], max(runs[-1][1], offset + length), runs[-1][2] + max(waste, 0)]
            else:
                runs.append([offset, offset + length, 0])
        self._starts = [start for start, _, _ in runs[:MAX_REQUESTS]]
        self._parts = [store.read_range(location, start, end - start) for start, end, _ in runs[:MAX_REQUESTS]]

    def bytes_of(self, region: tuple[int, int] | None) -> bytes:
        """Returns the bytes of one region; fewer, possibly none, if the file ends before or it was not read."""
        if region is None or not self._starts:
            return b""
        offset, length = region
        part = max(bisect_right(self._starts, offset) - 1, 0)
        at = offset - self._starts[part]
        return self._parts[part][at : at + length] if at >= 0 else b""


# What a ColumnIndex proves of each page of a chunk; the rules on values of chunks apply too.
#
# A contradiction, within the index or with the chunk's own statistics, discredits the whole index: the chunk's pages
# are then not distinguished. ``boundary_order`` is ignored: pages are compared one by one, so whether their bounds
# ascend makes no difference.

_COLUMN_INDEX: Final[Spec] = {
    1: [BOOL],  # null_pages
    2: [BINARY],  # min_values
    3: [BINARY],  # max_values
    5: [INT],  # null_counts
    7: [INT],  # definition_level_histograms, one page's after the other's
    8: [INT],  # nan_counts
}


class PageZones(msgspec.Struct, frozen=True):
    """Per page: bounds in the table's type (zero values if unknown), flags as in ``columnar.zones``, null counts (-1:
    unknown)."""

    lows: list[Value]
    highs: list[Value]
    flags: npt.NDArray[np.uint8]
    nulls: Numbers


def page_zones(
    column: PlannedColumn, chunk: Chunk, stats: ColumnStats, pages: ChunkPages, index: bytes, order: int, origin: Origin
) -> PageZones | str:
    """Returns the zone maps of a chunk's pages, or why there are none.

    ``stats``: the chunk's own (:func:`lamella.snapshot.parquet.statistics_rules.chunk_stats`). ``index``: the bytes of
    its ColumnIndex. ``order``: the leaf's column order.
    """
    problem = discredited(column, chunk, pages.num_rows, origin)
    if problem is not None:
        return problem
    if not index:
        return "the file has no column index"
    try:
        fields = thrift.decode(index, _COLUMN_INDEX)
    except ThriftError as error:
        return f"the column index cannot be decoded: {error}"
    reader = _Reader(column, chunk, stats, pages, fields, origin)
    try:
        return reader.read(order)
    except _Contradiction as error:
        return str(error)


class _Contradiction(Exception):
    """The index is inconsistent."""


class _Reader:
    def __init__(
        self,
        column: PlannedColumn,
        chunk: Chunk,
        stats: ColumnStats,
        pages: ChunkPages,
        fields: Fields,
        origin: Origin,
    ) -> None:
        self._column = column
        self._chunk = chunk
        self._stats = stats
        self._rows = pages.row_counts
        self._fields = fields
        self._origin = origin

    def read(self, order: int) -> PageZones:
        count = len(self._rows)
        null_pages, mins, maxs = (self._fields.get(field) for field in (1, 2, 3))
        if null_pages is None or mins is None or maxs is None:
            raise _Contradiction("the column index is missing a required list")
        if any(len(each) != count for each in (null_pages, mins, maxs)):
            raise _Contradiction("the column index and the offset index differ in the number of pages")
        levels = self._levels(count)
        nulls = self._nulls(count, levels)
        self._check_null_pages(null_pages, mins, maxs, nulls)
        flags = np.zeros(count, dtype=np.uint8)
        nans = self._nans(count, nulls)
        lows, highs = self._bounds(null_pages, mins, maxs, order, flags)
        self._check_against_chunk(lows, highs, flags)
        known = nulls >= 0
        flags[known] |= NULLS_KNOWN
        flags[nulls != 0] |= MAY_NULL
        all_null = nulls == self._rows
        if (flags[all_null] & (LOW_KNOWN | HIGH_KNOWN)).any():
            raise _Contradiction("a page has bounds although every value is null")
        flags[~all_null] |= MAY_NUMBER
        if self._column.is_float:
            flags[~all_null & (nans != 0)] |= MAY_NAN
            all_nan = known & ~all_null & (nans == self._rows - nulls)
            if (flags[all_nan] & (LOW_KNOWN | HIGH_KNOWN)).any():
                raise _Contradiction("a page has bounds although every value is NaN")
            flags[all_nan] &= ~np.uint8(MAY_NUMBER)
        return PageZones(lows, highs, flags, nulls)

    def _counts(self, field: int, count: int, what: str) -> Numbers | None:
        """Returns a list of counts, checked against the pages' rows."""
        given = self._fields.get(field)
        if not given:  # an empty list counts as missing
            return None
        if len(given) != count:
            raise _Contradiction(f"the column index has {what} for a different number of pages")
        found = np.array(given, dtype=np.int64)
        if (found < 0).any() or (found > self._rows).any():
            raise _Contradiction(f"{what} in the column index are impossible")
        return found

    def _levels(self, count: int) -> Numbers | None:
        """Returns per page the histogram of definition levels, which also counts the page's rows a second time."""
        given = self._fields.get(7)
        width = self._column.max_def + 1
        if not given or len(given) != count * width:
            return None
        found = np.array(given, dtype=np.int64).reshape(count, width)
        if (found < 0).any() or (found > self._rows[:, None]).any():
            raise _Contradiction("the definition levels of a page are impossible")
        if (found.sum(axis=1) != self._rows).any():
            raise _Contradiction("the definition levels of a page contradict its number of rows")
        return found

    def _nulls(self, count: int, levels: Numbers | None) -> Numbers:
        """Returns null counts of the pages, -1 if unknown."""
        given = self._counts(5, count, "null counts")
        column, origin = self._column, self._origin
        total = null_count(column, self._chunk, origin)
        if given is not None:
            if not column.max_def and given.any():
                raise _Contradiction("a required column has null counts above zero")
            if levels is not None and (given != self._rows - levels[:, -1]).any():
                raise _Contradiction("the null counts contradict the definition levels")
            denied = origin.writer.denied
            if column.max_def and "null count" in denied:
                given = None
            elif column.max_def and "null count above zero" in denied:
                given = np.where(given > 0, -1, given)
            elif total is not None and int(given.sum()) != total:
                raise _Contradiction("the pages' null counts do not add up to the chunk's")
        if given is None:
            given = np.full(count, 0 if total == 0 else -1, dtype=np.int64)
        return given

    def _check_null_pages(self, null_pages: list[bool], mins: list[bytes], maxs: list[bytes], nulls: Numbers) -> None:
        """Check pages declared all null: they must be so in every respect; then their null count is their row count."""
        trusted = not {"null count", "null count above zero"} & self._origin.writer.denied.keys()
        total = null_count(self._column, self._chunk, self._origin)
        for page, is_null in enumerate(null_pages):
            rows = int(self._rows[page])
            if not is_null:
                if nulls[page] == rows:
                    raise _Contradiction("a page with only nulls is marked as having values")
                continue
            if not self._column.max_def:
                raise _Contradiction("a required column has a page of nulls")
            if mins[page] or maxs[page]:
                raise _Contradiction("a page of nulls has bounds")
            if total == 0 or nulls[page] not in (-1, rows):
                raise _Contradiction("a page of nulls has a null count that is not its number of rows")
            # Without any null count this is what writers leave behind if statistics are off (arrow-rs#6010).
            if trusted and (nulls[page] == rows or total is not None):
                nulls[page] = rows

    def _nans(self, count: int, nulls: Numbers) -> Numbers:
        """Returns NaN counts of the pages, -1 if unknown."""
        unknown = np.full(count, -1, dtype=np.int64)
        if not self._column.is_float:
            return unknown
        total = nan_count(self._chunk, self._origin)
        given = self._counts(8, count, "NaN counts")
        if given is None or "NaN count" in self._origin.writer.denied:
            return np.zeros(count, dtype=np.int64) if total == 0 else unknown
        if (given > self._rows - np.maximum(nulls, 0)).any():
            raise _Contradiction("the NaN counts in the column index are impossible")
        if total is not None and int(given.sum()) != total:
            raise _Contradiction("the pages' NaN counts do not add up to the chunk's")
        return given

    def _bounds(
        self, null_pages: list[bool], mins: list[bytes], maxs: list[bytes], order: int, flags: npt.NDArray[np.uint8]
    ) -> tuple[list[Value], list[Value]]:
        """Returns bounds in the table's type; sets the flags of the known ones."""
        column = self._column
        zero: Value = b"" if column.dtype.order == "bytes" else 0.0 if column.dtype.is_float else 0
        lows, highs = [zero] * len(mins), [zero] * len(mins)
        decode = column.decode
        denied = self._origin.writer.denied
        if decode is None or order not in column.orders:
            return lows, highs
        if "bounds" in denied or (column.is_binary and "binary bounds" in denied):
            return lows, highs
        legacy = column.gregorian_from if self._origin.legacy_calendar else None
        for page, is_null in enumerate(null_pages):
            raw_low, raw_high = mins[page], maxs[page]
            if is_null or (not raw_high and not self._may_be_empty()):
                continue
            low, high = decode(raw_low), decode(raw_high)
            if low is None or high is None or low != low or high != high:
                continue  # not a value of the type, or NaN
            if low > high:  # type: ignore[operator]  # one order per type
                raise _Contradiction("the minimum of a page is greater than its maximum")
            lower, upper = lower_bound(column, low)[0], upper_bound(column, high)[0]
            if lower is not None and not (legacy and low < legacy[0]):  # type: ignore[operator]  # integers
                lows[page] = lower
                flags[page] |= LOW_KNOWN
            if upper is not None and not (legacy and high < legacy[1]):  # type: ignore[operator]  # integers
                highs[page] = upper
                flags[page] |= HIGH_KNOWN
        return lows, highs

    def _may_be_empty(self) -> bool:
        """Returns whether empty bounds are the empty string and not a writer's way to state nothing: the chunk has one
        too."""
        lowest = self._stats.min
        return lowest is not None and from_bound(self._column.dtype, lowest) == b""

    def _check_against_chunk(self, lows: list[Value], highs: list[Value], flags: npt.NDArray[np.uint8]) -> None:
        """Check that no page lies completely outside of the chunk's bounds, and that none has bounds in a chunk of
        nulls."""
        stats, dtype = self._stats, self._column.dtype
        both = np.flatnonzero((flags & LOW_KNOWN != 0) & (flags & HIGH_KNOWN != 0)).tolist()
        if both and (stats.nan == "all" or stats.null_count == self._chunk.num_values):
            raise _Contradiction("pages have bounds where the chunk has no values")
        low = None if stats.min is None else from_bound(dtype, stats.min)
        high = None if stats.max is None else from_bound(dtype, stats.max)
        for page in both:
            if (low is not None and highs[page] < low) or (high is not None and lows[page] > high):  # type: ignore[operator]  # one order per type
                raise _Contradiction("the bounds of a page are outside the bounds of the chunk")
