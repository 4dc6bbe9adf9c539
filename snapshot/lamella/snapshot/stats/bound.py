"""Bounds as manifests store them: one tagged value, lossless, or truncated outwards.

``{"Int64": 1987}``, ``{"Decimal": ["12345", 38, 10]}`` (unscaled digits, precision, scale), ``{"Bytes": "ff00"}``, ...
A float without a JSON number is text (``{"Float64": "Infinity"}``); text that is not valid UTF-8 (a bound cut inside a
character) is hexadecimal ``Bytes``, for text columns too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Final

import msgspec

from lamella.snapshot.errors import ManifestError
from lamella.snapshot.schema import DataType

#: Longer bounds of bytes are truncated.
MAX_BOUND_BYTES: Final = 64


def upper_prefix(value: bytes, length: int) -> bytes:
    """Returns the smallest bytes of at most ``length`` that are not less than any text starting with
    ``value[:length]``.

    The last byte that can be incremented is incremented. If none can (all FF), the whole value is returned.
    """
    prefix = value[:length].rstrip(b"\xff")
    return prefix[:-1] + bytes((prefix[-1] + 1,)) if prefix else value


#: A value in its type's order (see :mod:`lamella.snapshot.schema.types`).
Value = int | float | bytes


class Bound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="pascal", gc=False):
    """A tagged value: exactly one member is set, and its name is the tag."""

    boolean: bool | None = None
    int64: int | None = None
    uint64: int | None = msgspec.field(default=None, name="UInt64")
    float64: float | str | None = None
    decimal: tuple[str, int, int] | None = None
    date: int | None = None
    time_millis: int | None = None
    time_micros: int | None = None
    time_nanos: int | None = None
    timestamp_millis: int | None = None
    timestamp_micros: int | None = None
    timestamp_nanos: int | None = None
    string: str | None = None
    bytes: str | None = None


_UNITS: Final = {"ms": "millis", "us": "micros", "ns": "nanos"}
_SPECIAL: Final = {"Infinity": math.inf, "-Infinity": -math.inf}


@lru_cache(1_024)
def _member(dtype: DataType) -> str:
    if dtype.name == "boolean":
        return "boolean"
    if dtype.name == "date":
        return "date"
    if dtype.name == "time":
        return f"time_{_UNITS[dtype.unit]}"
    if dtype.name in ("timestamp", "timestamp_ntz"):
        return f"timestamp_{_UNITS[dtype.unit]}"
    if dtype.is_text:
        return "string"
    return {"int": "int64", "uint": "uint64", "float": "float64", "decimal": "decimal", "bytes": "bytes"}[
        dtype.order or "bytes"
    ]


_JSON_NAMES: Final = {field.name: field.encode_name for field in msgspec.structs.fields(Bound)}


def bound_name(dtype: DataType) -> str:
    """Returns the tag of a type's bounds in JSON; those of text that is not valid UTF-8 have the tag ``Bytes``."""
    return _JSON_NAMES[_member(dtype)]


def decimal_text(unscaled: int, scale: int) -> str:
    """Returns a decimal with all digits of its scale, without an exponent."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    point = len(digits) - scale
    return ("-" if unscaled < 0 else "") + digits[:point] + ("." + digits[point:] if scale else "")


def to_bound(dtype: DataType, value: Value) -> Bound:
    """Returns the bound for ``value`` in a column of ``dtype``; NaN is never a bound."""
    member = _member(dtype)
    if member == "boolean":
        return Bound(boolean=bool(value))
    if member == "float64":
        number = float(value)
        if math.isnan(number):
            raise ManifestError("NaN cannot be a bound")
        if math.isinf(number):
            return Bound(float64="Infinity" if number > 0 else "-Infinity")
        return Bound(float64=number)
    if member == "decimal":
        return Bound(decimal=(str(value), dtype.precision, dtype.scale))
    if isinstance(value, bytes):
        if member == "string":
            try:
                return Bound(string=value.decode("utf-8"))
            except UnicodeDecodeError:
                return Bound(bytes=value.hex())
        return Bound(bytes=value.hex())
    return Bound(**{member: int(value)})  # type: ignore[arg-type]  # only members that hold an int get here


def low_bound(dtype: DataType, value: Value) -> tuple[Bound, bool]:
    """Returns the minimum of a column as a bound, truncated if it is long, and whether the bound is that value."""
    if isinstance(value, bytes):
        return to_bound(dtype, value[:MAX_BOUND_BYTES]), len(value) <= MAX_BOUND_BYTES
    # Zero has two encodings that compare equal: the bounds include both.
    return to_bound(dtype, -0.0 if dtype.is_float and not value else value), True


def high_bound(dtype: DataType, value: Value) -> tuple[Bound, bool]:
    """Returns the maximum of a column as a bound, as :func:`low_bound`."""
    if isinstance(value, bytes):
        bound = value if len(value) <= MAX_BOUND_BYTES else upper_prefix(value, MAX_BOUND_BYTES)
        return to_bound(dtype, bound), bound == value
    return to_bound(dtype, 0.0 if dtype.is_float and not value else value), True


_PLAIN: Final[dict[str, Callable[[int], Bound]]] = {
    "int64": lambda value: Bound(int64=value),
    "uint64": lambda value: Bound(uint64=value),
    "date": lambda value: Bound(date=value),
    "time_millis": lambda value: Bound(time_millis=value),
    "time_micros": lambda value: Bound(time_micros=value),
    "time_nanos": lambda value: Bound(time_nanos=value),
    "timestamp_millis": lambda value: Bound(timestamp_millis=value),
    "timestamp_micros": lambda value: Bound(timestamp_micros=value),
    "timestamp_nanos": lambda value: Bound(timestamp_nanos=value),
}


def to_bounds(dtype: DataType, values: Sequence[Value]) -> list[Bound]:
    """Returns the bounds for many values, as :func:`to_bound`."""
    member = _member(dtype)
    make = _PLAIN.get(member)
    if make is not None:
        return list(map(make, values))  # type: ignore[arg-type]  # these members' types have integers
    if member == "decimal":
        precision, scale = dtype.precision, dtype.scale
        return [Bound(decimal=(str(value), precision, scale)) for value in values]
    if member == "string":
        with suppress(UnicodeDecodeError):  # one of them is given as bytes
            return [Bound(string=value.decode("utf-8")) for value in values]  # type: ignore[union-attr]  # bytes
    if member == "float64" and all(map(math.isfinite, values)):  # type: ignore[arg-type]  # floats
        return [Bound(float64=float(value)) for value in values]
    return [to_bound(dtype, value) for value in values]


def from_bound(dtype: DataType, bound: Bound) -> Value:
    """Returns the value of a bound in a column of ``dtype``.

    Raises:
        ManifestError: the tag belongs to another type, or the value is out of the type's range.
    """
    member = _member(dtype)
    raw = getattr(bound, member)
    if raw is None and member == "string":
        member, raw = "bytes", bound.bytes
    if raw is None:
        raise ManifestError(f"a bound of type {dtype} has a wrong tag: {bound!r}")
    if member == "float64":
        number = _SPECIAL.get(raw) if isinstance(raw, str) else float(raw)
        if number is None or math.isnan(number):
            raise ManifestError(f"not a float bound: {raw!r}")
        return number
    if member == "decimal":
        digits, _, scale = raw
        if scale != dtype.scale:
            raise ManifestError(f"a decimal bound of scale {scale} in a column of scale {dtype.scale}")
        try:
            return _checked(dtype, int(digits))
        except ValueError as error:
            raise ManifestError(f"not the digits of a decimal: {digits!r}") from error
    if member == "string":
        return str(raw).encode("utf-8")
    if member == "bytes":
        try:
            return bytes.fromhex(raw)
        except ValueError as error:
            raise ManifestError(f"not hexadecimal: {raw!r}") from error
    return _checked(dtype, int(raw))


def from_bounds(dtype: DataType, bounds: Sequence[Bound]) -> list[Value]:
    """Returns the values of many bounds; raises as :func:`from_bound`."""
    member = _member(dtype)
    raw = list(map(attrgetter(member), bounds))
    if raw and None not in raw:
        if member in _PLAIN:
            low, high = dtype.int_range
            if low <= min(raw) and max(raw) <= high:
                return raw
        elif member == "string":
            return [text.encode("utf-8") for text in raw]
        elif member == "decimal":
            found = _decimals(dtype, raw)
            if found is not None:
                return found
        elif member == "float64" and set(map(type, raw)) == {float} and all(map(math.isfinite, raw)):
            return raw
    return [from_bound(dtype, bound) for bound in bounds]


def _decimals(dtype: DataType, raw: Sequence[tuple[str, int, int]]) -> list[Value] | None:
    """Returns decimal bounds as unscaled integers; None if one of them needs the general path."""
    digits, _, scales = zip(*raw, strict=True)
    if set(scales) != {dtype.scale}:
        return None
    try:
        values = list(map(int, digits))
    except ValueError:
        return None
    low, high = dtype.int_range
    return values if low <= min(values) and max(values) <= high else None  # type: ignore[return-value]  # invariance


def _checked(dtype: DataType, value: int) -> int:
    low, high = dtype.int_range
    if not low <= value <= high:
        raise ManifestError(f"{value} is outside the range of {dtype}")
    return value
