"""A bound's bytes as a value in its type's order, and a value of the file's type as one of the table's."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from lamella.snapshot.parquet.logical import BOOLEAN, BYTE_ARRAY, FIXED, INT32, INT64
from lamella.snapshot.parquet.tree import FileLeaf
from lamella.snapshot.schema import DataType
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.stats.bound import Value

#: None: these bytes are no value of the type.
Decoder = Callable[[bytes], Value | None]
#: The nearest value of the target that is not greater (or not less), and whether it is the same value.
Converter = Callable[[Value], tuple[Value, bool] | None]

_INTEGER_CODES: Final = {(INT32, "int"): "<i", (INT32, "uint"): "<I", (INT64, "int"): "<q", (INT64, "uint"): "<Q"}
_FLOAT_CODES: Final = {"float16": "<e", "float32": "<f", "float64": "<d"}


def decoder(leaf: FileLeaf) -> Decoder | None:
    """How a leaf's bounds are read (rules B2 to B8, D5); None when its type has no order that can be trusted."""
    dtype = leaf.dtype
    if leaf.opaque or dtype.order is None:
        return None
    if dtype.order == "float":
        return _floats(_FLOAT_CODES[dtype.name])
    if leaf.physical == BOOLEAN:
        return lambda raw: raw[0] if len(raw) == 1 and raw[0] <= 1 else None
    if dtype.order == "decimal":
        code = _INTEGER_CODES.get((leaf.physical, "int"))
        return _integers(code, dtype) if code else _big_endian(dtype, leaf.type_length if leaf.physical == FIXED else 0)
    if dtype.order == "bytes":
        return _bytes(leaf)
    code = _INTEGER_CODES.get((leaf.physical, dtype.order))  # none for INT96 (rule B7)
    return _integers(code, dtype) if code else None


def _integers(code: str, dtype: DataType) -> Decoder:
    unpack, width = struct.Struct(code).unpack, struct.calcsize(code)
    low, high = dtype.int_range

    def read(raw: bytes) -> Value | None:
        if len(raw) != width:
            return None
        value: int = unpack(raw)[0]
        return value if low <= value <= high else None

    return read


def _floats(code: str) -> Decoder:
    unpack, width = struct.Struct(code).unpack, struct.calcsize(code)

    def read(raw: bytes) -> Value | None:
        if len(raw) != width:
            return None
        value: float = unpack(raw)[0]
        return value

    return read


def _big_endian(dtype: DataType, width: int) -> Decoder:
    low, high = dtype.int_range

    def read(raw: bytes) -> Value | None:
        if not raw or (width and len(raw) != width):
            return None
        value = int.from_bytes(raw, "big", signed=True)
        return value if low <= value <= high else None

    return read


def _bytes(leaf: FileLeaf) -> Decoder | None:
    if leaf.physical == BYTE_ARRAY:
        return lambda raw: raw
    if leaf.physical != FIXED:
        return None
    width = leaf.type_length
    if leaf.dtype.name == "fixed":  # may have been cut off
        return lambda raw: raw if len(raw) <= width else None
    return lambda raw: raw if len(raw) == width else None


def converters(source: DataType, target: DataType) -> tuple[Converter, Converter] | None:
    """How a lower and an upper bound go from the file's type to the table's (rule B10); None: as they are.

    ``target`` widens ``source`` (:func:`lamella.snapshot.schema.widens`).
    """
    if source.order == "decimal" and target.scale != source.scale:
        return _scaled(10 ** (target.scale - source.scale), 1, target)
    if source.name in ("time", "timestamp", "timestamp_ntz") and source.unit != target.unit:
        up, down = PER_SECOND[target.unit], PER_SECOND[source.unit]
        return _scaled(up // down, 1, target) if up > down else _scaled(1, down // up, target)
    return None


def _scaled(times: int, divisor: int, target: DataType) -> tuple[Converter, Converter]:
    low, high = target.int_range

    def convert(value: Value, upwards: bool) -> tuple[Value, bool] | None:
        scaled = int(value) * times
        result = -(-scaled // divisor) if upwards else scaled // divisor
        return (result, result * divisor == scaled) if low <= result <= high else None

    return lambda value: convert(value, False), lambda value: convert(value, True)
