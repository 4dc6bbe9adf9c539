"""Columns of Arrow data as columns of a table: the types of a new table, and which values may be stored as which."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.schema import Column, DataType, Schema, widens
from lamella.snapshot.variant.arrow import is_marked_variant

_LEAVES: Final[tuple[tuple[Any, str], ...]] = (
    (pa.types.is_boolean, "boolean"),
    *((getattr(pa.types, f"is_{sign}int{bits}"), f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    (pa.types.is_float16, "float16"),
    (pa.types.is_float32, "float32"),
    (pa.types.is_float64, "float64"),
    (pa.types.is_date, "date"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
)
#: Types of a new table that differ from the data's: those that Spark reads, and into which every value fits. Timestamps
#: of nanoseconds are the exception: each value is checked, see docs/write.md.
_NEW: Final = {"float16": "float32", "time(ms)": "time(us)"}


def plain_type(kind: Any) -> Any:
    """Return an Arrow type without encodings: that of a dictionary's values, of an extension's storage."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is a list of any form."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
        or pa.types.is_fixed_size_list(kind)
    )


def leaf_dtype(kind: Any) -> DataType | None:
    """Return the type of an Arrow type's values; None: nested, or no column can hold them. Seconds count as
    milliseconds."""
    kind = plain_type(kind)
    for matches, name in _LEAVES:
        if matches(kind):
            return DataType(name=name)
    if pa.types.is_decimal(kind):
        fits = 0 <= kind.scale <= kind.precision
        return DataType(name="decimal", precision=kind.precision, scale=kind.scale) if fits else None
    if pa.types.is_timestamp(kind):
        name = "timestamp_ntz" if kind.tz is None else "timestamp"
        return DataType(name=name, unit="ms" if kind.unit == "s" else kind.unit)
    if pa.types.is_time(kind):
        return DataType(name="time", unit="ms" if kind.unit == "s" else kind.unit)
    if pa.types.is_fixed_size_binary(kind):
        return DataType(name="fixed", length=kind.byte_width)
    return None


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of a new table for Arrow data.

    Raises:
        InvalidSchema: a type that a table cannot have, or that the data does not tell (a column of nulls).
    """
    columns = tuple(_column(field, field.name) for field in schema)
    Schema.assign(columns)  # raises for two columns of one name, and the like
    return columns


def _column(field: pa.Field, path: str) -> Column:
    kind = plain_type(field.type)
    if is_marked_variant(field):
        return Column(name=field.name, type="variant", nullable=field.nullable)
    if pa.types.is_struct(kind):
        fields = tuple(_column(part, f"{path}.{part.name}") for part in kind)
        return Column(name=field.name, type="struct", nullable=field.nullable, fields=fields)
    if is_list(kind):
        element = _column(kind.value_field.with_name("element"), f"{path}.element")
        return Column(name=field.name, type="list", nullable=field.nullable, fields=(element,))
    if pa.types.is_map(kind):
        key = _column(kind.key_field.with_name("key").with_nullable(False), f"{path}.key")
        value = _column(kind.item_field.with_name("value"), f"{path}.value")
        return Column(name=field.name, type="map", nullable=field.nullable, fields=(key, value))
    if pa.types.is_null(kind):
        raise InvalidSchema(
            f"column {path!r} has only nulls, which do not tell its type; create the table first", column=path
        )
    dtype = leaf_dtype(kind)
    if dtype is None:
        raise InvalidSchema(f"column {path!r} has Arrow type {field.type}, which a table cannot hold", column=path)
    if dtype.name in ("timestamp", "timestamp_ntz"):
        dtype = DataType(name=dtype.name, unit="us")
    return Column(name=field.name, type=_NEW.get(str(dtype), str(dtype)), nullable=field.nullable)


def may_store(source: DataType, target: DataType) -> bool:
    """Whether values of one type can be stored as another without a change.

    Wider than Spark's rule, since each value is checked: Python's integers have 64 bits, its floats too, whatever the
    column has.
    """
    if widens(source, target):
        return True
    if source.is_integer:
        return target.is_integer or target.is_float or target.name == "decimal"
    if source.is_float:
        return target.is_float
    if source.name == "decimal":
        return target.name == "decimal"
    return source.name in ("binary", "fixed") and target.name in ("binary", "fixed")


def type_text(kind: Any) -> str:
    """Return an Arrow type as a message names it: by the table's word where there is one."""
    dtype = leaf_dtype(kind)
    return str(plain_type(kind)) if dtype is None else str(dtype)
