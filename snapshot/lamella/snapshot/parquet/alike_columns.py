"""The statistics of one column in many files of one shape: the plain cases of ``trust``, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.parquet.logical import DOUBLE, FIXED, FLOAT, INT32, INT64
from lamella.snapshot.parquet.metadata import Chunk, FileMetadata
from lamella.snapshot.parquet.plan import PlannedColumn
from lamella.snapshot.parquet.stencil import Numbers, Path, Reading, Texts
from lamella.snapshot.parquet.thrift import Fields
from lamella.snapshot.parquet.tree import FileLeaf
from lamella.snapshot.parquet.trust import Origin, chunk_stats
from lamella.snapshot.stats.bound import to_bounds
from lamella.snapshot.stats.column import ColumnStats, Nan, merge
from lamella.snapshot.stats.truncation import MAX_BOUND_BYTES

Flags = npt.NDArray[np.bool_]
#: Of Statistics: null_count, the bounds, whether they are exact, nan_count.
_NULLS, _MAX, _MIN, _MAX_EXACT, _MIN_EXACT, _NANS = 3, 5, 6, 7, 8, 9
_NUMBERS: Final = {INT32: "<i4", INT64: "<i8", FLOAT: "<f4", DOUBLE: "<f8"}


class Unfit(Exception):
    """The column is plain in no file of this shape."""


class Lengths(msgspec.Struct, frozen=True):
    """A column's chunks in one row group: rows, and uncompressed bytes, by file."""

    rows: Numbers
    size_bytes: Numbers


class AlikeColumn:
    """One column of the table in many files: ``fits`` says in which of them it is plain."""

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
        """The statistics in the chosen files, which fit."""
        if self._numbers is not None:
            low, high = self._numbers
            return self._simple(chosen, low[chosen].tolist(), high[chosen].tolist())
        if self._is_simple and self._column.is_bytes:
            return self._simple_texts(chosen)
        return [self._one(row) for row in chosen.tolist()]

    def _field(self, group: int, *members: int) -> Path:
        return (4, group, 1, self._column.index, 3, *members)

    def _check_counts(self, group: int) -> None:
        """Where the counts of a row group fit each other (rules F2, F3, C2 to C4) and leave a number."""
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
        """Where no row group can hold a null."""
        for group in range(len(self._groups)):
            nulls = self._reading.numbers.get(self._field(group, 12, _NULLS))
            if nulls is None:
                raise Unfit
            self.fits &= nulls == 0

    def _has_simple_bounds(self) -> bool:
        """Whether every row group has both bounds, believed, of the table's own type, and alike in their flags."""
        column = self._column
        if column.opaque or column.repeated or column.decode is None or column.convert is not None:
            return False
        given = [chunk.statistics or {} for chunk in self._chunks]
        flags = {(each.get(_MIN_EXACT) is True, each.get(_MAX_EXACT) is True) for each in given}
        return self._order in column.orders and len(flags) == 1 and all({_MIN, _MAX} <= each.keys() for each in given)

    def _number_bounds(self, leaf: FileLeaf) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
        """The bounds of all row groups together; None when the type is not read in this way."""
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
                    least, greatest = leaf.dtype.int_range
                    self.fits &= (values >= least) & (values <= greatest)
                sides.append(values)
            low, high = sides
            self.fits &= low <= high  # no NaN (C1), not the wrong way round (B9)
            if leaf.dtype.order == "float":
                low, high = np.where(low == 0, -0.0, low), np.where(high == 0, 0.0, high)  # C5
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
        """Of a column of bytes: those files at once whose bounds are short and the right way round."""
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
        """The bounds of each row group."""
        out = []
        for group in range(len(self._groups)):
            text = self._reading.texts[self._field(group, 12, member)]
            out.append(self._reading.strings(Texts(text.starts[chosen], text.lengths[chosen])))
        return out

    def _one(self, row: int) -> ColumnStats:
        """The statistics in one file, by the rules as they are written down."""
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
    """Bounds that are numbers of up to eight bytes, and where they are as long as they must be; None: another type."""
    words = reading.words[text.starts]
    if leaf.dtype.order == "decimal" and leaf.physical == FIXED and leaf.type_length <= 8:
        shifted = words.byteswap().view(np.int64) >> np.int64(64 - 8 * leaf.type_length)
        return shifted, text.lengths == leaf.type_length
    kind = _NUMBERS.get(leaf.physical)
    if kind is None or leaf.dtype.order not in ("int", "uint", "decimal", "float"):
        return None
    if leaf.dtype.order == "uint":
        kind = kind.replace("i", "u")
    width = int(kind[2])
    values = words.view(kind) if width == 8 else words.astype("<u4").view(kind)
    wide = {"i": np.int64, "u": np.uint64, "f": np.float64}[kind[1]]
    return values.astype(wide), text.lengths == width
