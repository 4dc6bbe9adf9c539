"""Values of rows in JSON, exactly: what no number of JSON can hold is text.

========================= ==================================================================
type                      in JSON
========================= ==================================================================
boolean, integers         ``true``, ``17``
floats                    the shortest number that is this value; ``"NaN"``, ``"Infinity"``
decimal                   ``"12.50"``, with all digits of its scale
date, time                ``"2026-01-31"``, ``"10:00:00.5"``
timestamp                 ``"2026-01-31T10:00:00.5Z"``, in UTC
timestamp_ntz             the same without ``Z``
string                    text; bytes that are not UTF-8 as the replacement character
binary, geometry          hexadecimal digits
struct, variant object    an object, by the fields' names
list, variant array       an array
map                       an array of pairs ``[key, value]``
null of any type          ``null``
========================= ==================================================================
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.rows.columns import ReadColumn
from lamella.snapshot.schema import Column, DataType
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.variant.encoding import elements_of, members_of, scalar_of

_DAY_S: Final = 86_400
_TEXTS: Final = frozenset({"string", "enum", "json"})
_BYTES: Final = frozenset({"binary", "bson", "fixed", "geometry", "geography"})


def json_rows(rows: pa.Table, columns: Sequence[ReadColumn]) -> list[list[Any]]:
    """Returns rows as lists of values of JSON; ``columns``: those of the table, in its order.

    Raises:
        InvalidVariant: a variant is damaged.
    """
    values = [_read(array.combine_chunks(), one) for array, one in zip(rows.columns, columns, strict=True)]
    return [list(row) for row in zip(*values, strict=True)] if values else [[] for _ in range(rows.num_rows)]


def _read(array: Any, one: ReadColumn) -> list[Any]:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return _column(array, one.column) if one.leaf is None else _leaf(array, one.leaf.dtype)


def _column(array: Any, column: Column) -> list[Any]:
    name = column.dtype.name
    if name == "struct":
        names = [part.name for part in column.fields]
        parts = [_column(each, part) for each, part in zip(array.flatten(), column.fields, strict=True)]
        made = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)] or [{} for _ in array]
        return [row if valid else None for row, valid in zip(made, array.is_valid().to_pylist(), strict=True)]
    if name == "list":
        return _cut(_column(pc.list_flatten(array), column.fields[0]), array)
    if name == "map":
        entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        lists = array.cast(pa.list_(entry))
        keys, items = pc.list_flatten(lists).flatten()
        pairs = zip(_column(keys, column.fields[0]), _column(items, column.fields[1]), strict=True)
        return _cut([list(pair) for pair in pairs], lists)
    return _leaf(array, column.dtype)


def _cut(elements: list[Any], lists: Any) -> list[Any]:
    """Returns the elements of lists one after another as those lists."""
    lengths = pc.list_value_length(lists).to_pylist()
    ends = np.cumsum([0, *(length or 0 for length in lengths)]).tolist()
    parts = [elements[start:end] for start, end in pairwise(ends)]
    return [None if length is None else part for length, part in zip(lengths, parts, strict=True)]


def _leaf(array: Any, dtype: DataType) -> list[Any]:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    name = dtype.name
    if name == "null":
        return [None] * len(array)
    if name == "variant":
        return [None if each is None else _variant(each["value"], each["metadata"]) for each in array.to_pylist()]
    if dtype.is_float:
        single = dtype.bits != 64
        return _each(array.cast(pa.float32()) if single else array, lambda value: _float(value, single=single))
    if name == "decimal":
        return _each(array, lambda value: format(value, "f"))
    if name == "date":
        return _each(array.cast(pa.date32()).cast(pa.int32()), _date)
    if name == "time":
        ticks = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
        per_second = _per_second(array)
        return _each(ticks, lambda value: _clock(value, per_second))
    if name in ("timestamp", "timestamp_ntz"):
        zone, per_second = "Z" if name == "timestamp" else "", _per_second(array)
        return _each(array.cast(pa.int64()), lambda value: _moment(value, per_second) + zone)
    if name in _TEXTS:
        return _each(array.cast(pa.binary()), lambda value: value.decode("utf-8", "replace"))
    if name in _BYTES:
        return _each(array, bytes.hex)
    if name == "uuid":
        return _each(array, lambda value: str(uuid.UUID(bytes=value)))
    return list(array.to_pylist())  # booleans and integers


def _per_second(array: Any) -> int:
    """Returns the ticks of a second in an array, whose unit may be another one than the column's."""
    unit: str = array.type.unit
    return 1 if unit == "s" else PER_SECOND[unit]


def _each(array: Any, convert: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in array.to_pylist()]


def _float(value: float, *, single: bool) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(str(np.float32(value))) if single else value


def _date(day: int) -> str:
    """Returns a date as Spark writes it: years after 9999 and before 0 have a sign."""
    text, month, day_of_month = str(np.datetime64(day, "D")).rsplit("-", 2)
    year = int(text)
    return f"{year:04}-{month}-{day_of_month}" if 0 <= year <= 9_999 else f"{year:+05}-{month}-{day_of_month}"


def _moment(ticks: int, per_second: int) -> str:
    day, rest = divmod(ticks, _DAY_S * per_second)
    return f"{_date(day)}T{_clock(rest, per_second)}"


def _clock(ticks: int, per_second: int) -> str:
    seconds, part = divmod(ticks, per_second)
    digits = len(str(per_second)) - 1
    fraction = f".{part:0{digits}}".rstrip("0").rstrip(".")
    return f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def _variant(value: bytes, metadata: bytes) -> Any:
    members = members_of(value, metadata)
    if members is not None:
        return {name: _variant(part, metadata) for name, part in members.items()}
    elements = elements_of(value)
    if elements is not None:
        return [_variant(part, metadata) for part in elements]
    scalar = scalar_of(value)
    if scalar is None:
        return None
    kind, found = scalar
    if isinstance(found, bytes):
        if kind == "string":
            return found.decode("utf-8", "replace")
        return str(uuid.UUID(bytes=found)) if kind == "uuid" else found.hex()
    if isinstance(found, Decimal):
        return format(found, "f")
    if isinstance(found, float):
        return _float(found, single=kind == "float32")
    if kind == "date":
        return _date(found)
    name, _, unit = kind.partition("(")
    if name == "time":
        return _clock(found, PER_SECOND[unit.rstrip(")")])
    if name in ("timestamp", "timestamp_ntz"):
        return _moment(found, PER_SECOND[unit.rstrip(")")]) + ("Z" if name == "timestamp" else "")
    return found
