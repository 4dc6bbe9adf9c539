"""Positions of rows along a z-order or Hilbert curve through several columns.

A point has one whole number of ``bits`` bits for each of d columns; the quantiles below turn values into such numbers.
The position of a point is a number of ``d * bits`` bits, stored in as many 64-bit words as necessary, most significant
word first, padded with zeros in front. Positions compare word by word. Different points have different positions, and
every number of ``d * bits`` bits is the position of a point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, Self, get_args

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask, words_at
from lamella.snapshot.columnar.zones import is_wide
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.row_filter import decimal_limbs, vector_of
from lamella.snapshot.schema import DataType, parse_type

# Values of a column in Arrow arrays, in forms that can be sorted and searched in bulk.
#
# Numbers stay as they are. Decimals of more than 18 digits become two limbs. Text and bytes stay Arrow binary; their
# first eight bytes decide most comparisons. All three follow the order of the type (see ``snapshot.schema.types``).

Ranks = npt.NDArray[np.int64]


class Ordered(Protocol):
    """A sequence of n values without nulls, in a form that can be sorted."""

    def __len__(self) -> int:
        """Returns the number of values."""

    def take(self, rows: Ranks) -> Self:
        """Returns the values of some rows, in the given order."""

    def sorted(self) -> Self:
        """Returns all values in ascending order, NaN after all numbers."""

    def starts(self) -> Mask:
        """For sorted values: returns where a value differs from the one before it."""

    def rank_in(self, cuts: Any) -> tuple[Ranks, Mask]:
        """Returns for each value the number of ``cuts`` below it, and whether the value equals a cut.

        ``cuts`` has the same form and is ascending without duplicates.
        """

    def columns(self) -> dict[str, pa.Array]:
        """Returns the values as Arrow columns that :func:`restored` reads back."""


class Numbers(msgspec.Struct, frozen=True, eq=False):
    """Values as int64, uint64 or float64."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: Ranks) -> Numbers:
        """Returns the values of some rows, in the given order."""
        return Numbers(self.array[rows])

    def sorted(self) -> Numbers:
        """Returns all values in ascending order."""
        return Numbers(np.sort(self.array))

    def starts(self) -> Mask:
        """Returns where a value differs from the one before it."""
        before, after = self.array[:-1], self.array[1:]
        differs = before != after
        if self.array.dtype.kind == "f":
            differs &= ~(np.isnan(before) & np.isnan(after))
        return _first(differs, len(self))

    def rank_in(self, cuts: Numbers) -> tuple[Ranks, Mask]:
        """Returns the number of cuts below each value, and whether the value equals a cut."""
        left = np.searchsorted(cuts.array, self.array, side="left")
        return left, np.searchsorted(cuts.array, self.array, side="right") > left

    def columns(self) -> dict[str, pa.Array]:
        """Returns the values as one column."""
        return {"number": pa.array(self.array)}


class Wide(msgspec.Struct, frozen=True, eq=False):
    """Integers of up to 128 bits: signed high limbs, unsigned low limbs."""

    high: Any
    low: Any

    def __len__(self) -> int:
        return len(self.high)

    def take(self, rows: Ranks) -> Wide:
        """Returns the values of some rows, in the given order."""
        return Wide(self.high[rows], self.low[rows])

    def sorted(self) -> Wide:
        """Returns all values in ascending order."""
        return self.take(np.lexsort((self.low, self.high)))

    def starts(self) -> Mask:
        """Returns where a value differs from the one before it."""
        differs = (self.high[:-1] != self.high[1:]) | (self.low[:-1] != self.low[1:])
        return _first(differs, len(self))

    def rank_in(self, cuts: Wide) -> tuple[Ranks, Mask]:
        """Returns the number of cuts below each value, and whether the value equals a cut."""
        low = np.searchsorted(cuts.high, self.high, side="left")
        high = np.searchsorted(cuts.high, self.high, side="right")
        # Where the high limbs are equal, the low limbs decide.
        left = _bisected(low, high, lambda rows, cut_rows: cuts.low[cut_rows] < self.low[rows])
        is_cut = left < high
        is_cut[is_cut] = cuts.low[left[is_cut]] == self.low[is_cut]
        return left, is_cut

    def columns(self) -> dict[str, pa.Array]:
        """Returns the values as two columns."""
        return {"high": pa.array(self.high), "low": pa.array(self.low)}


class Texts(msgspec.Struct, frozen=True, eq=False):
    """Text or bytes, as an Arrow array of large binary without nulls."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: Ranks) -> Texts:
        """Returns the values of some rows, in the given order."""
        return Texts(self.array.take(pa.array(rows)))

    def sorted(self) -> Texts:
        """Returns all values in ascending order."""
        return Texts(self.array.take(pc.sort_indices(self.array)))

    def starts(self) -> Mask:
        """Returns where a value differs from the one before it."""
        if len(self) < 2:
            return np.ones(len(self), dtype=bool)
        differs = pc.not_equal(self.array.slice(0, len(self) - 1), self.array.slice(1))
        return _first(differs.to_numpy(zero_copy_only=False), len(self))

    def rank_in(self, cuts: Texts) -> tuple[Ranks, Mask]:
        """Returns the number of cuts below each value, and whether the value equals a cut."""
        count = len(cuts)
        if not count:
            return np.zeros(len(self), dtype=np.int64), np.zeros(len(self), dtype=bool)
        shared = _shared(cuts.array[0].as_py(), cuts.array[count - 1].as_py())
        begins = pc.starts_with(self.array, shared).to_numpy(zero_copy_only=False)
        # A value that lacks the common prefix of the cuts lies below or above all of them.
        outside = np.where(pc.less(self.array, pa.scalar(shared, pa.large_binary())), 0, count)
        words, of_cuts = self._words(len(shared)), cuts._words(len(shared))
        low = np.where(begins, np.searchsorted(of_cuts, words, side="left"), outside)
        high = np.where(begins, np.searchsorted(of_cuts, words, side="right"), outside)

        def is_below(rows: Ranks, cut_rows: Ranks) -> Mask:
            below = pc.less(cuts.array.take(pa.array(cut_rows)), self.array.take(pa.array(rows)))
            return np.asarray(below.to_numpy(zero_copy_only=False))

        left = _bisected(low, high, is_below)
        is_cut = left < high
        rows = np.flatnonzero(is_cut)
        equal = pc.equal(cuts.array.take(pa.array(left[rows])), self.array.take(pa.array(rows)))
        is_cut[rows] = equal.to_numpy(zero_copy_only=False)
        return left, is_cut

    def columns(self) -> dict[str, pa.Array]:
        """Returns the values as one column."""
        return {"text": self.array}

    def _words(self, at: int) -> npt.NDArray[np.uint64]:
        """Returns eight bytes of each value, from byte ``at`` on."""
        _, offsets, data = self.array.buffers()
        count, start = len(self.array), self.array.offset
        ends = np.frombuffer(offsets, dtype=np.int64)[start : start + count + 1]
        content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
        return words_at(content, ends, np.arange(count), at)


def ordered(array: pa.Array, dtype: DataType) -> tuple[Ordered, Mask]:
    """Returns the values of an array (arbitrary where it is null), and where it is not null.

    Raises:
        TypeError: the array does not hold values of the type, or these have no order.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_wide(dtype):
        high, low = decimal_limbs(array, dtype)
        return Wide(high, low), array.is_valid().to_numpy(zero_copy_only=False)
    vector = vector_of(array, dtype)
    return Texts(vector.values) if vector.is_bytes else Numbers(vector.values), vector.valid


def restored(table: pa.Table, dtype: DataType) -> Ordered:
    """Reads values of a type back from their :meth:`Ordered.columns`."""
    if is_wide(dtype):
        return Wide(table.column("high").to_numpy(), table.column("low").to_numpy())
    if dtype.order == "bytes":
        chunks = table.column("text").chunks
        return Texts(pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary()))
    return Numbers(table.column("number").to_numpy())


def _first(differs: Any, count: int) -> Mask:
    return np.concatenate([np.ones(min(count, 1), dtype=bool), differs])


def _bisected(low: Ranks, high: Ranks, is_below: Callable[[Ranks, Ranks], Mask]) -> Ranks:
    """Returns for each row the first index from ``low`` to ``high`` whose element is not below the row's value.

    ``is_below(rows, cut_rows)``: whether the element at an index is below a row's value.
    """
    left, right = low.astype(np.int64), high.astype(np.int64)
    rows = np.flatnonzero(left < right)
    while len(rows):
        middle = (left[rows] + right[rows]) // 2
        below = is_below(rows, middle)
        left[rows[below]] = middle[below] + 1
        right[rows[~below]] = middle[~below]
        rows = rows[left[rows] < right[rows]]
    return left


def _shared(first: bytes, last: bytes) -> bytes:
    """Returns the common prefix of all byte strings from ``first`` to ``last``."""
    count = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None)
    return first[: min(len(first), len(last)) if count is None else count]


# Values of a column as ranks among all rows, the input of the curves.
#
# A sample of the rows gives numbers from 0 to ``2 ** bits - 1`` in the column's order: ascending, NaN above all
# numbers, -0.0 equal to 0.0, text by its UTF-8 bytes, nulls last. A number is about ``2 ** bits`` times the fraction of
# rows that sort before the value, plus half of the rows that are equal to it. So a column with few values uses all bits
# too, and each value gets a share of the range that matches its number of rows. Equal values always get the same
# number, and a greater value never gets a smaller number. Different values may get the same number; a caller that sorts
# by these numbers breaks ties by the values.

#: Maximum number of distinct sample values that are remembered.
MAX_CUTS: Final = 1 << 16
_META: Final = b"lamella.quantiles"


class Quantiles(msgspec.Struct, frozen=True, eq=False):
    """The ranks of a column's values. :meth:`packed` and :func:`unpacked` transfer it to another process.

    ``cuts``: some of the sample's values, ascending, without duplicates. ``at``: the number of each cut. ``between``:
    the numbers of values before the first cut, between neighbouring cuts, and after the last one (one more than there
    are cuts). ``of_null``: the number of nulls.
    """

    dtype: DataType
    bits: int
    cuts: Ordered
    at: Any
    between: Any
    of_null: int

    def numbers(self, values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint64]:
        """Returns the number of each value.

        Raises:
            TypeError: the array does not hold values of the column's type.
        """
        if isinstance(values, pa.ChunkedArray):
            parts = [self.numbers(chunk) for chunk in values.chunks]
            return np.concatenate([np.zeros(0, dtype=np.uint64), *parts])
        given, valid = ordered(values, self.dtype)
        left, is_cut = given.rank_in(self.cuts)
        found = self.between[left]
        found[is_cut] = self.at[left[is_cut]]
        found[~valid] = self.of_null
        return np.asarray(found)

    def packed(self) -> bytes:
        """Returns the quantiles as bytes."""
        meta = {"dtype": str(self.dtype), "bits": self.bits, "above": int(self.between[-1]), "null": self.of_null}
        columns = {**self.cuts.columns(), "at": pa.array(self.at), "before": pa.array(self.between[:-1])}
        table = pa.table(columns).replace_schema_metadata({_META: msgspec.json.encode(meta)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())


def unpacked(data: bytes) -> Quantiles:
    """Reads back the bytes of :meth:`Quantiles.packed`."""
    table = pa.ipc.open_stream(data).read_all().combine_chunks()
    meta = msgspec.json.decode(table.schema.metadata[_META])
    dtype = parse_type(meta["dtype"])
    before = table.column("before").to_numpy()
    between = np.concatenate([before, np.array([meta["above"]], dtype=np.uint64)])
    at = table.column("at").to_numpy()
    return Quantiles(dtype, meta["bits"], restored(table, dtype), at, between, meta["null"])


def quantiles(sample: pa.Array | pa.ChunkedArray, dtype: DataType, bits: int) -> Quantiles:
    """Computes quantiles from a sample of the rows, nulls included; up to about 2 ** bits rows, a larger sample is more
    precise.

    Raises:
        InvalidRequest: values of the type have no order.
        TypeError: the array does not hold values of the type.
        ValueError: not 1 <= bits <= 32.
    """
    if not 1 <= bits <= 32:
        raise ValueError(f"a column has 1 to 32 bits, not {bits}")
    if dtype.order is None:
        raise InvalidRequest(f"values of {dtype} have no order")
    if isinstance(sample, pa.ChunkedArray):
        sample = pa.concat_arrays(sample.chunks) if sample.num_chunks else pa.array([], sample.type)
    total, nulls = len(sample), sample.null_count
    given, _ = ordered(sample.drop_null(), dtype)
    values = given.sorted()
    starts = np.flatnonzero(values.starts())
    stops = np.append(starts[1:], total - nulls)[: len(starts)]
    chosen = _spread_out(starts, stops, min(MAX_CUTS, 1 << bits))
    left, right = starts[chosen].astype(np.float64), stops[chosen].astype(np.float64)
    inner = (np.append(0.0, right) + np.append(left, float(total - nulls))) / 2
    return Quantiles(
        dtype,
        bits,
        values.take(starts[chosen]),
        _numbers((left + right) / 2, total, bits),
        _numbers(inner, total, bits),
        int(_numbers(np.array([total - nulls / 2]), total, bits)[0]),
    )


def _spread_out(starts: Any, stops: Any, count: int) -> Any:
    """Selects the distinct values to remember: those at evenly spaced rows of the sample."""
    if len(starts) <= count:
        return np.arange(len(starts))
    targets = (np.arange(count) + 0.5) * (stops[-1] / count)
    return np.unique(np.searchsorted(stops, targets, side="right"))


def _numbers(ranks: Any, total: int, bits: int) -> npt.NDArray[np.uint64]:
    """Converts ranks among the rows of the sample to numbers of ``bits`` bits."""
    if not total:
        return np.full(len(ranks), (1 << bits) - 1, dtype=np.uint64)
    numbers = np.minimum(np.floor(ranks / total * (1 << bits)), (1 << bits) - 1)
    return np.asarray(numbers, dtype=np.uint64)


#: n rows, one column per column of the key.
Points = npt.NDArray[np.uint64]
#: n rows, one column per word.
Positions = npt.NDArray[np.uint64]
CurveKind = Literal["zorder", "hilbert"]

#: Maximum bits of a column: more than a sample of its values can tell apart.
MAX_BITS: Final = 16
_WORD_BITS: Final = 64


def bits_for(columns: int) -> int:
    """Returns the bits per column that let positions fit one word; at least 1, at most :data:`MAX_BITS`."""
    return max(1, min(MAX_BITS, _WORD_BITS // columns))


def positions(kind: CurveKind, points: Points, bits: int) -> Positions:
    """The positions of points along a curve, n rows of ``ceil(d * bits / 64)`` words.

    ``points``: n rows of d >= 1 numbers below ``2 ** bits``, with 1 <= bits <= 64.

    Raises:
        ValueError: unknown kind, no columns, ``bits`` out of range, or a number with more bits.
    """
    if kind not in get_args(CurveKind):
        raise ValueError(f"there is no curve {kind!r}")
    points = np.asarray(points, dtype=np.uint64)
    if points.ndim != 2 or points.shape[1] < 1:
        raise ValueError("points must have at least one column")
    if not 1 <= bits <= _WORD_BITS:
        raise ValueError(f"a column has 1 to {_WORD_BITS} bits, not {bits}")
    if bits < _WORD_BITS and len(points) and int(points.max()) >> bits:
        raise ValueError(f"a point has more than {bits} bits")
    columns = [np.ascontiguousarray(points[:, column]) for column in range(points.shape[1])]
    return _interleaved(columns if kind == "zorder" else _transposed(columns, bits), bits)


def order(found: Positions) -> npt.NDArray[np.int64]:
    """Returns the rows in the order of their positions; the sort is stable."""
    return np.asarray(np.lexsort(tuple(found[:, word] for word in reversed(range(found.shape[1])))), dtype=np.int64)


def to_arrow(found: Positions) -> pa.Array:
    """Converts positions to an Arrow array whose sort order follows the curve: uint64, or big-endian bytes of a fixed
    size."""
    count, words = found.shape
    if words == 1:
        return pa.array(found[:, 0], pa.uint64())
    data: Any = found.astype(">u8").tobytes()
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8 * words), count, [None, pa.py_buffer(data)])


def _interleaved(columns: list[Any], bits: int) -> Positions:
    """Interleaves the bits of the columns, highest bits first."""
    width = len(columns) * bits
    words = -(-width // _WORD_BITS)
    found = np.zeros((words, len(columns[0])), dtype=np.uint64)
    one = np.uint64(1)
    for level in range(bits):
        for column, values in enumerate(columns):
            # Counted from the lowest bit of the position.
            bit_index = level * len(columns) + len(columns) - 1 - column
            bit = (values >> np.uint64(level)) & one
            found[words - 1 - bit_index // _WORD_BITS] |= bit << np.uint64(bit_index % _WORD_BITS)
    return np.ascontiguousarray(found.T)


def _transposed(points: list[Any], bits: int) -> list[Any]:
    """Returns numbers whose interleaved bits are the Hilbert positions of the points (Skilling's "transposed" form)."""
    count = len(points)
    if count == 1:
        return points
    axes = [column.copy() for column in points]
    zero = np.uint64(0)
    for level in range(bits - 1, 0, -1):
        bit, below = np.uint64(1 << level), np.uint64((1 << level) - 1)
        for axis in range(count):
            is_set = (axes[axis] & bit) != zero
            # Where the bit is set the first axis is mirrored; elsewhere it is swapped with this axis.
            swapped = np.where(is_set, zero, (axes[0] ^ axes[axis]) & below)
            axes[0] ^= np.where(is_set, below, swapped)
            axes[axis] ^= swapped
    for axis in range(1, count):
        axes[axis] ^= axes[axis - 1]
    flips = np.zeros_like(axes[0])
    for level in range(bits - 1, 0, -1):
        is_set = (axes[-1] & np.uint64(1 << level)) != zero
        flips ^= np.where(is_set, np.uint64((1 << level) - 1), zero)
    return [axis ^ flips for axis in axes]
