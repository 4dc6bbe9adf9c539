"""Statistics of files as recipients take them: only what is exact, and reads the same for whoever reads JSON.

Left out are bounds that may be loose, integers that a double does not hold, decimals, times finer than a millisecond,
text whose order is not everywhere the same, and bounds of columns that may hold NaN.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lamella.snapshot.columnar.exactness import HIGH_EXACT, LOW_EXACT
from lamella.snapshot.columnar.keys import Keys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN
from lamella.snapshot.prune.kept import Kept
from lamella.snapshot.prune.top_k import value_at
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.sharing.hint import one_order

#: Columns that have statistics in an answer: the first of the table, as in Delta's own logs.
MOST_COLUMNS: Final = 32
_EXACT_IN_DOUBLE: Final = 1 << 53
_LONGEST_TEXT: Final = 256
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

Plain = Callable[[Any], Any]


def stats_of(part: Kept, schema: Schema) -> list[str]:
    """The statistics of each of the kept files, as JSON in ASCII."""
    found: list[dict[str, Any]] = [
        {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        for rows in part.numbers("row_count").tolist()
    ]
    leaves = [leaf for leaf in schema.leaves() if len(leaf.path) == 1 and not leaf.repeated]
    for leaf in leaves[:MOST_COLUMNS]:
        _add(found, part, leaf)
    return [_ENCODE(each) for each in found]


def _add(found: list[dict[str, Any]], part: Kept, leaf: Leaf) -> None:
    companion, rows = part.companion, part.rows
    for stats, nulls in zip(found, companion.null_counts(leaf.id, leaf.dtype)[rows].tolist(), strict=True):
        if nulls >= 0:
            stats["nullCount"][leaf.name] = nulls
    zones = companion.zones(leaf.id, leaf.dtype)
    flags = zones.flags[rows]
    for member, keys, wanted, sign in (
        ("minValues", zones.low, LOW_KNOWN | LOW_EXACT, -1.0),
        ("maxValues", zones.high, HIGH_KNOWN | HIGH_EXACT, 1.0),
    ):
        plain = _plain_of(leaf.dtype, sign)
        if plain is None or keys is None:
            continue
        known = (flags & np.uint8(wanted | MAY_NAN)) == wanted
        for place in np.flatnonzero(known).tolist():
            value = _value(keys, int(rows[place]), plain)
            if value is not None:
                found[place][member][leaf.name] = value


def _value(keys: Keys, row: int, plain: Plain) -> Any:
    return plain(value_at(keys, row))


def _plain_of(dtype: DataType, sign: float) -> Plain | None:
    """Makes JSON of a bound, None of one that not everybody would read alike; ``sign``: which zero a zero may be."""
    if dtype.is_integer:
        return lambda value: value if abs(value) <= _EXACT_IN_DOUBLE else None
    if dtype.is_float:
        return lambda value: (value or math.copysign(0.0, sign)) if math.isfinite(value) else None
    if dtype.is_text:
        return _text
    if dtype.name == "date":
        return _date
    if dtype.name in ("timestamp", "timestamp_ntz"):
        per_ms, end = PER_SECOND[dtype.unit] // 1_000, "Z" if dtype.name == "timestamp" else ""
        return lambda value: _time(value, per_ms, end)
    return None


def _text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _LONGEST_TEXT and one_order(text) else None


def _date(value: int) -> str | None:
    try:
        return (_EPOCH + dt.timedelta(days=value)).date().isoformat()
    except OverflowError:
        return None


def _time(value: int, per_ms: int, end: str) -> str | None:
    at_ms, rest = divmod(value, per_ms)
    try:
        at = _EPOCH + dt.timedelta(milliseconds=at_ms)
    except OverflowError:
        return None
    return None if rest else at.replace(tzinfo=None).isoformat(timespec="milliseconds") + end
