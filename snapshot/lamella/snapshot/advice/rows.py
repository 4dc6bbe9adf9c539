"""Rows to try a layout with: read from blocks, or drawn from what manifests say of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.advice.line import Line, Numbers
from lamella.snapshot.advice.outlook import Outlook
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.schema import Leaf

Rows = npt.NDArray[np.int64]
#: Bytes behind what two texts share that tell how far apart they are.
_WORD: Final = 8


class SampledColumn(msgspec.Struct, frozen=True, eq=False):
    """Some rows of a column: values in its type's order (numbers, or byte strings as objects), where there are any, and
    where there is NaN instead; what is neither is null.

    ``width``: about how much of all rows one value has, where the rows were drawn and values are not repeated in them
    as they are in the table; 0: they are.
    """

    values: Any
    valid: Any
    nan: Any
    width: float = 0.0


#: By column; all of one length, row beside row.
Sample = Mapping[Leaf, SampledColumn]


def from_vectors(vectors: Sequence[Vector]) -> SampledColumn:
    """Rows that were read."""
    parts = []
    for vector in vectors:
        if vector.is_bytes:
            values = np.empty(len(vector), dtype=object)
            values[:] = vector.values.to_pylist()
        else:
            values = vector.values
        parts.append(values)
    valid = np.concatenate([np.zeros(0, dtype=bool), *(vector.valid for vector in vectors)])
    whole = np.concatenate(parts) if parts else np.zeros(0)
    nan = valid & np.isnan(whole) if whole.dtype == np.float64 else np.zeros(len(valid), dtype=bool)
    return SampledColumn(whole, valid & ~nan, nan)


def stacked(columns: Sequence[SampledColumn]) -> SampledColumn:
    """The rows of several, one after another."""
    return SampledColumn(
        np.concatenate([each.values for each in columns]),
        np.concatenate([each.valid for each in columns]),
        np.concatenate([each.nan for each in columns]),
    )


def drawn(outlook: Outlook, blocks: Rows, row_counts: Numbers, rng: np.random.Generator) -> SampledColumn:
    """For each of ``blocks`` (places, repeated) a value as it may have, or none, as often as it has nulls.

    Values of different columns of a row have nothing to do with each other beyond being in one block.
    """
    line, mass = outlook.line, outlook.cover.mass
    sums = np.concatenate([[0.0], np.cumsum(mass)])
    has_values = np.zeros(line.count, dtype=bool)
    has_values[line.entry] = True
    if not len(line.entry):
        nothing = np.zeros(len(blocks), dtype=bool)
        return SampledColumn(np.zeros(len(blocks)), nothing, nothing)
    chosen = _pieces(line, sums, blocks, rng)
    low, high = sums[line.first[chosen]], sums[line.last[chosen] + 1]
    places = low + rng.random(len(blocks)) * (high - low)
    element = np.clip(np.searchsorted(sums, places, side="right") - 1, line.first[chosen], line.last[chosen])
    within = np.divide(places - sums[element], mass[element], out=np.zeros(len(blocks)), where=mass[element] > 0)
    values = at(line.points, element, np.clip(within, 0.0, 1.0), is_whole=line.is_whole)
    valued = outlook.profile.rows[blocks] / np.maximum(row_counts[blocks], 1.0)
    valid = has_values[blocks] & (rng.random(len(blocks)) < valued)
    return SampledColumn(values, valid, np.zeros(len(blocks), dtype=bool), 1.0 / max(outlook.profile.total, 1.0))


def _pieces(line: Line, sums: Numbers, blocks: Rows, rng: np.random.Generator) -> Rows:
    """For each of the blocks one of its ranges, those with much in them more often."""
    order = np.argsort(line.entry, kind="stable")
    inside = np.concatenate([[0.0], np.cumsum((sums[line.last + 1] - sums[line.first])[order])])
    starts = np.searchsorted(line.entry[order], np.arange(line.count + 1))
    low, high = inside[starts[blocks]], inside[starts[blocks + 1]]
    place = np.searchsorted(inside, low + rng.random(len(blocks)) * (high - low), side="right") - 1
    last = np.maximum(starts[blocks + 1] - 1, starts[blocks])
    return np.asarray(order[np.clip(np.clip(place, starts[blocks], last), 0, len(order) - 1)])


def at(points: Any, element: Rows, within: Numbers, *, is_whole: bool) -> Any:
    """Values in elements of a line, a part of the way through each."""
    first = element // 2
    if points.dtype == object:
        found = np.empty(len(element), dtype=object)
        found[:] = [
            _between(points[place], points[place + 1], part) if odd and place + 1 < len(points) else points[place]
            for place, odd, part in zip(first.tolist(), (element % 2).tolist(), within.tolist(), strict=True)
        ]
        return found
    following = np.minimum(first + element % 2, len(points) - 1)
    if points.dtype.kind in "iu":
        gap = (points[following].astype(np.uint64) - points[first].astype(np.uint64)).astype(np.float64)
        step = np.minimum(within * gap, np.maximum(gap - 1, 0)).astype(np.uint64)
        return (points[first].astype(np.uint64) + step).astype(points.dtype)
    values = points[first] + within * (points[following] - points[first])
    return np.floor(values) if is_whole else values


def _between(low: bytes, high: bytes, part: float) -> bytes:
    """A byte string between two, a part of the way."""
    shared = next(
        (at for at, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]), min(len(low), len(high))
    )
    first, last = (int.from_bytes(text[shared : shared + _WORD].ljust(_WORD, b"\0"), "big") for text in (low, high))
    return low[:shared] + (first + int(part * (last - first))).to_bytes(_WORD, "big")
