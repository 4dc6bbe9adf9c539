"""The bounds of columns as people read them."""

from __future__ import annotations

from typing import Final

import msgspec

from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER, Zones
from lamella.snapshot.expression.value_text import ValueText, value_text
from lamella.snapshot.prune.top_k import value_at
from lamella.snapshot.schema import DataType
from lamella.snapshot.stats import ColumnStats, from_bound
from lamella.snapshot.stats.column import Nan


class BoundsText(msgspec.Struct, frozen=True):
    """Bounds as SQL literals, None where not known; ``is_cut``: one of them goes on behind its ellipsis."""

    min: str | None = None
    max: str | None = None
    is_cut: bool = False


NOTHING_KNOWN: Final = BoundsText()


def stats_text(dtype: DataType, stats: ColumnStats) -> BoundsText:
    """The bounds of statistics."""
    if dtype.order is None:
        return NOTHING_KNOWN
    sides = [None if bound is None else value_text(dtype, from_bound(dtype, bound)) for bound in (stats.min, stats.max)]
    return _both(*sides)


def zones_text(dtype: DataType, zones: Zones, row: int) -> BoundsText:
    """The bounds of one entry of zone maps."""
    flags = int(zones.flags[row])
    low = value_text(dtype, value_at(zones.low, row)) if flags & LOW_KNOWN and zones.low is not None else None
    high = value_text(dtype, value_at(zones.high, row)) if flags & HIGH_KNOWN and zones.high is not None else None
    return _both(low, high)


def zones_nan(dtype: DataType, zones: Zones, row: int) -> Nan | None:
    """Whether rows of one entry are NaN; None for types without it."""
    if not dtype.is_float:
        return None
    flags = int(zones.flags[row])
    if not flags & MAY_NAN:
        return "none"
    return "maybe" if flags & MAY_NUMBER else "all"


def _both(low: ValueText | None, high: ValueText | None) -> BoundsText:
    return BoundsText(
        None if low is None else low.text,
        None if high is None else high.text,
        any(side is not None and side.is_cut for side in (low, high)),
    )
