"""The zone maps of one column over the entries (blocks or segments) of one layer.

``flags`` has bits per entry. A set "may" bit asserts nothing; a cleared one is proof:

====================  ==============================================================
``LOW_KNOWN``         ``low`` is a lower bound of every value but null and NaN
``HIGH_KNOWN``        ``high`` likewise from above
``MAY_NULL``          a row may be null (also when the null count is unknown)
``MAY_NUMBER``        a row may hold a value that is neither null nor NaN
``MAY_NAN``           a row may hold NaN
``NULLS_KNOWN``       the null count is known
====================  ==============================================================
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Keys, Mask, NumberKeys, Truth, WideKeys, bytes_keys, split_wide
from lamella.snapshot.schema import DataType
from lamella.snapshot.stats import ColumnStats, from_bound, unknown
from lamella.snapshot.stats.bound import Value, from_bounds
from lamella.snapshot.stats.bucket import Bucket, bucket_of
from lamella.snapshot.stats.column import is_all_null
from lamella.snapshot.stats.column_arrays import ColumnArrays

# Which bounds of a sidecar are values that occur: two more bits besides those below.
#
# A sidecar written before these bits existed has them cleared, which asserts nothing.

#: ``low`` is a value of a row.
LOW_EXACT: Final = 64
#: ``high`` is a value of a row.
HIGH_EXACT: Final = 128


def exact_bits(entries: Sequence[tuple[int, ColumnStats | None]]) -> npt.NDArray[np.uint8]:
    """Returns the bits of ``(row_count, stats)`` entries."""
    bits = np.zeros(len(entries), dtype=np.uint8)
    for index, (row_count, stats) in enumerate(entries):
        if stats is not None and row_count > 0:
            low = LOW_EXACT if stats.min_exact and stats.min is not None else 0
            high = HIGH_EXACT if stats.max_exact and stats.max is not None else 0
            bits[index] = low | high
    return bits


# Running maximum of a column up to each entry, and running minimum from each entry on.
#
# Both ascend with the entries in whatever order these are, so they can be searched instead of compared.


class Edges(msgspec.Struct, frozen=True):
    """``reached``: the maximum of an entry and all before it; ``left``: the minimum of it and all after it.

    NaN counts as the greatest value, and an unknown bound as the end of the type's range.

    ``exact``: these are the entries' own bounds, all of them known, and no value is NaN. ``nulls``: where entries may
    have nulls; None: some may.
    """

    reached: npt.NDArray[Any]
    left: npt.NDArray[Any]
    exact: bool = False
    nulls: bool | None = None


def edges_of(zones: Zones) -> Edges | None:
    """Returns the edges of a column; None if values are not machine numbers."""
    found = ascending(zones)
    if found is not None:
        return found
    low, high = zones.low, zones.high
    if not isinstance(low, NumberKeys) or not isinstance(high, NumberKeys):
        return None
    kind = low.array.dtype
    lowest, highest = ends_of(kind)
    number, nan = zones.has(MAY_NUMBER), zones.has(MAY_NAN)
    highs = np.where(zones.has(HIGH_KNOWN), high.array, kind.type(highest))
    highs = np.where(nan, kind.type(highest), np.where(number, highs, kind.type(lowest)))
    lows = np.where(number, np.where(zones.has(LOW_KNOWN), low.array, kind.type(lowest)), kind.type(highest))
    if kind.kind == "f":  # a NaN bound of a damaged file carries no information
        lows = np.where(np.isnan(lows), lowest, lows)
        highs = np.where(np.isnan(highs), highest, highs)
    return Edges(np.maximum.accumulate(highs), np.minimum.accumulate(lows[::-1])[::-1])


def ascending(zones: Zones) -> Edges | None:
    """Returns the edges of a column whose bounds are all known and ascend: they are the bounds themselves, without a
    copy.

    None for any other column. The check runs once per ``zones``.
    """
    found = zones.ascending
    if found is None:
        found = zones.ascending = _ascending(zones) or False
    return found or None


def _ascending(zones: Zones) -> Edges | None:
    low, high = zones.low, zones.high
    if not isinstance(low, NumberKeys) or not isinstance(high, NumberKeys):
        return None
    if not zones.is_complete or zones.has_gaps:
        return None
    for bounds in (low.array, high.array):
        # The last test covers a NaN bound of a damaged file.
        if not (bounds[1:] >= bounds[:-1]).all() or not (bounds[-1:] == bounds[-1:]).all():
            return None
    every, some = zones.flags_of_all()
    nulls = True if every & MAY_NULL else None if some & MAY_NULL else False
    return Edges(high.array, low.array, True, nulls)


def ends_of(kind: np.dtype[Any]) -> tuple[Any, Any]:
    """Returns the minimum and the maximum of a type."""
    return (-np.inf, np.inf) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)


LOW_KNOWN: Final = 1
HIGH_KNOWN: Final = 2
MAY_NULL: Final = 4
MAY_NUMBER: Final = 8
MAY_NAN: Final = 16
NULLS_KNOWN: Final = 32
_COMPLETE: Final = LOW_KNOWN | HIGH_KNOWN | MAY_NUMBER
#: Decimals of more digits than int64 holds need two limbs.
NARROW_DIGITS: Final = 18


class Zones:
    """Zone maps of one column, or of a function of columns, over n entries.

    ``fails``: where a function may raise an error for a row, depending on Spark's settings; None: nowhere. ``spans``:
    the ranges of a column's values, where these are known more precisely than by ``low`` and ``high``. ``buckets``:
    those of a column's values.
    """

    spans: Spans | None = None
    buckets: Buckets | None = None
    #: The flags that every entry has, and those that any entry may have; computed on first access.
    _flags_of_all: tuple[int, int] | None = None
    #: See :func:`lamella.snapshot.columnar.zones.ascending`; False: the bounds do not ascend, None: not checked yet.
    ascending: Edges | Literal[False] | None = None

    def __init__(
        self, low: Keys | None, high: Keys | None, flags: npt.NDArray[np.uint8], fails: Mask | None = None
    ) -> None:
        self.low = low
        self.high = high
        self.flags = flags
        self.fails = fails

    def has(self, bit: int) -> Mask:
        """Returns where a flag is set."""
        return np.asarray((self.flags & np.uint8(bit)) != 0)

    def lacks(self, bit: int) -> Mask:
        """Returns where a flag is not set."""
        return np.asarray((self.flags & np.uint8(bit)) == 0)

    def flag(self, bit: int) -> Truth:
        """Returns where one flag is set; a ``bool`` if all entries agree."""
        every, some = self._flags_of_all or self.flags_of_all()
        if every & bit:
            return True
        return self.has(bit) if some & bit else False

    def flags_of_all(self) -> tuple[int, int]:
        """Returns the flags that every entry has, and those that any entry may have."""
        found = self._flags_of_all
        if found is None:
            every, some = np.bitwise_and.reduce(self.flags), np.bitwise_or.reduce(self.flags)
            found = self._flags_of_all = int(every), int(some)
        return found

    @property
    def has_gaps(self) -> bool:
        """Returns whether more than the bounds may prove that an entry lacks a value."""
        return self.spans is not None or self.buckets is not None

    @property
    def is_complete(self) -> bool:
        """Returns whether both bounds of all entries are known, each may hold a number, and no row is NaN or fails."""
        every, some = self._flags_of_all or self.flags_of_all()
        bounded = every & _COMPLETE == _COMPLETE and not some & MAY_NAN
        return bounded and self.low is not None and self.high is not None and self.fails is None

    def cut(self, start: int, stop: int) -> Zones:
        """Returns the zone maps from ``start`` to before ``stop``, without copying."""
        low = None if self.low is None else self.low.cut(start, stop)
        high = None if self.high is None else self.high.cut(start, stop)
        part = Zones(low, high, self.flags[start:stop], None if self.fails is None else self.fails[start:stop])
        part.spans = None if self.spans is None else self.spans.take(np.arange(start, stop))
        part.buckets = None if self.buckets is None else self.buckets.cut(start, stop)
        part._flags_of_all = self._flags_of_all  # true of all entries, so also of these
        return part

    def take(self, rows: npt.NDArray[Any]) -> Zones:
        """Returns the zone maps of some entries, in the given order, without ``spans`` and ``buckets``."""
        low, high = (keys.take(rows) if keys is not None else None for keys in (self.low, self.high))
        return Zones(low, high, self.flags[rows], None if self.fails is None else self.fails[rows])

    def __len__(self) -> int:
        return len(self.flags)


def has_bound(zones: Zones) -> bool:
    """Returns whether a bound of some entry is known."""
    bits = LOW_KNOWN | HIGH_KNOWN
    every, some = zones.flags_of_all()
    if every & bits:
        return len(zones) > 0
    return bool(some & bits) and bool((zones.flags & np.uint8(bits)).any())


def constant(dtype: DataType, value: Any, count: int) -> Zones:
    """Returns zone maps of one value (None: null) in every row."""
    if value is None:
        return Zones(None, None, np.full(count, MAY_NULL | NULLS_KNOWN, dtype=np.uint8))
    if isinstance(value, float) and value != value:
        return Zones(None, None, np.full(count, MAY_NAN | NULLS_KNOWN, dtype=np.uint8))
    keys = keys_of(dtype, [value] * count)
    return Zones(keys, keys, np.full(count, LOW_KNOWN | HIGH_KNOWN | MAY_NUMBER | NULLS_KNOWN, dtype=np.uint8))


def nothing_known(count: int) -> Zones:
    """Returns zone maps of a column without statistics."""
    everything = MAY_NULL | MAY_NUMBER | MAY_NAN
    return Zones(None, None, np.full(count, everything, dtype=np.uint8))


def arrays_of(
    dtype: DataType, entries: Sequence[tuple[int, ColumnStats | None]]
) -> tuple[list[Any], list[Any], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Returns (lows, highs, flags, null counts) of ``(row_count, stats)`` entries; unknown bounds hold a zero value."""
    zero: Any = b"" if dtype.order == "bytes" else 0.0 if dtype.order == "float" else 0
    lows: list[Any] = []
    highs: list[Any] = []
    flags = np.zeros(len(entries), dtype=np.uint8)
    nulls = np.full(len(entries), -1, dtype=np.int64)
    for index, (row_count, given) in enumerate(entries):
        stats = given if given is not None else unknown(dtype, "no statistics")
        low = high = zero
        bits = 0
        if stats.null_count is not None:
            nulls[index] = stats.null_count
            bits |= NULLS_KNOWN
        if stats.null_count != 0:
            bits |= MAY_NULL
        if not (stats.null_count is not None and is_all_null(stats, row_count)):
            if stats.nan != "none":
                bits |= MAY_NAN
            if stats.nan != "all":
                bits |= MAY_NUMBER
        if stats.min is not None and dtype.order is not None:
            low = from_bound(dtype, stats.min)
            bits |= LOW_KNOWN
        if stats.max is not None and dtype.order is not None:
            high = from_bound(dtype, stats.max)
            bits |= HIGH_KNOWN
        lows.append(low)
        highs.append(high)
        flags[index] = bits
    return lows, highs, flags, nulls


def keys_of(dtype: DataType, values: Sequence[Any]) -> Keys | None:
    """Converts the bounds of one side to keys; None for types without order."""
    if dtype.order is None:
        return None
    if dtype.order == "bytes":
        return bytes_keys(values)
    if is_wide(dtype):
        limbs = [split_wide(value) for value in values]
        return WideKeys(np.array([h for h, _ in limbs], np.int64), np.array([lo for _, lo in limbs], np.uint64))
    return NumberKeys(np.array(values, dtype=number_dtype(dtype)))


def is_wide(dtype: DataType) -> bool:
    """Returns whether values need two limbs."""
    return dtype.order == "decimal" and dtype.precision > NARROW_DIGITS


def number_dtype(dtype: DataType) -> np.dtype[Any]:
    """Returns the NumPy type that holds one value of a type that is neither bytes nor wide."""
    return np.dtype({"uint": np.uint64, "float": np.float64}.get(dtype.order or "", np.int64))


def zones_of(dtype: DataType, entries: Sequence[tuple[int, ColumnStats | None]]) -> Zones:
    """Builds zone maps directly from statistics, without a sidecar (for a snapshot's own summary and tests)."""
    lows, highs, flags, _ = arrays_of(dtype, entries)
    return Zones(keys_of(dtype, lows), keys_of(dtype, highs), flags)


# Statistics of one column in many blocks as arrays: ``arrays_of`` with ``exact_bits``.
#
# In most columns the statistics of all blocks of a segment have the same members, which are then gathered one member at
# a time. Mixed statistics go through those two functions entry by entry. Both ways give the same arrays.

#: Lows, highs, flags, null counts (-1: unknown).
Arrays = tuple[list[Any], list[Any], npt.NDArray[np.uint8], npt.NDArray[np.int64]]

_NULLS: Final = attrgetter("null_count")
_MIN: Final = attrgetter("min")
_MAX: Final = attrgetter("max")
_NAN: Final = attrgetter("nan")
_MIN_EXACT: Final = attrgetter("min_exact")
_MAX_EXACT: Final = attrgetter("max_exact")
#: Flags of up to this many blocks are computed faster one by one than as arrays.
_FEW_BLOCKS: Final = 16


def gather(dtype: DataType, rows: Sequence[int], stats: Sequence[ColumnStats | None]) -> Arrays:
    """Returns the arrays of a column's statistics in blocks of ``rows`` rows each (None: no statistics)."""
    known = [each for each in stats if each is not None]
    if len(known) == len(stats) and dtype.order is not None:
        found = _plain(dtype, rows, known)
        if found is not None:
            return found
    entries = list(zip(rows, stats, strict=True))
    lows, highs, flags, nulls = arrays_of(dtype, entries)
    return lows, highs, flags | exact_bits(entries), nulls


def _plain(dtype: DataType, rows: Sequence[int], stats: Sequence[ColumnStats]) -> Arrays | None:
    """Returns the arrays if all blocks have rows, a null count, and both bounds; otherwise None."""
    nulls, mins, maxes = list(map(_NULLS, stats)), list(map(_MIN, stats)), list(map(_MAX, stats))
    if None in nulls or 0 in rows or None in mins or None in maxes:
        return None
    count = len(stats)
    null_counts = np.array(nulls, dtype=np.int64)
    if count <= _FEW_BLOCKS:
        return (
            from_bounds(dtype, mins),
            from_bounds(dtype, maxes),
            np.array(list(map(_bits, stats)), np.uint8),
            null_counts,
        )
    flags = np.full(count, NULLS_KNOWN | LOW_KNOWN | HIGH_KNOWN, dtype=np.uint8)
    _set(flags, MAY_NULL, null_counts != 0)
    kinds = list(map(_NAN, stats))
    _set(flags, MAY_NAN, np.array([kind != "none" for kind in kinds], dtype=bool))
    _set(flags, MAY_NUMBER, np.array([kind != "all" for kind in kinds], dtype=bool))
    _set(flags, LOW_EXACT, np.fromiter(map(_MIN_EXACT, stats), dtype=bool, count=count))
    _set(flags, HIGH_EXACT, np.fromiter(map(_MAX_EXACT, stats), dtype=bool, count=count))
    return from_bounds(dtype, mins), from_bounds(dtype, maxes), flags, null_counts


def flags_of(stats: ColumnArrays) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Returns the flags and null counts of statistics whose bounds are all known, as :func:`gather` does."""
    always = LOW_KNOWN | HIGH_KNOWN | MAY_NUMBER
    always |= (LOW_EXACT if stats.min_exact else 0) | (HIGH_EXACT if stats.max_exact else 0)
    flags = np.full(len(stats), always, dtype=np.uint8)
    _set(flags, NULLS_KNOWN, stats.nulls >= 0)
    _set(flags, MAY_NULL, stats.nulls != 0)
    _set(flags, MAY_NAN, stats.may_nan)
    return flags, stats.nulls


def _bits(stats: ColumnStats) -> int:
    """Returns the flags of a block that has rows, a null count, and both bounds."""
    return (
        (NULLS_KNOWN | LOW_KNOWN | HIGH_KNOWN)
        | (MAY_NULL if stats.null_count else 0)
        | (MAY_NAN if stats.nan != "none" else 0)
        | (MAY_NUMBER if stats.nan != "all" else 0)
        | (LOW_EXACT if stats.min_exact else 0)
        | (HIGH_EXACT if stats.max_exact else 0)
    )


def _set(flags: npt.NDArray[np.uint8], bit: int, where: npt.NDArray[np.bool_]) -> None:
    flags |= np.where(where, np.uint8(bit), np.uint8(0))


class Spans:
    """Ranges of values per entry. ``edges`` has the low and high of each range, entry after entry; those of entry i
    begin at ``offsets[i]``.

    An entry without ranges is unknown.
    """

    def __init__(self, offsets: npt.NDArray[Any], edges: npt.NDArray[Any]) -> None:
        self.offsets = offsets
        self.edges = edges
        self._starts = np.asarray(offsets[:-1])
        self._has = np.asarray(offsets[1:] > offsets[:-1])
        self.low = edges[0::2]
        self.high = edges[1::2]

    @classmethod
    def joined(cls, parts: Sequence[tuple[Spans | None, int]]) -> Spans | None:
        """Concatenates the ranges of several layers' entries, each part with its number of entries.

        None if no part has any.
        """
        known = [spans for spans, _ in parts if spans is not None]
        if not known:
            return None
        counts = [
            np.zeros(entries, dtype=np.int64) if spans is None else np.diff(spans.offsets) for spans, entries in parts
        ]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        return cls(offsets, np.concatenate([spans.edges[spans.offsets[0] : spans.offsets[-1]] for spans in known]))

    def take(self, rows: npt.NDArray[Any]) -> Spans:
        """Returns the ranges of some entries, in the given order."""
        starts, ends = self.offsets[rows], self.offsets[np.asarray(rows) + 1]
        picked = [self.edges[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
        return Spans(offsets, np.concatenate(picked) if picked else self.edges[:0])

    def misses(self, hit: Mask) -> Mask:
        """Returns the entries none of whose ranges is hit; ``hit`` has one element per range."""
        missed = np.zeros(len(self._has), dtype=bool)
        if len(hit):
            # The offsets of entries with ranges are those of their ranges, without gaps.
            missed[self._has] = ~np.logical_or.reduceat(hit, self._starts[self._has] // 2)
        return missed


_HALF_BITS: Final = 32


def packed_bucket(bucket: Bucket) -> int:
    """Returns a number of buckets and a bucket as one number, which is not 0."""
    return bucket[0] << _HALF_BITS | bucket[1]


class Buckets:
    """The bucket of the values of each entry, as :func:`packed_bucket`; 0: unknown."""

    #: The hash is computed for up to this many values of a list.
    MAX_VALUES: Final = 1_000

    def __init__(self, dtype: DataType, packed: npt.NDArray[np.int64]) -> None:
        self.packed = packed
        self.dtype = dtype

    @classmethod
    def joined(cls, parts: Sequence[tuple[Buckets | None, int]]) -> Buckets | None:
        """Concatenates the buckets of several layers' entries, each part with its number of entries.

        None if no part has any.
        """
        known = [part for part, _ in parts if part is not None]
        if not known:
            return None
        arrays = [np.zeros(entries, dtype=np.int64) if part is None else part.packed for part, entries in parts]
        return cls(known[0].dtype, np.concatenate(arrays))

    def seen_as(self, dtype: DataType) -> Buckets:
        """Returns the buckets of the same values in a wider type."""
        return Buckets(dtype, self.packed)

    def cut(self, start: int, stop: int) -> Buckets:
        """Returns the buckets from ``start`` to before ``stop``."""
        return Buckets(self.dtype, self.packed[start:stop])

    def take(self, rows: npt.NDArray[Any]) -> Buckets:
        """Returns the buckets of some entries, in the given order."""
        return Buckets(self.dtype, self.packed[rows])

    def of(self, entry: int) -> Bucket | None:
        """Returns the number of buckets and the bucket of an entry, None if unknown."""
        packed = int(self.packed[entry])
        return (packed >> _HALF_BITS, packed & ((1 << _HALF_BITS) - 1)) if packed else None

    def misses(self, values: Sequence[Value]) -> Mask | None:
        """Returns the entries that have none of some values; None: that is not known of any."""
        if len(values) > self.MAX_VALUES:
            return None
        counts = self.packed >> _HALF_BITS
        missed = np.zeros(len(counts), dtype=bool)
        for count in np.unique(counts[counts > 0]).tolist():
            try:
                hit = [packed_bucket((count, bucket_of(self.dtype, value, count))) for value in values]
            except (OverflowError, struct.error):  # beyond 64 bits
                return None
            missed |= (counts == count) & ~np.isin(self.packed, hit)
        return missed
