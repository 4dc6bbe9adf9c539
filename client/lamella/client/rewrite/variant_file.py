"""Variants in written files: in the columns of their shredded fields, and marked as variants for every reader.

pyarrow has no type for variants. It writes the columns, and the mark (Parquet's logical type VARIANT) is put into the
footer afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.parquet import thrift
from lamella.snapshot.parquet.schema import VARIANT
from lamella.snapshot.rows.block_file import Element, read_elements
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.variant.arrow import shredded_variants

_MAGIC: Final = b"PAR1"
_SCHEMA: Final = 2
_FIELD_ID, _LOGICAL_TYPE, _CHILDREN = 9, 10, 5
_STRUCT_WIRE, _BYTE_WIRE, _LIST_WIRE = 12, 3, 9
#: A LogicalType whose member is a VariantType of specification version 1, in Thrift's compact protocol.
_VARIANT: Final = bytes([_STRUCT_WIRE, VARIANT << 1, 1 << 4 | _BYTE_WIRE, 1, 0, 0])


def has_variants(columns: Sequence[Column]) -> bool:
    """Return whether a column is a variant, or contains one."""
    return any(column.dtype.name == "variant" or has_variants(_parts(column)) for column in columns)


def stored_rows(rows: pa.Table, schema: Schema) -> pa.Table:
    """Return rows in the columns of a file; raises SchemaMismatch for bytes that are not variants."""
    for at, column in enumerate(schema.columns):
        if has_variants([column]):
            values = _stored(_one_array(rows.column(at)), column)
            rows = rows.set_column(at, rows.schema.field(at).with_type(values.type), values)
    return rows


def marked(data: bytes, schema: Schema) -> bytes:
    """Return a file of these columns with the groups of variants marked as such."""
    size = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - size], data[-8 - size : -8]
    elements = read_elements(footer)
    groups = {at for column, top in zip(schema.columns, elements, strict=True) for at in _groups(column, top)}
    if not groups:
        return data
    count, _, at = thrift.list_header(footer, thrift.find(footer, _SCHEMA, _LIST_WIRE))
    parts, start = [body], 0
    for number in range(count):
        fields, end = thrift.struct(footer, at, {_CHILDREN: thrift.INT, _FIELD_ID: thrift.INT})
        if number in groups:
            last = _FIELD_ID if _FIELD_ID in fields else _CHILDREN
            mark = bytes([(_LOGICAL_TYPE - last) << 4 | _STRUCT_WIRE]) + _VARIANT
            parts += [footer[start : end - 1], mark, b"\0"]
            start = end
        at = end
    parts.append(footer[start:])
    new_size = sum(map(len, parts[1:]))
    return b"".join([*parts, new_size.to_bytes(4, "little"), _MAGIC])


def leaf_paths(path: str, kind: Any) -> Iterator[str]:
    """Yield the paths of a stored variant's columns whose values repeat: not those of encoded values."""
    for field in kind:
        if pa.types.is_struct(field.type):
            yield from leaf_paths(f"{path}.{field.name}", field.type)
        elif field.name != "value":
            yield f"{path}.{field.name}"


def _parts(column: Column) -> Sequence[Column]:
    return column.fields if column.dtype.is_nested else ()


def _one_array(values: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def _stored(values: pa.Array, column: Column) -> pa.Array:
    kind = column.dtype.name
    if kind == "variant":
        return shredded_variants(values, column)
    if not has_variants(_parts(column)):
        return values
    if kind == "struct":
        parts = [_stored(values.field(at), part) for at, part in enumerate(column.fields)]
        fields = [values.type.field(at).with_type(part.type) for at, part in enumerate(parts)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=values.is_null())
    lengths = pc.fill_null(pc.list_value_length(values.cast(_as_list(values.type))), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    if kind == "list":
        inner = _stored(values.flatten(), column.fields[0])
        made = pa.list_(values.type.value_field.with_type(inner.type))
        return pa.ListArray.from_arrays(offsets, inner, type=made, mask=values.is_null())
    keys, items = values.cast(_as_list(values.type)).flatten().flatten()
    keys, items = _stored(keys, column.fields[0]), _stored(items, column.fields[1])
    made = pa.map_(values.type.key_field.with_type(keys.type), values.type.item_field.with_type(items.type))
    return pa.MapArray.from_arrays(offsets, keys, items, type=made, mask=values.is_null())


def _as_list(kind: Any) -> Any:
    """Return the type of a map as a list of structs; of a list as it is."""
    if not pa.types.is_map(kind):
        return kind
    return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))


def _groups(column: Column, element: Element) -> Iterator[int]:
    """Yield the numbers of the schema elements of a column's variants."""
    kind = column.dtype.name
    if kind == "variant":
        yield element.at
        return
    below: Sequence[Element] = ()
    if kind == "struct":
        below = element.children
    elif kind in ("list", "map"):
        below = element.children[0].children
    for part, child in zip(_parts(column), below, strict=True):
        yield from _groups(part, child)
