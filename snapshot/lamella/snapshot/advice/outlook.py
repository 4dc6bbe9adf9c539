"""What manifests say of a column in one layer, put together from its zone maps and counts of different values."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.advice.cover import Cover, cover_of
from lamella.snapshot.advice.line import Line, Numbers, line_of
from lamella.snapshot.columnar.keys import BytesKeys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NUMBER, Zones
from lamella.snapshot.index.profile import Profile, ProfileLayer
from lamella.snapshot.schema import DataType

#: About the bytes of a value of a type that is neither text nor bytes.
_NUMBER_BYTES: Final = 8.0


class Outlook(msgspec.Struct, frozen=True, eq=False):
    """A column's entries of one layer. ``rests_on``: where the counts of different values come from."""

    profile: Profile
    cover: Cover
    line: Line
    rests_on: str


def outlook_of(
    layer: ProfileLayer,
    zones: Zones,
    dtype: DataType,
    rows: Numbers,
    distinct: Numbers,
    total: float | None,
) -> Outlook:
    """Entries that have rows.

    ``rows``: how many of each may have a value, nulls left out where their number is known. ``distinct``: different
    values, NaN where nobody counted; where only some entries are counted the others are taken to be like them.
    ``total``: of the whole table, None: not counted.
    """
    line = line_of(zones, dtype)
    has_values = zones.has(MAY_NUMBER)
    most = np.where(has_values, np.minimum(rows, _room(line)), 0.0)
    known = np.isfinite(distinct)
    is_counted = total is not None and bool(known.any())
    if is_counted:
        share = float((distinct[known] / np.maximum(rows[known], 1.0)).mean())
        counted = np.clip(np.where(known, distinct, share * rows), np.minimum(most, 1.0), most)
        whole = float(max(total or 0.0, counted.max(initial=0.0)))
        lacking = int((~known).sum())
        rests_on = "counts of different values"
        if lacking:
            rests_on += f", of {lacking:,} of {len(rows):,} taken from others"
    else:
        counted = most
        whole = float(counted.sum())
        if line.is_whole:
            whole = min(whole, float(line.measure.sum()))
        rests_on = "row counts: different values were not counted, there are no more than rows"
    profile = Profile(
        layer=layer,
        dtype=dtype,
        rows=rows,
        distinct=counted,
        total=max(whole, 1.0),
        is_counted=is_counted,
        value_bytes=_value_bytes(zones, dtype),
        is_bounded=zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN) | ~has_values,
    )
    return Outlook(profile, cover_of(line, counted, profile.total), line, rests_on)


def _room(line: Line) -> Any:
    """How many values the bounds of each entry leave room for."""
    if not line.is_whole:
        room = np.zeros(line.count)
        np.add.at(room, line.entry, np.where(line.first == line.last, 1.0, np.inf))
        return room
    sums = np.concatenate([[0.0], np.cumsum(line.measure)])
    room = np.zeros(line.count)
    np.add.at(room, line.entry, sums[line.last + 1] - sums[line.first])
    return room


def _value_bytes(zones: Zones, dtype: DataType) -> float:
    if dtype.order != "bytes":
        return _NUMBER_BYTES
    bounds = [keys for keys in (zones.low, zones.high) if isinstance(keys, BytesKeys)]
    lengths = np.concatenate([np.zeros(0), *(np.diff(keys.offsets) for keys in bounds)])
    return float(lengths.mean()) if len(lengths) else _NUMBER_BYTES
