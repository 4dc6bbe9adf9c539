"""The binary encoding of variants (Parquet's VariantEncoding): objects and arrays in parts, and scalars.

A variant is two byte strings: its metadata, which is a dictionary of the names in it, and its value. The values inside
an object or array are byte strings of the same form, so they are taken out and put together without being decoded.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from functools import lru_cache
from typing import Final

from lamella.snapshot.errors import SchemaMismatch

_CONTEXT: Final = Context(prec=80)
#: A variant null.
NULL: Final = b"\x00"

_VERSION: Final = 1
_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)
_TRUE, _FALSE, _DOUBLE, _DATE, _FLOAT, _BINARY, _TEXT, _UUID = 1, 2, 7, 11, 14, 15, 16, 20
#: Bytes of a whole number by its type.
_INTEGERS: Final = {3: 1, 4: 2, 5: 4, 6: 8}
_DECIMALS: Final = {8: 4, 9: 8, 10: 16}
#: Types whose values are 64-bit numbers: time, timestamps with and without zone, in microseconds and nanoseconds.
TIMESTAMP, TIMESTAMP_NTZ, TIME, TIMESTAMP_NS, TIMESTAMP_NTZ_NS = 12, 13, 17, 18, 19
_SIZES: Final = {
    **{0: 0, _TRUE: 0, _FALSE: 0, _DOUBLE: 8, _DATE: 4, _FLOAT: 4, _UUID: 16},
    **_INTEGERS,
    **{kind: size + 1 for kind, size in _DECIMALS.items()},
    **dict.fromkeys((TIMESTAMP, TIMESTAMP_NTZ, TIME, TIMESTAMP_NS, TIMESTAMP_NTZ_NS), 8),
}
_MAX_SHORT: Final = 63
_MAX_SMALL: Final = 255

#: A scalar: the name of its type here, and its value. Dates and times are numbers of days or of their units.
Scalar = tuple[str, "bool | int | float | Decimal | bytes"]
_CLOCKS: Final = {
    TIMESTAMP: "timestamp(us)",
    TIMESTAMP_NTZ: "timestamp_ntz(us)",
    TIME: "time(us)",
    TIMESTAMP_NS: "timestamp(ns)",
    TIMESTAMP_NTZ_NS: "timestamp_ntz(ns)",
}
_CLOCK_TYPES: Final = {name: kind for kind, name in _CLOCKS.items()}


class InvalidVariant(SchemaMismatch):
    """Bytes that are not a variant."""


@lru_cache(maxsize=1024)
def names_in(metadata: bytes) -> tuple[str, ...]:
    """Returns the names of a variant's metadata, by their ids; raises InvalidVariant."""
    try:
        header = metadata[0]
        if header & 15 != _VERSION:
            raise InvalidVariant(f"a variant's metadata has version {header & 15}")
        width = (header >> 6) + 1
        count = _number(metadata, 1, width)
        start = 1 + width * (count + 2)
        offsets = [_number(metadata, 1 + width * (at + 1), width) for at in range(count + 1)]
        if start + offsets[-1] > len(metadata):
            raise InvalidVariant("a variant's metadata is cut off")
        return tuple(
            metadata[start + begin : start + end].decode("utf-8") for begin, end in itertools.pairwise(offsets)
        )
    except (IndexError, UnicodeDecodeError, MemoryError) as error:
        raise InvalidVariant("a variant's metadata cannot be decoded") from error


@lru_cache(maxsize=1024)
def ids_in(metadata: bytes) -> dict[str, int]:
    """Returns the ids of the names in a variant's metadata; raises InvalidVariant."""
    return {name: at for at, name in enumerate(names_in(metadata))}


def members_of(value: bytes, metadata: bytes) -> dict[str, bytes] | None:
    """Returns the members of an object, in their order; None for any other value. Raises InvalidVariant."""
    if not value or value[0] & 3 != _OBJECT:
        return None
    names = names_in(metadata)
    try:
        header = value[0] >> 2
        offset_width, id_width, count_width = (header & 3) + 1, (header >> 2 & 3) + 1, 4 if header >> 4 & 1 else 1
        count = _number(value, 1, count_width)
        at = 1 + count_width
        ids = [_number(value, at + id_width * number, id_width) for number in range(count)]
        parts = _parts(value, at + id_width * count, count, offset_width)
        return {names[name]: part for name, part in zip(ids, parts, strict=True)}
    except IndexError as error:
        raise InvalidVariant("an object of a variant cannot be decoded") from error


def elements_of(value: bytes) -> list[bytes] | None:
    """Returns the elements of an array; None for any other value. Raises InvalidVariant."""
    if not value or value[0] & 3 != _ARRAY:
        return None
    header = value[0] >> 2
    count_width = 4 if header >> 2 & 1 else 1
    try:
        count = _number(value, 1, count_width)
        return _parts(value, 1 + count_width, count, (header & 3) + 1)
    except IndexError as error:
        raise InvalidVariant("an array of a variant cannot be decoded") from error


def object_of(members: dict[str, bytes], metadata: bytes) -> bytes:
    """Returns an object; raises InvalidVariant if the metadata lacks the name of a member."""
    ids = ids_in(metadata)
    ordered = sorted(members, key=lambda name: name.encode("utf-8"))
    try:
        numbers = [ids[name] for name in ordered]
    except KeyError as error:
        raise InvalidVariant("the name of a shredded field is not in the metadata of its variant") from error
    parts = [members[name] for name in ordered]
    id_width = _width(max(numbers, default=0))
    offset_width, offsets = _offsets(parts)
    is_large = len(parts) > _MAX_SMALL
    header = _OBJECT | (offset_width - 1) << 2 | (id_width - 1) << 4 | is_large << 6
    return b"".join(
        [
            bytes([header]),
            len(parts).to_bytes(4 if is_large else 1, "little"),
            *(number.to_bytes(id_width, "little") for number in numbers),
            offsets,
            *parts,
        ]
    )


def array_of(elements: Sequence[bytes]) -> bytes:
    """Returns an array."""
    offset_width, offsets = _offsets(elements)
    is_large = len(elements) > _MAX_SMALL
    header = _ARRAY | (offset_width - 1) << 2 | is_large << 4
    return b"".join([bytes([header]), len(elements).to_bytes(4 if is_large else 1, "little"), offsets, *elements])


def scalar_of(value: bytes) -> Scalar | None:
    """Returns a scalar; None for a variant null, an object, an array, and a type that is not known. Raises
    InvalidVariant."""
    if not value:
        raise InvalidVariant("a variant has no value")
    basic, header = value[0] & 3, value[0] >> 2
    if basic == _SHORT_TEXT:
        return "string", _cut(value, 1, header)
    if basic != _PRIMITIVE:
        return None
    if header in (_TRUE, _FALSE):
        return "boolean", header == _TRUE
    if header in (_TEXT, _BINARY):
        size = int.from_bytes(_cut(value, 1, 4), "little")
        return "string" if header == _TEXT else "binary", _cut(value, 5, size)
    size = _SIZES.get(header, 0)
    data = _cut(value, 1, size)
    if header in _INTEGERS or header in _CLOCKS or header == _DATE:
        number = int.from_bytes(data, "little", signed=True)
        return _CLOCKS.get(header, "date" if header == _DATE else "int64"), number
    if header in _DECIMALS:
        unscaled = int.from_bytes(data[1:], "little", signed=True)
        return "decimal", Decimal(unscaled).scaleb(-data[0], _CONTEXT)
    if header in (_DOUBLE, _FLOAT):
        (found,) = struct.unpack("<d" if header == _DOUBLE else "<f", data)
        return "float64" if header == _DOUBLE else "float32", found
    return ("uuid", data) if header == _UUID else None


def encoded(kind: str, value: bool | int | float | Decimal | bytes) -> bytes:
    """Returns a scalar of a type of :data:`Scalar` as a variant's value: whole numbers and decimals as short as
    possible."""
    if kind == "boolean":
        return _head(_TRUE if value else _FALSE)
    if kind == "string" and isinstance(value, bytes):
        if len(value) <= _MAX_SHORT:
            return bytes([_SHORT_TEXT | len(value) << 2]) + value
        return _head(_TEXT) + len(value).to_bytes(4, "little") + value
    if kind == "binary" and isinstance(value, bytes):
        return _head(_BINARY) + len(value).to_bytes(4, "little") + value
    if kind == "uuid" and isinstance(value, bytes):
        return _head(_UUID) + value
    if isinstance(value, Decimal):
        return _decimal(value)
    if kind in ("float32", "float64"):
        return (
            _head(_FLOAT) + struct.pack("<f", value) if kind == "float32" else _head(_DOUBLE) + struct.pack("<d", value)
        )
    number = int(value)
    if kind == "date":
        return _head(_DATE) + number.to_bytes(4, "little", signed=True)
    if kind in _CLOCK_TYPES:
        return _head(_CLOCK_TYPES[kind]) + number.to_bytes(8, "little", signed=True)
    header, size = next(each for each in _INTEGERS.items() if -(1 << 8 * each[1] - 1) <= number < 1 << 8 * each[1] - 1)
    return _head(header) + number.to_bytes(size, "little", signed=True)


def comparable(value: bytes, metadata: bytes) -> bytes:
    """Returns bytes that are equal for equal values, whatever the encoding of each is: whole numbers and decimals are
    equal if their numbers are. Raises InvalidVariant."""
    members = members_of(value, metadata)
    if members is not None:
        ordered = sorted((name.encode("utf-8"), part) for name, part in members.items())
        parts = [each for name, part in ordered for each in (name, comparable(part, metadata))]
        return b"o" + _with_sizes(parts)
    elements = elements_of(value)
    if elements is not None:
        return b"a" + _with_sizes([comparable(each, metadata) for each in elements])
    scalar = scalar_of(value)
    if scalar is None:
        return b"n" + value
    kind, found = scalar
    if kind in ("int64", "decimal"):
        number = Decimal(found).normalize(_CONTEXT)  # type: ignore[arg-type]  # whole numbers and decimals
        return b"d" + str(number if number else Decimal(0)).encode()
    return b"s" + encoded(kind, found)


def _with_sizes(parts: Sequence[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _decimal(value: Decimal) -> bytes:
    plain = value.normalize(_CONTEXT)
    scale = max(0, -int(plain.as_tuple().exponent))
    unscaled = int(plain.scaleb(scale, _CONTEXT))
    precision = max(len(str(abs(unscaled))), scale)
    header, size = (8, 4) if precision <= 9 else (9, 8) if precision <= 18 else (10, 16)
    return _head(header) + bytes([scale]) + unscaled.to_bytes(size, "little", signed=True)


def _head(kind: int) -> bytes:
    return bytes([_PRIMITIVE | kind << 2])


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + width], "little")


def _cut(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise InvalidVariant("a value of a variant is cut off")
    return data[at : at + size]


def _parts(data: bytes, at: int, count: int, width: int) -> list[bytes]:
    """Returns the values behind a list of offsets, which may be in another order than the values."""
    offsets = [_number(data, at + width * number, width) for number in range(count + 1)]
    start = at + width * (count + 1)
    ends = sorted(set(offsets))
    if start + ends[-1] > len(data) or ends[-1] != offsets[-1]:
        raise IndexError
    after = dict(itertools.pairwise(ends))
    return [data[start + begin : start + after[begin]] if begin in after else _empty() for begin in offsets[:-1]]


def _empty() -> bytes:
    raise IndexError


def _width(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _offsets(parts: Sequence[bytes]) -> tuple[int, bytes]:
    """Returns the bytes of an offset, and the offsets of values and of their end."""
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    width = _width(ends[-1])
    return width, b"".join(end.to_bytes(width, "little") for end in ends)
