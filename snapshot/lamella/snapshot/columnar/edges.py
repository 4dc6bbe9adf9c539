"""How far the values of a column have come by each entry, and what is left of them behind it.

Both ascend with the entries in whatever order these are, so they are searched, not compared.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import NumberKeys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, Zones


class Edges(msgspec.Struct, frozen=True):
    """``reached``: the greatest value of an entry and all before it; ``left``: the least of it and all behind it.

    NaN counts as the greatest value, and a bound that is not known as the end of the type.

    ``exact``: these are the entries' own bounds, all of them known, and no value is NaN. ``nulls``: whether entries may
    have nulls; None: some may.
    """

    reached: npt.NDArray[Any]
    left: npt.NDArray[Any]
    exact: bool = False
    nulls: bool | None = None


def edges_of(zones: Zones) -> Edges | None:
    """The edges of a column; None where values are not machine numbers."""
    found = ascending(zones)
    if found is not None:
        return found
    low, high = zones.low, zones.high
    if not isinstance(low, NumberKeys) or not isinstance(high, NumberKeys):
        return None
    kind = low.array.dtype
    least, greatest = ends_of(kind)
    number, nan = zones.has(MAY_NUMBER), zones.has(MAY_NAN)
    highs = np.where(zones.has(HIGH_KNOWN), high.array, kind.type(greatest))
    highs = np.where(nan, kind.type(greatest), np.where(number, highs, kind.type(least)))
    lows = np.where(number, np.where(zones.has(LOW_KNOWN), low.array, kind.type(least)), kind.type(greatest))
    if kind.kind == "f":  # a bound that is NaN in a damaged file says nothing
        lows = np.where(np.isnan(lows), least, lows)
        highs = np.where(np.isnan(highs), greatest, highs)
    return Edges(np.maximum.accumulate(highs), np.minimum.accumulate(lows[::-1])[::-1])


def ascending(zones: Zones) -> Edges | None:
    """The edges of a column whose bounds are all known and ascend: they are the bounds themselves, nothing is made.

    None for any other column. It is looked at once for each ``zones``.
    """
    found = zones.ascending
    if found is None:
        found = zones.ascending = _ascending(zones) or False
    return found or None


def _ascending(zones: Zones) -> Edges | None:
    low, high = zones.low, zones.high
    if not isinstance(low, NumberKeys) or not isinstance(high, NumberKeys):
        return None
    if not zones.is_complete or zones.spans is not None:
        return None
    for bounds in (low.array, high.array):
        # The last test is for a bound that is NaN in a damaged file.
        if not (bounds[1:] >= bounds[:-1]).all() or not (bounds[-1:] == bounds[-1:]).all():
            return None
    every, some = zones.flags_of_all()
    nulls = True if every & MAY_NULL else None if some & MAY_NULL else False
    return Edges(high.array, low.array, True, nulls)


def ends_of(kind: np.dtype[Any]) -> tuple[Any, Any]:
    """The least and the greatest value of a type."""
    return (-np.inf, np.inf) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)
