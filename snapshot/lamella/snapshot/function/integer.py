"""Rounding, whole quotients, remainders and shifts."""

from __future__ import annotations

from decimal import ROUND_HALF_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.zones import MAY_NAN, Zones
from lamella.snapshot.function.base import SAFE, Span, Vector, in_range, result, span_of, strict, whole_numbers
from lamella.snapshot.schema import DataType, parse_type

_LONG: Final = parse_type("int64")
_MIN: Final = np.iinfo(np.int64).min
_MAX: Final = np.iinfo(np.int64).max
_2_62: Final = float(1 << 62)
#: From here on a double has no digit behind the point that rounding could drop.
_NO_FRACTION: Final = float(1 << 53)
#: Every decimal of so many digits is the shortest one of its double, so all versions of Java print it.
_SURE_DIGITS: Final = 15
_CONTEXT: Final = Context(prec=800)
_ROUNDINGS: Final = (ROUND_HALF_UP, ROUND_HALF_DOWN, ROUND_HALF_EVEN)
_BY_ZERO: Final = "a division by zero"
_OVERFLOW: Final = "a result outside the range of its type"
_Numbers = npt.NDArray[Any]


class WholeDouble(msgspec.Struct, frozen=True, gc=False):
    """``floor(x)`` or ``ceil(x)`` of a double, as a 64-bit integer. Spark refuses NaN and numbers out of range in its
    ANSI mode; without it they become 0 and the nearest integer."""

    up: bool

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the integers; NaN and a number out of range may fail."""
        (zones,) = arguments
        span = span_of(zones)
        fits = span.known & (span.low >= -_2_62) & (span.high <= _2_62) & zones.lacks(MAY_NAN)
        low, high = (self._rounded(np.where(fits, side, 0.0)) for side in (span.low, span.high))
        return result(_LONG, Span(low, high, fits, fits), arguments, may_fail=~fits)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the integers; one of NaN or of a number out of range has failed."""
        values = arguments[0].values
        fits = np.abs(values) <= _2_62
        made = self._rounded(np.where(fits, values, 0.0))
        return strict(made, arguments, failed=~fits, reason="a number outside the range of int64")

    def _rounded(self, values: _Numbers) -> _Numbers:
        return np.asarray((np.ceil(values) if self.up else np.floor(values)).astype(np.int64))


class WholeQuotient(msgspec.Struct, frozen=True, gc=False):
    """A whole number divided by a positive constant, rounded down or ``up``: ``floor`` and ``ceil`` of decimals, and
    seconds of microseconds. ``factor``: the number is multiplied by it first."""

    dtype: DataType
    divisor: int
    up: bool = False
    factor: int = 1

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the quotients."""
        span = span_of(arguments[0])
        limit = SAFE // self.factor
        fits = span.known & (span.low >= -limit) & (span.high <= limit)
        low, high = (np.where(fits, side, 0) * self.factor for side in (span.low, span.high))
        made = Span(self._quotient(low), self._quotient(high), fits, fits)
        return result(self.dtype, made, arguments, may_fail=~fits if self.factor > 1 else None)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the quotients."""
        values = whole_numbers(arguments[0])
        if self.factor > 1 or self.divisor > SAFE:
            values = values.astype(object) * self.factor
        made, fits = in_range(np.asarray(self._quotient(values)), self.dtype)
        return strict(made, arguments, failed=~fits, reason=_OVERFLOW)

    def _quotient(self, values: _Numbers) -> _Numbers:
        if self.divisor > SAFE and values.dtype != object:  # greater than any number here
            return np.where(values > 0, 1, 0) if self.up else np.where(values < 0, -1, 0)
        return np.asarray(-(-values // self.divisor) if self.up else values // self.divisor)


class RoundedDecimal(msgspec.Struct, frozen=True, gc=False):
    """``round(x, n)``, half away from zero, or ``bround(x, n)``, half to even, of a decimal.

    ``divisor``: the power of ten by which the unscaled number is divided.
    """

    dtype: DataType
    divisor: int
    to_even: bool = False

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the rounded numbers; rounding keeps the order."""
        span = span_of(arguments[0])
        fits = span.known & (span.low > -SAFE) & (span.high < SAFE)
        low, high = (self._rounded(np.where(fits, side, 0)) for side in (span.low, span.high))
        return result(self.dtype, Span(low, high, fits, fits), arguments)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the rounded numbers."""
        made, fits = in_range(self._rounded(whole_numbers(arguments[0])), self.dtype)
        return strict(made, arguments, failed=~fits, reason=_OVERFLOW)

    def _rounded(self, values: _Numbers) -> _Numbers:
        if self.divisor == 1:
            return values
        if self.divisor > SAFE:
            values = values.astype(object)
        distance = np.abs(values)
        whole, rest = distance // self.divisor, distance % self.divisor
        odd = (whole % 2 == 1) if self.to_even else True
        above = (2 * rest > self.divisor) | ((2 * rest == self.divisor) & odd)
        whole = whole + above
        return np.asarray(np.where(values < 0, -whole, whole))


class RoundedDouble(msgspec.Struct, frozen=True, gc=False):
    """``round(x, digits)``, half away from zero, or ``bround``, half to even, of a double.

    Spark rounds the decimal that Java prints for the double; versions of Java print some doubles with more digits than
    others. A row for which that could matter has failed, and bounds are half a unit wider than the exact ones.
    """

    dtype: DataType
    digits: int
    to_even: bool = False

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the rounded numbers."""
        (zones,) = arguments
        span = span_of(zones)
        unit = 0.5 * 10.0**-self.digits
        with np.errstate(invalid="ignore", over="ignore"):
            low, high = (
                np.where(np.isinf(side), side, side + sign * (unit * 1.000001 + np.abs(side) * 2.0**-50))
                for side, sign in ((span.low, -1.0), (span.high, 1.0))
            )
        made = span._replace(low=low, high=high)
        return result(self.dtype, made, arguments, may_nan=zones.has(MAY_NAN), keeps_nan=True)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the rounded numbers."""
        values = arguments[0].values
        made = np.array(values, dtype=np.float64)
        failed = np.zeros(len(made), dtype=bool)
        sure = np.abs(made) < 10.0 ** (_SURE_DIGITS - 1 - self.digits)
        unit = Decimal(1).scaleb(-self.digits)
        for row in np.flatnonzero(np.isfinite(made) & (np.abs(made) < _NO_FRACTION)).tolist():
            exact = Decimal(repr(float(made[row])))
            found = {exact.quantize(unit, rounding, _CONTEXT) for rounding in _ROUNDINGS}
            failed[row] = len(found) > 1 or not sure[row]
            made[row] = float(found.pop())
        return strict(made, arguments, failed=failed, reason="a double beside the middle of two rounded numbers")


class Quotient(msgspec.Struct, frozen=True, gc=False):
    """``a DIV b`` of integers, cut towards zero, as a 64-bit integer."""

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the quotients, where no divisor is zero and nothing overflows."""
        left, right = (span_of(zones) for zones in arguments)
        fits = left.known & right.known & ((right.low > 0) | (right.high < 0)) & (left.low > _MIN)
        divisors = [np.where(fits, side, 1) for side in (right.low, right.high)]
        numbers = [np.where(fits, side, 0) for side in (left.low, left.high)]
        corners = [_cut(number, divisor) for number in numbers for divisor in divisors]
        made = Span(np.minimum.reduce(corners), np.maximum.reduce(corners), fits, fits)
        return result(_LONG, made, arguments, may_fail=~fits)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the quotients; one by zero, and one beyond 64 bits, has failed."""
        left, right = (whole_numbers(vector).astype(np.int64) for vector in arguments)
        overflows = (left == _MIN) & (right == -1)
        values = _cut(np.where(overflows, 0, left), np.where(right == 0, 1, right))
        # Spark computes the divisor first.
        return strict(values, arguments[::-1], failed=(right == 0) | overflows, reason=_BY_ZERO)


class Remainder(msgspec.Struct, frozen=True, gc=False):
    """``a % b`` of integers, with the sign of ``a``; or ``pmod(a, b)``, which is not negative if ``b`` is positive."""

    dtype: DataType
    positive: bool = False

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the remainders of positive divisors."""
        left, right = (span_of(zones) for zones in arguments)
        fits = right.known & (right.low > 0)
        limit = np.where(fits, right.high, 1) - 1
        if self.positive:
            low = np.zeros_like(limit)
            high = np.where(left.known & (left.low >= 0), np.minimum(limit, left.high), limit)
        else:
            low = np.where(left.low_known, -np.minimum(limit, -np.clip(left.low, -_MAX, 0)), -limit)
            high = np.where(left.high_known, np.minimum(limit, np.maximum(left.high, 0)), limit)
        one = fits & left.known & right.constant
        divisor = np.where(one, right.low, 1)
        ends = [np.where(one, side, 0) for side in (left.low, left.high)]
        if self.positive:
            same = one & (ends[0] // divisor == ends[1] // divisor)
        else:
            one_sign = (ends[0] >= 0) | (ends[1] <= 0)
            same = one & one_sign & (_cut(ends[0], divisor) == _cut(ends[1], divisor))
        low = np.where(same, self._remainder(ends[0], divisor), low)
        high = np.where(same, self._remainder(ends[1], divisor), high)
        return result(self.dtype, Span(low, high, fits, fits), arguments, may_fail=~fits)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the remainders; one of a division by zero has failed."""
        left, right = (whole_numbers(vector).astype(np.int64) for vector in arguments)
        divisor = np.where(right == 0, 1, right)
        values = self._remainder(left, divisor)
        failed = right == 0
        if self.positive:  # Java's sum of remainder and divisor may wrap around
            failed = failed | ((np.fmod(left, divisor) < 0) & (right < self.dtype.int_range[0] // 2))
        return strict(values, arguments[::-1], failed=failed, reason=_BY_ZERO)

    def _remainder(self, values: _Numbers, divisor: _Numbers) -> _Numbers:
        made = np.fmod(values, divisor)
        if not self.positive:
            return made
        with np.errstate(over="ignore"):
            return np.where(made < 0, np.fmod(made + divisor, divisor), made)


class Shift(msgspec.Struct, frozen=True, gc=False):
    """``x >> n``, ``x << n`` or ``x >>> n`` of 32 or 64 bits; as in Java, only the lowest bits of ``n`` count and bits
    that leave the type are lost."""

    dtype: DataType
    direction: Literal["left", "right", "unsigned"]
    count: int

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the shifted numbers: bounds where no bit is lost at the top."""
        span = span_of(arguments[0])
        low, high = self._shifted(span.low), self._shifted(span.high)
        if self.direction == "right":
            return result(self.dtype, Span(low, high, span.low_known, span.high_known), arguments)
        if self.direction == "left":
            limits = [limit >> self._by for limit in self.dtype.int_range]
            fits = span.known & (span.low >= limits[0]) & (span.high <= limits[1])
        else:
            fits = span.known & ((span.low >= 0) | (span.high < 0))
        return result(self.dtype, Span(low, high, fits, fits), arguments)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the shifted numbers."""
        return strict(self._shifted(whole_numbers(arguments[0])), arguments)

    @property
    def _by(self) -> int:
        return self.count & (self.dtype.bits - 1)

    def _shifted(self, values: _Numbers) -> _Numbers:
        signed, unsigned = ("int32", "uint32") if self.dtype.bits == 32 else ("int64", "uint64")
        given = values.astype(signed)
        if self.direction == "right":
            made = np.right_shift(given, np.array(self._by, signed))
        else:
            shift = np.left_shift if self.direction == "left" else np.right_shift
            made = shift(given.astype(unsigned), np.array(self._by, unsigned)).astype(signed)
        return np.asarray(made.astype(np.int64))


def _cut(values: _Numbers, divisor: _Numbers) -> _Numbers:
    """Returns quotients cut towards zero."""
    whole = values // divisor
    inexact = (whole < 0) & (whole * divisor != values)
    return np.asarray(whole + inexact)
