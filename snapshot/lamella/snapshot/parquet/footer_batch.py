"""Decodes blocks of files whose footers have one shape: applies the rules for footers to all of them at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.manifest import Block, ColumnMeta
from lamella.snapshot.parquet.columns import PlannedColumn, plan
from lamella.snapshot.parquet.footer import Chunk, FileMetadata, read_metadata, schema_end
from lamella.snapshot.parquet.footer_template import FooterTemplate, Numbers, Path, Reading, Texts
from lamella.snapshot.parquet.schema import DOUBLE, FIXED, FLOAT, INT32, INT64, FileLeaf, collation_problem
from lamella.snapshot.parquet.statistics_rules import Origin, chunk_stats
from lamella.snapshot.parquet.thrift import Fields, ThriftError
from lamella.snapshot.parquet.writer import legacy_calendar, writer_of
from lamella.snapshot.schema import Schema
from lamella.snapshot.stats.bound import MAX_BOUND_BYTES, to_bounds
from lamella.snapshot.stats.column import ColumnStats, Nan, absent, merge
from lamella.snapshot.storage.store import ObjectStat

Flags = npt.NDArray[np.bool_]
#: Of Statistics: null_count, the bounds, whether they are exact, nan_count.
_NULLS, _MAX, _MIN, _MAX_EXACT, _MIN_EXACT, _NANS = 3, 5, 6, 7, 8, 9
_WORD: Final = 8
#: Bytes of the widest decimals.
_WIDEST: Final = 16
_NUMBERS: Final = {INT32: "<i4", INT64: "<i8", FLOAT: "<f4", DOUBLE: "<f8"}


class Unfit(Exception):
    """The column is plain in no file of this shape."""


class Lengths(msgspec.Struct, frozen=True):
    """A column's chunks in one row group: rows, and uncompressed bytes, by file."""

    rows: Numbers
    size_bytes: Numbers


class BatchColumn:
    """One column of the table in many files: ``fits`` marks the files in which it is plain."""

    def __init__(
        self, column: PlannedColumn, sample: FileMetadata, origin: Origin, reading: Reading, groups: Sequence[Lengths]
    ) -> None:
        """``sample`` is a file of the shape, ``groups`` what is known of its row groups; no row group is empty.

        Raises:
            Unfit: it is plain in no file.
        """
        self.fits: Flags = np.ones(len(reading.rows), dtype=bool)
        self._column = column
        self._origin = origin
        self._reading = reading
        self._groups = groups
        self._chunks = [group.chunks[column.index] for group in sample.row_groups]
        orders = sample.column_orders
        self._order = orders[column.index] if len(orders) == len(sample.schema.leaves) else 0
        self._is_simple = self._has_simple_bounds()
        self._numbers = None
        if self._is_simple:
            for number in range(len(groups)):
                self._check_counts(number)
            self._numbers = self._number_bounds(sample.schema.leaves[column.index])
        if column.must_have_no_null:
            self._check_no_nulls()

    def stats(self, chosen: Numbers) -> list[ColumnStats]:
        """Returns the statistics in the chosen files, which fit."""
        if self._numbers is not None:
            low, high = self._numbers
            return self._simple(chosen, low[chosen].tolist(), high[chosen].tolist())
        if self._is_simple and self._column.is_bytes:
            return self._simple_texts(chosen)
        return [self._one(row) for row in chosen.tolist()]

    def _field(self, group: int, *members: int) -> Path:
        return (4, group, 1, self._column.index, 3, *members)

    def _check_counts(self, group: int) -> None:
        """Restrict ``fits`` to files whose counts of a row group are consistent and leave a number."""
        column, numbers, count = self._column, self._reading.numbers, self._groups[group].rows
        nulls = numbers.get(self._field(group, 12, _NULLS))
        if nulls is not None:
            self.fits &= (nulls >= 0) & (nulls < count) if column.max_def else nulls == 0
            levels = self._chunks[group].definition_levels
            if len(levels) == column.max_def + 1:
                given = [numbers[self._field(group, 16, 3, level)] for level in range(len(levels))]
                self.fits &= (np.sum(given, axis=0) != count) | (nulls == count - given[-1])
        nans = numbers.get(self._field(group, 12, _NANS))
        if nans is not None and column.is_float:
            self.fits &= (nans >= 0) & (nans < count - (0 if nulls is None else nulls))

    def _check_no_nulls(self) -> None:
        """Restrict ``fits`` to files in which no row group can have a null."""
        for group in range(len(self._groups)):
            nulls = self._reading.numbers.get(self._field(group, 12, _NULLS))
            if nulls is None:
                raise Unfit
            self.fits &= nulls == 0

    def _has_simple_bounds(self) -> bool:
        """Returns whether every row group has both bounds, trusted, of the table's own type, and with equal flags."""
        column = self._column
        if column.opaque or column.repeated or column.decode is None or column.convert is not None:
            return False
        given = [chunk.statistics or {} for chunk in self._chunks]
        flags = {(each.get(_MIN_EXACT) is True, each.get(_MAX_EXACT) is True) for each in given}
        return self._order in column.orders and len(flags) == 1 and all({_MIN, _MAX} <= each.keys() for each in given)

    def _number_bounds(self, leaf: FileLeaf) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
        """Returns the bounds of all row groups together; None if the type is not supported here."""
        found: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []
        for group in range(len(self._groups)):
            sides = []
            for member in (_MIN, _MAX):
                text = self._reading.texts[self._field(group, 12, member)]
                made = _numbers_of(leaf, text, self._reading)
                if made is None:
                    return None
                values, right_width = made
                self.fits &= right_width
                if leaf.dtype.order != "float":
                    lowest, highest = leaf.dtype.int_range
                    limits = np.iinfo(values.dtype)
                    self.fits &= (values >= max(lowest, limits.min)) & (values <= min(highest, limits.max))
                sides.append(values)
            low, high = sides
            self.fits &= low <= high  # not NaN, and in the right order
            if leaf.dtype.order == "float":
                low, high = (
                    np.where(low == 0, -0.0, low),
                    np.where(high == 0, 0.0, high),
                )  # either zero
            found.append((low, high))
        lows, highs = zip(*found, strict=True)
        return np.minimum.reduce(lows), np.maximum.reduce(highs)

    def _simple(self, chosen: Numbers, lows: list[Any], highs: list[Any]) -> list[ColumnStats]:
        column, chunk = self._column, self._chunks[0]
        given = chunk.statistics or {}
        low_exact, high_exact = given.get(_MIN_EXACT) is True, given.get(_MAX_EXACT) is True
        sizes = np.sum([group.size_bytes[chosen] for group in self._groups], axis=0).tolist()
        mins, maxes = to_bounds(column.dtype, lows), to_bounds(column.dtype, highs)
        return [
            ColumnStats(
                min=low,
                max=high,
                null_count=nulls,
                nan=nan,
                min_exact=low_exact,
                max_exact=high_exact,
                in_memory_size=size,
            )
            for low, high, nulls, nan, size in zip(
                mins, maxes, self._nulls(chosen), self._nan(chosen), sizes, strict=True
            )
        ]

    def _nulls(self, chosen: Numbers) -> Sequence[int | None]:
        if not self._column.max_def:
            return [0] * len(chosen)
        parts = [self._reading.numbers.get(self._field(group, 12, _NULLS)) for group in range(len(self._groups))]
        known = [part[chosen] for part in parts if part is not None]
        if len(known) < len(parts):
            return [None] * len(chosen)
        found: list[int | None] = np.sum(known, axis=0).tolist()
        return found

    def _nan(self, chosen: Numbers) -> Sequence[Nan]:
        if not self._column.is_float:
            return ["none"] * len(chosen)
        parts = [self._reading.numbers.get(self._field(group, 12, _NANS)) for group in range(len(self._groups))]
        known = [part[chosen] for part in parts if part is not None]
        if len(known) < len(parts):
            return ["maybe"] * len(chosen)
        return ["maybe" if some else "none" for some in (np.sum(known, axis=0) > 0).tolist()]

    def _simple_texts(self, chosen: Numbers) -> list[ColumnStats]:
        """Returns the statistics of a column of bytes: of those files at once whose bounds are short and in the right
        order."""
        sides = [self._texts(member, chosen) for member in (_MIN, _MAX)]
        alone: list[int] = []
        plain: list[int] = []
        lows: list[bytes] = []
        highs: list[bytes] = []
        decode = self._column.decode
        assert decode is not None  # noqa: S101  # a simple column has one
        for position, pairs in enumerate(zip(*(zip(*side, strict=True) for side in sides), strict=True)):
            low, high = min(pairs[0]), max(pairs[1])
            is_plain = all(
                len(a) <= MAX_BOUND_BYTES and len(b) <= MAX_BOUND_BYTES and a <= b and decode(a) == a and decode(b) == b
                for a, b in zip(*pairs, strict=True)
            )
            if is_plain:
                plain.append(position)
                lows.append(low)
                highs.append(high)
            else:
                alone.append(position)
        found: list[ColumnStats | None] = [None] * len(chosen)
        for position, stats in zip(plain, self._simple(chosen[plain], lows, highs), strict=True):
            found[position] = stats
        for position in alone:
            found[position] = self._one(int(chosen[position]))
        return [stats for stats in found if stats is not None]

    def _texts(self, member: int, chosen: Numbers) -> list[list[bytes]]:
        """Returns the bounds of each row group."""
        out = []
        for group in range(len(self._groups)):
            text = self._reading.texts[self._field(group, 12, member)]
            out.append(self._reading.strings(Texts(text.starts[chosen], text.lengths[chosen])))
        return out

    def _one(self, row: int) -> ColumnStats:
        """Returns the statistics in one file, by the general rules."""
        parts = [
            (int(lengths.rows[row]), self._chunk_stats(group, row, lengths))
            for group, lengths in enumerate(self._groups)
        ]
        if len(parts) == 1:
            return parts[0][1]
        return msgspec.structs.replace(merge(self._column.dtype, parts), source="footer")

    def _chunk_stats(self, group: int, row: int, lengths: Lengths) -> ColumnStats:
        statistics: Fields = {}
        for member in self._chunks[group].statistics or {}:
            path = self._field(group, 12, member)
            if path in self._reading.numbers:
                statistics[member] = int(self._reading.numbers[path][row])
            elif path in self._reading.texts:
                text = self._reading.texts[path]
                start = int(text.starts[row])
                statistics[member] = self._reading.data[start : start + int(text.lengths[row])]
            else:
                statistics[member] = (self._chunks[group].statistics or {})[member]
        levels = range(len(self._chunks[group].definition_levels))
        rows = int(lengths.rows[row])
        chunk = Chunk(
            num_values=rows,
            uncompressed_size=int(lengths.size_bytes[row]),
            statistics=statistics,
            definition_levels=tuple(
                [int(self._reading.numbers[self._field(group, 16, 3, level)][row]) for level in levels]
            ),
        )
        return chunk_stats(self._column, chunk, rows, self._order, self._origin)


def _numbers_of(leaf: FileLeaf, text: Texts, reading: Reading) -> tuple[npt.NDArray[Any], Flags] | None:
    """Returns bounds that are numbers of 64 bits, and where that is what they are; None for another type."""
    words = reading.words[text.starts]
    if leaf.dtype.order == "decimal" and leaf.physical == FIXED and leaf.type_length <= _WIDEST:
        head = min(leaf.type_length, _WORD)
        shifted = words.byteswap().view(np.int64) >> np.int64(8 * (_WORD - head))
        right_width = text.lengths == leaf.type_length
        if leaf.type_length <= _WORD:
            return shifted, right_width
        # Of two words, the first must have only the sign. It overlaps the second one, whose bytes are shifted out.
        first = shifted >> np.int64(8 * (2 * _WORD - leaf.type_length))
        starts = np.where(right_width, text.starts + (leaf.type_length - _WORD), text.starts)
        second = reading.words[starts].byteswap().view(np.int64)
        return second, right_width & (first == second >> np.int64(63))
    kind = _NUMBERS.get(leaf.physical)
    if kind is None or leaf.dtype.order not in ("int", "uint", "decimal", "float"):
        return None
    if leaf.dtype.order == "uint":
        kind = kind.replace("i", "u")
    width = int(kind[2])
    values = words.view(kind) if width == 8 else words.astype("<u4").view(kind)
    wide = {"i": np.int64, "u": np.uint64, "f": np.float64}[kind[1]]
    return values.astype(wide), text.lengths == width


# Blocks of files whose footers have one shape: applies the rules of ``footer``, ``statistics_rules`` and ``block`` to
# all at once.
#
# Only the plain case is handled here: consistent counts, bounds that are values of their type and in the right order,
# locations inside the file. Anything else in a file, an error, a contradiction or a rare form, leaves that file to
# ``snapshot.parquet.block.block_of``, which interprets it. So nothing is decided here that is not decided there too; a
# test compares the two.

_T = TypeVar("_T")

#: Fewer files than this are decoded one by one: a template takes hundreds of NumPy steps, however few files there are.
FEWEST: Final = 48
#: Number of shapes that are searched among the files of one call.
_SHAPES: Final = 6
#: Larger counts and sizes are left to the general path, so that those of 2^16 chunks add up to less than 2^62.
_MAX_NUMBER: Final = 1 << 45
_MAX_CHUNKS: Final = 1 << 16


def decode_footer_batch(
    stats: Sequence[ObjectStat], footers: Sequence[bytes], schema: Schema, *, fewest: int = FEWEST
) -> list[Block | None]:
    """Returns the blocks of files with these footers in a table of ``schema``; None: the file must be decoded
    separately."""
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
    """Returns the shape of a footer; None if no file with this shape is plain."""
    if schema.shredded_leaves():
        return None  # their statistics rest on two leaves of a file each
    try:
        sample = read_metadata(footer, stat.size_bytes - 8 - len(footer))
        end, field = schema_end(footer)
        shape = _Shape(footer[:end], FooterTemplate(footer, end, field), sample, schema)
    except (ThriftError, LamellaError):
        return None
    chunks = [chunk for group in sample.row_groups for chunk in group.chunks]
    if not 0 < len(chunks) <= _MAX_CHUNKS or any(chunk.encrypted for chunk in chunks):
        return None
    if writer_of(sample.created_by).denied_statistics or legacy_calendar(sample.properties):
        return None
    if collation_problem(sample.properties) is not None:
        return None
    return shape


class _ChunkLocations:
    """The chunks of one leaf in one row group, by file: their offsets and lengths."""

    def __init__(self, reading: Reading, group: int, leaf: int, data_end: Numbers) -> None:
        """Raises Unfit if a field that every chunk has is missing."""
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
            & (self.uncompressed < _MAX_NUMBER)
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
    """A footer template, with the metadata of the file that it was taken from: its constant values are those of all."""

    def __init__(self, prefix: bytes, template: FooterTemplate, sample: FileMetadata, schema: Schema) -> None:
        self.prefix = prefix
        self._template = template
        self._sample = sample
        self._plan = plan(sample.schema, schema)
        self._schema_id = schema.schema_id
        self._origin = Origin(writer_of(sample.created_by), legacy_calendar(sample.properties))

    def blocks(
        self, which: Sequence[int], stats: Sequence[ObjectStat], footers: Sequence[bytes]
    ) -> Iterator[tuple[int, Block]]:
        """Yields the blocks of those files, by their numbers, that have this shape and are plain."""
        if self._plan.may_be_null:
            return
        start = len(self.prefix)
        reading = self._template.lay_over([footers[index][start:] for index in which])
        footer_numbers = [which[row] for row in reading.rows.tolist()]
        data_end = np.array(
            [stats[index].size_bytes - 8 - len(footers[index]) for index in footer_numbers], dtype=np.int64
        )
        try:
            yield from self._blocks(reading, footer_numbers, data_end, stats, footers)
        except Unfit:
            return

    def _blocks(
        self,
        reading: Reading,
        footer_numbers: Sequence[int],
        data_end: Numbers,
        stats: Sequence[ObjectStat],
        footers: Sequence[bytes],
    ) -> Iterator[tuple[int, Block]]:
        sample, leaves = self._sample, range(len(self._sample.schema.leaves))
        groups = range(len(sample.row_groups))
        rows = [reading.numbers[(4, group, 3)] for group in groups]
        chunk_locations = [[_ChunkLocations(reading, group, leaf, data_end) for leaf in leaves] for group in groups]
        fits: Flags = np.logical_and.reduce([(count > 0) & (count < _MAX_NUMBER) for count in rows])
        for group in groups:
            for leaf, locations in zip(sample.schema.leaves, chunk_locations[group], strict=True):
                fits &= locations.fits
                if not (leaf.opaque or leaf.repeated):
                    fits &= locations.values == rows[group]
        columns = [
            BatchColumn(
                column,
                sample,
                self._origin,
                reading,
                [Lengths(rows[group], chunk_locations[group][column.index].uncompressed) for group in groups],
            )
            for column in self._plan.present
        ]
        for column in columns:
            fits &= column.fits
        chosen = np.flatnonzero(fits)
        row_counts = np.sum([count[chosen] for count in rows], axis=0).tolist()
        group_rows = list(zip(*(count[chosen].tolist() for count in rows), strict=True))
        sizes = np.sum(
            [locations.uncompressed[chosen] for of_group in chunk_locations for locations in of_group], axis=0
        ).tolist()
        pages = _page_indexes(chunk_locations, chosen)
        blooms = _bloom_sizes(chunk_locations, chosen)
        col_stats = self._col_stats(columns, chosen, row_counts)
        col_metas = self._col_metas(chunk_locations, chosen)
        codecs = {chunk.codec for group in sample.row_groups for chunk in group.chunks if chunk.codec}
        compression = ",".join(sorted(codecs))
        for position, row in enumerate(chosen.tolist()):
            index = footer_numbers[row]
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
        self, columns: Sequence[BatchColumn], chosen: Numbers, row_counts: Sequence[int]
    ) -> list[dict[int, ColumnStats]]:
        """Returns the statistics of every column of the table, by file."""
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
        self, chunk_locations: Sequence[Sequence[_ChunkLocations]], chosen: Numbers
    ) -> list[dict[int, tuple[ColumnMeta, ...]]]:
        """Returns the locations of the chunks of the columns, by file."""
        columns = [column for column in self._plan.present if not column.opaque]
        ids = [column.column_id for column in columns]
        metas: list[list[tuple[ColumnMeta, ...]]] = []
        for column in columns:
            of_groups = []
            for of_group in chunk_locations:
                locations = of_group[column.index]
                parts = (locations.offset, locations.compressed, locations.values)
                of_groups.append(list(map(ColumnMeta, *(part[chosen].tolist() for part in parts))))
            metas.append(list(zip(*of_groups, strict=True)))
        return [dict(zip(ids, of_file, strict=True)) for of_file in _by_file(metas, len(chosen))]


def _by_file(columns: Sequence[Sequence[_T]], files: int) -> Iterable[tuple[_T, ...]]:
    """Converts values by column to values by file."""
    return zip(*columns, strict=True) if columns else [()] * files


def _page_indexes(
    chunk_locations: Sequence[Sequence[_ChunkLocations]], chosen: Numbers
) -> Sequence[tuple[int, int] | None]:
    """Returns the one range of bytes of each file that contains its column and offset indexes."""
    found = [index for of_group in chunk_locations for locations in of_group for index in locations.indexes]
    if not found:
        return [None] * len(chosen)
    starts = np.minimum.reduce([at[chosen] for at, _ in found])
    ends = np.maximum.reduce([at[chosen] + size[chosen] for at, size in found])
    return list(zip(starts.tolist(), (ends - starts).tolist(), strict=True))


def _bloom_sizes(chunk_locations: Sequence[Sequence[_ChunkLocations]], chosen: Numbers) -> list[int] | None:
    """Returns the sizes of the Bloom filters of files with one row group; None if there are none."""
    if len(chunk_locations) != 1:
        return None
    sizes = [locations.bloom_size[chosen] for locations in chunk_locations[0] if locations.bloom_size is not None]
    if not sizes:
        return None
    found: list[int] = np.sum(sizes, axis=0).tolist()
    return found
