"""``coalesce``: the first argument that is not null."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Keys, Mask, choose, lesser
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, NULLS_KNOWN, Zones
from lamella.snapshot.function.base import fails_of
from lamella.snapshot.function.vector import Vector


class Coalesce(msgspec.Struct, frozen=True, gc=False):
    """``coalesce(a, b, ...)`` of arguments of one type: not null where any argument is not."""

    def zones(self, *arguments: Zones) -> Zones:
        """The hull of the arguments that a row can come to."""
        merged = arguments[0]
        for following in arguments[1:]:
            merged = _or_else(merged, following)
        return merged

    def rows(self, *arguments: Vector) -> Vector:
        """The first value that is not null; what stands behind it is not looked at."""
        merged = arguments[0]
        for following in arguments[1:]:
            merged = _or_value(merged, following)
        return merged


def _or_value(first: Vector, second: Vector) -> Vector:
    valid = first.valid | second.valid
    if first.is_bytes:
        values = pc.if_else(pa.array(first.valid), first.values, second.values)
    else:
        values = np.where(first.valid, first.values, second.values)
    if first.failed is None and second.failed is None:
        return Vector(values, valid)
    nowhere = np.zeros(len(valid), dtype=bool)
    mine = nowhere if first.failed is None else first.failed
    other = nowhere if second.failed is None else second.failed & ~first.valid
    return Vector(values, valid, mine | other, first.reason if mine.any() else second.reason)


def _or_else(first: Zones, second: Zones) -> Zones:
    reached = first.has(MAY_NULL)
    taken = second.flags & np.uint8(MAY_NUMBER | MAY_NAN)
    held = first.flags & np.uint8(MAY_NUMBER | MAY_NAN)
    flags = np.where(reached, held | taken | (second.flags & np.uint8(MAY_NULL)), held)
    counted = (first.has(NULLS_KNOWN) & second.has(NULLS_KNOWN)) | ~reached
    flags = flags | counted * np.uint8(NULLS_KNOWN)
    low, low_known = _side(first, second, reached, LOW_KNOWN)
    high, high_known = _side(first, second, reached, HIGH_KNOWN)
    flags = flags | low_known * np.uint8(LOW_KNOWN) | high_known * np.uint8(HIGH_KNOWN)
    return Zones(low, high, flags.astype(np.uint8), fails_of((first, second)))


def _side(first: Zones, second: Zones, reached: Mask, bit: int) -> tuple[Keys | None, Mask]:
    """The outer bound of the two on one side; an argument without numbers has no part in it."""
    mine, other = (first.low, second.low) if bit == LOW_KNOWN else (first.high, second.high)
    nothing = np.zeros(len(first), dtype=bool)
    if mine is None or other is None:
        return None, nothing
    from_first = first.has(MAY_NUMBER)
    from_second = reached & second.has(MAY_NUMBER)
    known = (~from_first | first.has(bit)) & (~from_second | second.has(bit)) & (from_first | from_second)
    outer = lesser(mine, other) if bit == LOW_KNOWN else ~lesser(mine, other)
    use_first = np.where(from_first & from_second, outer, from_first)
    return choose(np.asarray(use_first), mine, other), np.asarray(known)
