"""The zone maps of one column over the entries (blocks or segments) of one layer.

``flags`` says per entry what may be there and what is known. A set "may" bit never claims, a cleared one is proof:

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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Keys, NumberKeys, WideKeys, bytes_keys, split_wide
from lamella.snapshot.columnar.masks import Mask, Truth
from lamella.snapshot.columnar.spans import Spans
from lamella.snapshot.schema import DataType
from lamella.snapshot.stats import ColumnStats, from_bound, unknown
from lamella.snapshot.stats.column import is_all_null

if TYPE_CHECKING:
    from lamella.snapshot.columnar.edges import Edges

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
    """Zone maps of one column, or of a function of columns, n entries.

    ``fails``: where a row of a function may have no result but an error, by Spark's settings; None: nowhere.
    ``spans``: the ranges that a column's values lie in, where they are known better than by ``low`` and ``high``.
    """

    spans: Spans | None = None
    #: The flags that every entry has, and those that some entry may have; made when first asked for.
    _flags_of_all: tuple[int, int] | None = None
    #: See :func:`lamella.snapshot.columnar.edges.ascending`; False: not so, None: not looked at yet.
    ascending: Edges | Literal[False] | None = None

    def __init__(
        self, low: Keys | None, high: Keys | None, flags: npt.NDArray[np.uint8], fails: Mask | None = None
    ) -> None:
        self.low = low
        self.high = high
        self.flags = flags
        self.fails = fails

    def has(self, bit: int) -> Mask:
        """Where a flag is set."""
        return np.asarray((self.flags & np.uint8(bit)) != 0)

    def lacks(self, bit: int) -> Mask:
        """Where a flag is not set."""
        return np.asarray((self.flags & np.uint8(bit)) == 0)

    def flag(self, bit: int) -> Truth:
        """Where one flag is set; a ``bool`` where all entries agree."""
        every, some = self._flags_of_all or self.flags_of_all()
        if every & bit:
            return True
        return self.has(bit) if some & bit else False

    def flags_of_all(self) -> tuple[int, int]:
        """The flags that every entry has, and those that some entry may have."""
        found = self._flags_of_all
        if found is None:
            every, some = np.bitwise_and.reduce(self.flags), np.bitwise_or.reduce(self.flags)
            found = self._flags_of_all = int(every), int(some)
        return found

    @property
    def is_complete(self) -> bool:
        """True when both bounds of all entries are known, each may hold a number, and no row is NaN or fails."""
        every, some = self._flags_of_all or self.flags_of_all()
        bounded = every & _COMPLETE == _COMPLETE and not some & MAY_NAN
        return bounded and self.low is not None and self.high is not None and self.fails is None

    def cut(self, start: int, stop: int) -> Zones:
        """The zone maps of the entries from ``start`` to before ``stop``, without copying."""
        low = None if self.low is None else self.low.cut(start, stop)
        high = None if self.high is None else self.high.cut(start, stop)
        part = Zones(low, high, self.flags[start:stop], None if self.fails is None else self.fails[start:stop])
        part.spans = None if self.spans is None else self.spans.take(np.arange(start, stop))
        part._flags_of_all = self._flags_of_all  # of all, so also of these
        return part

    def take(self, rows: npt.NDArray[Any]) -> Zones:
        """The zone maps of some entries, in that order; without ``spans``."""
        low, high = (keys.take(rows) if keys is not None else None for keys in (self.low, self.high))
        return Zones(low, high, self.flags[rows], None if self.fails is None else self.fails[rows])

    def __len__(self) -> int:
        return len(self.flags)


def constant(dtype: DataType, value: Any, count: int) -> Zones:
    """Zones of one and the same value (None: null) in every row."""
    if value is None:
        return Zones(None, None, np.full(count, MAY_NULL | NULLS_KNOWN, dtype=np.uint8))
    if isinstance(value, float) and value != value:
        return Zones(None, None, np.full(count, MAY_NAN | NULLS_KNOWN, dtype=np.uint8))
    keys = keys_of(dtype, [value] * count)
    return Zones(keys, keys, np.full(count, LOW_KNOWN | HIGH_KNOWN | MAY_NUMBER | NULLS_KNOWN, dtype=np.uint8))


def nothing_known(count: int) -> Zones:
    """Zones of a column without statistics."""
    everything = MAY_NULL | MAY_NUMBER | MAY_NAN
    return Zones(None, None, np.full(count, everything, dtype=np.uint8))


def arrays_of(
    dtype: DataType, entries: Sequence[tuple[int, ColumnStats | None]]
) -> tuple[list[Any], list[Any], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """(lows, highs, flags, null counts) of ``(row_count, stats)`` entries; unknown bounds hold a zero value."""
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
    """Bounds of one side as keys; None for types without order."""
    if dtype.order is None:
        return None
    if dtype.order == "bytes":
        return bytes_keys(values)
    if is_wide(dtype):
        limbs = [split_wide(value) for value in values]
        return WideKeys(np.array([h for h, _ in limbs], np.int64), np.array([lo for _, lo in limbs], np.uint64))
    return NumberKeys(np.array(values, dtype=number_dtype(dtype)))


def is_wide(dtype: DataType) -> bool:
    """True when values need two limbs."""
    return dtype.order == "decimal" and dtype.precision > NARROW_DIGITS


def number_dtype(dtype: DataType) -> np.dtype[Any]:
    """The NumPy type that holds one value of a type that is neither bytes nor wide."""
    return np.dtype({"uint": np.uint64, "float": np.float64}.get(dtype.order or "", np.int64))


def zones_of(dtype: DataType, entries: Sequence[tuple[int, ColumnStats | None]]) -> Zones:
    """Zones straight from statistics, without a companion (a snapshot's own summary, tests)."""
    lows, highs, flags, _ = arrays_of(dtype, entries)
    return Zones(keys_of(dtype, lows), keys_of(dtype, highs), flags)
