"""Masks over entries, and arrays of bounds that compare with a value exactly, in the order of their type.

There are three representations: machine numbers (NumPy's comparison is the type's order: int64, uint64, float64 without
NaN), decimals of more than 18 digits as two 64-bit limbs, and bytes through an order-preserving 8-byte prefix with an
exact comparison where prefixes tie.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
# Masks over the entries of a layer: an array, or one ``bool`` for all entries.
#
# Statistics are mostly complete, so most questions of SQL's logic (may there be NaN? is a bound missing?) have one
# answer for a whole layer. As one ``bool`` it costs nothing, whatever the number of entries.

Ranks = npt.NDArray[np.int64]
#: A ``bool`` applies to all entries.
Truth = Mask | bool


def both(left: Truth, right: Truth) -> Truth:
    """Returns where left and right are true."""
    # Comparing identities takes no call; small layers spend most of their time here.
    if left is False or right is False:
        return False
    if left is True:
        return right
    return left if right is True else left & right


def either(left: Truth, right: Truth) -> Truth:
    """Returns where left or right is true."""
    if left is True or right is True:
        return True
    if left is False:
        return right
    return left if right is False else left | right


def no(mask: Truth) -> Truth:
    """Returns where the mask is false."""
    return not mask if isinstance(mask, bool) else ~mask


def anywhere(mask: Truth) -> bool:
    """Returns whether the mask is true for any entry, of at least one."""
    return mask if isinstance(mask, bool) else bool(mask.any())


def overlapping(masks: Iterable[Truth]) -> bool:
    """Returns whether two of the masks are true for one entry, of at least one."""
    seen: Truth = False
    for mask in masks:
        if anywhere(both(seen, mask)):
            return True
        seen = either(seen, mask)
    return False


def spread(mask: Truth, count: int) -> Mask:
    """Returns the mask as a new array of ``count`` entries that the caller may change."""
    return np.full(count, mask) if isinstance(mask, bool) else mask.copy()


def filled(mask: Truth, count: int) -> Mask:
    """Returns the mask as an array of ``count`` entries."""
    return np.full(count, mask) if isinstance(mask, bool) else mask


# Byte strings as arrays that compare with a value exactly, in byte order.
#
# The first eight bytes of each, as a big-endian number, decide most comparisons; where they tie, the next eight do.

Words = npt.NDArray[np.uint64]

_WORD_BYTES: Final = 8
#: Up to this many ties are decided one by one, which is faster.
_FEW: Final = 16
#: Maximum length of the common prefix that is searched for.
_MAX_SHARED_BYTES: Final = 1_024


class BytesKeys:
    """n byte strings. ``prefix``: the first eight bytes of each, zero-padded, as a big-endian number.

    String i is ``data[offsets[i]:offsets[i + 1]]``.
    """

    #: The common prefix of all strings, as far as ``words`` omits it.
    shared: bytes = b""
    #: Whether ``words`` contains all of each string after the prefix: none is longer, and none ends in a zero byte.
    is_short: bool = False

    def __init__(self, prefix: Words, offsets: npt.NDArray[np.int64], data: memoryview) -> None:
        self.prefix = prefix
        self.offsets = offsets
        self.data = data

    def at(self, index: int) -> bytes:
        """Returns the bound of one entry."""
        return bytes(self.data[self.offsets[index] : self.offsets[index + 1]])

    def less(self, value: bytes) -> Mask:
        """Returns where bound < value."""
        return self._below(value, or_equal=False)

    def less_equal(self, value: bytes) -> Mask:
        """Returns where bound <= value."""
        return self._below(value, or_equal=True)

    def rank(self, values: Sequence[bytes], *, right: bool) -> Ranks:
        """Returns how many of the ascending ``values`` are below each bound (``right``: at or below)."""
        shared, words = self.shared, self.words
        # Of the values that lack the common prefix, those that sort before it are below every string.
        before = bisect_left(values, shared)
        inside = [value for value in values[before:] if value.startswith(shared)]
        keys = np.array([prefix_key(value[len(shared) :]) for value in inside], dtype=np.uint64)
        ranks = np.searchsorted(keys, words, side="left")
        tied = np.searchsorted(keys, words, side="right") > ranks
        ranks += before
        find = bisect_right if right else bisect_left
        for index in np.flatnonzero(tied):
            ranks[index] = find(values, self.at(int(index)))
        return ranks

    def take(self, rows: npt.NDArray[Any]) -> BytesKeys:
        """Returns the bounds of some entries, in the given order."""
        rows = np.asarray(rows)
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        indexes = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return BytesKeys(self.prefix[rows], offsets, memoryview(self._bytes()[indexes].tobytes()))

    def cut(self, start: int, stop: int) -> BytesKeys:
        """Returns the bounds from ``start`` to before ``stop``, without copying."""
        return BytesKeys(self.prefix[start:stop], self.offsets[start : stop + 1], self.data)

    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.data, dtype=np.uint8)

    @property
    def words(self) -> Words:
        """The eight bytes after the common prefix, which decide most comparisons."""
        return self.prefix

    def _below(self, value: bytes, *, or_equal: bool) -> Mask:
        shared, words = self.shared, self.words
        if not value.startswith(shared):
            # All strings begin with the common prefix, which decides.
            return np.full(len(words), shared < value)
        key = np.uint64(prefix_key(value[len(shared) :]))
        if self.is_short and not value.endswith(b"\0"):
            # A string that equals the first word of a longer value is a prefix of it.
            longer = len(value) > len(shared) + _WORD_BYTES
            return np.asarray(words <= key if or_equal or longer else words < key)
        below = np.asarray(words < key)
        tied = (words == key).nonzero()[0]
        if len(tied) <= _FEW:
            for index in tied.tolist():
                text = self.at(index)
                below[index] = text <= value if or_equal else text < value
        else:
            self._break_ties(tied, value, below, or_equal=or_equal)
        return below

    def _break_ties(self, rows: npt.NDArray[np.int64], value: bytes, below: Mask, *, or_equal: bool) -> None:
        """Decide entries whose words so far equal those of ``value``, eight bytes at a time."""
        at = len(self.shared) + _WORD_BYTES
        while len(rows):
            lengths = self.offsets[rows + 1] - self.offsets[rows]
            if at >= max(len(value), int(lengths.max())):
                # At most zero bytes follow in both, so the shorter one is less.
                below[rows] = lengths <= len(value) if or_equal else lengths < len(value)
                return
            words = words_at(self._bytes(), self.offsets, rows, at)
            key = np.uint64(prefix_key(value[at : at + _WORD_BYTES]))
            below[rows] = words < key
            rows = rows[words == key]
            at += _WORD_BYTES


class SharedKeys(BytesKeys):
    """Strings with a common prefix, such as paths: the compared words come after it.

    ``known``: the entries that count; the others have an arbitrary value.
    """

    def __init__(self, keys: BytesKeys, known: Mask) -> None:
        self.offsets = keys.offsets
        self.data = keys.data
        self._given = keys
        rows = np.flatnonzero(known)
        self.shared = _shared_beginning(keys, rows)
        self._words = np.zeros(len(known), dtype=np.uint64)
        self._words[rows] = words_at(self._bytes(), self.offsets, rows, len(self.shared))
        self.is_short = self._are_short()

    @classmethod
    def of(cls, keys: BytesKeys, shared: bytes, words: Words) -> SharedKeys:
        """Returns strings whose common prefix and following words are known."""
        made = cls._made(keys, shared, words)
        made.is_short = made._are_short()
        return made

    @classmethod
    def _made(cls, keys: BytesKeys, shared: bytes, words: Words) -> SharedKeys:
        made = cls.__new__(cls)
        made.offsets, made.data = keys.offsets, keys.data
        made._given, made.shared, made._words = keys, shared, words
        return made

    def _are_short(self) -> bool:
        ends = self.offsets[1:]
        lengths = ends - self.offsets[:-1] - len(self.shared)
        if len(lengths) and int(lengths.max()) > _WORD_BYTES:
            return False
        return bool(self._bytes()[ends[lengths > 0] - 1].all())

    @property
    def prefix(self) -> Words:  # type: ignore[override]  # computed on demand
        """The first eight bytes of each string."""
        return self._given.prefix

    def cut(self, start: int, stop: int) -> BytesKeys:
        """Returns the bounds from ``start`` to before ``stop``, without copying."""
        made = self._made(self._given.cut(start, stop), self.shared, self._words[start:stop])
        made.is_short = self.is_short
        return made

    @property
    def words(self) -> Words:
        """The eight bytes after the common prefix."""
        return self._words


def words_at(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], at: int
) -> Words:
    """Returns eight bytes of the strings ``rows`` from byte ``at`` on, zero-padded, as big-endian numbers."""
    if not len(rows) or not len(data):
        return np.zeros(len(rows), dtype=np.uint64)
    indexes = (offsets[rows] + at)[:, None] + np.arange(_WORD_BYTES)
    inside = indexes < offsets[rows + 1][:, None]
    found = np.where(inside, data[np.where(inside, indexes, 0)], np.uint8(0))
    words: Words = found.view(">u8").ravel().astype(np.uint64)
    return words


def bytes_keys(values: Sequence[bytes]) -> BytesKeys:
    """Converts byte strings to keys."""
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    prefix = np.array([prefix_key(value) for value in values], dtype=np.uint64)
    return BytesKeys(prefix, offsets, memoryview(b"".join(values)))


def prefix_key(value: bytes) -> int:
    """Returns the first eight bytes as a number; a < b as bytes implies prefix_key(a) <= prefix_key(b)."""
    return int.from_bytes(value[:_WORD_BYTES].ljust(_WORD_BYTES, b"\0"), "big")


def _shared_beginning(keys: BytesKeys, rows: npt.NDArray[np.int64]) -> bytes:
    """Returns the common prefix of the strings ``rows``."""
    if not len(rows):
        return b""
    first = keys.at(int(rows[0]))
    data = np.frombuffer(keys.data, dtype=np.uint8)
    starts = keys.offsets[rows]
    shortest = int((keys.offsets[rows + 1] - starts).min())
    limit = min(shortest, _MAX_SHARED_BYTES)
    for at in range(limit):
        if not (data[starts + at] == first[at]).all():
            return first[:at]
    return first[:limit]


_LIMB: Final = 1 << 64


class Keys(Protocol):
    """n bounds. Unknown entries hold an arbitrary value; the caller masks them."""

    def less(self, value: Any) -> Mask:
        """Returns where bound < value."""

    def less_equal(self, value: Any) -> Mask:
        """Returns where bound <= value."""

    def rank(self, values: Sequence[Any], *, right: bool) -> Ranks:
        """Returns how many of the ascending ``values`` are below each bound (``right``: at or below)."""

    def take(self, rows: npt.NDArray[Any]) -> Keys:
        """Returns the bounds of some entries, in the given order."""

    def cut(self, start: int, stop: int) -> Keys:
        """Returns the bounds from ``start`` to before ``stop``, without copying."""


class NumberKeys:
    """Bounds as int64, uint64 or float64, compared with values of the same type: int64 is never compared with a
    double."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def less(self, value: Any) -> Mask:
        """Returns where bound < value."""
        return np.asarray(self.array < np.array(value, dtype=self.array.dtype))

    def less_equal(self, value: Any) -> Mask:
        """Returns where bound <= value."""
        return np.asarray(self.array <= np.array(value, dtype=self.array.dtype))

    def rank(self, values: Sequence[Any], *, right: bool) -> Ranks:
        """Returns how many of the ascending ``values`` are below each bound (``right``: at or below)."""
        ordered = np.array(values, dtype=self.array.dtype)
        return np.searchsorted(ordered, self.array, side="right" if right else "left")

    def take(self, rows: npt.NDArray[Any]) -> NumberKeys:
        """Returns the bounds of some entries, in the given order."""
        return NumberKeys(self.array[rows])

    def cut(self, start: int, stop: int) -> NumberKeys:
        """Returns the bounds from ``start`` to before ``stop``, without copying."""
        return NumberKeys(self.array[start:stop])


class WideKeys:
    """Integers of up to 128 bits: signed high limb, unsigned low limb."""

    def __init__(self, high: npt.NDArray[np.int64], low: npt.NDArray[np.uint64]) -> None:
        self.high = high
        self.low = low

    def less(self, value: int) -> Mask:
        """Returns where bound < value."""
        high, low = split_wide(value)
        return np.asarray((self.high < high) | ((self.high == high) & (self.low < low)))

    def less_equal(self, value: int) -> Mask:
        """Returns where bound <= value."""
        high, low = split_wide(value)
        return np.asarray((self.high < high) | ((self.high == high) & (self.low <= low)))

    def rank(self, values: Sequence[int], *, right: bool) -> Ranks:
        """Returns how many of the ascending ``values`` are below each bound (``right``: at or below)."""
        find = bisect_right if right else bisect_left
        bounds = (int(h) * _LIMB + int(lo) for h, lo in zip(self.high, self.low, strict=True))
        return np.fromiter((find(values, bound) for bound in bounds), dtype=np.int64, count=len(self.high))

    def take(self, rows: npt.NDArray[Any]) -> WideKeys:
        """Returns the bounds of some entries, in the given order."""
        return WideKeys(self.high[rows], self.low[rows])

    def cut(self, start: int, stop: int) -> WideKeys:
        """Returns the bounds from ``start`` to before ``stop``, without copying."""
        return WideKeys(self.high[start:stop], self.low[start:stop])


def joined_keys(parts: Sequence[Keys]) -> Keys:
    """Concatenates the bounds of several layers; at least one part, all of one order."""
    if all(isinstance(part, NumberKeys) for part in parts):
        return NumberKeys(np.concatenate([part.array for part in parts if isinstance(part, NumberKeys)]))
    if all(isinstance(part, WideKeys) for part in parts):
        wide = [part for part in parts if isinstance(part, WideKeys)]
        return WideKeys(np.concatenate([part.high for part in wide]), np.concatenate([part.low for part in wide]))
    if all(isinstance(part, BytesKeys) for part in parts):
        texts = [part for part in parts if isinstance(part, BytesKeys)]
        # Offsets count from the start of each part's own bytes.
        data = [
            bytes(part.data[part.offsets[0] : part.offsets[-1]]) if len(part.offsets) > 1 else b"" for part in texts
        ]
        starts = np.cumsum([0, *(len(each) for each in data)])
        moved = [
            part.offsets[:-1] - part.offsets[0] + start for part, start in zip(texts, starts[:-1].tolist(), strict=True)
        ]
        offsets = np.concatenate([*moved, starts[-1:]]).astype(np.int64)
        return BytesKeys(np.concatenate([part.prefix for part in texts]), offsets, memoryview(b"".join(data)))
    raise TypeError("the parts have different orders")


def lesser(left: Keys, right: Keys) -> Mask:
    """Returns where the left bound is less than the right one, entry by entry; both of one order."""
    if isinstance(left, NumberKeys) and isinstance(right, NumberKeys):
        return np.asarray(left.array < right.array)
    if isinstance(left, WideKeys) and isinstance(right, WideKeys):
        return np.asarray((left.high < right.high) | ((left.high == right.high) & (left.low < right.low)))
    if isinstance(left, BytesKeys) and isinstance(right, BytesKeys):
        below = np.asarray(left.prefix < right.prefix)
        for index in np.flatnonzero(left.prefix == right.prefix):
            below[index] = left.at(int(index)) < right.at(int(index))
        return below
    raise TypeError(f"{type(left).__name__} and {type(right).__name__} have different orders")


def choose(where: Mask, left: Keys, right: Keys) -> Keys:
    """Returns the left bound where the mask is true, otherwise the right one."""
    if isinstance(left, NumberKeys) and isinstance(right, NumberKeys):
        return NumberKeys(np.where(where, left.array, right.array))
    if isinstance(left, WideKeys) and isinstance(right, WideKeys):
        return WideKeys(np.where(where, left.high, right.high), np.where(where, left.low, right.low))
    if isinstance(left, BytesKeys) and isinstance(right, BytesKeys):
        return bytes_keys([(left if mine else right).at(index) for index, mine in enumerate(where.tolist())])
    raise TypeError(f"{type(left).__name__} and {type(right).__name__} have different orders")


def split_wide(value: int) -> tuple[np.int64, np.uint64]:
    """Splits a 128-bit integer into (signed high, unsigned low)."""
    high, low = divmod(value, _LIMB)
    return np.int64(high), np.uint64(low)
