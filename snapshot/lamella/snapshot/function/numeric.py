"""Arithmetic, and casts that preserve the order of values."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import MAY_NAN, Zones
from lamella.snapshot.function.base import (
    SAFE,
    Span,
    Vector,
    in_range,
    result,
    span_of,
    strict,
    whole_numbers,
)
from lamella.snapshot.schema import DataType

# Sums, differences, products and quotients of numbers, where no row can overflow.
#
# Interval arithmetic: the result lies between the minimum and maximum of the results at the bounds, since each
# operation is monotone in each argument, and rounding to the nearest double preserves the order. An integer or decimal
# result that may exceed its type counts as unknown: Spark's ANSI mode fails there, and the other mode wraps around or
# gives null.

Operation = Literal["add", "subtract", "multiply", "divide"]
_Numbers = npt.NDArray[Any]


class Integers(msgspec.Struct, frozen=True, gc=False):
    """``left op right`` over whole numbers (also days, and decimals as unscaled numbers).

    ``left_factor`` and ``right_factor`` convert the arguments to the result's scale.
    """

    operation: Operation
    dtype: DataType
    left_factor: int = 1
    right_factor: int = 1

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the results."""
        left, right = (span_of(zones) for zones in arguments)
        left, left_safe = _scaled(left, self.left_factor)
        right, right_safe = _scaled(right, self.right_factor)
        both = left.known & right.known & left_safe & right_safe
        with np.errstate(over="ignore"):
            low, high, fits = _whole(self.operation, left, right)
        limits = tuple(max(-SAFE, min(SAFE, limit)) for limit in self.dtype.int_range)
        inside = both & fits & (low >= limits[0]) & (high <= limits[1])
        return result(self.dtype, Span(low, high, inside, inside), arguments, may_fail=~inside)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the results; one out of the type's range has failed."""
        left, right = (whole_numbers(vector) for vector in arguments)
        exact = computed(self.operation, left, right, self.left_factor, self.right_factor)
        values, fits = in_range(exact, self.dtype)
        return strict(values, arguments, failed=~fits, reason=_overflow(self.dtype))


class Doubles(msgspec.Struct, frozen=True, gc=False):
    """``left op right`` over doubles."""

    operation: Operation
    dtype: DataType

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the results."""
        left, right = (_double(span_of(zones)) for zones in arguments)
        known = left.known & right.known
        for side in (left, right):
            known = known & np.isfinite(side.low) & np.isfinite(side.high)
        by_zero = np.zeros(len(known), dtype=bool)
        if self.operation == "divide":  # an error or a null, depending on Spark's settings
            by_zero = ~right.known | ((right.low <= 0) & (right.high >= 0))
        with np.errstate(all="ignore"):
            corners = _corners(self.operation, left, right)
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
        known = known & ~np.isnan(low) & ~np.isnan(high)
        may_nan = arguments[0].has(MAY_NAN) | arguments[1].has(MAY_NAN) | ~known
        return result(
            self.dtype, Span(low, high, known, known), arguments, may_fail=by_zero, may_nan=may_nan, keeps_nan=True
        )

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the results; a quotient by zero has failed."""
        left, right = (vector.values for vector in arguments)
        by_zero = right == 0 if self.operation == "divide" else np.zeros(len(right), dtype=bool)
        with np.errstate(all="ignore"):
            values = _applied(self.operation, left, right)
        if self.operation == "divide":  # Spark computes the divisor first
            arguments = arguments[::-1]
        return strict(values, arguments, failed=by_zero, reason="a division by zero")


class Negative(msgspec.Struct, frozen=True, gc=False):
    """``-x`` of a number."""

    dtype: DataType

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the results; the smallest integer has no opposite."""
        (zones,) = arguments
        span = span_of(zones)
        with np.errstate(over="ignore"):
            flipped = Span(-span.high, -span.low, span.high_known, span.low_known)
        if self.dtype.is_float:
            return result(self.dtype, flipped, arguments, may_nan=zones.has(MAY_NAN), keeps_nan=True)
        return result(self.dtype, flipped, arguments, may_fail=_may_be_min(span, self.dtype))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the opposites; that of the smallest integer has failed."""
        (vector,) = arguments
        if self.dtype.is_float:
            return strict(-vector.values, arguments)
        values, fits = in_range(_opposite(vector), self.dtype)
        return strict(values, arguments, failed=~fits, reason=_overflow(self.dtype))


class Absolute(msgspec.Struct, frozen=True, gc=False):
    """``abs(x)`` of a number."""

    dtype: DataType

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the results: from the bound that is nearer to zero to the one that is farther."""
        (zones,) = arguments
        span = span_of(zones)
        with np.errstate(over="ignore"):
            low = np.where(span.low_known & (span.low > 0), span.low, 0)
            low = np.where(span.high_known & (span.high < 0), -span.high, low)
            high = np.maximum(np.abs(span.low), np.abs(span.high))
        made = Span(low, high, np.ones(len(zones), dtype=bool), span.known)
        if self.dtype.is_float:
            return result(self.dtype, made, arguments, may_nan=zones.has(MAY_NAN), keeps_nan=True)
        return result(self.dtype, made, arguments, may_fail=_may_be_min(span, self.dtype))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the absolute values; that of the smallest integer has failed."""
        (vector,) = arguments
        if self.dtype.is_float:
            return strict(np.abs(vector.values), arguments)
        below = np.asarray(vector.values < 0).astype(bool)
        values, fits = in_range(np.where(below, _opposite(vector), whole_numbers(vector)), self.dtype)
        return strict(values, arguments, failed=~fits, reason=_overflow(self.dtype))


def computed(operation: Operation, left: _Numbers, right: _Numbers, *factors: int) -> _Numbers:
    """Returns ``left * factor op right * factor``, exact: as int64 if every result fits, else as Python integers."""
    first, second = factors or (1, 1)
    a, b = _max_distance(left) * first, _max_distance(right) * second
    max_result = a * b if operation == "multiply" else a + b
    kind = object if max(a, b, max_result) > SAFE else np.int64
    left, right = left.astype(kind, copy=False), right.astype(kind, copy=False)
    return np.asarray(_applied(operation, left * first, right * second))


def _applied(operation: Operation, left: _Numbers, right: _Numbers) -> _Numbers:
    if operation == "add":
        return left + right
    if operation == "subtract":
        return left - right
    return left * right if operation == "multiply" else left / right


def _max_distance(values: _Numbers) -> int:
    """Returns the maximum absolute value."""
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


def _opposite(vector: Vector) -> _Numbers:
    values = whole_numbers(vector)
    return computed("subtract", np.zeros_like(values), values)


def _overflow(dtype: DataType) -> str:
    return f"a result outside the range of {dtype}"


def _may_be_min(span: Span, dtype: DataType) -> Mask:
    if dtype.name == "decimal":  # symmetric about zero, but 64 bits, which hold the bounds, are not
        return np.asarray(~span.known | (span.low == np.iinfo(np.int64).min))
    return np.asarray(~span.low_known | (span.low <= dtype.int_range[0]))


def _scaled(span: Span, factor: int) -> tuple[Span, Mask]:
    """Returns a span times a power of ten, and where that is exact."""
    if factor == 1:
        return span, np.ones(len(span.low), dtype=bool)
    limit = SAFE // factor
    safe = (span.low >= -limit) & (span.high <= limit)  # not by abs(): the smallest integer has none
    scale = np.int64(factor if factor < SAFE else 0)
    with np.errstate(over="ignore"):
        return Span(span.low * scale, span.high * scale, span.low_known, span.high_known), np.asarray(safe)


def _whole(operation: Operation, left: Span, right: Span) -> tuple[_Numbers, _Numbers, Mask]:
    """Returns minimum and maximum result, and where they are exact."""
    if operation == "multiply":
        corners = _corners(operation, left, right)
        roughly = _corners(operation, _double(left), _double(right))
        fits = np.maximum.reduce([np.abs(corner) for corner in roughly]) < float(SAFE)
        return np.minimum.reduce(corners), np.maximum.reduce(corners), np.asarray(fits)
    small = np.ones(len(left.low), dtype=bool)
    for side in (left, right):
        small = small & (side.low > -(SAFE >> 1)) & (side.high < SAFE >> 1)
    if operation == "add":
        return left.low + right.low, left.high + right.high, small
    return left.low - right.high, left.high - right.low, small


def _corners(operation: Operation, left: Span, right: Span) -> list[_Numbers]:
    pairs = [(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    return [_applied(operation, a, b) for a, b in pairs]


def _double(span: Span) -> Span:
    return Span(span.low.astype(np.float64), span.high.astype(np.float64), span.low_known, span.high_known)


_Integers64 = npt.NDArray[np.int64]
_EXACT: Final = float(1 << 62)


class Whole(msgspec.Struct, frozen=True, gc=False):
    """Converts integers and decimals to integers and decimals: times or divided by a power of ten, cut towards zero.

    Spark rounds a decimal that loses digits if the target is a decimal, so ``divisor`` is for integers only.
    """

    dtype: DataType
    factor: int = 1
    divisor: int = 1

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the results; a value out of the target's range may fail."""
        span = span_of(arguments[0])
        limit = SAFE // self.factor
        fits = span.known & (span.low >= -limit) & (span.high <= limit)  # not by abs(): the smallest integer has none
        scale = np.int64(min(self.factor, SAFE))
        with np.errstate(over="ignore"):
            low, high = (_cut(side * scale, self.divisor) for side in (span.low, span.high))
        lowest, highest = self.dtype.int_range
        inside = fits & (low >= max(lowest, -SAFE)) & (high <= min(highest, SAFE))
        return result(self.dtype, Span(low, high, inside, inside), arguments, may_fail=~inside)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the results; one out of the target's range has failed."""
        values = whole_numbers(arguments[0])
        if self.factor != 1:
            values = computed("multiply", values, np.array([self.factor], dtype=object))
        if self.divisor != 1:
            wide = values.dtype == object or self.divisor > SAFE
            exact = values.astype(object) if wide else values
            cut = np.abs(exact) // self.divisor
            values = np.where(exact < 0, -cut, cut)
        made, fits = in_range(values, self.dtype)
        return strict(made, arguments, failed=~fits, reason=_out_of_range(self.dtype))


class ToDouble(msgspec.Struct, frozen=True, gc=False):
    """Converts integers and floats to the nearest double."""

    dtype: DataType

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the doubles."""
        span = span_of(arguments[0])
        low, high = span.low.astype(np.float64), span.high.astype(np.float64)
        made = Span(low, high, span.low_known, span.high_known)
        return result(self.dtype, made, arguments, may_nan=arguments[0].has(MAY_NAN))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the doubles."""
        return strict(arguments[0].values.astype(np.float64), arguments)


class ToInteger(msgspec.Struct, frozen=True, gc=False):
    """Converts doubles to integers, cut towards zero; NaN and values out of range may fail."""

    dtype: DataType

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the integers."""
        (zones,) = arguments
        span = span_of(zones)
        lowest, highest = (max(-_EXACT, min(_EXACT, float(limit))) for limit in self.dtype.int_range)
        with np.errstate(invalid="ignore"):
            inside = span.known & (span.low >= lowest) & (span.high <= highest) & ~zones.has(MAY_NAN)
            low, high = (np.where(inside, np.trunc(side), 0).astype(np.int64) for side in (span.low, span.high))
        return result(self.dtype, Span(low, high, inside, inside), arguments, may_fail=~inside)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the integers. 2^63 becomes the greatest 64-bit integer: Spark compares with that as a double, and
        cuts."""
        values = arguments[0].values
        lowest, highest = self.dtype.int_range
        with np.errstate(invalid="ignore"):
            whole = np.trunc(values)
            fits = (whole >= float(lowest)) & (whole <= float(highest))
            beyond = fits & (whole >= float(1 << 63))
            made = np.where(fits & ~beyond, whole, 0.0).astype(np.int64)
        made = np.where(beyond, np.int64((1 << 63) - 1), made)
        return strict(made, arguments, failed=~fits, reason=_out_of_range(self.dtype))


def _cut(values: _Integers64, divisor: int) -> _Integers64:
    """Returns quotients cut towards zero."""
    if divisor == 1:
        return values
    if divisor > SAFE:  # greater than any number here
        return np.zeros_like(values)
    return np.asarray(np.sign(values) * (np.abs(values) // divisor))


def _out_of_range(dtype: DataType) -> str:
    return f"a value outside the range of {dtype}"
