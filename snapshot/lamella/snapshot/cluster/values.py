"""Values of a column in Arrow arrays, in forms that can be sorted and looked up many at a time.

Numbers as they are; decimals of more than 18 digits as two limbs; text and bytes as Arrow's, of which eight bytes
decide most comparisons. All three are in the order of the type (see :mod:`lamella.snapshot.schema.types`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.bytes_keys import words_at
from lamella.snapshot.columnar.masks import Mask
from lamella.snapshot.columnar.zones import is_wide
from lamella.snapshot.rows.vectors import decimal_limbs, vector_of
from lamella.snapshot.schema import DataType

Ranks = npt.NDArray[np.int64]


class Ordered(Protocol):
    """n values, none of them null."""

    def __len__(self) -> int:
        """How many there are."""

    def take(self, rows: Ranks) -> Self:
        """Some of them, in that order."""

    def sorted(self) -> Self:
        """All of them, ascending; NaN behind all numbers."""

    def starts(self) -> Mask:
        """Of sorted values: where one differs from that before it."""

    def found_in(self, cuts: Any) -> tuple[Ranks, Mask]:
        """How many of ``cuts`` (of the same form, ascending, each once) lie below each value, and whether it is one."""

    def columns(self) -> dict[str, pa.Array]:
        """As Arrow columns, see :func:`restored`."""


class Numbers(msgspec.Struct, frozen=True, eq=False):
    """int64, uint64 or float64."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: Ranks) -> Numbers:
        """Some of them, in that order."""
        return Numbers(self.array[rows])

    def sorted(self) -> Numbers:
        """All of them, ascending."""
        return Numbers(np.sort(self.array))

    def starts(self) -> Mask:
        """Where one differs from that before it."""
        before, after = self.array[:-1], self.array[1:]
        differs = before != after
        if self.array.dtype.kind == "f":
            differs &= ~(np.isnan(before) & np.isnan(after))
        return _first(differs, len(self))

    def found_in(self, cuts: Numbers) -> tuple[Ranks, Mask]:
        """How many cuts lie below each value, and whether it is one."""
        left = np.searchsorted(cuts.array, self.array, side="left")
        return left, np.searchsorted(cuts.array, self.array, side="right") > left

    def columns(self) -> dict[str, pa.Array]:
        """One column."""
        return {"number": pa.array(self.array)}


class Wide(msgspec.Struct, frozen=True, eq=False):
    """Whole numbers of up to 128 bits: signed high limbs, unsigned low limbs."""

    high: Any
    low: Any

    def __len__(self) -> int:
        return len(self.high)

    def take(self, rows: Ranks) -> Wide:
        """Some of them, in that order."""
        return Wide(self.high[rows], self.low[rows])

    def sorted(self) -> Wide:
        """All of them, ascending."""
        return self.take(np.lexsort((self.low, self.high)))

    def starts(self) -> Mask:
        """Where one differs from that before it."""
        differs = (self.high[:-1] != self.high[1:]) | (self.low[:-1] != self.low[1:])
        return _first(differs, len(self))

    def found_in(self, cuts: Wide) -> tuple[Ranks, Mask]:
        """How many cuts lie below each value, and whether it is one."""
        low = np.searchsorted(cuts.high, self.high, side="left")
        high = np.searchsorted(cuts.high, self.high, side="right")
        # Within equal high limbs the low ones decide.
        left = _bisected(low, high, lambda rows, places: cuts.low[places] < self.low[rows])
        is_cut = left < high
        is_cut[is_cut] = cuts.low[left[is_cut]] == self.low[is_cut]
        return left, is_cut

    def columns(self) -> dict[str, pa.Array]:
        """Two columns."""
        return {"high": pa.array(self.high), "low": pa.array(self.low)}


class Texts(msgspec.Struct, frozen=True, eq=False):
    """Text and bytes, as an array of large binary without nulls."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: Ranks) -> Texts:
        """Some of them, in that order."""
        return Texts(self.array.take(pa.array(rows)))

    def sorted(self) -> Texts:
        """All of them, ascending."""
        return Texts(self.array.take(pc.sort_indices(self.array)))

    def starts(self) -> Mask:
        """Where one differs from that before it."""
        if len(self) < 2:
            return np.ones(len(self), dtype=bool)
        differs = pc.not_equal(self.array.slice(0, len(self) - 1), self.array.slice(1))
        return _first(differs.to_numpy(zero_copy_only=False), len(self))

    def found_in(self, cuts: Texts) -> tuple[Ranks, Mask]:
        """How many cuts lie below each value, and whether it is one."""
        count = len(cuts)
        if not count:
            return np.zeros(len(self), dtype=np.int64), np.zeros(len(self), dtype=bool)
        shared = _shared(cuts.array[0].as_py(), cuts.array[count - 1].as_py())
        begins = pc.starts_with(self.array, shared).to_numpy(zero_copy_only=False)
        # A value that does not begin as all cuts do lies below or above them all.
        outside = np.where(pc.less(self.array, pa.scalar(shared, pa.large_binary())), 0, count)
        words, of_cuts = self._words(len(shared)), cuts._words(len(shared))
        low = np.where(begins, np.searchsorted(of_cuts, words, side="left"), outside)
        high = np.where(begins, np.searchsorted(of_cuts, words, side="right"), outside)

        def is_below(rows: Ranks, places: Ranks) -> Mask:
            below = pc.less(cuts.array.take(pa.array(places)), self.array.take(pa.array(rows)))
            return np.asarray(below.to_numpy(zero_copy_only=False))

        left = _bisected(low, high, is_below)
        is_cut = left < high
        rows = np.flatnonzero(is_cut)
        equal = pc.equal(cuts.array.take(pa.array(left[rows])), self.array.take(pa.array(rows)))
        is_cut[rows] = equal.to_numpy(zero_copy_only=False)
        return left, is_cut

    def columns(self) -> dict[str, pa.Array]:
        """One column."""
        return {"text": self.array}

    def _words(self, at: int) -> npt.NDArray[np.uint64]:
        """Eight bytes of each from byte ``at`` on."""
        _, offsets, data = self.array.buffers()
        count, start = len(self.array), self.array.offset
        ends = np.frombuffer(offsets, dtype=np.int64)[start : start + count + 1]
        content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
        return words_at(content, ends, np.arange(count), at)


def ordered(array: pa.Array, dtype: DataType) -> tuple[Ordered, Mask]:
    """The values of an array (arbitrary where it is null), and where it is not null.

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
    """The values of a type from their :meth:`Ordered.columns`."""
    if is_wide(dtype):
        return Wide(table.column("high").to_numpy(), table.column("low").to_numpy())
    if dtype.order == "bytes":
        chunks = table.column("text").chunks
        return Texts(pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary()))
    return Numbers(table.column("number").to_numpy())


def _first(differs: Any, count: int) -> Mask:
    return np.concatenate([np.ones(min(count, 1), dtype=bool), differs])


def _bisected(low: Ranks, high: Ranks, is_below: Callable[[Ranks, Ranks], Mask]) -> Ranks:
    """For each row the first place from ``low`` to ``high`` that is not below it.

    ``is_below(rows, places)``: whether what stands at a place is below a row's value.
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
    """What everything from the first to the last begins with."""
    count = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None)
    return first[: min(len(first), len(last)) if count is None else count]
