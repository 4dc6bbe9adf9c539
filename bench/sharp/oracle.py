"""The blocks that contain a match, by reading every row, and those that exact minima and maxima can decide.

The rows lie in memory in DuckDB. A filter is only ever evaluated in the projection of an aggregate over all rows, where
no statistics play a part; DuckDB's NaN, -0.0, text order and three-valued logic are those of Spark SQL.

*Decided by min and max* means: no row that obeys the block's exact minima, maxima, null counts and NaN counts, column
by column, satisfies the filter (for ALL: every such row does). It is found without any of Lamella's code: the condition
on one column can change its result only at the constants of the filter, so DuckDB evaluates it at each of them, at
their neighbours and at every block's bounds (over a small domain: at every value there is), and a block is undecided
when one of those between its bounds satisfies it. Conditions on different columns are independent; two columns that are
compared meet in the corners of their ranges.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Final

import duckdb
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sharp.blocks import BLOCK
from sharp.dialects import DUCKDB
from sharp.filters import (
    And,
    Between,
    Columns,
    Compare,
    Constant,
    Filter,
    In,
    Like,
    Not,
    NullSafe,
    StartsWith,
    Text,
    atoms_of,
    branches,
    columns_of,
)

Mask = npt.NDArray[np.bool_]
_TOGETHER: Final = 25
_SMALL_DOMAIN: Final = 150_000


class Truth(msgspec.Struct, frozen=True):
    """Per block: does it hold a match, does every row match; and what exact minima and maxima prove of that.

    ``nan``: one of the filter's columns holds NaN.
    """

    some: Mask
    every: Mask
    decided_none: Mask
    decided_all: Mask
    nan: Mask


class _Bounds(msgspec.Struct, frozen=True):
    """One column's exact statistics by block; ``low`` and ``high`` ignore null and NaN (None: no such value)."""

    low: pa.Array
    high: pa.Array
    nulls: npt.NDArray[np.int64]
    nans: npt.NDArray[np.int64]


class Oracle:
    """The true result for one table's blocks. ``nan_known`` False: as from a footer, which has no NaN counts."""

    def __init__(self, rows: pa.Table, *, nan_known: bool) -> None:
        self._types = {field.name: field.type for field in rows.schema}
        self._nan_known = nan_known
        self._db = duckdb.connect()
        self._db.execute("SET TimeZone = 'UTC'")
        self._db.register("given", rows)
        self._db.execute("CREATE TABLE rows AS SELECT * FROM given")
        self._db.unregister("given")
        self.row_counts: npt.NDArray[np.int64] = self._per_block("count(*) AS n")["n"].to_numpy()
        self._bounds: dict[str, _Bounds] = {}
        self._domains: dict[str, pa.Array | None] = {}

    def close(self) -> None:
        """Give the memory back."""
        self._db.close()

    def truths(self, filters: Sequence[Filter]) -> list[Truth]:
        """Return the true result of each filter."""
        found = []
        for start in range(0, len(filters), _TOGETHER):
            some = filters[start : start + _TOGETHER]
            counted = ", ".join(f"count(*) FILTER (WHERE {DUCKDB.sql(node)}) AS c{i}" for i, node in enumerate(some))
            answer = self._per_block(counted)
            for index, node in enumerate(some):
                count = answer[f"c{index}"].to_numpy()
                none, every = self._decided(node)
                nan = np.any([self._bounds_of(column).nans > 0 for column in columns_of(node)], axis=0)
                truth = Truth(count > 0, count == self.row_counts, none, every, nan)
                # The oracle of minima and maxima is itself checked against the rows.
                assert not (none & truth.some).any(), f"decided none, and yet a match: {DUCKDB.sql(node)}"
                assert not (every & ~truth.every).any(), f"decided all, and yet not: {DUCKDB.sql(node)}"
                found.append(truth)
        return found

    def _per_block(self, selected: str) -> pa.Table:
        query = f"SELECT {selected} FROM rows GROUP BY {BLOCK} ORDER BY {BLOCK}"  # our own filters
        return self._db.sql(query).to_arrow_table()

    def _decided(self, node: Filter) -> tuple[Mask, Mask]:
        columns = columns_of(node)
        if len(columns) == 1:
            return self._one_column(next(iter(columns)), node)
        none = np.ones(len(self.row_counts), dtype=bool)
        every = np.zeros(len(self.row_counts), dtype=bool)  # for an OR: only what a single branch proves
        for branch in branches(node):
            branch_none = np.zeros(len(none), dtype=bool)
            branch_every = np.ones(len(none), dtype=bool)
            for part_none, part_every in self._parts(branch):
                branch_none |= part_none
                branch_every &= part_every
            none &= branch_none
            every |= branch_every
        return none, every

    def _parts(self, branch: list[Filter]) -> Iterable[tuple[Mask, Mask]]:
        by_column: dict[str, list[Filter]] = {}
        for atom in branch:
            columns = columns_of(atom)
            if len(columns) == 1:
                by_column.setdefault(next(iter(columns)), []).append(atom)
            else:
                yield self._two_columns(atom)
        for column, atoms in by_column.items():
            yield self._one_column(column, And(tuple(atoms)))

    def _one_column(self, column: str, node: Filter) -> tuple[Mask, Mask]:
        bounds = self._bounds_of(column)
        points = self._points(column, node)
        has_value = np.asarray(bounds.low.is_valid())
        first = _positions(bounds.low, points)
        last = _positions(bounds.high, points)
        at_points, at_null, at_nan = self._results(column, node, points)
        before = np.concatenate(([0], np.cumsum(at_points)))
        hits = before[last + 1] - before[first]
        misses = last + 1 - first - hits
        nulls, nans = bounds.nulls > 0, bounds.nans > 0
        if not self._nan_known and pa.types.is_floating(self._types[column]):
            # A footer counts nulls, not NaN: NaN may be anywhere, and a block without bounds may contain any value.
            nans = bounds.nulls < self.row_counts
            unknown = ~has_value & nans
            has_value = has_value | unknown
            hits = np.where(unknown, at_points.sum(), hits)
            misses = np.where(unknown, len(at_points) - at_points.sum(), misses)
        may_match = (has_value & (hits > 0)) | (nulls & at_null) | (nans & at_nan)
        may_miss = (has_value & (misses > 0)) | (nulls & (not at_null)) | (nans & (not at_nan))
        return ~may_match, ~may_miss

    def _two_columns(self, node: Filter) -> tuple[Mask, Mask]:
        negated = isinstance(node, Not)
        atom = node.part if isinstance(node, Not) else node
        assert isinstance(atom, Columns)
        left, right = self._bounds_of(atom.left), self._bounds_of(atom.right)
        none, every = [], []
        for block in range(len(self.row_counts)):
            ends = [side[block].as_py() for side in (left.low, left.high, right.low, right.high)]
            if None in ends:  # nothing but nulls on one side
                none.append(True)
                every.append(False)
                continue
            may_be, may_not = _corners(atom.op, *ends)
            no_null = not left.nulls[block] and not right.nulls[block]
            none.append(not (may_not if negated else may_be))
            every.append(no_null and not (may_be if negated else may_not))
        return np.array(none), np.array(every)

    def _bounds_of(self, column: str) -> _Bounds:
        found = self._bounds.get(column)
        if found is None:
            floating = pa.types.is_floating(self._types[column])
            is_nan = f"isnan({column})" if floating else "false"
            answer = self._per_block(
                f"min({column}) FILTER (WHERE NOT {is_nan}) AS low, max({column}) FILTER (WHERE NOT {is_nan}) AS high,"
                f" count(*) FILTER (WHERE {column} IS NULL) AS nulls, count(*) FILTER (WHERE {is_nan}) AS nans"
            )
            low, high = (answer[side].combine_chunks().cast(self._types[column]) for side in ("low", "high"))
            found = _Bounds(low, high, answer["nulls"].to_numpy(), answer["nans"].to_numpy())
            self._bounds[column] = found
        return found

    def _points(self, column: str, node: Filter) -> pa.Array:
        """Return ascending values of the column's type for which the condition takes every possible result."""
        dtype = self._types[column]
        bounds = self._bounds_of(column)
        ends = [end for side in (bounds.low, bounds.high) for end in pc.unique(side).to_pylist() if end is not None]
        if column not in self._domains:
            self._domains[column] = _whole_domain(dtype, ends)
        whole = self._domains[column]
        if whole is not None:
            return whole
        wanted = {near for constant in _constants(node) for near in _neighbours(dtype, constant)}
        for end in ends:
            wanted.update(_neighbours(dtype, end))
        # A text with the pattern's own behind it matches a pattern that begins with a wildcard.
        tails = {atom.pattern.replace("%", "") for atom in atoms_of(node) if isinstance(atom, Like)}
        wanted.update(low + tail for low in ends for tail in tails)
        if tails:  # and a short text between two bounds holds nothing that it need not hold
            wanted.update(_short_texts(bounds))
        array = pc.unique(pa.array(sorted(wanted), dtype))
        return array.take(pc.sort_indices(array))

    def _results(self, column: str, node: Filter, points: pa.Array) -> tuple[Mask, bool, bool]:
        """Whether the condition is true at each point, at null and at NaN."""
        floating = pa.types.is_floating(points.type)
        more = pa.array([None, float("nan")] if floating else [None], points.type)
        values = pa.concat_arrays([points, more])
        self._db.register("points", pa.table({column: values, "__i": pa.array(range(len(values)))}))
        query = f"SELECT ({DUCKDB.sql(node)}) IS TRUE AS hit FROM points ORDER BY __i"  # our own filters
        answer = self._db.sql(query).to_arrow_table()
        self._db.unregister("points")
        hit = answer["hit"].to_numpy()
        return hit[: len(points)], bool(hit[len(points)]), floating and bool(hit[-1])


def _positions(ends: pa.Array, points: pa.Array) -> npt.NDArray[np.int64]:
    """Return where each block's bound is among the points; 0 where it has none."""
    return np.asarray(pc.fill_null(pc.index_in(ends, value_set=points), 0)).astype(np.int64)


def _corners(op: str, left_low: Any, left_high: Any, right_low: Any, right_high: Any) -> tuple[bool, bool]:
    """Whether ``left op right`` may hold, and may fail, somewhere in the two ranges."""
    may_be_less, may_be_greater = left_low < right_high, left_high > right_low
    may_be_equal = left_low <= right_high and right_low <= left_high
    must_be_equal = left_low == left_high == right_low == right_high
    return {
        "<": (may_be_less, may_be_greater or may_be_equal),
        "<=": (may_be_less or may_be_equal, may_be_greater),
        ">": (may_be_greater, may_be_less or may_be_equal),
        ">=": (may_be_greater or may_be_equal, may_be_less),
        "=": (may_be_equal, not must_be_equal),
        "<>": (not must_be_equal, may_be_equal),
    }[op]


def _constants(node: Filter) -> Iterable[Constant]:
    for atom in atoms_of(node):
        match atom:
            case Compare(_, _, value) | NullSafe(_, value):
                yield value
            case Between(_, low, high):
                yield from (low, high)
            case In(_, values, _):
                yield from values
            case Like(_, pattern, _):
                yield from _ends(pattern.split("%")[0])
                yield pattern.replace("%", "")
            case StartsWith(_, prefix):
                yield from _ends(prefix)
            case Text(_, _, _, near):
                yield from near
            case _:
                pass


def _ends(prefix: str) -> tuple[str, ...]:
    """Return a prefix, and the first text after all texts that begin with it."""
    return (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)) if prefix else ("",)


def _short_texts(bounds: _Bounds) -> Iterable[str]:
    """Texts between each block's bounds that share with them what all texts between them share, and little more."""
    for low, high in zip(bounds.low.to_pylist(), bounds.high.to_pylist(), strict=True):
        if low is not None and low != high:
            same = next((at for at, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]), len(low))
            yield from (high[: same + 1], high[: same + 1] + "\0", low[:same] + chr(ord((low + "\0")[same]) + 1))


def _whole_domain(dtype: pa.DataType, ends: Sequence[Any]) -> pa.Array | None:
    """Return every value of the type between the minimum and the maximum bound, when there are few."""
    if not ends:
        return pa.array([], dtype)
    if pa.types.is_boolean(dtype):
        return pa.array([False, True])
    low, high = min(ends), max(ends)
    if pa.types.is_date(dtype):
        numbers = range((low - dt.date(1970, 1, 1)).days, (high - dt.date(1970, 1, 1)).days + 1)
        return pa.array(numbers, pa.int32()).cast(dtype) if len(numbers) <= _SMALL_DOMAIN else None
    if pa.types.is_integer(dtype):
        return pa.array(range(low, high + 1), dtype) if high - low < _SMALL_DOMAIN else None
    if pa.types.is_decimal(dtype):
        first, last = (int(end.scaleb(dtype.scale)) for end in (low, high))
        if last - first < _SMALL_DOMAIN:
            return pa.array([Decimal(number).scaleb(-dtype.scale) for number in range(first, last + 1)], dtype)
    return None


def _neighbours(dtype: pa.DataType, value: Any) -> Iterable[Any]:
    """Return values at and on both sides of a point; text and bytes have no immediate predecessor."""
    if pa.types.is_integer(dtype):
        return {math.floor(value) - 1, math.floor(value), math.ceil(value), math.ceil(value) + 1}
    if pa.types.is_decimal(dtype):
        unit = Decimal(1).scaleb(-dtype.scale)
        at = Decimal(value)
        down, up = (at.quantize(unit, rounding=way) for way in (ROUND_FLOOR, ROUND_CEILING))
        return {down - unit, down, up, up + unit}
    if pa.types.is_floating(dtype):
        kind = np.float32 if dtype == pa.float32() else np.float64
        literal: Any = kind(value)
        near = (np.nextafter(literal, -kind(math.inf)), literal, np.nextafter(literal, kind(math.inf)))
        return {float(number) for number in near if not math.isnan(number)}
    if pa.types.is_date(dtype):
        return {value + dt.timedelta(days=days) for days in (-1, 0, 1)}
    if pa.types.is_timestamp(dtype):
        return {value + dt.timedelta(microseconds=micros) for micros in (-1, 0, 1)}
    if isinstance(value, str):
        return {value, value + "\0"}
    return {value, value + b"\0"}
