"""Columns of variants in Arrow: whole values, and the columns in which files shred them (Parquet's VariantShredding).

Whole values are structs of two byte strings, ``value`` and ``metadata``, as Spark has them; neither is null where the
struct is not.
Files may have more columns, of any shredding; they are read into the same structs. A value that comes back has another
encoding than before, but equals it: whole numbers and decimals are as short as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.schema import Column, DataType
from lamella.snapshot.variant.encoding import (
    NULL,
    InvalidVariant,
    Scalar,
    array_of,
    comparable,
    encoded,
    members_of,
    names_in,
    object_of,
    scalar_of,
)
from lamella.snapshot.variant.paths import variant_steps

#: The Arrow type of a column of variants.
VARIANT: Final = pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary())])
_EXTENSION: Final = "arrow.parquet.variant"
_PARTS: Final = frozenset({"value", "metadata", "typed_value"})


def is_variant(kind: Any) -> bool:
    """Returns whether an Arrow type has the form of variants, whole or shredded."""
    if not pa.types.is_struct(kind):
        return False
    names = {field.name for field in kind}
    return {"metadata", "value"} <= names <= _PARTS and all(
        _is_bytes(kind.field(name).type) for name in ("metadata", "value")
    )


def is_marked_variant(field: pa.Field) -> bool:
    """Returns whether a field is marked as a variant: as Spark does it, or by Arrow's extension type."""
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if not is_variant(kind):
        return False
    if isinstance(field.type, pa.BaseExtensionType):
        return bool(field.type.extension_name == _EXTENSION)
    by_spark = (kind.field("metadata").metadata or {}).get(b"variant") == b"true"
    return by_spark or (field.metadata or {}).get(b"ARROW:extension:name") == _EXTENSION.encode()


def whole_variants(values: pa.Array, column: str) -> pa.StructArray:
    """Returns variants of any shredding as whole values.

    Raises:
        SchemaMismatch: values of another type, or bytes that are not variants.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if not is_variant(values.type):
        raise SchemaMismatch(f"column {column!r}: a variant is a struct of value and metadata", column=column)
    metadata = values.field("metadata").cast(pa.binary())
    value = values.field("value").cast(pa.binary())
    is_null = values.is_null()
    if values.type.get_field_index("typed_value") >= 0:
        try:
            made = _whole(value.to_pylist(), values.field("typed_value"), metadata.to_pylist(), is_null.to_pylist())
        except InvalidVariant as error:
            raise SchemaMismatch(f"column {column!r}: {error.message}", column=column) from error
        value = pa.array(made, pa.binary())
    if metadata.null_count and pc.any(pc.and_(metadata.is_null(), pc.invert(is_null))).as_py():
        raise SchemaMismatch(f"column {column!r}: a variant has no metadata", column=column)
    # A value that is missing is a variant null; below a null struct it does not matter.
    parts = [pc.fill_null(value, NULL), pc.fill_null(metadata, b"")]
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=is_null)


def check_variants(values: pa.StructArray, column: str) -> None:
    """Raise SchemaMismatch for whole values whose bytes are not variants, as far as their beginnings tell."""
    present = values.filter(values.is_valid())
    try:
        for metadata in pc.unique(present.field("metadata")).to_pylist():
            names_in(metadata)
    except InvalidVariant as error:
        raise SchemaMismatch(f"column {column!r}: {error.message}", column=column) from error
    if pc.any(pc.equal(pc.binary_length(present.field("value")), 0)).as_py():
        raise SchemaMismatch(f"column {column!r}: a variant has no value", column=column)


def comparable_variants(values: pa.StructArray) -> pa.Array:
    """Returns bytes that are equal for equal variants; bytes that are not variants equal themselves only."""
    rows = zip(values.field("value").to_pylist(), values.field("metadata").to_pylist(), strict=True)
    present = zip(values.is_valid().to_pylist(), rows, strict=True)
    return pa.array([_comparable(*row) if is_there else None for is_there, row in present], pa.large_binary())


def _comparable(value: bytes | None, metadata: bytes | None) -> bytes:
    try:
        return comparable(value or b"", metadata or b"")
    except InvalidVariant:
        return b"?" + repr((value, metadata)).encode()


def shredded_variants(values: pa.StructArray, column: Column) -> pa.StructArray:
    """Returns whole values in the columns of a file: ``metadata``, ``value`` and, if the column has shredded fields,
    ``typed_value``.

    Raises:
        SchemaMismatch: bytes that are not variants.
    """
    metadata, value = pc.fill_null(values.field("metadata"), b""), pc.fill_null(values.field("value"), NULL)
    is_null = values.is_null()
    first = pa.field("metadata", pa.binary(), nullable=False)
    if not column.fields:
        second = pa.field("value", pa.binary(), nullable=False)
        return pa.StructArray.from_arrays([metadata, value], fields=[first, second], mask=is_null)
    root = _Object()
    for field in column.fields:
        root.put_at(variant_steps(field.name) or (), field.dtype)
    rows = zip(value.to_pylist(), metadata.to_pylist(), is_null.to_pylist(), strict=True)
    try:
        for each, names, absent in rows:
            root.add(None if absent else each, names)
    except InvalidVariant as error:
        raise SchemaMismatch(f"column {column.name!r}: {error.message}", column=column.name) from error
    parts = [metadata, *root.parts()]
    fields = [
        first,
        *(pa.field(name, part.type) for name, part in zip(("value", "typed_value"), parts[1:], strict=True)),
    ]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=is_null)


class _Scalars:
    """A shredded field of scalars."""

    def __init__(self, dtype: DataType) -> None:
        self._dtype = dtype
        self._typed: list[Any] = []
        self._rest: list[bytes | None] = []

    def add(self, value: bytes | None, _metadata: bytes) -> None:
        """Add the value of a row; None: it is missing."""
        scalar = None if value is None else scalar_of(value)
        typed = None if scalar is None else _fitted(scalar, self._dtype)
        self._typed.append(typed)
        self._rest.append(value if typed is None else None)

    def parts(self) -> list[pa.Array]:
        """Returns the columns ``value`` and ``typed_value``."""
        return [pa.array(self._rest, pa.binary()), _typed_array(self._typed, self._dtype)]


class _Object:
    """An object with shredded fields."""

    def __init__(self) -> None:
        self._fields: dict[str, _Object | _Scalars] = {}
        self._missing: list[bool] = []
        self._rest: list[bytes | None] = []

    def put_at(self, steps: Sequence[str | int], dtype: DataType) -> None:
        """Add a shredded field at a path of names, none of which leads to or through another field."""
        name = str(steps[0])
        if len(steps) == 1:
            self._fields[name] = _Scalars(dtype)
            return
        below = self._fields.setdefault(name, _Object())
        if isinstance(below, _Object):
            below.put_at(steps[1:], dtype)

    def add(self, value: bytes | None, metadata: bytes) -> None:
        """Add the value of a row; None: it is missing."""
        members = None if value is None else members_of(value, metadata)
        rest = value
        if members is not None:
            others = {name: member for name, member in members.items() if name not in self._fields}
            rest = object_of(others, metadata) if others else None
        self._missing.append(members is None)
        self._rest.append(rest)
        for name, field in self._fields.items():
            field.add(None if members is None else members.get(name), metadata)

    def parts(self) -> list[pa.Array]:
        """Returns the columns ``value`` and ``typed_value``."""
        arrays, fields = [], []
        for name, field in self._fields.items():
            parts = field.parts()
            inside = [pa.field("value", pa.binary()), pa.field("typed_value", parts[1].type)]
            arrays.append(pa.StructArray.from_arrays(parts, fields=inside))
            fields.append(pa.field(name, arrays[-1].type, nullable=False))
        typed = pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(self._missing, pa.bool_()))
        return [pa.array(self._rest, pa.binary()), typed]


def _fitted(scalar: Scalar, dtype: DataType) -> Any:
    """Returns a scalar as a value of a shredded field, None if it is not one: nothing is rounded, and no type becomes
    another one, but for whole numbers and decimals."""
    kind, value = scalar
    if dtype.is_integer or dtype.name == "decimal":
        if isinstance(value, bool) or not isinstance(value, int | Decimal) or kind not in ("int64", "decimal"):
            return None
        scaled = Decimal(value).scaleb(dtype.scale)
        low, high = dtype.int_range
        if scaled != scaled.to_integral_value() or not low <= scaled <= high:
            return None
        return int(value) if dtype.is_integer else Decimal(value)
    if kind != str(dtype):
        return None
    if kind == "string" and isinstance(value, bytes):
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    return value


def _typed_array(values: list[Any], dtype: DataType) -> pa.Array:
    if dtype.name == "decimal":
        return pa.array(values, pa.decimal128(dtype.precision, dtype.scale))
    if dtype.name == "string":
        return pa.array(values, pa.binary()).cast(pa.string())
    if dtype.name == "date":
        return pa.array(values, pa.int32()).view(pa.date32())
    if dtype.name in ("timestamp", "timestamp_ntz"):
        return pa.array(values, pa.int64()).view(pa.timestamp("us", "UTC" if dtype.name == "timestamp" else None))
    made: Any = {"boolean": pa.bool_(), "binary": pa.binary()}.get(dtype.name)
    made = made or getattr(pa, dtype.name)()
    return pa.array(values, made)


def _whole(
    values: Sequence[bytes | None] | None,
    typed: pa.Array | None,
    metadata: Sequence[bytes | None],
    is_absent: Sequence[bool],
) -> list[bytes | None]:
    """Returns the values of some rows, None where they are missing. ``is_absent``: rows that do not matter."""
    given: Sequence[bytes | None] = [None] * len(metadata) if values is None else values
    if typed is None:
        return list(given)
    if isinstance(typed, pa.ExtensionArray):
        typed = typed.storage
    absent = [gone or missing for gone, missing in zip(is_absent, typed.is_null().to_pylist(), strict=True)]
    made: list[bytes | None]
    if pa.types.is_struct(typed.type):
        made = _whole_objects(given, typed, metadata, absent)
    elif pa.types.is_list(typed.type) or pa.types.is_large_list(typed.type):
        made = _whole_arrays(typed, metadata, absent)
    else:
        kind, plain = _plain(typed)
        made = [
            None if gone or value is None else encoded(kind, value)
            for gone, value in zip(absent, plain.to_pylist(), strict=True)
        ]
    return [value if gone else found for gone, value, found in zip(absent, given, made, strict=True)]


def _whole_objects(
    values: Sequence[bytes | None], typed: pa.StructArray, metadata: Sequence[bytes | None], absent: Sequence[bool]
) -> list[bytes | None]:
    fields = {field.name: _whole_field(typed.field(field.name), metadata, absent) for field in typed.type}
    made: list[bytes | None] = []
    for at, (rest, names) in enumerate(zip(values, metadata, strict=True)):
        if absent[at] or names is None:
            made.append(None)
            continue
        members = {} if rest is None else members_of(rest, names)
        if members is None:
            raise InvalidVariant("a value beside shredded fields is not an object")
        found = {name: value for name, column in fields.items() if (value := column[at]) is not None}
        made.append(object_of({**members, **found}, names))
    return made


def _whole_field(group: pa.StructArray, metadata: Sequence[bytes | None], absent: Sequence[bool]) -> list[bytes | None]:
    """Returns the values of a group of ``value`` and ``typed_value``, either of which may be left out."""
    names = [field.name for field in group.type]
    values = group.field("value").to_pylist() if "value" in names else None
    typed = group.field("typed_value") if "typed_value" in names else None
    return _whole(values, typed, metadata, absent)


def _whole_arrays(typed: pa.ListArray, metadata: Sequence[bytes | None], absent: Sequence[bool]) -> list[bytes | None]:
    lengths = [
        0 if gone else length for gone, length in zip(absent, pc.list_value_length(typed).to_pylist(), strict=True)
    ]
    present = typed.filter(pa.array([not gone for gone in absent], pa.bool_()))
    names = [each for each, length in zip(metadata, lengths, strict=True) for _ in range(length)]
    elements = _whole_field(present.flatten(), names, [False] * len(names))
    made: list[bytes | None] = []
    at = 0
    for gone, length in zip(absent, lengths, strict=True):
        made.append(None if gone else array_of([NULL if each is None else each for each in elements[at : at + length]]))
        at += length
    return made


def _plain(typed: pa.Array) -> tuple[str, pa.Array]:
    """Returns the kind of a scalar's type, and its values as :func:`encoded` takes them."""
    kind = typed.type
    if pa.types.is_timestamp(kind):
        return f"timestamp{'' if kind.tz else '_ntz'}({kind.unit})", typed.view(pa.int64())
    if pa.types.is_date32(kind):
        return "date", typed.view(pa.int32())
    if pa.types.is_time64(kind):
        return "time(us)", typed.view(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string", typed.cast(pa.binary())
    if _is_bytes(kind):
        return "binary", typed
    if pa.types.is_fixed_size_binary(kind):
        return "uuid", typed
    if pa.types.is_decimal(kind):
        return "decimal", typed
    if pa.types.is_boolean(kind):
        return "boolean", typed
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return "float32" if pa.types.is_float32(kind) else "float64", typed
    if pa.types.is_integer(kind):
        return "int64", typed
    raise InvalidVariant(f"a shredded field has type {kind}")


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
