"""Range sets: a few ranges with gaps that contain the values of a column whose bounds say little.

A sentinel (0, -1, 9999-12-31) or a few clusters leave the range from minimum to maximum nearly empty. Up to eight
ranges are stored, so that the largest gaps stay open. They are recorded only if gaps make up a quarter of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.schema import DataType
from lamella.snapshot.stats.bound import Bound, Value, from_bound, to_bound

MAX_RANGES: Final = 8
#: Decimals of more digits do not fit 64 bits.
NARROW_DIGITS: Final = 18
_BUCKETS: Final = 1024
_MIN_GAP: Final = 4
_SAMPLE: Final = 4096
#: A distant sentinel puts everything else into one bucket: the number of times that parts are examined again.
_DEPTH: Final = 3
#: Gaps make up at least one part in this many.
MIN_SHARE: Final = 4

#: Minimum and maximum of a range.
Range = tuple[Any, Any]


def has_ranges(dtype: DataType) -> bool:
    """Returns whether values of the type are machine numbers with gaps between them."""
    if dtype.name == "boolean" or dtype.bits in (8, 16):
        return False
    if dtype.order == "decimal":
        return dtype.precision <= NARROW_DIGITS
    return dtype.order in ("int", "uint", "float")


class RangeFinder:
    """Collects the values of one column, batch by batch, into at most ``max_ranges`` ranges."""

    def __init__(self, dtype: DataType, max_ranges: int = MAX_RANGES) -> None:
        self._dtype = dtype
        self._max_ranges = max_ranges
        self._ranges: list[Range] = []

    @property
    def found(self) -> list[Range]:
        """Returns low and high of each range, ascending, as values in the type's order."""
        return self._ranges

    def add(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Add values, in an Arrow type that holds the column's; nulls and NaN are ignored."""
        self.add_numbers(_numbers(self._dtype, values))

    def add_numbers(self, numbers: npt.NDArray[Any]) -> None:
        """Add values in the type's order, as machine numbers, none of them NaN."""
        if len(numbers):
            self._ranges = _thinned(_coalesced([*self._ranges, *_occupied(numbers)]), self._max_ranges)

    def ranges(self, dtype: DataType | None = None) -> tuple[Bound, ...]:
        """Returns low and high of each range, ascending, as bounds of ``dtype``; empty if one range is enough."""
        found = self._ranges
        if len(found) < 2 or sum(_gaps(found)) * MIN_SHARE < found[-1][1] - found[0][0]:
            return ()
        return tuple(to_bound(dtype or self._dtype, edge) for each in found for edge in each)


def problem(dtype: DataType, ranges: Sequence[Bound], low: Value | None, high: Value | None) -> str | None:
    """Returns what is wrong with a column's ranges, None if they are valid; raises as ``from_bound``."""
    if not ranges:
        return None
    if not has_ranges(dtype) or len(ranges) % 2 or len(ranges) > 2 * MAX_RANGES:
        return f"{len(ranges)} edges of ranges in a column of type {dtype}"
    edges = [from_bound(dtype, bound) for bound in ranges]
    pairs = list(pairwise(edges))
    if any(one > other for one, other in pairs[::2]) or any(one >= other for one, other in pairs[1::2]):  # type: ignore[operator]  # one order per type
        return "the ranges are not ascending"
    if low is None or high is None or edges[0] != low or edges[-1] != high:
        return "the ranges do not span min to max"
    return None


def _numbers(dtype: DataType, values: Any) -> npt.NDArray[Any]:
    values = values.drop_null()
    if dtype.order == "decimal":
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        words = [np.frombuffer(chunk.buffers()[1], dtype=np.int64) for chunk in chunks if len(chunk)]
        parts = [w[2 * c.offset : 2 * (c.offset + len(c)) : 2] for w, c in zip(words, filter(len, chunks), strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    if dtype.is_float:
        values = values.filter(pc.invert(pc.is_nan(values)))
    elif not dtype.is_integer:
        is_narrow = dtype.name == "date" or (dtype.name == "time" and dtype.unit == "ms")
        values = values.cast(pa.int32() if is_narrow else pa.int64())
    return np.asarray(values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy())


def _occupied(numbers: npt.NDArray[Any], depth: int = _DEPTH) -> list[Range]:
    """Returns the values' ranges, split at the longest runs of empty buckets of equal width, recursively."""
    low, high = numbers.min(), numbers.max()
    whole = [(low.item(), high.item())]
    width = float(high) - float(low)
    # Near the smallest floats, buckets would be narrower than any float difference.
    if not depth or not 0 < width < float("inf") or _BUCKETS / width == float("inf"):
        return whole
    if len(numbers) > 2 * _SAMPLE:
        # The rest of the values can only shrink the gaps of a sample; usually they are already too small.
        _, empty = _filled(_buckets(numbers[:: len(numbers) // _SAMPLE], low, width))
        if np.sort(empty)[1 - MAX_RANGES :].sum() * MIN_SHARE < _BUCKETS:
            return whole
    buckets = _buckets(numbers, low, width)
    filled, empty = _filled(buckets)
    cuts = [cut for cut in np.argsort(empty)[::-1][: MAX_RANGES - 1].tolist() if empty[cut] >= _MIN_GAP]
    if not cuts:
        return whole
    parts, left = [], (numbers, buckets)
    for cut in sorted(cuts):
        is_below = left[1] <= filled[cut]
        parts.append(left[0][is_below])
        left = (left[0][~is_below], left[1][~is_below])
    return _thinned([found for part in (*parts, left[0]) for found in _occupied(part, depth - 1)])


def _buckets(numbers: npt.NDArray[Any], low: Any, width: float) -> npt.NDArray[np.int64]:
    # Every step rounds monotonically: a greater value is never in a lower bucket.
    scaled = (numbers.astype(np.float64) - float(low)) * (_BUCKETS / width)
    return np.minimum(scaled, _BUCKETS - 1).astype(np.int64)


def _filled(buckets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the buckets that hold a value, and how many empty ones follow each but the last."""
    filled = np.flatnonzero(np.bincount(buckets, minlength=_BUCKETS))
    return filled, np.diff(filled) - 1


def _coalesced(ranges: list[Range]) -> list[Range]:
    """Returns the same values in disjoint ranges, ascending."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        # There is no value between neighbouring integers.
        if found and low <= found[-1][1] + isinstance(low, int):
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def _gaps(ranges: list[Range]) -> list[Any]:
    return [above[0] - below[1] for below, above in pairwise(ranges)]


def _thinned(ranges: list[Range], max_ranges: int = MAX_RANGES) -> list[Range]:
    """Returns at most ``max_ranges`` ranges: the smallest gaps are closed."""
    gaps = _gaps(ranges)
    widest = sorted(range(len(gaps)), key=lambda at: gaps[at], reverse=True)[: max_ranges - 1]
    starts = [0, *(at + 1 for at in sorted(widest))]
    ends = [*(start - 1 for start in starts[1:]), len(ranges) - 1]
    return [(ranges[start][0], ranges[end][1]) for start, end in zip(starts, ends, strict=True)]
