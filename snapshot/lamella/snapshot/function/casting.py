"""Casts that keep the order of values: between numbers, and between dates and wall clock times (see ``calendar``)."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.zones import MAY_NAN, Zones
from lamella.snapshot.function.arithmetic import computed
from lamella.snapshot.function.base import SAFE, Span, result, span_of
from lamella.snapshot.function.vector import Vector, in_range, strict, whole_numbers
from lamella.snapshot.schema import DataType

_Numbers = npt.NDArray[np.int64]
_EXACT: Final = float(1 << 62)


class Whole(msgspec.Struct, frozen=True, gc=False):
    """Integers and decimals to integers and decimals: times or by a power of ten, cut towards zero.

    A decimal that loses digits is rounded by Spark when the target is a decimal, so ``divisor`` is for integers only.
    """

    dtype: DataType
    factor: int = 1
    divisor: int = 1

    def zones(self, *arguments: Zones) -> Zones:
        """Zone maps of the results; a value outside the target's range may fail."""
        span = span_of(arguments[0])
        limit = SAFE // self.factor
        fits = span.known & (span.low >= -limit) & (span.high <= limit)  # not by abs(): the least integer has none
        scale = np.int64(min(self.factor, SAFE))
        with np.errstate(over="ignore"):
            low, high = (_cut(side * scale, self.divisor) for side in (span.low, span.high))
        least, greatest = self.dtype.int_range
        inside = fits & (low >= max(least, -SAFE)) & (high <= min(greatest, SAFE))
        return result(self.dtype, Span(low, high, inside, inside), arguments, may_fail=~inside)

    def rows(self, *arguments: Vector) -> Vector:
        """The results; one outside the target's range has failed."""
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
    """Integers and floats to double: the nearest one."""

    dtype: DataType

    def zones(self, *arguments: Zones) -> Zones:
        """Zone maps of the doubles."""
        span = span_of(arguments[0])
        low, high = span.low.astype(np.float64), span.high.astype(np.float64)
        made = Span(low, high, span.low_known, span.high_known)
        return result(self.dtype, made, arguments, may_nan=arguments[0].has(MAY_NAN))

    def rows(self, *arguments: Vector) -> Vector:
        """The doubles."""
        return strict(arguments[0].values.astype(np.float64), arguments)


class ToInteger(msgspec.Struct, frozen=True, gc=False):
    """Doubles to integers, cut towards zero; NaN and what is out of range may fail."""

    dtype: DataType

    def zones(self, *arguments: Zones) -> Zones:
        """Zone maps of the integers."""
        (zones,) = arguments
        span = span_of(zones)
        least, greatest = (max(-_EXACT, min(_EXACT, float(limit))) for limit in self.dtype.int_range)
        with np.errstate(invalid="ignore"):
            inside = span.known & (span.low >= least) & (span.high <= greatest) & ~zones.has(MAY_NAN)
            low, high = (np.where(inside, np.trunc(side), 0).astype(np.int64) for side in (span.low, span.high))
        return result(self.dtype, Span(low, high, inside, inside), arguments, may_fail=~inside)

    def rows(self, *arguments: Vector) -> Vector:
        """The integers. 2^63 becomes the greatest 64-bit integer: Spark compares with that as a double, and cuts."""
        values = arguments[0].values
        least, greatest = self.dtype.int_range
        with np.errstate(invalid="ignore"):
            whole = np.trunc(values)
            fits = (whole >= float(least)) & (whole <= float(greatest))
            beyond = fits & (whole >= float(1 << 63))
            made = np.where(fits & ~beyond, whole, 0.0).astype(np.int64)
        made = np.where(beyond, np.int64((1 << 63) - 1), made)
        return strict(made, arguments, failed=~fits, reason=_out_of_range(self.dtype))


def _cut(values: _Numbers, divisor: int) -> _Numbers:
    """Quotients cut towards zero."""
    if divisor == 1:
        return values
    if divisor > SAFE:  # greater than any number here
        return np.zeros_like(values)
    return np.asarray(np.sign(values) * (np.abs(values) // divisor))


def _out_of_range(dtype: DataType) -> str:
    return f"a value outside the range of {dtype}"
