"""Values of rows, as functions and predicates compute with them.

A vector holds one value a row, in the order of its type (see ``lamella.snapshot.schema.types``):

- integers, booleans (0, 1), dates and times as int64, unsigned columns as uint64, floats as float64;
- decimals as unscaled int64, those of more than 18 digits as Python integers in an object array;
- text and bytes as an Arrow array of large binary without nulls.

Where a row is null its value is arbitrary. Where a row's value could not be computed (an overflow, a division by zero)
the row has *failed*: whoever needs its value has to report ``reason``, and whoever does not need it, need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import is_wide, number_dtype
from lamella.snapshot.schema import DataType

_MAX: Final = (1 << 63) - 1


class Vector(msgspec.Struct, frozen=True, eq=False):
    """One value a row. ``failed`` None: no row has; a failed row counts as valid."""

    values: Any
    valid: Mask
    failed: Mask | None = None
    reason: str = ""

    def __len__(self) -> int:
        return len(self.valid)

    @property
    def is_bytes(self) -> bool:
        """Text or bytes."""
        return not isinstance(self.values, np.ndarray)


def constant_vector(dtype: DataType, value: Any, count: int) -> Vector:
    """The same value (None: null) in every row."""
    valid = np.full(count, value is not None)
    if dtype.order == "bytes":
        return Vector(pa.repeat(pa.scalar(value or b"", pa.large_binary()), count), valid)
    kind = np.dtype(object) if is_wide(dtype) else number_dtype(dtype)
    return Vector(np.full(count, 0 if value is None else value, dtype=kind), valid)


def strict(
    values: Any, arguments: Sequence[Vector], *, failed: Mask | None = None, reason: str = "", valid: Mask | None = None
) -> Vector:
    """The result of a function that is null where an argument is, and fails where one has or where ``failed`` says.

    Arguments are taken from left to right: behind a null nothing is computed, so nothing fails there. ``valid``: where
    the result is not null all the same.
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
    """Whole numbers as int64 where they fit, else as Python integers."""
    values = vector.values
    if values.dtype == np.uint64:
        return np.asarray(values.astype(np.int64 if not len(values) or int(values.max()) <= _MAX else object))
    return np.asarray(values)


def in_range(values: npt.NDArray[Any], dtype: DataType) -> tuple[npt.NDArray[Any], Mask]:
    """Whole numbers as the vector of a type has them, and where they are values of the type."""
    low, high = dtype.int_range
    if values.dtype != object:
        fits = np.asarray((values >= max(low, -_MAX - 1)) & (values <= min(high, _MAX)))
        return values.astype(object if is_wide(dtype) else number_dtype(dtype)), fits
    fits = np.asarray((values >= low) & (values <= high)).astype(bool)
    if is_wide(dtype):
        return values, fits
    return np.where(fits, values, 0).astype(number_dtype(dtype)), fits


def text_of(vector: Vector) -> tuple[Any, Mask]:
    """Text as an Arrow array of large strings, empty where the bytes are not UTF-8, and where they are not."""
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
