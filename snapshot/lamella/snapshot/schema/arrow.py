"""Columns of a table in Arrow: their types, and conversion of a file's rows to a later schema.

Columns are matched by id, through the names that the table had when the file was written, ignoring case. This module is
imported only where rows are read; the rest of the package does not need pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.errors import InvalidRequest, SchemaMismatch, UnknownColumn
from lamella.snapshot.near_names import did_you_mean
from lamella.snapshot.schema import Column, DataType, Schema
from lamella.snapshot.schema.column import default_value
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.variant.arrow import VARIANT, whole_variants

_PLAIN: Final[dict[str, Any]] = {
    "boolean": pa.bool_(),
    **{f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "string": pa.string(),
    "enum": pa.string(),
    "json": pa.string(),
    "binary": pa.binary(),
    "bson": pa.binary(),
    "geometry": pa.binary(),
    "geography": pa.binary(),
    "uuid": pa.binary(16),
    "null": pa.null(),
    "variant": VARIANT,
}


def arrow_field(column: Column) -> pa.Field:
    """Returns a column as a field of an Arrow schema.

    Raises:
        InvalidRequest: the column's type has no Arrow form here (interval, unknown).
    """
    return pa.field(column.name, arrow_type(column), nullable=column.nullable)


def arrow_type(column: Column) -> Any:
    """Returns the Arrow type of a column; raises as :func:`arrow_field`."""
    dtype = column.dtype
    if dtype.name == "struct":
        return pa.struct([arrow_field(part) for part in column.fields])
    if dtype.name == "list":
        return pa.list_(arrow_field(column.fields[0]))
    if dtype.name == "map":
        key, value = column.fields
        return pa.map_(arrow_type(key), arrow_field(value))
    return leaf_type(dtype, column.name)


def leaf_type(dtype: DataType, name: str) -> Any:
    """Returns the Arrow type of a leaf column; raises as :func:`arrow_field`."""
    if dtype.name in _PLAIN:
        return _PLAIN[dtype.name]
    if dtype.name == "decimal":
        make = pa.decimal128 if dtype.precision <= 38 else pa.decimal256
        return make(dtype.precision, dtype.scale)
    if dtype.name == "time":
        return pa.time32("ms") if dtype.unit == "ms" else pa.time64(dtype.unit)
    if dtype.name in ("timestamp", "timestamp_ntz"):
        return pa.timestamp(dtype.unit, tz="UTC" if dtype.name == "timestamp" else None)
    if dtype.name == "fixed":
        return pa.binary(dtype.length)
    raise InvalidRequest(f"column {name!r} of type {dtype} cannot be read as Arrow; leave it out", column=name)


def conform(values: Any, name: str, column: Column, written: Schema, current: Schema) -> Any:
    """Converts a file's column (a struct, list or map) to ``column`` of the table; ``name`` is its name in the file,
    which has the schema ``written``.

    Raises:
        SchemaMismatch: the type of the values does not widen to the table's.
    """
    batch = pa.RecordBatch.from_arrays([values], names=[name])
    return conformed(batch, pa.schema([arrow_field(column)]), written, current).column(0)


def conform_leaf(values: Any, dtype: DataType, name: str) -> Any:
    """Converts values to the Arrow type of ``dtype``; times of a finer unit are rounded down, as Spark does with
    nanoseconds.

    Raises:
        SchemaMismatch: the type of the values does not widen to the table's.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if dtype.name == "variant":
        return whole_variants(values, name)
    wanted = leaf_type(dtype, name)
    source = values.type
    if source == wanted:
        return values
    try:
        if _is_clock(wanted) and _is_clock(source) and PER_SECOND[source.unit] > PER_SECOND[wanted.unit]:
            return _coarser(values, wanted)
        return values.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(f"column {name!r}: {error}", column=name) from error


def cast_values(values: pa.Array, target: Any) -> pa.Array:
    """Returns values as another type, part by part; raises pa.ArrowInvalid for one that does not fit.

    Other than Arrow's own cast, this is possible where a struct is null that has required fields. Nulls in required
    parts are not found here (:class:`lamella.snapshot.row_checks.RowChecks`).
    """
    if values.type.equals(target, check_metadata=True):
        return values
    if pa.types.is_struct(target) and pa.types.is_struct(values.type):
        parts = [cast_values(part, field.type) for part, field in zip(values.flatten(), target, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=values.is_null())
    if pa.types.is_list(target) and pa.types.is_list(values.type):
        lengths = pc.fill_null(values.value_lengths(), 0)
        elements = cast_values(values.flatten(), target.value_type)
        return pa.ListArray.from_arrays(list_offsets(lengths), elements, type=target, mask=values.is_null())
    if pa.types.is_map(target) and pa.types.is_map(values.type):
        entries = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
        lengths = pc.fill_null(entries.value_lengths(), 0)
        keys, items = (
            cast_values(part, kind)
            for part, kind in zip(entries.flatten().flatten(), (target.key_type, target.item_type), strict=True)
        )
        return pa.MapArray.from_arrays(list_offsets(lengths), keys, items, type=target, mask=values.is_null())
    return values.cast(target, safe=True)


def decimals_of(unscaled: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Returns the decimals that integers of 64 bits are in units of the last digit of ``dtype``, a ``decimal128``."""
    words = np.empty((len(unscaled), 2), dtype=np.int64)
    words[:, 0] = unscaled.fill_null(0).to_numpy(zero_copy_only=False)
    words[:, 1] = words[:, 0] >> 63  # the sign
    valid = unscaled.is_valid().buffers()[1] if unscaled.null_count else None
    return pa.Array.from_buffers(dtype, len(unscaled), [valid, pa.py_buffer(words)])


def without_hidden_nulls(values: pa.Array) -> pa.Array:
    """Returns equal values of which no required part is null, also where the struct around it is null: Arrow's Parquet
    writer refuses such nulls. Where they are, the part has any value."""
    kind = values.type
    if pa.types.is_struct(kind):
        parts = [without_hidden_nulls(values.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(
            [part if field.nullable else _without_nulls(part) for part, field in zip(parts, kind, strict=True)],
            fields=list(kind),
            mask=values.is_null(),
        )
    if pa.types.is_list(kind) and pa.types.is_nested(kind.value_type):
        lengths = pc.fill_null(values.value_lengths(), 0)
        elements = without_hidden_nulls(values.flatten())
        return pa.ListArray.from_arrays(list_offsets(lengths), elements, type=kind, mask=values.is_null())
    if pa.types.is_map(kind) and pa.types.is_nested(kind.item_type):
        whole = values.take(pa.array(range(len(values)), pa.int64()))  # no offset, and no entries of null maps
        items = without_hidden_nulls(whole.items)
        return pa.MapArray.from_arrays(whole.offsets, whole.keys, items, type=kind, mask=whole.is_null())
    return values


def _without_nulls(values: pa.Array) -> pa.Array:
    """Returns values with any value in place of nulls."""
    kind = values.type
    if not values.null_count:
        return values
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([values.field(at) for at in range(kind.num_fields)], fields=list(kind))
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(values.offsets, values.values, type=kind)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(values.offsets, values.keys, values.items, type=kind)
    return pa.Array.from_buffers(kind, len(values), [None, *values.buffers()[1:]], 0, values.offset)


def absent(column: Column, count: int) -> Any:
    """Returns the values of a column that a file lacks: nulls, or the column's default."""
    wanted = arrow_field(column).type
    if column.default is None:
        return pa.nulls(count, wanted)
    return pa.repeat(arrow_default(column.dtype, column.default).cast(wanted), count)


def new_values(column: Column, count: int) -> Any:
    """Returns the values of a column in new rows that come without it: its default, or nulls."""
    return absent(msgspec.structs.replace(column, default=column.default_of_new_rows), count)


def _is_clock(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def _coarser(values: Any, wanted: Any) -> Any:
    divisor = PER_SECOND[values.type.unit] // PER_SECOND[wanted.unit]
    numbers = values.view(pa.int64())  # units finer than milliseconds have 64 bits
    whole = pc.divide(numbers, divisor)  # rounded towards zero, so too high for negative numbers
    floor = pc.if_else(pc.greater(pc.multiply(whole, divisor), numbers), pc.subtract(whole, 1), whole)
    return floor.cast(pa.int32()).view(wanted) if wanted.bit_width == 32 else floor.view(wanted)


_DIGITS: Final = Context(prec=100)
_NO_CONSTANTS: Final[Mapping[int, pa.Scalar]] = {}


def file_columns(names: Iterable[str], in_file: Sequence[str], written: Schema, current: Schema) -> list[str]:
    """Returns the top-level columns of a file that contain the named columns of the table.

    ``in_file``: the file's own names. ``written``: the schema that the file was written with. Columns that the file
    lacks are left out. Raises UnknownColumn for a name that ``current`` does not have.
    """
    spelled = {name.lower(): name for name in in_file}
    before = {column.id: column.name.lower() for column in written.columns}
    wanted = [before.get(_named(current.columns, name).id) for name in names]
    return list(dict.fromkeys(spelled[name] for name in wanted if name is not None and name in spelled))


def conformed(
    rows: pa.RecordBatch,
    target: pa.Schema,
    written: Schema,
    current: Schema,
    constants: Mapping[int, pa.Scalar] = _NO_CONSTANTS,
) -> pa.RecordBatch:
    """Converts rows of a file to rows of the table: the columns of ``target``, in its types.

    A column that the file lacks has the block's constant (``constants``, by column id), or else is null or has its
    default. The names in ``target`` are those of ``current``; a struct there may have fewer fields than in the table.

    Raises:
        UnknownColumn: ``target`` names a column or field that the table does not have.
        SchemaMismatch: a value does not fit its type.
    """
    if not len(target):
        return rows.select([])  # a count of rows needs no columns, but does need the number of rows
    found = {name.lower(): rows.column(at) for at, name in enumerate(rows.schema.names)}
    before = {column.id: column for column in written.columns}
    arrays = []
    for field in target:
        now = _named(current.columns, field.name)
        then = before.get(now.id)
        values = None if then is None else found.get(then.name.lower())
        try:
            if values is None and now.id in constants:
                arrays.append(repeated(constants[now.id], rows.num_rows, field.type))
                continue
            arrays.append(_conform(values, rows.num_rows, then, now, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(f"column {field.name!r}: {error}", column=field.name) from error
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def repeated(constant: pa.Scalar, count: int, target: Any) -> pa.Array:
    """Returns ``count`` times a constant, as a type; raises pa.ArrowInvalid if it does not fit."""
    return pa.repeat(constant.cast(target), count) if constant.is_valid else pa.nulls(count, target)


def constant_scalars(values: Mapping[int, int | float | bytes | None], written: Schema) -> dict[int, pa.Scalar]:
    """Returns the values of a block's constants, given in the types of ``written``, as Arrow scalars."""
    leaves = written.by_id()
    return {
        column_id: pa.scalar(None) if value is None else arrow_scalar(leaves[column_id].dtype, value)
        for column_id, value in values.items()
    }


def arrow_default(dtype: DataType, text: str) -> pa.Scalar:
    """Returns a default as an Arrow scalar of a natural type; the caller casts it to the column's type."""
    return arrow_scalar(dtype, default_value(dtype, text))


def arrow_scalar(dtype: DataType, value: Any) -> pa.Scalar:
    """Returns a value in its type's order as an Arrow scalar of a natural type."""
    if dtype.name == "boolean":
        return pa.scalar(bool(value))
    if dtype.name == "decimal":
        return pa.scalar(_DIGITS.scaleb(Decimal(value), -dtype.scale), pa.decimal128(dtype.precision, dtype.scale))
    if dtype.name == "date":
        return pa.scalar(value, pa.int32()).cast(pa.date32())
    if dtype.name == "time" and dtype.unit == "ms":
        return pa.scalar(value, pa.int32()).cast(pa.time32("ms"))
    if dtype.name == "time":
        return pa.scalar(value, pa.int64()).cast(pa.time64(dtype.unit))
    if dtype.name in ("timestamp", "timestamp_ntz"):
        return pa.scalar(value, pa.int64()).cast(pa.timestamp(dtype.unit, "UTC" if dtype.name == "timestamp" else None))
    if dtype.is_text:
        return pa.scalar(value.decode("utf-8"))
    return pa.scalar(value, pa.uint64()) if dtype.order == "uint" else pa.scalar(value)


def _conform(values: pa.Array | None, count: int, then: Column | None, now: Column, target: Any) -> pa.Array:
    if values is None or then is None:
        if now.default is None:
            return pa.nulls(count, target)
        return pa.repeat(arrow_default(now.dtype, now.default).cast(target), count)
    if now.dtype.name == "variant":
        whole = whole_variants(values, now.name)
        if whole.type == target:
            return whole
        return pa.StructArray.from_arrays(
            [whole.field("value"), whole.field("metadata")], fields=list(target), mask=whole.is_null()
        )
    if then == now and values.type == target:
        return values
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_struct(target):
        return _struct(values, then, now, target)
    if pa.types.is_list(target) or pa.types.is_large_list(target):
        lengths = pc.fill_null(values.value_lengths(), 0)
        element = values.flatten()
        inner = _conform(element, len(element), then.fields[0], now.fields[0], target.value_type)
        return pa.ListArray.from_arrays(list_offsets(lengths), inner, type=target, mask=values.is_null())
    if pa.types.is_map(target):
        # As a list of structs of key and value; null lists then leave no entries behind.
        entries = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
        lengths = pc.fill_null(entries.value_lengths(), 0)
        key, value = entries.flatten().flatten()
        keys = _conform(key, len(key), then.fields[0], now.fields[0], target.key_type)
        items = _conform(value, len(value), then.fields[1], now.fields[1], target.item_type)
        return pa.MapArray.from_arrays(list_offsets(lengths), keys, items, type=target, mask=values.is_null())
    return values if values.type == target else values.cast(target, safe=True)


def _struct(values: pa.StructArray, then: Column, now: Column, target: Any) -> pa.Array:
    parts = dict(zip((field.name.lower() for field in values.type), values.flatten(), strict=True))
    before = {field.id: field for field in then.fields}
    arrays = []
    for wanted in target:
        field = _named(now.fields, wanted.name)
        old = before.get(field.id)
        part = None if old is None else parts.get(old.name.lower())
        arrays.append(_conform(part, len(values), old, field, wanted.type))
    return pa.StructArray.from_arrays(arrays, fields=list(target), mask=values.is_null())


def list_offsets(lengths: pa.Array) -> pa.Array:
    """Returns the offsets of lists of these lengths."""
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def _named(columns: Sequence[Column], name: str) -> Column:
    for column in columns:
        if column.name.lower() == name.lower():
            return column
    known = [column.name for column in columns]
    raise UnknownColumn(f"there is no column {name!r}", column=name, columns=known, **did_you_mean(name, known))
