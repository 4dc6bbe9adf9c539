"""A companion as it looks from a later schema of the table than the one it was written with.

Zone maps are converted column by column, when first asked for: what :mod:`lamella.snapshot.stats.projection` does for
statistics, on arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.companion import Companion
from lamella.snapshot.columnar.exactness import HIGH_EXACT, LOW_EXACT, exact_bits
from lamella.snapshot.columnar.keys import Keys, NumberKeys, WideKeys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, Zones, keys_of, nothing_known, number_dtype, zones_of
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.schema.evolution import can_widen
from lamella.snapshot.stats.column import ColumnStats
from lamella.snapshot.stats.projection import absent, factor, is_younger

_LIMB = 1 << 64


class EvolvedCompanion(Companion):
    """A view of a companion; arrays and addresses are the same objects."""

    def __init__(self, inner: Companion, written: Schema, wanted: Schema) -> None:
        # Opening the bytes again would only make the same views of them.
        self.__dict__.update(inner.__dict__)
        self._inner = inner
        self._written = written
        self.wanted = wanted
        self._evolved: dict[tuple[int, DataType], Zones] = {}

    def zones(self, column_id: int, dtype: DataType) -> Zones:
        """The zone maps of a column of the later schema."""
        key = (column_id, dtype)
        found = self._evolved.get(key)
        if found is None:
            found = self._evolved[key] = self._converted(column_id, dtype)
        return found

    def null_counts(self, column_id: int, dtype: DataType) -> npt.NDArray[np.int64]:
        """Null counts of a column, -1 where not known."""
        old = self._written.by_id().get(column_id)
        if old is not None:
            known = old.dtype == dtype or can_widen(old.dtype, dtype)
            return self._inner.null_counts(column_id, old.dtype) if known else np.full(len(self), -1, dtype=np.int64)
        stats = self._absent(column_id, dtype)
        counts = [-1 if each is None or each.null_count is None else each.null_count for _, each in stats]
        return np.array(counts, dtype=np.int64)

    def _converted(self, column_id: int, dtype: DataType) -> Zones:
        old = self._written.by_id().get(column_id)
        if old is not None:
            return widened_zones(self._inner.zones(column_id, old.dtype), old.dtype, dtype)
        entries = self._absent(column_id, dtype)
        zones = zones_of(dtype, entries)
        return Zones(zones.low, zones.high, zones.flags | exact_bits(entries))

    def _absent(self, column_id: int, dtype: DataType) -> list[tuple[int, ColumnStats | None]]:
        """``(row count, statistics)`` of a column that the written schema does not have."""
        leaf: Leaf | None = self.wanted.by_id().get(column_id)
        rows: list[int] = self.numbers("row_count").tolist()
        if leaf is None or leaf.dtype != dtype or not is_younger(column_id, self._written):
            return [(count, None) for count in rows]
        return [(count, absent(leaf, count)) for count in rows]


def widened_zones(zones: Zones, source: DataType, target: DataType) -> Zones:
    """Zone maps of a column of type ``source`` after it became one of type ``target``; bounds are converted exactly."""
    if source == target:
        return zones
    if not can_widen(source, target):
        return nothing_known(len(zones))
    if zones.low is None or zones.high is None or target.order is None:
        return Zones(None, None, zones.flags & ~np.uint8(LOW_KNOWN | HIGH_KNOWN | LOW_EXACT | HIGH_EXACT))
    if target.order in ("bytes", "float"):
        return zones
    times = factor(source, target)
    flags = zones.flags.copy()
    low, low_lost = _scaled(zones.low, times, target)
    high, high_lost = _scaled(zones.high, times, target)
    flags[low_lost] &= ~np.uint8(LOW_KNOWN | LOW_EXACT)
    flags[high_lost] &= ~np.uint8(HIGH_KNOWN | HIGH_EXACT)
    return Zones(low, high, flags)


def _scaled(keys: Keys, times: int, target: DataType) -> tuple[Keys, npt.NDArray[np.bool_]]:
    """The bounds times a factor, and where that is no value of the target."""
    if times == 1 and isinstance(keys, NumberKeys) and target.order != "decimal":
        return NumberKeys(keys.array.astype(number_dtype(target))), np.zeros(len(keys.array), dtype=bool)
    least, greatest = target.int_range
    values = [value * times for value in _integers(keys)]
    lost = np.array([not least <= value <= greatest for value in values], dtype=bool)
    kept = [0 if gone else value for value, gone in zip(values, lost, strict=True)]
    made: Any = keys_of(target, kept)
    return made, lost


def _integers(keys: Keys) -> list[int]:
    if isinstance(keys, WideKeys):
        return [int(high) * _LIMB + int(low) for high, low in zip(keys.high, keys.low, strict=True)]
    if isinstance(keys, NumberKeys):
        return [int(value) for value in keys.array]
    raise AssertionError("bytes are not scaled")
