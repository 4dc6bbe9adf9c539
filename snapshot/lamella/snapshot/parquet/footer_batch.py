"""Decodes blocks of files whose footers have one shape: applies the rules for footers to all of them at once."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.manifest import Block
from lamella.snapshot.manifest.block_arrays import BlockArrays, ChunkArrays
from lamella.snapshot.parquet.columns import PlannedColumn, plan
from lamella.snapshot.parquet.footer import Chunk, FileMetadata, read_metadata, schema_end
from lamella.snapshot.parquet.footer_template import FooterTemplate, Numbers, Path, Reading, Texts
from lamella.snapshot.parquet.schema import DOUBLE, FIXED, FLOAT, INT32, INT64, FileLeaf, collation_problem
from lamella.snapshot.parquet.statistics_rules import Origin, chunk_stats
from lamella.snapshot.parquet.thrift import Fields, ThriftError
from lamella.snapshot.parquet.writer import legacy_calendar, writer_of
from lamella.snapshot.schema import Schema
from lamella.snapshot.stats.bound import MAX_BOUND_BYTES
from lamella.snapshot.stats.column import ColumnStats, absent, merge
from lamella.snapshot.stats.column_arrays import Bounds, ColumnArrays, bounds_of, taken
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

    def stats(self, chosen: Numbers) -> ColumnArrays | list[ColumnStats]:
        """Returns the statistics in the chosen files, which fit."""
        if self._numbers is not None:
            low, high = (bounds_of(self._column.dtype, side[chosen]) for side in self._numbers)
            if low is not None and high is not None:
                return self._arrays(chosen, low, high)
        elif self._is_simple and self._column.is_bytes:
            return self._texts(chosen)
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

    def _arrays(self, chosen: Numbers, lows: Bounds, highs: Bounds) -> ColumnArrays:
        given = self._chunks[0].statistics or {}
        return ColumnArrays(
            dtype=self._column.dtype,
            lows=lows,
            highs=highs,
            nulls=self._nulls(chosen),
            may_nan=self._may_nan(chosen),
            min_exact=given.get(_MIN_EXACT) is True,
            max_exact=given.get(_MAX_EXACT) is True,
            sizes=np.sum([group.size_bytes[chosen] for group in self._groups], axis=0),
        )

    def _nulls(self, chosen: Numbers) -> Numbers:
        """Returns the null counts, -1 where unknown."""
        if not self._column.max_def:
            return np.zeros(len(chosen), dtype=np.int64)
        known = self._counts(_NULLS, chosen)
        return np.full(len(chosen), -1, dtype=np.int64) if known is None else known

    def _may_nan(self, chosen: Numbers) -> Flags:
        if not self._column.is_float:
            return np.zeros(len(chosen), dtype=bool)
        known = self._counts(_NANS, chosen)
        return np.ones(len(chosen), dtype=bool) if known is None else known > 0

    def _counts(self, member: int, chosen: Numbers) -> Numbers | None:
        """Returns the sums of a count of all row groups; None if a row group lacks it."""
        parts = [self._reading.numbers.get(self._field(group, 12, member)) for group in range(len(self._groups))]
        known = [part[chosen] for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        found: Numbers = np.sum(known, axis=0)
        return found

    def _texts(self, chosen: Numbers) -> ColumnArrays | list[ColumnStats]:
        """Returns the statistics of a column of bytes; together if the bounds of all files are short and in order."""
        sides = [self._bounds_of_groups(member, chosen) for member in (_MIN, _MAX)]
        is_short = np.logical_and.reduce([fits for side in sides for fits, _ in side])
        (_, lows), (_, highs) = sides[0][0], sides[1][0]
        in_order = is_short & _in_order(lows, highs)
        for (_, more_lows), (_, more_highs) in zip(sides[0][1:], sides[1][1:], strict=True):
            in_order &= _in_order(more_lows, more_highs)
            lows, highs = list(map(min, lows, more_lows)), list(map(max, highs, more_highs))
        if in_order.all():
            return self._arrays(chosen, lows, highs)
        plain = np.flatnonzero(in_order)
        together = iter(self._arrays(chosen[plain], taken(lows, plain), taken(highs, plain)).stats())
        return [
            next(together) if is_plain else self._one(row)
            for is_plain, row in zip(in_order.tolist(), chosen.tolist(), strict=True)
        ]

    def _bounds_of_groups(self, member: int, chosen: Numbers) -> list[tuple[Flags, list[bytes]]]:
        """Returns the bounds of each row group, and where they are short and values of the type."""
        decode = self._column.decode
        assert decode is not None  # noqa: S101  # a simple column has one
        out = []
        for group in range(len(self._groups)):
            text = self._reading.texts[self._field(group, 12, member)]
            lengths = text.lengths[chosen]
            fits = lengths <= MAX_BOUND_BYTES
            # Whether bytes are a value of such a type depends on their number alone.
            for length in np.unique(lengths[fits]).tolist():
                if decode(bytes(length)) is None:
                    fits &= lengths != length
            out.append((fits, self._reading.strings(Texts(text.starts[chosen], lengths))))
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


def _in_order(lows: Sequence[bytes], highs: Sequence[bytes]) -> Flags:
    return np.fromiter(map(operator.le, lows, highs), dtype=bool, count=len(lows))


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

#: Fewer files than this are decoded one by one: a template takes hundreds of NumPy steps, however few files there are.
FEWEST: Final = 48
#: Number of shapes that are searched among the files of one call.
_SHAPES: Final = 6
#: Larger counts and sizes are left to the general path, so that those of 2^16 chunks add up to less than 2^62.
_MAX_NUMBER: Final = 1 << 45
_MAX_CHUNKS: Final = 1 << 16


class FooterDecoder:
    """Decodes the footers of many files of a table, those of one shape together; remembers the shapes.

    ``fewest``: fewer files of a shape are left to be decoded one by one.
    """

    def __init__(self, schema: Schema, *, fewest: int = FEWEST) -> None:
        self._schema = schema
        self._fewest = fewest
        self._shapes: list[_Shape] = []

    def decode(self, stats: Sequence[ObjectStat], footers: Sequence[bytes]) -> list[tuple[Numbers, BlockArrays]]:
        """Returns the blocks of files with these footers, by shape, with the numbers of the files.

        A file that is missing must be decoded separately.
        """
        found: list[tuple[Numbers, BlockArrays]] = []
        left = list(range(len(footers)))
        for shape in self._shapes:
            left = self._match(shape, left, stats, footers, found)
        for _ in range(_SHAPES):
            if len(left) < self._fewest:
                break
            first = left[0]
            new = _shape(stats[first], footers[first], self._schema)
            if new is not None:
                before = len(found)
                left = self._match(new, left, stats, footers, found)
                if len(found) > before:
                    self._shapes = [new, *self._shapes[: _SHAPES - 1]]
            left = [index for index in left if index != first]
        return found

    def _match(
        self,
        shape: _Shape,
        left: list[int],
        stats: Sequence[ObjectStat],
        footers: Sequence[bytes],
        found: list[tuple[Numbers, BlockArrays]],
    ) -> list[int]:
        """Decode the footers of a shape; returns the numbers of the others."""
        like = [index for index in left if footers[index].startswith(shape.prefix)]
        if len(like) < self._fewest:
            return left
        made = shape.blocks(like, stats, footers)
        if made is None:
            return left
        found.append(made)
        matched = set(made[0].tolist())
        return [index for index in left if index not in matched]


def decode_footer_batch(
    stats: Sequence[ObjectStat], footers: Sequence[bytes], schema: Schema, *, fewest: int = FEWEST
) -> list[Block | None]:
    """Returns the blocks of files with these footers in a table of ``schema``; None: the file must be decoded
    separately."""
    found: list[Block | None] = [None] * len(footers)
    for numbers, arrays in FooterDecoder(schema, fewest=fewest).decode(stats, footers):
        for index, block in zip(numbers.tolist(), arrays.blocks(), strict=True):
            found[index] = block
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
    if collation_problem(sample.properties) is not None or shape.may_be_null:
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

    def arrays(self, chosen: Numbers) -> ChunkArrays:
        """Returns the chunks of the chosen files."""
        return ChunkArrays(self.offset[chosen], self.compressed[chosen], self.values[chosen])


class _Shape:
    """A footer template, with the metadata of the file that it was taken from: its constant values are those of all."""

    def __init__(self, prefix: bytes, template: FooterTemplate, sample: FileMetadata, schema: Schema) -> None:
        self.prefix = prefix
        self._template = template
        self._sample = sample
        self._plan = plan(sample.schema, schema)
        self._schema_id = schema.schema_id
        self._origin = Origin(writer_of(sample.created_by), legacy_calendar(sample.properties))

    @property
    def may_be_null(self) -> bool:
        """Returns whether a column that the table requires may be null in files with this schema."""
        return bool(self._plan.may_be_null)

    def blocks(
        self, which: Sequence[int], stats: Sequence[ObjectStat], footers: Sequence[bytes]
    ) -> tuple[Numbers, BlockArrays] | None:
        """Returns the blocks of those files, with their numbers, that have this shape and are plain; None: there are
        none."""
        start = len(self.prefix)
        reading = self._template.lay_over([footers[index][start:] for index in which])
        numbers = np.array(which, dtype=np.int64)[reading.rows]
        data_end = np.array(
            [stats[index].size_bytes - 8 - len(footers[index]) for index in numbers.tolist()], dtype=np.int64
        )
        try:
            return self._blocks(reading, numbers, data_end, stats, footers)
        except Unfit:
            return None

    def _blocks(
        self,
        reading: Reading,
        numbers: Numbers,
        data_end: Numbers,
        stats: Sequence[ObjectStat],
        footers: Sequence[bytes],
    ) -> tuple[Numbers, BlockArrays] | None:
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
        if not len(chosen):
            return None
        numbers = numbers[chosen]
        indexes = numbers.tolist()
        found = [stats[index] for index in indexes]
        row_counts = np.sum([count[chosen] for count in rows], axis=0)
        codecs = {chunk.codec for group in sample.row_groups for chunk in group.chunks if chunk.codec}
        sha256 = hashlib.sha256
        arrays = BlockArrays(
            locations=[stat.location for stat in found],
            content_ids=[stat.content_id for stat in found],
            footer_hashes=[sha256(footers[index]).hexdigest() for index in indexes],
            row_counts=row_counts,
            file_sizes=np.array([stat.size_bytes for stat in found], dtype=np.int64),
            block_sizes=np.sum(
                [locations.uncompressed[chosen] for of_group in chunk_locations for locations in of_group], axis=0
            ),
            columns=self._col_stats(columns, chosen, row_counts.tolist()),
            chunks=self._chunks(chunk_locations, chosen),
            group_rows=tuple(count[chosen] for count in rows),
            bloom_sizes=_bloom_sizes(chunk_locations, chosen),
            page_indexes=_page_indexes(chunk_locations, chosen),
            compression=",".join(sorted(codecs)),
            created_by=sample.created_by,
            schema_id=self._schema_id,
            by_name=self._plan.by_name,
        )
        return numbers, arrays

    def _col_stats(
        self, columns: Sequence[BatchColumn], chosen: Numbers, row_counts: Sequence[int]
    ) -> dict[int, ColumnArrays | list[ColumnStats]]:
        """Returns the statistics of every column of the table."""
        found = {
            planned.column_id: column.stats(chosen) for planned, column in zip(self._plan.present, columns, strict=True)
        }
        for leaf in self._plan.absent:
            found[leaf.id] = [absent(leaf, row_count) for row_count in row_counts]
        return found

    def _chunks(
        self, chunk_locations: Sequence[Sequence[_ChunkLocations]], chosen: Numbers
    ) -> dict[int, tuple[ChunkArrays, ...]]:
        """Returns the locations of the chunks of the columns."""
        return {
            column.column_id: tuple(of_group[column.index].arrays(chosen) for of_group in chunk_locations)
            for column in self._plan.present
            if not column.opaque
        }


def _page_indexes(
    chunk_locations: Sequence[Sequence[_ChunkLocations]], chosen: Numbers
) -> tuple[Numbers, Numbers] | None:
    """Returns the one range of bytes of each file that contains its column and offset indexes; None: it has none."""
    found = [index for of_group in chunk_locations for locations in of_group for index in locations.indexes]
    if not found:
        return None
    starts = np.minimum.reduce([at[chosen] for at, _ in found])
    ends = np.maximum.reduce([at[chosen] + size[chosen] for at, size in found])
    return starts, ends - starts


def _bloom_sizes(chunk_locations: Sequence[Sequence[_ChunkLocations]], chosen: Numbers) -> Numbers | None:
    """Returns the sizes of the Bloom filters of files with one row group; None if there are none."""
    if len(chunk_locations) != 1:
        return None
    sizes = [locations.bloom_size[chosen] for locations in chunk_locations[0] if locations.bloom_size is not None]
    if not sizes:
        return None
    found: Numbers = np.sum(sizes, axis=0)
    return found
