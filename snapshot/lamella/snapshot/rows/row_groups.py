"""Reading row groups: the byte ranges of the selected rows, few requests for them, and their decoding.

The filter's columns are read first, the others only where rows match.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.deletes import remaining
from lamella.snapshot.errors import BlockReplaced, CorruptParquet
from lamella.snapshot.parquet import thrift
from lamella.snapshot.parquet.footer import Chunk
from lamella.snapshot.parquet.page_index import ChunkPages
from lamella.snapshot.parquet.thrift import INT, Spec, ThriftError
from lamella.snapshot.parquet.writer import require_gregorian
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.rows.block_file import BlockFile, LeafData, decode, one_leaf
from lamella.snapshot.rows.columns import ReadColumn
from lamella.snapshot.schema.arrow import absent, conform, conform_leaf, repeated
from lamella.snapshot.storage import Store

#: Ranges closer than this are fetched by one request, since another request takes longer than the bytes between.
GAP_BYTES: Final = 16 << 10
#: Maximum size of a request, so that large ranges are fetched in parallel.
REQUEST_BYTES: Final = 8 << 20

#: A page with fewer rows is rarely worth being skipped; and the pages that are skipped have to be this part of the rows
#: (one in so many), or whole chunks are read.
_MIN_PAGE_ROWS: Final = 64
_MIN_SHARE: Final = 16

#: (offset, size), in bytes.
Range = tuple[int, int]


def requests(ranges: Iterable[Range]) -> list[Range]:
    """Return the requests for some ranges: close ranges are merged, large ones are split."""
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


class FetchResult:
    """The bytes of some ranges of one file."""

    def __init__(self, parts: list[tuple[int, bytes]]) -> None:
        self._starts = [offset for offset, _ in parts]
        self._parts = [data for _, data in parts]

    def bytes_of(self, wanted: Range) -> bytes:
        """Return one of the requested ranges."""
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
    """Fetches ranges from a store, up to ``threads`` requests at a time. Safe to share between threads; close it."""

    def __init__(self, store: Store, threads: int) -> None:
        self.store = store
        self._pool = ContextThreadPool(max_workers=threads, thread_name_prefix="lamella-fetch")

    def fetch(self, location: str, ranges: Iterable[Range]) -> FetchResult:
        """Fetch ranges of a file.

        Raises:
            BlockReplaced: the file is shorter than the ranges.
            ObjectNotFound, StoreError: from the store.
        """
        wanted = requests(ranges)
        if len(wanted) < 2:
            return FetchResult([(offset, self._one(location, offset, size)) for offset, size in wanted])
        parts = self._pool.map(lambda request: self._one(location, *request), wanted)
        return FetchResult([(offset, data) for (offset, _), data in zip(wanted, parts, strict=True)])

    def close(self) -> None:
        """Shut down the threads; requests that have not started are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _one(self, location: str, offset: int, size: int) -> bytes:
        data = self.store.read_range(location, offset, size)
        if len(data) != size:
            raise BlockReplaced(f"{location} ends before the bytes that its footer names", location=location)
        return data


Rows = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]

#: PageHeader fields: the type, then the headers of data pages of version 1 and 2, which begin with the number of
#: values.
_PAGE_HEADER: Final[Spec] = {1: INT, 5: {1: INT}, 8: {1: INT}}


class ChunkRead(msgspec.Struct, frozen=True):
    """A column of a row group, ready to be fetched. ``rows``: the selected rows, ascending; None: all.

    ``pages``: the numbers of the pages that contain them; None when the whole chunk of each leaf is read. ``mask``: the
    selected rows as Arrow's booleans where most rows are selected, since a mask is then faster than positions.
    """

    file: BlockFile
    group: int
    wanted: ReadColumn
    leaves: range
    rows: Rows | None
    chunk_pages: ChunkPages | None
    pages: Rows | None
    mask: Any = None

    @property
    def ranges(self) -> list[Range]:
        """Return the byte ranges to fetch."""
        if self.chunk_pages is None or self.pages is None:
            return [_whole(chunk) for chunk in self._chunks()]
        return _page_ranges(self.chunk_pages, self.pages)

    def values(self, fetched: FetchResult) -> Any:
        """Return the selected rows as an Arrow array of the table's type.

        Raises:
            CorruptParquet: the bytes contradict the footer or the page index.
            SchemaMismatch: the values do not fit the table's type.
        """
        count = self.file.group_rows[self.group]
        wanted = count if self.rows is None else len(self.rows)
        if not self.leaves:
            return self._absent(wanted)
        if self.chunk_pages is not None and self.pages is not None:
            return self._conformed(_take(self._from_pages(fetched, self.chunk_pages, self.pages), *self._positions()))
        values = self._from_chunks(fetched, count)
        return self._conformed(_take(values, self.rows, count) if self.mask is None else values.filter(self.mask))

    def _absent(self, count: int) -> Any:
        constant = self.file.constants.get(self.wanted.column.id)
        if constant is not None:
            return repeated(constant, count, self.wanted.field.type)
        if self.wanted.leaf is None or self.wanted.leaf.id == self.wanted.column.id:
            return absent(self.wanted.column, count)
        return pa.nulls(count, self.wanted.field.type)

    def _chunks(self) -> list[Chunk]:
        chunks = self.file.footer.metadata.row_groups[self.group].chunks
        for leaf in self.leaves:
            self.file.check_readable(self.group, leaf)
        return [chunks[leaf] for leaf in self.leaves]

    def _from_chunks(self, fetched: FetchResult, count: int) -> Any:
        leaves = self.file.footer.metadata.schema.leaves
        data = [
            LeafData(leaves[leaf], chunk.codec, chunk.num_values, (fetched.bytes_of(_whole(chunk)),))
            for leaf, chunk in zip(self.leaves, self._chunks(), strict=True)
        ]
        path = self.file.path(self.leaves[0])
        elements = one_leaf(path) if self.wanted.leaf is not None else path[0].all_data()
        return decode(elements, data, count)

    def _from_pages(self, fetched: FetchResult, chunk_pages: ChunkPages, pages: Rows) -> Any:
        (leaf,) = self.leaves
        (chunk,) = self._chunks()
        parts = [fetched.bytes_of(part) for part in _page_ranges(chunk_pages, pages)]
        counts = chunk_pages.row_counts[pages]
        data = parts[1:] if chunk_pages.dictionary is not None else parts
        self._check_pages(b"".join(data), chunk_pages.sizes[pages], counts)
        total = int(counts.sum())
        file_leaf = self.file.footer.metadata.schema.leaves[leaf]
        return decode(one_leaf(self.file.path(leaf)), [LeafData(file_leaf, chunk.codec, total, tuple(parts))], total)

    def _check_pages(self, data: bytes, sizes: Rows, counts: Rows) -> None:
        """Check the number of values per page: a wrong page index would silently return other rows."""
        at = 0
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            try:
                header = thrift.decode(data, _PAGE_HEADER, at)
            except ThriftError as error:
                raise self._corrupt(f"a page header cannot be decoded: {error}") from error
            kind: dict[int, int] = header.get(5) or header.get(8) or {}
            values = kind.get(1)
            if values != count:
                raise self._corrupt(f"a page has {values} values where its index says {count}")
            at += size

    def _corrupt(self, what: str) -> CorruptParquet:
        name = self.wanted.field.name
        return CorruptParquet(f"{self.file.location}, column {name!r}: {what}", location=self.file.location)

    def _positions(self) -> tuple[Rows | None, int]:
        """Return the positions of the selected rows among the rows of the pages that were read."""
        chunk_pages, pages, rows = self.chunk_pages, self.pages, self.rows
        if chunk_pages is None or pages is None or rows is None:
            return None, 0
        counts = chunk_pages.row_counts[pages]
        starts = np.cumsum(counts) - counts
        page = np.searchsorted(chunk_pages.first_rows[pages], rows, side="right") - 1
        return starts[page] + rows - chunk_pages.first_rows[pages][page], int(counts.sum())

    def _conformed(self, values: Any) -> Any:
        wanted = self.wanted
        if self.file.has_old_calendar:
            require_gregorian(values, self.file.location, wanted.column.name)
        if wanted.leaf is not None:
            for _ in wanted.leaf.path[1:]:
                (values,) = values.flatten()  # the only remaining field of the struct; null where the struct is null
            if wanted.leaf.dtype.name == "variant":
                return values  # its metadata: filters only ask where it is null
            return conform_leaf(values, wanted.leaf.dtype, wanted.leaf.name)
        name = self.file.written_name(wanted.column)
        return conform(values, name, wanted.column, self.file.written, self.file.schema)


def chunk_reads(file: BlockFile, group: int, wanted: list[ReadColumn], rows: Rows | None) -> list[ChunkRead]:
    """Return how to read some columns of a row group: by pages where possible and useful, otherwise as whole chunks."""
    count = file.group_rows[group]
    found: dict[int, range] = {}
    for one in wanted:
        if one.leaf is None:
            found[one.key] = file.column_leaves(one.column)
        else:
            index = file.leaf_index(one.leaf)
            found[one.key] = range(0) if index is None else range(index, index + 1)
    chunk_pages: dict[int, ChunkPages | None] = {}
    mask = None
    if rows is not None and not _may_skip_pages(rows, count):
        mask = _mask(rows, count)
    elif rows is not None:
        flat = [one.key for one in wanted if one.leaf is not None and found[one.key]]
        known = file.pages(group, [found[key].start for key in flat], len(rows))
        chunk_pages = dict(zip(flat, known, strict=True))
    reads = []
    for one in wanted:
        pages = chunk_pages.get(one.key)
        numbers = None
        if pages is not None and rows is not None:
            numbers = np.unique(np.searchsorted(pages.first_rows, rows, side="right") - 1)
        reads.append(ChunkRead(file, group, one, found[one.key], rows, pages, numbers, mask))
    return reads


def _may_skip_pages(rows: Rows, count: int) -> bool:
    """Return whether enough rows next to each other are left out that pages between them may be skipped."""
    if (count - len(rows)) * _MIN_SHARE < count:
        return False
    gaps = np.diff(rows, prepend=-1, append=count) - 1
    return int(gaps[gaps >= _MIN_PAGE_ROWS].sum()) * _MIN_SHARE >= count


def _mask(rows: Rows, count: int) -> Any:
    left = np.zeros(count, dtype=bool)
    left[rows] = True
    return pa.BooleanArray.from_buffers(pa.bool_(), count, [None, pa.py_buffer(np.packbits(left, bitorder="little"))])


def _whole(chunk: Chunk) -> Range:
    return chunk.offset, chunk.compressed_size


def _page_ranges(chunk_pages: ChunkPages, pages: Rows) -> list[Range]:
    """Return the dictionary page if there is one, then each run of adjacent pages."""
    heads = np.flatnonzero(np.diff(pages, prepend=-2) != 1)
    ends = np.append(heads[1:], len(pages)) - 1
    first, last = pages[heads], pages[ends]
    sizes = chunk_pages.offsets[last] + chunk_pages.sizes[last] - chunk_pages.offsets[first]
    runs = list(zip(chunk_pages.offsets[first].tolist(), sizes.tolist(), strict=True))
    return runs if chunk_pages.dictionary is None else [chunk_pages.dictionary, *runs]


def _take(values: Any, rows: Rows | None, count: int) -> Any:
    """Return some rows of an array of ``count`` rows, ascending."""
    if rows is None or len(rows) == count:
        return values
    if not len(rows):
        return values.slice(0, 0)
    if rows[-1] - rows[0] + 1 == len(rows):
        return values.slice(int(rows[0]), len(rows))
    return values.take(pa.array(rows))


class ReadSpec(msgspec.Struct, frozen=True):
    """What a scan reads of every row group: output columns, the filter, and the filter's columns."""

    output: tuple[ReadColumn, ...]
    schema: pa.Schema
    filter: RowFilter
    filter_columns: tuple[ReadColumn, ...]


class RowGroupRead(msgspec.Struct, frozen=True):
    """A part of a block. ``rows``: the rows of the row group that may match, None: all. ``all_match``: they are proven
    to.

    ``certain``: number of other rows that are proven to match (only when rows are counted).
    """

    file: BlockFile
    group: int
    rows: Rows | None
    all_match: bool
    certain: int = 0

    @property
    def row_count(self) -> int:
        """The number of rows that may match."""
        return self.file.group_rows[self.group] if self.rows is None else len(self.rows)

    def table(self, reading: ReadSpec, fetcher: Fetcher, *, limit: int | None = None) -> pa.Table:
        """Return the matching rows, the first ``limit`` of them.

        Raises:
            BlockReplaced, CorruptParquet, SchemaMismatch, EncryptedParquet, ObjectNotFound, StoreError: the file cannot
                be read.
            EvaluationFailed: the filter cannot be computed for some row.
        """
        known: dict[int, Any] = {}
        rows, count = self.rows, self.row_count
        if not self.all_match:
            known = self._load(reading.filter_columns, rows, fetcher)
            selected = np.flatnonzero(reading.filter.matches(known, count))[:limit]
            if len(selected) < count:
                rows, count = selected if rows is None else rows[selected], len(selected)
                taken = pa.array(selected)
                known = {key: values.take(taken) for key, values in known.items()}
        elif limit is not None and limit < count:
            rows, count = np.arange(limit, dtype=np.int64) if rows is None else rows[:limit], limit
        if count:
            others = {one.key: one for one in reading.output if one.key not in known}
            known |= self._load(list(others.values()), rows, fetcher)
        self.file.check_unchanged()
        if not count:
            return reading.schema.empty_table()
        return pa.Table.from_arrays([known[one.key] for one in reading.output], schema=reading.schema)

    def count(self, reading: ReadSpec, fetcher: Fetcher) -> int:
        """Return the number of matching rows; raises as :meth:`table`."""
        if self.all_match:
            return self.certain + self.row_count
        known = self._load(reading.filter_columns, self.rows, fetcher)
        found = int(np.count_nonzero(reading.filter.matches(known, self.row_count)))
        self.file.check_unchanged()
        return self.certain + found

    def _load(self, wanted: Sequence[ReadColumn], rows: Rows | None, fetcher: Fetcher) -> dict[int, Any]:
        reads = chunk_reads(self.file, self.group, list(wanted), rows)
        fetched = fetcher.fetch(self.file.location, [part for read in reads for part in read.ranges])
        return {read.wanted.key: read.values(fetched) for read in reads}


def row_group_reads(file: BlockFile, *, limit: int | None, counting: bool = False) -> list[RowGroupRead]:
    """Return the parts of a block that may contain matching rows, without deleted rows; ``limit``: maximum number of
    matching rows needed.

    ``counting``: rows that are proven to match are counted separately and not read.
    """
    block = file.block
    every = block.verdict == "ALL"
    known = block.pages
    made: list[RowGroupRead] = []
    live = _live_rows(file)
    if known is None or known.whole:
        made = [
            RowGroupRead(file, group, np.flatnonzero(live[group]) if group in live else None, every)
            for group, rows in enumerate(file.group_rows)
            if rows
        ]
    else:
        matching = known.all_match or [False] * len(known.row_group)
        ranges = zip(known.row_group, known.first_row, known.row_count, matching, strict=True)
        by_group: dict[int, list[tuple[int, int, bool]]] = {}
        for group, first, rows, sure in ranges:
            by_group.setdefault(group, []).append((first, rows, sure))
        for group, parts in by_group.items():
            sure = every or all(proven for _, _, proven in parts)
            apart = counting and not sure
            left = live.get(group)
            count = file.group_rows[group]
            certain = _row_count([part for part in parts if part[2]], left, count) if apart else 0
            wanted = _rows_of([part for part in parts if not (apart and part[2])], left, count)
            made.append(RowGroupRead(file, group, wanted, sure, certain))
    made = [piece for piece in made if piece.row_count or piece.certain]
    return [_limited(piece, limit) for piece in made] if limit is not None else made


def _live_rows(file: BlockFile) -> dict[int, _Mask]:
    """Return which rows are left of each row group of which some are deleted."""
    found: dict[int, _Mask] = {}
    start = 0
    for group, count in enumerate(file.group_rows):
        mask = remaining(file.deleted, start, count)
        if mask is not None:
            found[group] = mask
        start += count
    return found


def _selected(parts: Sequence[tuple[int, int, bool]], left: _Mask | None, count: int) -> _Mask:
    """Return which of ``count`` rows are in some ranges (first row and number of rows) and in ``left``, None: all."""
    found = np.zeros(count, dtype=bool)
    for first, rows, _ in parts:
        found[first : first + rows] = True
    return found if left is None else found & left


def _row_count(parts: Sequence[tuple[int, int, bool]], left: _Mask | None, count: int) -> int:
    return int(np.count_nonzero(_selected(parts, left, count)))


def _rows_of(parts: Sequence[tuple[int, int, bool]], left: _Mask | None, count: int) -> Rows | None:
    """Return the positions of the selected rows; None: all of them."""
    selected = _selected(parts, left, count)
    return None if selected.all() else np.flatnonzero(selected)


def _limited(piece: RowGroupRead, limit: int) -> RowGroupRead:
    if not piece.all_match or piece.row_count <= limit:
        return piece
    rows = np.arange(limit, dtype=np.int64) if piece.rows is None else piece.rows[:limit]
    return msgspec.structs.replace(piece, rows=rows)
