"""Parquet's physical, converted and logical types, and the type of ours that each annotated leaf has."""

from __future__ import annotations

from typing import Any, Final, Literal

from lamella.snapshot.errors import CorruptParquet
from lamella.snapshot.schema import DataType

BOOLEAN: Final = 0
INT32: Final = 1
INT64: Final = 2
INT96: Final = 3
FLOAT: Final = 4
DOUBLE: Final = 5
BYTE_ARRAY: Final = 6
FIXED: Final = 7

PHYSICAL: Final = (
    "BOOLEAN",
    "INT32",
    "INT64",
    "INT96",
    "FLOAT",
    "DOUBLE",
    "BYTE_ARRAY",
    "FIXED_LEN_BYTE_ARRAY",
)

# Member ids of the union LogicalType.
MAP: Final = 2
LIST: Final = 3
VARIANT: Final = 16

_BINARY: Final = (BYTE_ARRAY, FIXED)
_UNITS: Final[dict[int, Literal["ms", "us", "ns"]]] = {1: "ms", 2: "us", 3: "ns"}
_PLAIN: Final = ("boolean", "int32", "int64", "timestamp", "float32", "float64", "binary", "fixed")

#: Logical types without parameters: our name, and the physical types that may carry them.
_SIMPLE: Final[dict[int, tuple[str, tuple[int, ...]]]] = {
    1: ("string", _BINARY),
    4: ("enum", _BINARY),
    6: ("date", (INT32,)),
    11: ("null", tuple(range(8))),
    12: ("json", _BINARY),
    13: ("bson", _BINARY),
    14: ("uuid", (FIXED,)),
    15: ("float16", (FIXED,)),
    17: ("geometry", _BINARY),
    18: ("geography", _BINARY),
}
#: Widths that these have when they are of fixed length, in bytes.
_WIDTH: Final = {"uuid": 16, "float16": 2, "interval": 12}

#: Converted types by the logical type that took their place; the rest is in :func:`_converted`.
_CONVERTED_SIMPLE: Final = {0: 1, 4: 4, 6: 6, 19: 12, 20: 13}
_CONVERTED_INTEGERS: Final = {11 + i: (8 << i, False) for i in range(4)} | {15 + i: (8 << i, True) for i in range(4)}

_Element = dict[int, Any]


def leaf_type(element: _Element, name: str) -> DataType:
    """The type of a leaf. A logical type that is not known is ``unknown``: no order, hence no bounds (rule B8).

    ``element`` holds the fields of a SchemaElement by id: 1 physical type, 2 type_length, 6 converted type, 7 scale,
    8 precision, 10 logical type.

    Raises:
        CorruptParquet: the annotation cannot stand on that physical type.
    """
    physical = element[1]
    length = element.get(2, 0)
    if physical == FIXED and not 0 < length < 1 << 31:
        raise CorruptParquet(f"column {name!r} has a fixed length of {length} bytes", column=name)
    logical = element.get(10)
    if isinstance(logical, dict) and len(logical) == 1:
        ((member, details),) = logical.items()
        found = _logical(member, details if isinstance(details, dict) else {}, element, name)
    elif logical is not None:
        found = DataType("unknown")
    elif element.get(6) is not None:
        found = _converted(element[6], element, name)
    elif physical == FIXED:
        found = DataType("fixed", length=length)
    else:
        found = DataType(_PLAIN[physical])
    width = _WIDTH.get(found.name)
    if width is not None and length != width:
        raise CorruptParquet(f"column {name!r}: {found} has a length of {length} bytes", column=name)
    return found


def _logical(member: int, details: _Element, element: _Element, name: str) -> DataType:
    if member in _SIMPLE:
        ours, allowed = _SIMPLE[member]
        _need(element, allowed, ours, name)
        return DataType(ours, length=16) if ours == "uuid" else DataType(ours)
    if member == 5:
        return _decimal(details.get(2), details.get(1, 0), element, name)
    if member in (7, 8):
        unit_union = details.get(2)
        unit = _UNITS.get(next(iter(unit_union))) if isinstance(unit_union, dict) and len(unit_union) == 1 else None
        if unit is None:
            return DataType("unknown")
        if member == 7:
            _need(element, (INT32,) if unit == "ms" else (INT64,), f"time({unit})", name)
            return DataType("time", unit=unit)
        _need(element, (INT64,), f"timestamp({unit})", name)
        adjusted = details.get(1)
        if not isinstance(adjusted, bool):
            return DataType("unknown")
        return DataType("timestamp" if adjusted else "timestamp_ntz", unit=unit)
    if member == 10:
        return _integer(details.get(1), details.get(2), element, name)
    return DataType("unknown")


def _converted(converted: int, element: _Element, name: str) -> DataType:
    if converted in _CONVERTED_SIMPLE:
        return _logical(_CONVERTED_SIMPLE[converted], {}, element, name)
    if converted == 5:
        return _decimal(element.get(8), element.get(7, 0), element, name)
    if converted in (7, 8):
        _need(element, (INT32,) if converted == 7 else (INT64,), "time", name)
        return DataType("time", unit="ms" if converted == 7 else "us")
    if converted in (9, 10):
        _need(element, (INT64,), "timestamp", name)
        return DataType("timestamp", unit="ms" if converted == 9 else "us")
    if converted in _CONVERTED_INTEGERS:
        return _integer(*_CONVERTED_INTEGERS[converted], element, name)
    if converted == 21:
        _need(element, (FIXED,), "interval", name)
        return DataType("interval")
    return DataType("unknown")


def _integer(bits: Any, signed: Any, element: _Element, name: str) -> DataType:
    if bits not in (8, 16, 32, 64) or not isinstance(signed, bool):
        raise CorruptParquet(f"column {name!r} is an integer of {bits} bits", column=name)
    _need(element, (INT64,) if bits == 64 else (INT32,), f"{bits}-bit integer", name)
    return DataType(f"{'int' if signed else 'uint'}{bits}")


def _decimal(precision: Any, scale: Any, element: _Element, name: str) -> DataType:
    _need(element, (INT32, INT64, *_BINARY), "decimal", name)
    if not isinstance(precision, int) or not isinstance(scale, int) or precision < 1 or not 0 <= scale <= precision:
        raise CorruptParquet(f"column {name!r} is a decimal({precision},{scale})", column=name)
    if precision > 76:  # more than our own types can say; the values stay readable, just without bounds
        return DataType("unknown")
    return DataType("decimal", precision=precision, scale=scale)


def _need(element: _Element, allowed: tuple[int, ...], what: str, name: str) -> None:
    if element[1] not in allowed:
        raise CorruptParquet(f"column {name!r}: {what} cannot be stored as {PHYSICAL[element[1]]}", column=name)
