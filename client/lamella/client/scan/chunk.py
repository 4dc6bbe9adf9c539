"""Reading one column of one row group: which bytes hold the wanted rows, and the rows out of those bytes."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.client.scan.block_file import BlockFile
from lamella.client.scan.columns import Wanted
from lamella.client.scan.fetch import Fetched, Range
from lamella.client.scan.miniature import LeafData, decode, one_leaf
from lamella.snapshot.errors import CorruptParquet
from lamella.snapshot.parquet import thrift
from lamella.snapshot.parquet.metadata import Chunk
from lamella.snapshot.parquet.page_index import ChunkPages
from lamella.snapshot.parquet.thrift import INT, Spec, ThriftError
from lamella.snapshot.rows.conform import absent, conform, conform_leaf

Rows = npt.NDArray[np.int64]

#: PageHeader: type, then the headers of a data page of version 1 and 2, each beginning with the number of values.
_PAGE_HEADER: Final[Spec] = {1: INT, 5: {1: INT}, 8: {1: INT}}


class ChunkRead(msgspec.Struct, frozen=True):
    """A column of a row group, ready to be fetched. ``rows``: those wanted, ascending; None: all.

    ``pages`` are the numbers of the pages that hold them, None when the whole chunk of each leaf is read.
    """

    file: BlockFile
    group: int
    wanted: Wanted
    leaves: range
    rows: Rows | None
    places: ChunkPages | None
    pages: Rows | None

    @property
    def ranges(self) -> list[Range]:
        """The bytes to fetch."""
        if self.places is None or self.pages is None:
            return [_whole(chunk) for chunk in self._chunks()]
        return _page_ranges(self.places, self.pages)

    def values(self, fetched: Fetched) -> Any:
        """The wanted rows as an Arrow array of the table's type.

        Raises:
            CorruptParquet: the bytes are not what the footer and the page index say.
            SchemaMismatch: the values do not fit the table's type.
        """
        count = self.file.group_rows[self.group]
        wanted = count if self.rows is None else len(self.rows)
        if not self.leaves:
            return self._absent(wanted)
        if self.places is not None and self.pages is not None:
            return self._conformed(_taken(self._from_pages(fetched, self.places, self.pages), *self._positions()))
        return self._conformed(_taken(self._from_chunks(fetched, count), self.rows, count))

    def _absent(self, count: int) -> Any:
        if self.wanted.leaf is None or self.wanted.leaf.id == self.wanted.column.id:
            return absent(self.wanted.column, count)
        return pa.nulls(count, self.wanted.field.type)

    def _chunks(self) -> list[Chunk]:
        chunks = self.file.footer.metadata.row_groups[self.group].chunks
        for leaf in self.leaves:
            self.file.check_readable(self.group, leaf)
        return [chunks[leaf] for leaf in self.leaves]

    def _from_chunks(self, fetched: Fetched, count: int) -> Any:
        leaves = self.file.footer.metadata.schema.leaves
        data = [
            LeafData(leaves[leaf], chunk.codec, chunk.num_values, (fetched.bytes_of(_whole(chunk)),))
            for leaf, chunk in zip(self.leaves, self._chunks(), strict=True)
        ]
        path = self.file.path(self.leaves[0])
        elements = one_leaf(path) if self.wanted.leaf is not None else path[0].all_data()
        return decode(elements, data, count)

    def _from_pages(self, fetched: Fetched, places: ChunkPages, pages: Rows) -> Any:
        (leaf,) = self.leaves
        (chunk,) = self._chunks()
        parts = [fetched.bytes_of(part) for part in _page_ranges(places, pages)]
        counts = places.row_counts[pages]
        data = parts[1:] if places.dictionary is not None else parts
        self._check_pages(b"".join(data), places.sizes[pages], counts)
        total = int(counts.sum())
        file_leaf = self.file.footer.metadata.schema.leaves[leaf]
        return decode(one_leaf(self.file.path(leaf)), [LeafData(file_leaf, chunk.codec, total, tuple(parts))], total)

    def _check_pages(self, data: bytes, sizes: Rows, counts: Rows) -> None:
        """An index that is wrong about the rows of a page would silently give other rows."""
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
        """Where the wanted rows are among the rows of the pages that were read."""
        places, pages, rows = self.places, self.pages, self.rows
        if places is None or pages is None or rows is None:
            return None, 0
        counts = places.row_counts[pages]
        starts = np.cumsum(counts) - counts
        page = np.searchsorted(places.first_rows[pages], rows, side="right") - 1
        return starts[page] + rows - places.first_rows[pages][page], int(counts.sum())

    def _conformed(self, values: Any) -> Any:
        wanted = self.wanted
        if wanted.leaf is not None:
            for _ in wanted.leaf.path[1:]:
                (values,) = values.flatten()  # the one field that is left of the struct; null where the struct is
            return conform_leaf(values, wanted.leaf.dtype, wanted.leaf.name)
        name = self.file.written_name(wanted.column)
        return conform(values, name, wanted.column, self.file.written, self.file.schema)


def chunk_reads(file: BlockFile, group: int, wanted: list[Wanted], rows: Rows | None) -> list[ChunkRead]:
    """How to read some columns of a row group: by pages where that is possible and helps, else whole."""
    count = file.group_rows[group]
    found: dict[int, range] = {}
    for one in wanted:
        if one.leaf is None:
            found[one.key] = file.column_leaves(one.leaves)
        else:
            index = file.leaf_index(one.leaf)
            found[one.key] = range(0) if index is None else range(index, index + 1)
    places: dict[int, ChunkPages | None] = {}
    if rows is not None and len(rows) < count:
        flat = [one.key for one in wanted if one.leaf is not None and found[one.key]]
        known = file.pages(group, [found[key].start for key in flat], len(rows))
        places = dict(zip(flat, known, strict=True))
    reads = []
    for one in wanted:
        pages = places.get(one.key)
        numbers = None
        if pages is not None and rows is not None:
            numbers = np.unique(np.searchsorted(pages.first_rows, rows, side="right") - 1)
        reads.append(ChunkRead(file, group, one, found[one.key], rows, pages, numbers))
    return reads


def _whole(chunk: Chunk) -> Range:
    return chunk.offset, chunk.compressed_size


def _page_ranges(places: ChunkPages, pages: Rows) -> list[Range]:
    """The dictionary when there is one, then each run of adjacent pages."""
    heads = np.flatnonzero(np.diff(pages, prepend=-2) != 1)
    ends = np.append(heads[1:], len(pages)) - 1
    first, last = pages[heads], pages[ends]
    sizes = places.offsets[last] + places.sizes[last] - places.offsets[first]
    runs = list(zip(places.offsets[first].tolist(), sizes.tolist(), strict=True))
    return runs if places.dictionary is None else [places.dictionary, *runs]


def _taken(values: Any, rows: Rows | None, count: int) -> Any:
    """Some rows of an array of ``count``; ascending."""
    if rows is None or len(rows) == count:
        return values
    if not len(rows):
        return values.slice(0, 0)
    if rows[-1] - rows[0] + 1 == len(rows):
        return values.slice(int(rows[0]), len(rows))
    return values.take(pa.array(rows))
