"""Functions that return one of their arguments: coalesce, greatest and least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Keys, Mask, choose, lesser
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, NULLS_KNOWN, Zones
from lamella.snapshot.function.base import Vector, fails_of

#: Bounds of some entries, and in which entries they are known.
_Bounds = tuple[Keys | None, Mask]


class Coalesce(msgspec.Struct, frozen=True, gc=False):
    """``coalesce(a, b, ...)`` of arguments of one type: not null where any argument is not."""

    def zones(self, *arguments: Zones) -> Zones:
        """Returns the hull of the arguments that a row can evaluate to."""
        merged = arguments[0]
        for following in arguments[1:]:
            merged = _or_else(merged, following)
        return merged

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the first value that is not null; later arguments are not evaluated."""
        merged = arguments[0]
        for following in arguments[1:]:
            merged = _or_value(merged, following)
        return merged


class Extreme(msgspec.Struct, frozen=True, gc=False):
    """``greatest(a, b, ...)`` or ``least(a, b, ...)`` of arguments of one type, which skip nulls: null only where all
    arguments are. NaN is greater than every number."""

    is_max: bool

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the results."""
        flags = np.bitwise_or.reduce([zones.flags & np.uint8(MAY_NUMBER | MAY_NAN) for zones in arguments])
        for bit in (MAY_NULL, NULLS_KNOWN):
            flags = flags | np.bitwise_and.reduce([zones.flags & np.uint8(bit) for zones in arguments])
        lows, low_known = self._bound(arguments, LOW_KNOWN)
        highs, high_known = self._bound(arguments, HIGH_KNOWN)
        flags = flags | low_known * np.uint8(LOW_KNOWN) | high_known * np.uint8(HIGH_KNOWN)
        return Zones(lows, highs, flags.astype(np.uint8), fails_of(arguments))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the results. All arguments are evaluated, so a row fails where any of them does."""
        values, valid = arguments[0].values, arguments[0].valid
        for other in arguments[1:]:
            less = _is_less(values, other.values)
            mine = valid & (~other.valid | (~less if self.is_max else less))
            values, valid = _chosen(mine, values, other.values), valid | other.valid
        failed, reason = np.zeros(len(valid), dtype=bool), ""
        for argument in arguments:
            if argument.failed is not None and argument.failed.any():
                failed, reason = failed | argument.failed, reason or argument.reason
        return Vector(values, valid | failed, failed, reason) if reason else Vector(values, valid)

    def _bound(self, arguments: Sequence[Zones], bit: int) -> _Bounds:
        """Returns the bounds on one side.

        Every result is one of the arguments, so the outermost bound holds. On the inner side (from below for
        ``greatest``), each argument that always has a value is a bound, too.
        """
        is_low = bit == LOW_KNOWN
        sides = [zones.low if is_low else zones.high for zones in arguments]
        known = [
            zones.has(bit) if side is not None else zones.has(0) for zones, side in zip(arguments, sides, strict=True)
        ]
        numbers = [zones.has(MAY_NUMBER) for zones in arguments]
        all_known = np.logical_and.reduce([~some | k for some, k in zip(numbers, known, strict=True)])
        usable = [some & k for some, k in zip(numbers, known, strict=True)]
        keys, has = _outermost(list(zip(sides, usable, strict=True)), smallest=is_low)
        has = has & all_known
        if is_low != self.is_max:
            return keys, has
        always = [zones.lacks(MAY_NULL) if self.is_max else zones.lacks(MAY_NULL | MAY_NAN) for zones in arguments]
        sure = [use & each for use, each in zip(usable, always, strict=True)]
        inner, inner_has = _outermost(list(zip(sides, sure, strict=True)), smallest=not is_low)
        if keys is None or inner is None:
            return keys, has
        return choose(inner_has, inner, keys), has | inner_has


def _outermost(sides: Sequence[_Bounds], *, smallest: bool) -> _Bounds:
    """Returns the smallest or greatest of the bounds that may be used, entry by entry, and where there is one."""
    keys, has = sides[0]
    for other, usable in sides[1:]:
        if keys is None or other is None:
            keys, has = (other, usable) if keys is None else (keys, has)
            continue
        less = lesser(keys, other)
        mine = np.where(has & usable, less if smallest else ~less, has)
        keys, has = choose(np.asarray(mine), keys, other), has | usable
    return keys, np.asarray(has)


def _is_less(left: Any, right: Any) -> Mask:
    """Returns where a value is less than another, row by row; NaN is greatest."""
    if not isinstance(left, np.ndarray):
        return np.asarray(pc.less(left, right).to_numpy(zero_copy_only=False)).astype(bool)
    less = np.asarray(left < right).astype(bool)
    return less | (~np.isnan(left) & np.isnan(right)) if left.dtype.kind == "f" else less


def _chosen(mine: Mask, left: Any, right: Any) -> Any:
    if isinstance(left, np.ndarray):
        return np.where(mine, left, right)
    return pc.if_else(pa.array(mine), left, right)


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
    values = first.flags & np.uint8(MAY_NUMBER | MAY_NAN)
    flags = np.where(reached, values | taken | (second.flags & np.uint8(MAY_NULL)), values)
    counted = (first.has(NULLS_KNOWN) & second.has(NULLS_KNOWN)) | ~reached
    flags = flags | counted * np.uint8(NULLS_KNOWN)
    low, low_known = _side(first, second, reached, LOW_KNOWN)
    high, high_known = _side(first, second, reached, HIGH_KNOWN)
    flags = flags | low_known * np.uint8(LOW_KNOWN) | high_known * np.uint8(HIGH_KNOWN)
    return Zones(low, high, flags.astype(np.uint8), fails_of((first, second)))


def _side(first: Zones, second: Zones, reached: Mask, bit: int) -> tuple[Keys | None, Mask]:
    """Returns the outer bound of the two on one side; an argument without numbers is ignored."""
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
