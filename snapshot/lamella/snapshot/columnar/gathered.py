"""Statistics of one column in many blocks as arrays: :func:`.zones.arrays_of` with :func:`.exactness.exact_bits`.

Most columns have statistics of one kind in all blocks of a segment, whose members are then gathered one member at a
time. Whatever is mixed goes through those two functions entry by entry, and both ways give the same arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.exactness import HIGH_EXACT, LOW_EXACT, exact_bits
from lamella.snapshot.columnar.zones import (
    HIGH_KNOWN,
    LOW_KNOWN,
    MAY_NAN,
    MAY_NULL,
    MAY_NUMBER,
    NULLS_KNOWN,
    arrays_of,
)
from lamella.snapshot.schema import DataType
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.bound import from_bounds

#: Lows, highs, flags, null counts (-1: not known).
Arrays = tuple[list[Any], list[Any], npt.NDArray[np.uint8], npt.NDArray[np.int64]]

_NULLS: Final = attrgetter("null_count")
_MIN: Final = attrgetter("min")
_MAX: Final = attrgetter("max")
_NAN: Final = attrgetter("nan")
_MIN_EXACT: Final = attrgetter("min_exact")
_MAX_EXACT: Final = attrgetter("max_exact")


def gather(dtype: DataType, rows: Sequence[int], stats: Sequence[ColumnStats | None]) -> Arrays:
    """The arrays of a column's statistics in blocks of ``rows`` rows each (None: a block says nothing of it)."""
    known = [each for each in stats if each is not None]
    if len(known) == len(stats) and dtype.order is not None:
        found = _plain(dtype, rows, known)
        if found is not None:
            return found
    entries = list(zip(rows, stats, strict=True))
    lows, highs, flags, nulls = arrays_of(dtype, entries)
    return lows, highs, flags | exact_bits(entries), nulls


def _plain(dtype: DataType, rows: Sequence[int], stats: Sequence[ColumnStats]) -> Arrays | None:
    """The same where all blocks have rows, a null count, and both bounds; None: not so."""
    nulls, mins, maxes = list(map(_NULLS, stats)), list(map(_MIN, stats)), list(map(_MAX, stats))
    if None in nulls or 0 in rows or None in mins or None in maxes:
        return None
    count = len(stats)
    null_counts = np.array(nulls, dtype=np.int64)
    flags = np.full(count, NULLS_KNOWN | LOW_KNOWN | HIGH_KNOWN, dtype=np.uint8)
    _set(flags, MAY_NULL, null_counts != 0)
    kinds = list(map(_NAN, stats))
    _set(flags, MAY_NAN, np.array([kind != "none" for kind in kinds], dtype=bool))
    _set(flags, MAY_NUMBER, np.array([kind != "all" for kind in kinds], dtype=bool))
    _set(flags, LOW_EXACT, np.fromiter(map(_MIN_EXACT, stats), dtype=bool, count=count))
    _set(flags, HIGH_EXACT, np.fromiter(map(_MAX_EXACT, stats), dtype=bool, count=count))
    return from_bounds(dtype, mins), from_bounds(dtype, maxes), flags, null_counts


def _set(flags: npt.NDArray[np.uint8], bit: int, where: npt.NDArray[np.bool_]) -> None:
    flags |= np.where(where, np.uint8(bit), np.uint8(0))
