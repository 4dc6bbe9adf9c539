"""Arrays of bounds that can be compared with one value, exactly, in the order of their type.

Three representations: machine numbers (NumPy's own comparison is the type's order: int64, uint64, float64 without
NaN), decimals of more than 18 digits as two 64-bit limbs, and bytes through an order-preserving 8-byte prefix with
exact look-up where prefixes tie.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.bytes_keys import BytesKeys, SharedKeys, bytes_keys, prefix_key
from lamella.snapshot.columnar.masks import Mask, Ranks

__all__ = [
    "BytesKeys",
    "Keys",
    "Mask",
    "NumberKeys",
    "Ranks",
    "SharedKeys",
    "WideKeys",
    "bytes_keys",
    "choose",
    "joined_keys",
    "lesser",
    "prefix_key",
    "split_wide",
]

_LIMB: Final = 1 << 64


class Keys(Protocol):
    """n bounds; entries that are not known hold an arbitrary value, the caller masks them."""

    def less(self, value: Any) -> Mask:
        """Where bound < value."""

    def less_equal(self, value: Any) -> Mask:
        """Where bound <= value."""

    def rank(self, values: Sequence[Any], *, right: bool) -> Ranks:
        """How many of the ascending ``values`` lie below each bound (``right``: at or below)."""

    def take(self, rows: npt.NDArray[Any]) -> Keys:
        """The bounds of some entries, in that order."""

    def cut(self, start: int, stop: int) -> Keys:
        """The bounds of the entries from ``start`` to before ``stop``, without copying."""


class NumberKeys:
    """int64, uint64 or float64, compared with values of the same: int64 never meets a double."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def less(self, value: Any) -> Mask:
        """Where bound < value."""
        return np.asarray(self.array < np.array(value, dtype=self.array.dtype))

    def less_equal(self, value: Any) -> Mask:
        """Where bound <= value."""
        return np.asarray(self.array <= np.array(value, dtype=self.array.dtype))

    def rank(self, values: Sequence[Any], *, right: bool) -> Ranks:
        """How many of the ascending ``values`` lie below each bound (``right``: at or below)."""
        ordered = np.array(values, dtype=self.array.dtype)
        return np.searchsorted(ordered, self.array, side="right" if right else "left")

    def take(self, rows: npt.NDArray[Any]) -> NumberKeys:
        """The bounds of some entries, in that order."""
        return NumberKeys(self.array[rows])

    def cut(self, start: int, stop: int) -> NumberKeys:
        """The bounds of the entries from ``start`` to before ``stop``, without copying."""
        return NumberKeys(self.array[start:stop])


class WideKeys:
    """Integers of up to 128 bits: signed high limb, unsigned low limb."""

    def __init__(self, high: npt.NDArray[np.int64], low: npt.NDArray[np.uint64]) -> None:
        self.high = high
        self.low = low

    def less(self, value: int) -> Mask:
        """Where bound < value."""
        high, low = split_wide(value)
        return np.asarray((self.high < high) | ((self.high == high) & (self.low < low)))

    def less_equal(self, value: int) -> Mask:
        """Where bound <= value."""
        high, low = split_wide(value)
        return np.asarray((self.high < high) | ((self.high == high) & (self.low <= low)))

    def rank(self, values: Sequence[int], *, right: bool) -> Ranks:
        """How many of the ascending ``values`` lie below each bound (``right``: at or below)."""
        find = bisect_right if right else bisect_left
        bounds = (int(h) * _LIMB + int(lo) for h, lo in zip(self.high, self.low, strict=True))
        return np.fromiter((find(values, bound) for bound in bounds), dtype=np.int64, count=len(self.high))

    def take(self, rows: npt.NDArray[Any]) -> WideKeys:
        """The bounds of some entries, in that order."""
        return WideKeys(self.high[rows], self.low[rows])

    def cut(self, start: int, stop: int) -> WideKeys:
        """The bounds of the entries from ``start`` to before ``stop``, without copying."""
        return WideKeys(self.high[start:stop], self.low[start:stop])


def joined_keys(parts: Sequence[Keys]) -> Keys:
    """The bounds of several layers one after another; all of one order, and at least one part."""
    if all(isinstance(part, NumberKeys) for part in parts):
        return NumberKeys(np.concatenate([part.array for part in parts if isinstance(part, NumberKeys)]))
    if all(isinstance(part, WideKeys) for part in parts):
        wide = [part for part in parts if isinstance(part, WideKeys)]
        return WideKeys(np.concatenate([part.high for part in wide]), np.concatenate([part.low for part in wide]))
    if all(isinstance(part, BytesKeys) for part in parts):
        texts = [part for part in parts if isinstance(part, BytesKeys)]
        # An offset counts from the start of its own part's bytes.
        data = [
            bytes(part.data[part.offsets[0] : part.offsets[-1]]) if len(part.offsets) > 1 else b"" for part in texts
        ]
        starts = np.cumsum([0, *(len(each) for each in data)])
        moved = [
            part.offsets[:-1] - part.offsets[0] + start for part, start in zip(texts, starts[:-1].tolist(), strict=True)
        ]
        offsets = np.concatenate([*moved, starts[-1:]]).astype(np.int64)
        return BytesKeys(np.concatenate([part.prefix for part in texts]), offsets, memoryview(b"".join(data)))
    raise TypeError("the parts are not of one order")


def lesser(left: Keys, right: Keys) -> Mask:
    """Where the left bound is less than the right one, entry by entry; both of one order."""
    if isinstance(left, NumberKeys) and isinstance(right, NumberKeys):
        return np.asarray(left.array < right.array)
    if isinstance(left, WideKeys) and isinstance(right, WideKeys):
        return np.asarray((left.high < right.high) | ((left.high == right.high) & (left.low < right.low)))
    if isinstance(left, BytesKeys) and isinstance(right, BytesKeys):
        below = np.asarray(left.prefix < right.prefix)
        for index in np.flatnonzero(left.prefix == right.prefix):
            below[index] = left.at(int(index)) < right.at(int(index))
        return below
    raise TypeError(f"{type(left).__name__} and {type(right).__name__} are not of one order")


def choose(where: Mask, left: Keys, right: Keys) -> Keys:
    """The left bound where the mask says so, else the right one."""
    if isinstance(left, NumberKeys) and isinstance(right, NumberKeys):
        return NumberKeys(np.where(where, left.array, right.array))
    if isinstance(left, WideKeys) and isinstance(right, WideKeys):
        return WideKeys(np.where(where, left.high, right.high), np.where(where, left.low, right.low))
    if isinstance(left, BytesKeys) and isinstance(right, BytesKeys):
        return bytes_keys([(left if mine else right).at(index) for index, mine in enumerate(where.tolist())])
    raise TypeError(f"{type(left).__name__} and {type(right).__name__} are not of one order")


def split_wide(value: int) -> tuple[np.int64, np.uint64]:
    """A 128-bit integer as (signed high, unsigned low)."""
    high, low = divmod(value, _LIMB)
    return np.int64(high), np.uint64(low)
