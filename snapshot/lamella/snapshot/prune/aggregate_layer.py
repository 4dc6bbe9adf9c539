"""What the statistics of one layer's entries (blocks, segments, the snapshot) say of aggregates, entry by entry.

An aggregate of an entry is taken over the rows that match the filter: all of them where the verdict is ALL, an unknown
part of them elsewhere. Order of values: the type's own, and NaN above everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar import Companion, Zones, zones_of
from lamella.snapshot.columnar.exactness import HIGH_EXACT, LOW_EXACT, exact_bits
from lamella.snapshot.columnar.keys import BytesKeys, Keys, Mask, NumberKeys, WideKeys, lesser
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER, NULLS_KNOWN
from lamella.snapshot.prune.aggregate_plan import Asked
from lamella.snapshot.prune.verdict import ALL
from lamella.snapshot.schema import Leaf
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.bound import Value

Rows = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]


class Layer:
    """The entries of one layer, and their verdicts."""

    def __init__(
        self,
        row_counts: Counts,
        codes: npt.NDArray[np.uint8],
        zones: Callable[[Leaf], Zones],
        nulls: Callable[[Leaf], Counts],
    ) -> None:
        self.row_counts = row_counts
        self.codes = codes
        self.zones = zones
        self._nulls = nulls
        self.all = np.asarray(codes == ALL)
        self._facts: dict[tuple[str, int], Facts] = {}

    @classmethod
    def of_companion(cls, companion: Companion, codes: npt.NDArray[np.uint8]) -> Layer:
        """The blocks of a segment, or the segments of a snapshot."""
        return cls(
            companion.numbers("row_count"),
            codes,
            lambda leaf: companion.zones(leaf.id, leaf.dtype),
            lambda leaf: companion.null_counts(leaf.id, leaf.dtype),
        )

    @classmethod
    def of_summary(cls, row_count: int, stats: Mapping[int, ColumnStats], codes: npt.NDArray[np.uint8]) -> Layer:
        """One entry, by its statistics."""

        def zones(leaf: Leaf) -> Zones:
            entry = [(row_count, stats.get(leaf.id))]
            found = zones_of(leaf.dtype, entry)
            return Zones(found.low, found.high, found.flags | exact_bits(entry))

        def nulls(leaf: Leaf) -> Counts:
            known = stats.get(leaf.id)
            return np.array([-1 if known is None or known.null_count is None else known.null_count])

        return cls(np.array([row_count]), codes, zones, nulls)

    def facts(self, asked: Asked) -> Facts:
        """What is known for an aggregate, worked out once."""
        key = (asked.function, asked.leaf.id if asked.leaf is not None else 0)
        found = self._facts.get(key)
        if found is None:
            found = self._facts[key] = self._work_out(asked)
        return found

    def _work_out(self, asked: Asked) -> Facts:
        count = len(self.row_counts)
        no, yes = np.zeros(count, dtype=bool), np.ones(count, dtype=bool)
        if asked.leaf is None:
            return Facts(empty=no, exact=yes, nan=no, holds=yes, most=self.row_counts, zones=None)
        zones, nulls = self.zones(asked.leaf), self._nulls(asked.leaf)
        number, may_nan = zones.has(MAY_NUMBER), zones.has(MAY_NAN)
        known = zones.has(NULLS_KNOWN) & (nulls >= 0)
        most = np.where(known, self.row_counts - nulls, self.row_counts)
        exact_low, exact_high = number & zones.has(LOW_EXACT), number & zones.has(HIGH_EXACT)
        holds = (known & (nulls < self.row_counts)) | exact_low | exact_high
        if asked.is_count:
            return Facts(empty=~number & ~may_nan, exact=known, nan=no, holds=holds, most=most, zones=zones)
        exact = exact_low if asked.function == "min" else exact_high & ~may_nan
        nan = ~number & may_nan & holds
        return Facts(empty=~number & ~may_nan, exact=exact, nan=nan, holds=holds, most=most, zones=zones)

    def keys(self, group_by: tuple[Leaf, ...], rows: Rows) -> tuple[dict[tuple[Any, ...], Rows], Rows]:
        """The rows by group, where all rows of an entry are proven to be in one, and the others."""
        if not group_by:
            return ({(): rows} if len(rows) else {}), rows[:0]
        columns = [_constants(self.zones(leaf), self._nulls(leaf), self.row_counts, rows) for leaf in group_by]
        found: dict[tuple[Any, ...], list[int]] = {}
        mixed = []
        for row, parts in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
            if _MIXED in parts:
                mixed.append(row)
            else:
                found.setdefault(parts, []).append(row)
        return {key: np.array(at) for key, at in found.items()}, np.array(mixed, dtype=np.int64)


class Facts(msgspec.Struct, frozen=True):
    """Per entry, for one aggregate.

    ``empty``: no row has a value. ``holds``: some row has one. ``exact``: over all rows of the entry the result is
    known: for a count ``most`` (otherwise that is the most it can be), for a least or greatest value the bound; where
    ``nan`` is set the result is NaN instead.
    """

    empty: Mask
    exact: Mask
    nan: Mask
    holds: Mask
    most: Counts
    zones: Zones | None


class _Mixed:
    """Stands for "rows of this entry may be in several groups"."""


_MIXED = _Mixed()
#: Stands for NaN in a group's key, since NaN is not equal to itself in Python.
NAN_KEY = "NaN"


def _constants(zones: Zones, nulls: Counts, row_counts: Counts, rows: Rows) -> list[Any]:
    """For each row the one value that all rows of the entry have (None: null), else ``_MIXED``."""
    found: list[Any] = [_MIXED] * len(rows)
    number, nan = zones.has(MAY_NUMBER)[rows], zones.has(MAY_NAN)[rows]
    known = zones.has(NULLS_KNOWN)[rows] & (nulls[rows] >= 0)
    no_null = known & (nulls[rows] == 0)
    for index in np.flatnonzero(~number & ~nan & known & (nulls[rows] == row_counts[rows])):
        found[index] = None
    for index in np.flatnonzero(~number & nan & no_null):
        found[index] = NAN_KEY
    if zones.low is not None and zones.high is not None:
        bounded = zones.has(LOW_KNOWN)[rows] & zones.has(HIGH_KNOWN)[rows] & number & ~nan & no_null
        candidates = np.flatnonzero(bounded)
        low, high = zones.low.take(rows[candidates]), zones.high.take(rows[candidates])
        same = ~lesser(low, high) & ~lesser(high, low)
        for index, row in zip(candidates[same], rows[candidates[same]], strict=True):
            found[index] = value_at(zones.low, int(row))
    return found


def value_at(keys: Keys, row: int) -> Value:
    """One bound; a zero is 0.0."""
    if isinstance(keys, NumberKeys):
        value: int | float = keys.array[row].item()
        return value + 0.0 if isinstance(value, float) else value
    if isinstance(keys, WideKeys):
        return (int(keys.high[row]) << 64) + int(keys.low[row])
    if isinstance(keys, BytesKeys):
        return keys.at(row)
    raise TypeError(f"{type(keys).__name__} holds no values")


def extreme(keys: Keys, rows: Rows, *, greatest: bool) -> Value:
    """The least (or greatest) bound of some rows, at least one."""
    choose = np.argmax if greatest else np.argmin
    if isinstance(keys, NumberKeys):
        return value_at(keys, int(rows[choose(keys.array[rows])]))
    if isinstance(keys, WideKeys):
        highs = keys.high[rows]
        rows = rows[highs == highs[choose(highs)]]
        return value_at(keys, int(rows[choose(keys.low[rows])]))
    if isinstance(keys, BytesKeys):
        prefixes = keys.prefix[rows]
        tied = (keys.at(int(row)) for row in rows[prefixes == prefixes[choose(prefixes)]])
        return max(tied) if greatest else min(tied)
    raise TypeError(f"{type(keys).__name__} holds no values")


def rank_hint(keys: Keys) -> npt.NDArray[Any]:
    """Numbers that sort as the bounds do, but for ties."""
    if isinstance(keys, NumberKeys):
        return keys.array
    if isinstance(keys, WideKeys):
        return keys.high
    if isinstance(keys, BytesKeys):
        return keys.prefix
    raise TypeError(f"{type(keys).__name__} holds no values")


def is_nan(value: Value | None) -> bool:
    """True for NaN."""
    return isinstance(value, float) and math.isnan(value)


def better(asked: Asked, one: Value | None, other: Value | None) -> Value | None:
    """The least (or greatest) of two results; None: no value."""
    if one is None or other is None:
        return other if one is None else one
    if is_nan(one) or is_nan(other):
        greatest = asked.function == "max"
        return one if is_nan(one) == greatest else other
    if asked.function == "max":
        return one if one >= other else other  # type: ignore[operator]  # one order per type
    return one if one <= other else other  # type: ignore[operator]  # one order per type


def beaten(asked: Asked, facts: Facts, best: Value | None) -> Mask:
    """Where no row of an entry, whichever match, can be less (or greater) than ``best``."""
    zones = facts.zones
    if best is None or zones is None:
        return facts.empty
    no_number, nan = zones.lacks(MAY_NUMBER), zones.has(MAY_NAN)
    if is_nan(best):
        return np.ones_like(nan) if asked.function == "max" else no_number
    low, high = zones.low, zones.high
    if low is None or high is None:
        return facts.empty
    if asked.function == "min":
        return no_number | (zones.has(LOW_KNOWN) & ~low.less(best))
    return ~nan & (no_number | (zones.has(HIGH_KNOWN) & high.less_equal(best)))
