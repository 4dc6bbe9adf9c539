"""Blocks of files whose footers have one shape: the rules of ``metadata``, ``trust`` and ``block`` for all at once.

Only what is plain is done here: counts that fit each other, bounds that are values of their type and the right way
round, places inside the file. Whatever is not plain in a file, be it an error, a contradiction or only rare, leaves
that file to :func:`lamella.snapshot.parquet.block.block_of`, which says what it means. So nothing is decided here that
is not decided there too; a test holds the two together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.layout.store import ObjectStat
from lamella.snapshot.manifest import Block, ColumnMeta
from lamella.snapshot.parquet.alike_columns import AlikeColumn, Flags, Lengths, Unfit
from lamella.snapshot.parquet.collated import collation_problem
from lamella.snapshot.parquet.metadata import FileMetadata, read_metadata, schema_end
from lamella.snapshot.parquet.plan import plan
from lamella.snapshot.parquet.stencil import Numbers, Reading, Stencil
from lamella.snapshot.parquet.thrift import ThriftError
from lamella.snapshot.parquet.trust import Origin
from lamella.snapshot.parquet.writer import legacy_calendar, writer_of
from lamella.snapshot.schema import Schema
from lamella.snapshot.stats.column import ColumnStats
from lamella.snapshot.stats.projection import absent

_T = TypeVar("_T")

#: Fewer files than this are decoded one by one: a stencil takes hundreds of NumPy steps, however few files there are.
FEWEST: Final = 48
#: Shapes that are looked for among the files of one call.
_SHAPES: Final = 6
#: Larger counts and sizes are left to the plain path, so that those of 2^16 chunks add up to less than 2^62.
_MOST: Final = 1 << 45
_MOST_CHUNKS: Final = 1 << 16


def alike_blocks(
    stats: Sequence[ObjectStat], footers: Sequence[bytes], schema: Schema, *, fewest: int = FEWEST
) -> list[Block | None]:
    """The blocks of files with these footers in a table of ``schema``; None: the file has to be looked at alone."""
    found: list[Block | None] = [None] * len(footers)
    left = list(range(len(footers)))
    for _ in range(_SHAPES):
        if len(left) < fewest:
            break
        first, left = left[0], left[1:]
        shape = _shape(stats[first], footers[first], schema)
        if shape is None:
            continue
        like = [index for index in left if footers[index].startswith(shape.prefix)]
        if len(like) < fewest:
            continue
        for index, block in shape.blocks(like, stats, footers):
            found[index] = block
        left = [index for index in left if found[index] is None]
    return found


def _shape(stat: ObjectStat, footer: bytes, schema: Schema) -> _Shape | None:
    """The shape of a footer; None when no file like this one is plain."""
    try:
        sample = read_metadata(footer, stat.size_bytes - 8 - len(footer))
        end, field = schema_end(footer)
        shape = _Shape(footer[:end], Stencil(footer, end, field), sample, schema)
    except (ThriftError, LamellaError):
        return None
    chunks = [chunk for group in sample.row_groups for chunk in group.chunks]
    if not 0 < len(chunks) <= _MOST_CHUNKS or any(chunk.encrypted for chunk in chunks):
        return None
    if writer_of(sample.created_by).denied_statistics or legacy_calendar(sample.properties):
        return None
    if collation_problem(sample.properties) is not None:
        return None
    return shape


class _Places:
    """The chunks of one leaf in one row group, by file: where they are and how long."""

    def __init__(self, reading: Reading, group: int, leaf: int, data_end: Numbers) -> None:
        """Raises Unfit when a field that every chunk has is missing."""
        numbers = reading.numbers
        of_chunk = (4, group, 1, leaf)
        try:
            self.values, self.uncompressed, self.compressed, offset = (
                numbers[(*of_chunk, 3, member)] for member in (5, 6, 7, 9)
            )
        except KeyError:
            raise Unfit from None
        dictionary = numbers.get((*of_chunk, 3, 11))
        if dictionary is not None:
            offset = np.where((dictionary > 0) & (dictionary < offset), dictionary, offset)
        self.offset = offset
        self.fits: Flags = (
            (self.values >= 0)
            & (self.uncompressed >= 0)
            & (self.uncompressed < _MOST)
            & (self.compressed >= 0)
            & (offset >= 4)
            & (offset + self.compressed <= data_end)
        )
        self.indexes: list[tuple[Numbers, Numbers]] = []
        for start, length in (4, 5), (6, 7):
            at, size = numbers.get((*of_chunk, start)), numbers.get((*of_chunk, length))
            if at is not None and size is not None:
                self.fits &= (at >= 4) & (size > 0) & (at + size <= data_end)
                self.indexes.append((at, size))
        self.bloom_size: Numbers | None = None
        bloom = numbers.get((*of_chunk, 3, 14))
        if bloom is not None:
            size = numbers.get((*of_chunk, 3, 15), np.zeros_like(bloom))
            self.fits &= (bloom >= 4) & (size >= 0) & (bloom + size < data_end + (size > 0))
            self.bloom_size = size


class _Shape:
    """A stencil, with the metadata of the file that it was taken from: its constant values are those of all."""

    def __init__(self, prefix: bytes, stencil: Stencil, sample: FileMetadata, schema: Schema) -> None:
        self.prefix = prefix
        self._stencil = stencil
        self._sample = sample
        self._plan = plan(sample.schema, schema)
        self._schema_id = schema.schema_id
        self._origin = Origin(writer_of(sample.created_by), legacy_calendar(sample.properties))

    def blocks(
        self, which: Sequence[int], stats: Sequence[ObjectStat], footers: Sequence[bytes]
    ) -> Iterator[tuple[int, Block]]:
        """The blocks of those files, by their numbers, that have this shape and are plain."""
        start = len(self.prefix)
        reading = self._stencil.lay_over([footers[index][start:] for index in which])
        held = [which[row] for row in reading.rows.tolist()]
        data_end = np.array([stats[index].size_bytes - 8 - len(footers[index]) for index in held], dtype=np.int64)
        try:
            yield from self._blocks(reading, held, data_end, stats, footers)
        except Unfit:
            return

    def _blocks(
        self,
        reading: Reading,
        held: Sequence[int],
        data_end: Numbers,
        stats: Sequence[ObjectStat],
        footers: Sequence[bytes],
    ) -> Iterator[tuple[int, Block]]:
        sample, leaves = self._sample, range(len(self._sample.schema.leaves))
        groups = range(len(sample.row_groups))
        rows = [reading.numbers[(4, group, 3)] for group in groups]
        places = [[_Places(reading, group, leaf, data_end) for leaf in leaves] for group in groups]
        fits: Flags = np.logical_and.reduce([(count > 0) & (count < _MOST) for count in rows])
        for group in groups:
            for leaf, place in zip(sample.schema.leaves, places[group], strict=True):
                fits &= place.fits
                if not (leaf.opaque or leaf.repeated):
                    fits &= place.values == rows[group]
        columns = [
            AlikeColumn(
                column,
                sample,
                self._origin,
                reading,
                [Lengths(rows[group], places[group][column.index].uncompressed) for group in groups],
            )
            for column in self._plan.present
        ]
        for column in columns:
            fits &= column.fits
        chosen = np.flatnonzero(fits)
        row_counts = np.sum([count[chosen] for count in rows], axis=0).tolist()
        group_rows = list(zip(*(count[chosen].tolist() for count in rows), strict=True))
        sizes = np.sum([place.uncompressed[chosen] for of_group in places for place in of_group], axis=0).tolist()
        pages = _page_indexes(places, chosen)
        blooms = _bloom_sizes(places, chosen)
        col_stats = self._col_stats(columns, chosen, row_counts)
        col_metas = self._col_metas(places, chosen)
        codecs = {chunk.codec for group in sample.row_groups for chunk in group.chunks if chunk.codec}
        compression = ",".join(sorted(codecs))
        for position, row in enumerate(chosen.tolist()):
            index = held[row]
            stat = stats[index]
            yield (
                index,
                Block(
                    location=stat.location,
                    row_count=row_counts[position],
                    file_size=stat.size_bytes,
                    block_size=sizes[position],
                    col_stats=col_stats[position],
                    col_metas=col_metas[position],
                    row_group_row_counts=group_rows[position],
                    bloom_filter_index_location=None if blooms is None else stat.location,
                    bloom_filter_index_size=0 if blooms is None else blooms[position],
                    page_index_location=pages[position],
                    compression=compression,
                    content_id=stat.content_id,
                    footer_sha256=hashlib.sha256(footers[index]).hexdigest(),
                    created_by=sample.created_by,
                    schema_id=self._schema_id,
                    by_name=self._plan.by_name,
                ),
            )

    def _col_stats(
        self, columns: Sequence[AlikeColumn], chosen: Numbers, row_counts: Sequence[int]
    ) -> list[dict[int, ColumnStats]]:
        """The statistics of every column of the table, by file."""
        ids = [column.column_id for column in self._plan.present]
        found = [
            dict(zip(ids, stats, strict=True))
            for stats in _by_file([column.stats(chosen) for column in columns], len(chosen))
        ]
        for leaf in self._plan.absent:
            for stats, row_count in zip(found, row_counts, strict=True):
                stats[leaf.id] = absent(leaf, row_count)
        return found

    def _col_metas(
        self, places: Sequence[Sequence[_Places]], chosen: Numbers
    ) -> list[dict[int, tuple[ColumnMeta, ...]]]:
        """Where the chunks of the columns are, by file."""
        columns = [column for column in self._plan.present if not column.opaque]
        ids = [column.column_id for column in columns]
        metas: list[list[tuple[ColumnMeta, ...]]] = []
        for column in columns:
            of_groups = []
            for of_group in places:
                place = of_group[column.index]
                parts = (place.offset, place.compressed, place.values)
                of_groups.append(list(map(ColumnMeta, *(part[chosen].tolist() for part in parts))))
            metas.append(list(zip(*of_groups, strict=True)))
        return [dict(zip(ids, of_file, strict=True)) for of_file in _by_file(metas, len(chosen))]


def _by_file(columns: Sequence[Sequence[_T]], files: int) -> Iterable[tuple[_T, ...]]:
    """Values by column as values by file."""
    return zip(*columns, strict=True) if columns else [()] * files


def _page_indexes(places: Sequence[Sequence[_Places]], chosen: Numbers) -> Sequence[tuple[int, int] | None]:
    """The one range of bytes of each file that holds its column and offset indexes."""
    found = [index for of_group in places for place in of_group for index in place.indexes]
    if not found:
        return [None] * len(chosen)
    starts = np.minimum.reduce([at[chosen] for at, _ in found])
    ends = np.maximum.reduce([at[chosen] + size[chosen] for at, size in found])
    return list(zip(starts.tolist(), (ends - starts).tolist(), strict=True))


def _bloom_sizes(places: Sequence[Sequence[_Places]], chosen: Numbers) -> list[int] | None:
    """The sizes of the bloom filters of files with one row group; None: there are none."""
    if len(places) != 1:
        return None
    sizes = [place.bloom_size[chosen] for place in places[0] if place.bloom_size is not None]
    if not sizes:
        return None
    found: list[int] = np.sum(sizes, axis=0).tolist()
    return found
