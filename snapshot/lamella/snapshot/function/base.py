"""The common base of scalar functions: the interface, intervals of machine numbers, and values of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Keys, Mask, NumberKeys, WideKeys
from lamella.snapshot.columnar.zones import (
    HIGH_KNOWN,
    LOW_KNOWN,
    MAY_NAN,
    MAY_NULL,
    MAY_NUMBER,
    NULLS_KNOWN,
    Zones,
    is_wide,
    number_dtype,
)
from lamella.snapshot.schema import DataType

# Values of rows, as functions and predicates compute with them.
#
# A vector holds one value a row, in the order of its type (see ``lamella.snapshot.schema.types``):
#
# - integers, booleans (0, 1), dates and times as int64, unsigned columns as uint64, floats as float64;
# - decimals as unscaled int64, those of more than 18 digits as Python integers in an object array;
# - text and bytes as an Arrow array of large binary without nulls.
#
# Where a row is null its value is arbitrary. Where a row's value could not be computed (an overflow, a division by
# zero) the row has *failed*: code that needs its value must report ``reason``.

_MAX: Final = (1 << 63) - 1


class Vector(msgspec.Struct, frozen=True, eq=False):
    """One value per row. ``failed`` None: no row has failed; a failed row counts as valid."""

    values: Any
    valid: Mask
    failed: Mask | None = None
    reason: str = ""

    def __len__(self) -> int:
        return len(self.valid)

    @property
    def is_bytes(self) -> bool:
        """Returns whether the values are text or bytes."""
        return not isinstance(self.values, np.ndarray)


def constant_vector(dtype: DataType, value: Any, count: int) -> Vector:
    """Returns the same value (None: null) in every row."""
    valid = np.full(count, value is not None)
    if dtype.order == "bytes":
        return Vector(pa.repeat(pa.scalar(value or b"", pa.large_binary()), count), valid)
    kind = np.dtype(object) if is_wide(dtype) else number_dtype(dtype)
    return Vector(np.full(count, 0 if value is None else value, dtype=kind), valid)


def strict(
    values: Any, arguments: Sequence[Vector], *, failed: Mask | None = None, reason: str = "", valid: Mask | None = None
) -> Vector:
    """Returns the result of a function that is null where an argument is, and fails where one has or where ``failed``
    is set.

    Arguments are evaluated from left to right: after a null nothing is computed, so nothing fails there. ``valid``:
    where the result is not null nevertheless.
    """
    ok = np.ones(len(arguments[0]), dtype=bool) if valid is None else valid
    broken: Mask | None = None
    why = ""
    for argument in arguments:
        if argument.failed is not None:
            broken = _either(broken, argument.failed & ok)
            why = why or argument.reason
        ok = ok & argument.valid
    if failed is not None and (failed & ok).any():
        broken = _either(broken, failed & ok)
        why = why or reason
    if broken is None or not broken.any():
        return Vector(values, ok)
    return Vector(values, ok | broken, broken, why)


def whole_numbers(vector: Vector) -> npt.NDArray[Any]:
    """Returns whole numbers as int64 if they fit, else as Python integers."""
    values = vector.values
    if values.dtype == np.uint64:
        return np.asarray(values.astype(np.int64 if not len(values) or int(values.max()) <= _MAX else object))
    return np.asarray(values)


def in_range(values: npt.NDArray[Any], dtype: DataType) -> tuple[npt.NDArray[Any], Mask]:
    """Returns whole numbers in the vector form of a type, and where they are values of the type."""
    low, high = dtype.int_range
    if values.dtype != object:
        fits = np.asarray((values >= max(low, -_MAX - 1)) & (values <= min(high, _MAX)))
        return values.astype(object if is_wide(dtype) else number_dtype(dtype)), fits
    fits = np.asarray((values >= low) & (values <= high)).astype(bool)
    if is_wide(dtype):
        return values, fits
    return np.where(fits, values, 0).astype(number_dtype(dtype)), fits


def text_of(vector: Vector) -> tuple[Any, Mask]:
    """Returns text as an Arrow array of large strings, empty where the bytes are not UTF-8, and where they are not."""
    text = pa.LargeStringArray.from_buffers(len(vector), *vector.values.buffers()[1:], offset=vector.values.offset)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        broken = np.fromiter((not _is_utf8(value) for value in vector.values.to_pylist()), bool, len(vector))
        clean = pc.if_else(pa.array(broken), pa.scalar(b"", pa.large_binary()), vector.values)
        return clean.cast(pa.large_string()), broken
    return text, np.zeros(len(vector), dtype=bool)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _either(left: Mask | None, right: Mask) -> Mask:
    return right if left is None else np.asarray(left | right)


#: Integers below this can be added without overflow, and their doubles are close.
SAFE: Final = 1 << 62


class Function(Protocol):
    """A scalar function; null for null arguments unless it states otherwise."""

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the results, from those of the arguments; all of one length."""

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the results row by row, as Spark computes them in its ANSI mode; rows that it refuses have failed."""


class Span(NamedTuple):
    """Bounds as machine numbers; the number of an unknown side is arbitrary."""

    low: npt.NDArray[Any]
    high: npt.NDArray[Any]
    low_known: Mask
    high_known: Mask

    @property
    def known(self) -> Mask:
        """Returns where both sides are known."""
        return self.low_known & self.high_known

    @property
    def constant(self) -> Mask:
        """Returns where all values are equal."""
        return np.asarray(self.known & (self.low == self.high))


def span_of(zones: Zones) -> Span:
    """Returns the bounds of numbers; decimals wider than 64 bits count as unknown."""
    low, low_fits = _machine(zones.low, len(zones))
    high, high_fits = _machine(zones.high, len(zones))
    return Span(low, high, zones.has(LOW_KNOWN) & low_fits, zones.has(HIGH_KNOWN) & high_fits)


def _machine(keys: Keys | None, count: int) -> tuple[npt.NDArray[Any], Mask]:
    if isinstance(keys, NumberKeys):
        if keys.array.dtype == np.uint64:
            return keys.array.astype(np.int64), keys.array < np.uint64(1 << 63)
        return keys.array, np.ones(count, dtype=bool)
    if isinstance(keys, WideKeys):
        values = keys.low.astype(np.int64)
        return values, keys.high == (values >> 63)
    return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool)


def result(
    dtype: DataType,
    span: Span,
    arguments: Sequence[Zones],
    *,
    may_fail: Mask | None = None,
    may_nan: Mask | None = None,
    keeps_nan: bool = False,
) -> Zones:
    """Returns zone maps of a function's results.

    ``may_fail``: where a row may give an error or a null instead of a result: nothing is known there. ``may_nan``:
    where a result may be NaN. ``keeps_nan``: the result is NaN wherever an argument is. Bounds out of the type's range
    are dropped.
    """
    flags = strict_flags(arguments, may_nan=may_nan)
    if keeps_nan:
        number = np.logical_and.reduce([zones.has(MAY_NUMBER) for zones in arguments])
        flags = np.where(number, flags, flags & np.uint8(0xFF ^ MAY_NUMBER)).astype(np.uint8)
    low_known, high_known, fails = span.low_known, span.high_known, fails_of(arguments)
    if may_fail is not None:
        low_known, high_known = low_known & ~may_fail, high_known & ~may_fail
        may_fail = np.asarray(may_fail & ((flags & (MAY_NUMBER | MAY_NAN)) != 0))
        flags = failing(flags, may_fail, dtype)
        fails = may_fail if fails is None else fails | may_fail
    flags = flags | low_known * np.uint8(LOW_KNOWN) | high_known * np.uint8(HIGH_KNOWN)
    return Zones(_keys(dtype, span.low), _keys(dtype, span.high), flags, fails)


def fails_of(arguments: Sequence[Zones]) -> Mask | None:
    """Returns where a row of any argument may fail."""
    found = [zones.fails for zones in arguments if zones.fails is not None]
    return np.logical_or.reduce(found) if found else None


def strict_flags(arguments: Sequence[Zones], *, may_nan: Mask | None = None) -> npt.NDArray[np.uint8]:
    """Returns flags, with bounds left open, of a function that is null exactly where an argument is."""
    count = len(arguments[0])
    null, some, counted = (np.zeros(count, dtype=bool), np.ones(count, dtype=bool), np.ones(count, dtype=bool))
    for zones in arguments:
        null = null | zones.has(MAY_NULL)
        some = some & (zones.has(MAY_NUMBER) | zones.has(MAY_NAN))
        counted = counted & zones.has(NULLS_KNOWN)
    flags = null * np.uint8(MAY_NULL) | some * np.uint8(MAY_NUMBER) | counted * np.uint8(NULLS_KNOWN)
    if may_nan is not None:
        flags = flags | (may_nan & some) * np.uint8(MAY_NAN)
    return np.asarray(flags, dtype=np.uint8)


def failing(flags: npt.NDArray[np.uint8], where: Mask, dtype: DataType) -> npt.NDArray[np.uint8]:
    """Returns flags that leave everything open ``where`` a row may fail."""
    anything = MAY_NULL | MAY_NUMBER | (MAY_NAN if dtype.is_float else 0)
    return np.where(where, (flags | np.uint8(anything)) & np.uint8(0xFF ^ NULLS_KNOWN), flags).astype(np.uint8)


def unbounded(arguments: Sequence[Zones], dtype: DataType) -> Zones:
    """Returns zone maps that contain nothing about the results but their nulls."""
    flags = strict_flags(arguments)
    if dtype.is_float:
        flags = flags | np.uint8(MAY_NAN)
    return Zones(None, None, flags, fails_of(arguments))


def _keys(dtype: DataType, values: npt.NDArray[Any]) -> Keys:
    if is_wide(dtype):
        return WideKeys(values >> 63, values.astype(np.uint64))
    return NumberKeys(values.astype(number_dtype(dtype), copy=False))
