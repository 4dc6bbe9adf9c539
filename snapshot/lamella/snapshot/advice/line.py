"""The bounds of entries on one line: where each begins and ends, and how much room there is between.

The different bounds, in order, are the *points* of the line; what lies between two neighbours is an *interval*. Point k
is element 2k, the interval behind it element 2k + 1. Elements have a *measure*: for whole numbers, dates and the like
how many values there can be, else a length.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Keys, NumberKeys
from lamella.snapshot.columnar.points import ranked, spread
from lamella.snapshot.columnar.spans import Spans
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NUMBER, Zones
from lamella.snapshot.schema import DataType

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

#: Characters behind what all texts share that say where a text stands.
_TEXT_BYTES: Final = 12


class Line(msgspec.Struct, frozen=True, eq=False):
    """Ranges ``first`` to ``last`` (elements, ends included) of the entries ``entry``, one or several each.

    ``count`` entries there are; one without values has no range. ``measure``: of each element. ``is_whole``: it counts
    values. ``points``: the points, ascending, as numbers or byte strings.
    """

    count: int
    entry: Any
    first: Any
    last: Any
    measure: Any
    is_whole: bool
    points: Any

    @property
    def depth(self) -> Numbers:
        """How many ranges each element lies in."""
        return spread(len(self.measure), self.first, self.last, np.ones(len(self.first)))


def line_of(zones: Zones, dtype: DataType) -> Line:
    """The line of a column's zone maps; entries whose bounds are not known reach from end to end."""
    count = len(zones)
    has_values = zones.has(MAY_NUMBER)
    bounded = zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN) & has_values
    if zones.low is None or zones.high is None:
        bounded = np.zeros(count, dtype=bool)
    entry = np.flatnonzero(bounded)
    if len(entry) and zones.low is not None and zones.high is not None:
        low, high = zones.low.take(entry), zones.high.take(entry)
        if zones.spans is not None and isinstance(low, NumberKeys) and isinstance(high, NumberKeys):
            entry, low, high = _in_pieces(entry, low, high, zones.spans)
        ranks, lows, highs = ranked(low, high)
        points = ranks.array()
    else:
        points, lows, highs = np.zeros(1), entry, entry
    is_whole = dtype.order in ("int", "uint", "decimal")
    measure = np.zeros(2 * len(points) - 1)
    measure[1::2] = _gaps(points, low if len(entry) else None, is_whole=is_whole)
    if is_whole:
        measure[0::2] = 1.0
    wide = np.flatnonzero(has_values & ~bounded)
    return Line(
        count,
        np.concatenate([entry, wide]),
        np.concatenate([2 * lows, np.zeros(len(wide), dtype=np.int64)]),
        np.concatenate([2 * highs, np.full(len(wide), len(measure) - 1)]),
        measure,
        is_whole,
        points,
    )


def _in_pieces(entry: Rows, low: NumberKeys, high: NumberKeys, spans: Spans) -> tuple[Rows, NumberKeys, NumberKeys]:
    """Entries that are known better, in as many pieces as they have ranges."""
    counts = np.diff(spans.offsets)[entry] // 2
    whole = counts == 0
    chosen = spans.take(entry[~whole])
    return (
        np.concatenate([entry[whole], np.repeat(entry[~whole], counts[~whole])]),
        NumberKeys(np.concatenate([low.array[whole], chosen.low])),
        NumberKeys(np.concatenate([high.array[whole], chosen.high])),
    )


def _gaps(points: Any, keys: Keys | None, *, is_whole: bool) -> Numbers:
    """How much lies between neighbouring points."""
    if keys is None:
        return np.zeros(0)
    if points.dtype == object:
        return np.diff(_text_places(points.tolist()))
    if points.dtype.kind in "iu":
        # Exact also where the numbers are too large for a float.
        wrapped = points.astype(np.uint64)
        return np.asarray((wrapped[1:] - wrapped[:-1]).astype(np.float64)) - 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.nan_to_num(np.diff(points), nan=0.0, posinf=1e308)
    return np.asarray(np.maximum(gaps - 1.0, 0.0)) if is_whole else np.asarray(gaps)


def _text_places(texts: list[bytes]) -> Numbers:
    """Where ascending texts stand between 0 and 1: each byte is a digit among those seen at its place."""
    shared = 0
    shortest = min(map(len, texts))
    while shared < shortest and texts[0][shared] == texts[-1][shared]:
        shared += 1
    tails = [text[shared : shared + _TEXT_BYTES] for text in texts]
    table = np.zeros((len(tails), _TEXT_BYTES), dtype=np.int16)
    for row, tail in enumerate(tails):
        table[row, : len(tail)] = np.frombuffer(tail, dtype=np.uint8).astype(np.int16) + 1
    places = np.zeros(len(tails))
    unit = 1.0
    for column in table.T:
        seen, digits = np.unique(column, return_inverse=True)
        unit /= len(seen)
        places += digits * unit
    return places
