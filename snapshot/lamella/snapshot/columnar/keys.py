"""Masks over entries, and arrays of bounds that can be compared with one value, exactly, in the order of their type.

Three representations: machine numbers (NumPy's own comparison is the type's order: int64, uint64, float64 without NaN),
decimals of more than 18 digits as two 64-bit limbs, and bytes through an order-preserving 8-byte prefix with exact
look-up where prefixes tie.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
# Masks over the entries of a layer that may be the same everywhere: an array, or one ``bool`` for all entries.
#
# Statistics are mostly complete, so most of what SQL's logic asks (may there be NaN? is a bound missing?) has one
# answer for a whole layer. As one ``bool`` it costs nothing, however many entries there are.

Ranks = npt.NDArray[np.int64]
#: The same for all entries when it is a ``bool``.
Truth = Mask | bool


def both(left: Truth, right: Truth) -> Truth:
    """Where left and right hold."""
    # Comparing identities takes no call, and this is where the time of small layers goes.
    if left is False or right is False:
        return False
    if left is True:
        return right
    return left if right is True else left & right


def either(left: Truth, right: Truth) -> Truth:
    """Where left or right holds."""
    if left is True or right is True:
        return True
    if left is False:
        return right
    return left if right is False else left | right


def no(mask: Truth) -> Truth:
    """Where it does not hold."""
    return not mask if isinstance(mask, bool) else ~mask


def anywhere(mask: Truth) -> bool:
    """Whether it holds for some entry, of at least one."""
    return mask if isinstance(mask, bool) else bool(mask.any())


def overlapping(masks: Iterable[Truth]) -> bool:
    """Whether two of the masks hold for one entry, of at least one."""
    seen: Truth = False
    for mask in masks:
        if anywhere(both(seen, mask)):
            return True
        seen = either(seen, mask)
    return False


def spread(mask: Truth, count: int) -> Mask:
    """The mask as an array of ``count`` entries that nobody else has."""
    return np.full(count, mask) if isinstance(mask, bool) else mask.copy()


def filled(mask: Truth, count: int) -> Mask:
    """The mask as an array of ``count`` entries."""
    return np.full(count, mask) if isinstance(mask, bool) else mask


# Byte strings as arrays that can be compared with one value, exactly, in the order of their bytes.
#
# Eight bytes of each, as a big-endian number, decide most comparisons; where they tie, the next eight do.

Words = npt.NDArray[np.uint64]

_WORD_BYTES: Final = 8
#: Up to so many ties are decided one by one, which is then faster.
_FEW: Final = 16
#: No more of what strings share at the beginning is looked for.
_MAX_SHARED_BYTES: Final = 1_024


class BytesKeys:
    """n strings: ``prefix`` is each one's first eight bytes, zero-padded, as a big-endian number.

    String i is ``data[offsets[i]:offsets[i + 1]]``.
    """

    #: What all strings begin with, as far as it is left out of ``words``.
    shared: bytes = b""
    #: Whether ``words`` say all of the strings behind that: none is longer, none ends in a zero byte.
    is_short: bool = False

    def __init__(self, prefix: Words, offsets: npt.NDArray[np.int64], data: memoryview) -> None:
        self.prefix = prefix
        self.offsets = offsets
        self.data = data

    def at(self, index: int) -> bytes:
        """The whole bound of one entry."""
        return bytes(self.data[self.offsets[index] : self.offsets[index + 1]])

    def less(self, value: bytes) -> Mask:
        """Where bound < value."""
        return self._below(value, or_equal=False)

    def less_equal(self, value: bytes) -> Mask:
        """Where bound <= value."""
        return self._below(value, or_equal=True)

    def rank(self, values: Sequence[bytes], *, right: bool) -> Ranks:
        """How many of the ascending ``values`` lie below each bound (``right``: at or below)."""
        shared, words = self.shared, self.words
        # Of the values that do not begin as all strings do, those before the others lie below every string.
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
        """The bounds of some entries, in that order."""
        rows = np.asarray(rows)
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return BytesKeys(self.prefix[rows], offsets, memoryview(self._bytes()[places].tobytes()))

    def cut(self, start: int, stop: int) -> BytesKeys:
        """The bounds of the entries from ``start`` to before ``stop``, without copying."""
        return BytesKeys(self.prefix[start:stop], self.offsets[start : stop + 1], self.data)

    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.data, dtype=np.uint8)

    @property
    def words(self) -> Words:
        """What decides most comparisons: the eight bytes behind what all strings share."""
        return self.prefix

    def _below(self, value: bytes, *, or_equal: bool) -> Mask:
        shared, words = self.shared, self.words
        if not value.startswith(shared):
            # All strings begin with the shared bytes, which decide.
            return np.full(len(words), shared < value)
        key = np.uint64(prefix_key(value[len(shared) :]))
        if self.is_short and not value.endswith(b"\0"):
            # A string with the word of a longer value is its beginning.
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
        """Decide entries that have the words up to here in common with ``value``, eight bytes at a time."""
        at = len(self.shared) + _WORD_BYTES
        while len(rows):
            lengths = self.offsets[rows + 1] - self.offsets[rows]
            if at >= max(len(value), int(lengths.max())):
                # Both end in zero bytes at most, so the shorter one is the lesser.
                below[rows] = lengths <= len(value) if or_equal else lengths < len(value)
                return
            words = words_at(self._bytes(), self.offsets, rows, at)
            key = np.uint64(prefix_key(value[at : at + _WORD_BYTES]))
            below[rows] = words < key
            rows = rows[words == key]
            at += _WORD_BYTES


class SharedKeys(BytesKeys):
    """Strings that all begin alike, such as paths: the words that are compared come behind what they share.

    ``known``: the entries that count; the others hold an arbitrary value, as everywhere.
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
        """Strings of which it is known what they share, and the words behind that."""
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
    def prefix(self) -> Words:  # type: ignore[override]  # made only when somebody asks
        """Each one's first eight bytes."""
        return self._given.prefix

    def cut(self, start: int, stop: int) -> BytesKeys:
        """The bounds of the entries from ``start`` to before ``stop``, without copying."""
        made = self._made(self._given.cut(start, stop), self.shared, self._words[start:stop])
        made.is_short = self.is_short
        return made

    @property
    def words(self) -> Words:
        """The eight bytes behind what all strings share."""
        return self._words


def words_at(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], at: int
) -> Words:
    """Eight bytes of the strings ``rows`` from byte ``at`` on, zero-padded, as big-endian numbers."""
    if not len(rows) or not len(data):
        return np.zeros(len(rows), dtype=np.uint64)
    places = (offsets[rows] + at)[:, None] + np.arange(_WORD_BYTES)
    inside = places < offsets[rows + 1][:, None]
    found = np.where(inside, data[np.where(inside, places, 0)], np.uint8(0))
    words: Words = found.view(">u8").ravel().astype(np.uint64)
    return words


def bytes_keys(values: Sequence[bytes]) -> BytesKeys:
    """Byte strings as keys."""
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    prefix = np.array([prefix_key(value) for value in values], dtype=np.uint64)
    return BytesKeys(prefix, offsets, memoryview(b"".join(values)))


def prefix_key(value: bytes) -> int:
    """The first eight bytes as a number; a < b as bytes implies prefix_key(a) <= prefix_key(b)."""
    return int.from_bytes(value[:_WORD_BYTES].ljust(_WORD_BYTES, b"\0"), "big")


def _shared_beginning(keys: BytesKeys, rows: npt.NDArray[np.int64]) -> bytes:
    """What the strings ``rows`` all begin with."""
    if not len(rows):
        return b""
    first = keys.at(int(rows[0]))
    data = np.frombuffer(keys.data, dtype=np.uint8)
    starts = keys.offsets[rows]
    shortest = int((keys.offsets[rows + 1] - starts).min())
    most = min(shortest, _MAX_SHARED_BYTES)
    for at in range(most):
        if not (data[starts + at] == first[at]).all():
            return first[:at]
    return first[:most]


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
