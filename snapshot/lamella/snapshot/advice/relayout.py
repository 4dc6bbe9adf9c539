"""Estimates the zone maps of another layout of the table, from some of its rows or from its zone maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.cluster import curve
from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys, WideKeys
from lamella.snapshot.columnar.zones import (
    HIGH_KNOWN,
    LOW_KNOWN,
    MAY_NAN,
    MAY_NULL,
    MAY_NUMBER,
    NULLS_KNOWN,
    Spans,
    Zones,
    is_wide,
    keys_of,
    number_dtype,
)
from lamella.snapshot.expression.bound import BoundTerm, Derived, leaves_in
from lamella.snapshot.function.base import Vector
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.row_filter import RowTerms
from lamella.snapshot.schema import DataType, Leaf
from lamella.snapshot.stats.ranges import MIN_SHARE, has_ranges
from lamella.snapshot.workload.distribution import Sample, SampledColumn, from_vectors

#: Number of rows that determine the values of a block, for a column that it is not sorted by.
_ENOUGH_ROWS: Final = 200
#: Rows of one value of an expression that are looked at before and after a block.
_MAX_RUN: Final = 1_000
Rows = npt.NDArray[np.int64]


def sorted_zones(
    sample: Sample,
    keys: Sequence[BoundTerm],
    blocks: int,
    rows_per_block: float,
    rng: np.random.Generator,
    kind: ClusterKind = "linear",
) -> dict[Leaf, Zones]:
    """Returns zone maps of ``blocks`` blocks of ``rows_per_block`` rows, of which the sample has a few, sorted by
    ``keys``, or along a curve through them.

    There are fewer blocks if the sample has too few rows. Rows of equal keys are in random order, since a sort need not
    be stable. The sample has the columns of all keys.
    """
    count = len(next(iter(sample.values())).valid)
    blocks = max(1, min(blocks, count // 2))
    ties = rng.permutation(count)
    is_line = kind == "linear" or len(keys) == 1
    columns = [_column(key, sample, count) for key in keys]
    order = _order(columns, ties) if kind == "linear" or is_line else _along(kind, columns, ties)
    edges = np.linspace(0, count, blocks + 1).round().astype(np.int64)
    ranks = [_ranks(column)[order] for column in columns] if is_line else []
    of_first = leaves_in(keys[0]) if keys and isinstance(keys[0], Derived) else ()
    found = {}
    for leaf, column in sample.items():
        sorted_column = SampledColumn(column.values[order], column.valid[order], column.nan[order], column.width)
        if is_line and keys and leaf == keys[0]:
            found[leaf] = _of_first_key(leaf.dtype, sorted_column, edges)
            continue
        if is_line and leaf in of_first:
            found[leaf] = _of_slices(leaf.dtype, sorted_column, *_runs(ranks[0], edges))
            continue
        window = int(max(count / blocks, min(rows_per_block, _ENOUGH_ROWS)))
        middle = (edges[1:] + edges[:-1]) // 2
        starts = np.clip(middle - window // 2, 0, max(count - window, 0))
        stops = np.minimum(starts + window, count)
        spans = None
        if is_line and leaf in keys:
            runs = _Runs(ranks[: list(keys).index(leaf)], edges)
            starts = np.where(runs.in_order, runs.starts, starts)
            stops = np.where(runs.in_order, runs.stops, stops)
            spans = runs.spans(leaf.dtype, sorted_column) if has_ranges(leaf.dtype) else None
        found[leaf] = _of_slices(leaf.dtype, sorted_column, starts, stops)
        found[leaf].spans = spans
    return found


def with_ends(zones: Zones, now: Zones, dtype: DataType) -> Zones:
    """Returns zone maps of drawn rows of which one begins and one ends where those of the table do: a draw lacks most
    rare values, but some block has the smallest one and some block the largest."""
    mine, given = (
        np.flatnonzero(each.has(LOW_KNOWN) & each.has(HIGH_KNOWN) & each.has(MAY_NUMBER)) for each in (zones, now)
    )
    if not len(mine) or not len(given) or zones.spans is not None:
        return zones
    values = [_values(keys, len(zones)) for keys in (zones.low, zones.high)]
    ends = [_values(keys, len(now)) for keys in (now.low, now.high)]
    for column, end, pick in zip(values, ends, (min, max), strict=True):
        at = pick(mine.tolist(), key=column.__getitem__)
        column[at] = pick(column[at], pick(end[row] for row in given.tolist()))
    return Zones(keys_of(dtype, values[0]), keys_of(dtype, values[1]), zones.flags)


def _values(keys: Keys | None, count: int) -> list[Any]:
    if isinstance(keys, NumberKeys):
        return list(keys.array)
    if keys is None:
        raise AssertionError("entries with known bounds have bounds")
    return [_at(keys, row) for row in range(count)]


def cut_zones(column: SampledColumn, dtype: DataType, edges: Rows) -> Zones:
    """Returns zone maps of the slices of consecutive rows between ``edges``."""
    return _of_slices(dtype, column, edges[:-1], edges[1:])


def merged_zones(zones: Zones, dtype: DataType, starts: Rows) -> Zones:
    """Returns zone maps of merged blocks: each from its first entry, of ``starts``, to before that of the next."""
    every = np.bitwise_and.reduceat(zones.flags, starts) & np.uint8(LOW_KNOWN | HIGH_KNOWN | NULLS_KNOWN)
    some = np.bitwise_or.reduceat(zones.flags, starts) & ~np.uint8(LOW_KNOWN | HIGH_KNOWN | NULLS_KNOWN)
    # An entry without values needs no bounds.
    idle = (zones.flags & np.uint8(MAY_NUMBER)) == 0
    bounded = (zones.flags & np.uint8(LOW_KNOWN | HIGH_KNOWN)) == LOW_KNOWN | HIGH_KNOWN
    known = np.logical_and.reduceat(bounded | idle, starts)
    flags = (every & ~np.uint8(LOW_KNOWN | HIGH_KNOWN)) | some
    flags = np.where(known, flags | np.uint8(LOW_KNOWN | HIGH_KNOWN), flags).astype(np.uint8)
    if zones.low is None or zones.high is None:
        return Zones(None, None, flags)
    low = _merged(zones.low, ~idle, starts, dtype, is_low=True)
    return Zones(low, _merged(zones.high, ~idle, starts, dtype, is_low=False), flags)


def split_zones(zones: Zones, pieces: int, *, is_sorted: bool) -> Zones:
    """Returns zone maps of blocks cut into ``pieces`` each; ``is_sorted``: by this column, within each block."""
    rows = np.repeat(np.arange(len(zones)), pieces)
    found = zones.take(rows)
    low, high = found.low, found.high
    if not is_sorted or not isinstance(low, NumberKeys) or not isinstance(high, NumberKeys):
        return found
    step = np.tile(np.arange(pieces), len(zones)) / pieces
    span = high.array.astype(np.float64) - low.array.astype(np.float64)
    first, last = low.array + span * step, low.array + span * (step + 1 / pieces)
    if low.array.dtype.kind in "iu":
        first, last = np.floor(first), np.ceil(last)
    kind = low.array.dtype
    return Zones(NumberKeys(first.astype(kind)), NumberKeys(last.astype(kind)), found.flags)


def _column(key: BoundTerm, sample: Sample, count: int) -> SampledColumn:
    """Returns the values of a key in the rows of a sample; null where an expression fails."""
    if isinstance(key, Leaf):
        return sample[key]
    vectors: dict[BoundTerm, Vector] = {leaf: _vector(sample[leaf], leaf.dtype) for leaf in leaves_in(key)}
    vector = RowTerms({}, count, vectors).vector(key)
    valid = vector.valid if vector.failed is None else vector.valid & ~vector.failed
    return from_vectors([Vector(vector.values, np.asarray(valid))])


def _vector(column: SampledColumn, dtype: DataType) -> Vector:
    there = column.valid | column.nan
    if dtype.order == "bytes":
        values = [value if ok else b"" for value, ok in zip(column.values.tolist(), there.tolist(), strict=True)]
        return Vector(pa.array(values, pa.large_binary()), there)
    kind = np.dtype(object) if is_wide(dtype) else number_dtype(dtype)
    numbers = np.where(there, column.values, 0)
    numbers = np.array([int(value) for value in numbers], dtype=object) if is_wide(dtype) else numbers.astype(kind)
    return Vector(numbers, there)


def _runs(ranks: Rows, edges: Rows) -> tuple[Rows, Rows]:
    """Returns for each block the rows from the first one with the value of its first row to the last one with that of
    its last row, by the sorted ranks of the values; of long runs only a part."""
    first, last = edges[:-1], np.maximum(edges[1:] - 1, edges[:-1])
    starts = np.searchsorted(ranks, ranks[first], side="left")
    stops = np.searchsorted(ranks, ranks[last], side="right")
    return np.maximum(starts, first - _MAX_RUN), np.minimum(stops, last + 1 + _MAX_RUN)


class _Runs:
    """The rows of blocks on the keys before one: a run has equal values of these, and is sorted by that key.

    ``in_order``: the blocks with rows of at most two runs, ``starts`` to ``stops``, with one more row on either side if
    its run has more: the sample lacks the rows between.
    """

    def __init__(self, ranks: Sequence[Rows], edges: Rows) -> None:
        differs = np.zeros(len(ranks[0]), dtype=np.int64)
        for each in ranks:
            differs[1:] |= each[1:] != each[:-1]
        run = np.cumsum(differs)
        first, last = edges[:-1], np.maximum(edges[1:] - 1, edges[:-1])
        self.in_order = np.asarray(run[last] - run[first] <= 1)
        self.starts = np.maximum(first - 1, np.searchsorted(run, run[first], side="left"))
        self.stops = np.minimum(last + 2, np.searchsorted(run, run[last], side="right"))
        self._second = np.searchsorted(run, run[first], side="right")

    def spans(self, dtype: DataType, column: SampledColumn) -> Spans:
        """Returns two ranges for each block that has the end of one run and the beginning of the next, if the gap
        between them is one that statistics record."""
        edges: list[Any] = []
        offsets = [0]
        rows = [each.tolist() for each in (self.in_order, self.starts, self._second, self.stops)]
        for in_order, start, second, stop in zip(*rows, strict=True):
            if in_order and second < stop:
                parts = [column.values[at:end][column.valid[at:end]] for at, end in ((start, second), (second, stop))]
                if all(len(part) for part in parts):
                    (low, high), (next_low, next_high) = sorted((part.min(), part.max()) for part in parts)
                    if MIN_SHARE * (float(next_low) - float(high)) >= max(float(next_high) - float(low), 1.0):
                        edges += [low, high, next_low, next_high]
            offsets.append(len(edges))
        return Spans(np.array(offsets, dtype=np.int64), np.array(edges, dtype=number_dtype(dtype)))


def _order(columns: Sequence[SampledColumn], ties: Rows) -> Rows:
    ranks = [_ranks(column) for column in reversed(columns)]
    return np.asarray(np.lexsort([ties, *ranks]))


def _along(kind: Literal["zorder", "hilbert"], columns: Sequence[SampledColumn], ties: Rows) -> Rows:
    """Returns the order of the rows along a curve through quantiles of the keys, as a rewrite computes them."""
    bits = curve.bits_for(len(columns))
    points = []
    for column in columns:
        ranks = _ranks(column)
        _, first = np.unique(np.sort(ranks), return_index=True)
        below = first[np.searchsorted(np.unique(ranks), ranks)]  # rows with smaller values
        numbers = np.floor(below / max(len(ranks), 1) * float(1 << bits))
        points.append(np.minimum(numbers, float((1 << bits) - 1)).astype(np.uint64))
    found = curve.positions(kind, np.column_stack(points), bits)
    return ties[curve.order(found[ties])]


def _ranks(column: SampledColumn) -> Rows:
    """Returns numbers in the order of the values; equal for equal values. Nulls come first, NaN last."""
    ranks = np.zeros(len(column.valid), dtype=np.int64)
    _, numbers, counts = np.unique(column.values[column.valid], return_inverse=True, return_counts=True)
    ranks_of_values = (np.cumsum(counts) - counts)[numbers]  # rows of smaller values
    if column.width and len(ranks_of_values):  # sampled: rows of one value are those of one range of ranks
        ranks_of_values = np.floor(ranks_of_values / max(column.width * len(ranks_of_values), 1.0)).astype(np.int64)
    ranks[column.valid] = ranks_of_values + 1
    ranks[column.nan] = ranks.max(initial=0) + 1
    return ranks


def _of_first_key(dtype: DataType, column: SampledColumn, edges: Rows) -> Zones:
    """Returns zone maps of slices of rows sorted by this column; values that the sample lacks lie between two
    slices."""
    values, numbers = column.values, np.flatnonzero(column.valid)
    flags = np.full(len(edges) - 1, NULLS_KNOWN, dtype=np.int64)
    begin, end = (int(numbers[0]), int(numbers[-1]) + 1) if len(numbers) else (0, 0)
    # Drawn rows that count as one value are in any order; a sort puts them in theirs.
    values = np.concatenate([values[:begin], np.sort(values[begin:end]), values[end:]])
    nulls = int((~column.valid & ~column.nan).sum())
    flags |= np.where(edges[:-1] < nulls, MAY_NULL, 0)
    flags |= np.where(edges[1:] > len(values) - int(column.nan.sum()), MAY_NAN, 0)
    if not len(numbers):
        return _zones(dtype, [_zero(dtype)] * len(flags), [_zero(dtype)] * len(flags), flags)
    spread = round(column.width * len(values) / 2)  # half the rows of a value, on either side
    first = np.clip(edges[:-1] - spread, begin, end - 1)
    last = np.clip(edges[1:] - 1 + spread, begin, end - 1)
    following = np.minimum(last + 1, end - 1)
    repeated = np.zeros(len(values), dtype=bool)
    repeated[1:] = values[1:] == values[:-1]
    repeated[:-1] |= values[:-1] == values[1:]
    last = np.where(repeated[last], last, following)
    has_values = (edges[1:] > begin) & (edges[:-1] < end)
    flags |= np.where(has_values, LOW_KNOWN | HIGH_KNOWN | MAY_NUMBER, 0)
    return _zones(dtype, list(values[first]), list(values[last]), flags)


def _zero(dtype: DataType) -> Any:
    return b"" if dtype.order == "bytes" else 0


def _of_slices(dtype: DataType, column: SampledColumn, starts: Rows, stops: Rows) -> Zones:
    zero = _zero(dtype)
    lows: list[Any] = []
    highs: list[Any] = []
    flags = np.full(len(starts), NULLS_KNOWN, dtype=np.uint8)
    for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        is_there, nan = column.valid[start:stop], column.nan[start:stop]
        some = column.values[start:stop][is_there]
        if not (is_there | nan).all():
            flags[number] |= MAY_NULL
        if nan.any():
            flags[number] |= MAY_NAN
        lows.append(min(some) if len(some) else zero)
        highs.append(max(some) if len(some) else zero)
        if len(some):
            flags[number] |= LOW_KNOWN | HIGH_KNOWN | MAY_NUMBER
    return _zones(dtype, lows, highs, flags)


def _zones(dtype: DataType, lows: list[Any], highs: list[Any], flags: Any) -> Zones:
    if is_wide(dtype):
        lows, highs = [int(low) for low in lows], [int(high) for high in highs]
    return Zones(keys_of(dtype, lows), keys_of(dtype, highs), np.asarray(flags, dtype=np.uint8))


def _merged(keys: Keys, counts: Any, starts: Rows, dtype: DataType, *, is_low: bool) -> Keys | None:
    """Returns the minimum or the maximum bound of each run; entries that do not count have none."""
    best = np.minimum if is_low else np.maximum
    if isinstance(keys, NumberKeys):
        array = keys.array
        limits = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
        return NumberKeys(best.reduceat(np.where(counts, array, limits.max if is_low else limits.min), starts))
    pick = min if is_low else max
    stops = [*starts[1:].tolist(), len(counts)]
    found = []
    for start, stop in zip(starts.tolist(), stops, strict=True):
        mine = [_at(keys, row) for row in range(start, stop) if counts[row]]
        found.append(pick(mine) if mine else (b"" if dtype.order == "bytes" else 0))
    return keys_of(dtype, found)


def _at(keys: Keys, row: int) -> Any:
    if isinstance(keys, BytesKeys):
        return keys.at(row)
    if isinstance(keys, WideKeys):
        return int(keys.high[row]) * (1 << 64) + int(keys.low[row])
    raise TypeError(f"{type(keys).__name__} has only numbers")
