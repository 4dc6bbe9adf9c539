"""Rows as the table's columns: matched by name, in its types, with every value unchanged.

A value that has no equal one in the column's type is an error: nothing is rounded, cut or wrapped. Only blanks at the
end of text are added or cut off where its column has a length, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lamella.client.rewrite.target import arrow_schema
from lamella.client.write.arrow_types import is_list, leaf_dtype, may_store, type_text
from lamella.client.write.python_values import PythonRows, leaf_array
from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.near_names import did_you_mean
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.arrow import list_offsets, new_values
from lamella.snapshot.schema.text_lengths import fitted_text
from lamella.snapshot.variant.arrow import check_variants, whole_variants

#: Rows of Arrow, or dictionaries of Python.
Chunk: TypeAlias = "PythonRows | pa.RecordBatch"

_PRECISION_OF_INTEGERS: Final = 20
#: Columns that an error lists.
_SHOWN: Final = 20


class TableColumns:
    """The columns of a table, to which rows are fitted."""

    def __init__(self, schema: Schema) -> None:
        """Raises InvalidSchema for types that cannot be written."""
        self._schema = schema
        self._arrow = arrow_schema(schema)
        self._matched: tuple[pa.Schema, list[int | None]] | None = None

    @property
    def arrow(self) -> pa.Schema:
        """The columns of fitted rows."""
        return self._arrow

    def check(self, given: pa.Schema) -> None:
        """Raise SchemaMismatch if columns are missing or unknown, or have types that cannot fit; reads no row."""
        empty = given.empty_table()
        self.fit(pa.RecordBatch.from_arrays([column.combine_chunks() for column in empty.columns], schema=given))

    def fit(self, chunk: Chunk) -> pa.RecordBatch:
        """Return rows with all columns of the table, in its order and types.

        Columns are matched by name, without regard to case. A column that the rows lack has its default, otherwise
        nulls; so has a field of a struct.

        Raises:
            SchemaMismatch: a required column without a default is missing, a column is unknown, or a value does not
                fit.
        """
        if isinstance(chunk, PythonRows):
            return self._of_python(chunk)
        arrays = []
        positions = self._positions(chunk.schema)
        for column, field, position in zip(self._schema.columns, self._arrow, positions, strict=True):
            if position is None:
                arrays.append(_absent(column, field, chunk.num_rows))
            else:
                values = _fit(chunk.column(position), column, field.type, column.name)
                arrays.append(_required(fitted_text(values, column, column.name), field))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _positions(self, given: pa.Schema) -> list[int | None]:
        """Return where each column of the table is in the rows; None: it has its default, or nulls."""
        if self._matched is not None and self._matched[0] is given:
            return self._matched[1]
        found = _by_name(given.names, "the data")
        wanted = {column.name.lower(): column for column in self._schema.columns}
        _refuse_unknown([given.names[at] for key, at in found.items() if key not in wanted], self._schema.columns)
        _refuse_missing([column for key, column in wanted.items() if key not in found])
        positions = [found.get(key) for key in wanted]
        self._matched = (given, positions)
        return positions

    def _of_python(self, rows: PythonRows) -> pa.RecordBatch:
        columns = rows.columns()
        wanted = {column.name.lower() for column in self._schema.columns}
        _refuse_unknown([spelled for key, spelled in rows.names.items() if key not in wanted], self._schema.columns)
        if len(rows):
            _refuse_missing([column for column in self._schema.columns if column.name.lower() not in columns])
        arrays = []
        for column, field in zip(self._schema.columns, self._arrow, strict=True):
            given = columns.get(column.name.lower())
            if given is None:
                array = _absent(column, field, len(rows))
            else:
                array = _fit_python(given.values, column, field.type, column.name)
                array = fitted_text(array, column, column.name)
                if column.default_of_new_rows is not None and given.is_absent is not None:
                    array = pc.if_else(pa.array(given.is_absent), _absent(column, field, len(rows)), array)
            arrays.append(_required(array, field))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def _by_name(names: Sequence[str], what: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for at, name in enumerate(names):
        if found.setdefault(name.lower(), at) != at:
            raise SchemaMismatch(f"{what} has two columns {name!r}, without regard to case", column=name)
    return found


def _refuse_unknown(names: Sequence[str], known: Sequence[Column], of: str = "") -> None:
    """Raise SchemaMismatch if there are names that are of no column, or of no field of the column ``of``."""
    if names:
        what = f"column {of!r} has no field" if of else "the table has no column"
        fields = ", ".join(repr(column.name) for column in known[:_SHOWN])
        more = ", ..." if len(known) > _SHOWN else ""
        near = did_you_mean(names[0], [column.name for column in known])
        raise SchemaMismatch(f"{what} {_listed(names)}; it has {fields}{more}", columns=list(names), **near)


def _refuse_missing(absent: Sequence[Column], of: str = "") -> None:
    """Raise SchemaMismatch if the data must have one of the columns, or fields of ``of``, that it lacks."""
    names = [column.name for column in absent if not column.nullable and (of or column.default_of_new_rows is None)]
    if names:
        where = f" of {of!r}" if of else ""
        verb = "are" if len(names) > 1 else "is"
        what = ("field" if of else "column") + ("s" if len(names) > 1 else "")
        raise SchemaMismatch(
            f"{what} {_listed(names)}{where} {verb} required and missing in the data, without a default",
            columns=list(names),
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _absent(column: Column, field: pa.Field, count: int) -> pa.Array:
    return new_values(column, count).cast(field.type)


def _required(array: pa.Array, field: pa.Field) -> pa.Array:
    if not field.nullable and array.null_count:
        raise SchemaMismatch(f"column {field.name!r} is required and has nulls", column=field.name)
    return array


def _fit(values: pa.Array, column: Column, target: Any, path: str) -> pa.Array:
    """Return Arrow values in the column's type; ``path``: the column's name in messages."""
    try:
        return _fit_array(_decoded(values), column, target, path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(f"column {path!r}: a value does not fit {_shown(column)}: {error}", column=path) from error


def _fit_array(values: pa.Array, column: Column, target: Any, path: str) -> pa.Array:
    kind = values.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values), target)
    if column.type == "variant":
        whole = whole_variants(values, path)
        check_variants(whole, path)
        return whole
    if pa.types.is_struct(target) and pa.types.is_struct(kind):
        return _fit_struct(values, column, target, path)
    if pa.types.is_map(target) and pa.types.is_map(kind):
        return _fit_map(values, column, target, path)
    if pa.types.is_list(target) and is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(values), 0)
        elements = values.flatten()
        inner = _fit_part(elements, column.fields[0], target.value_field, f"{path}.element")
        return pa.ListArray.from_arrays(list_offsets(lengths), inner, type=target, mask=values.is_null())
    source = leaf_dtype(kind)
    if source is None or column.fields or not may_store(source, column.dtype):
        raise SchemaMismatch(
            f"column {path!r} is {type_text(kind)} in the data and {_shown(column)} in the table", column=path
        )
    return values if kind == target else _exact(values, target)


def _fit_struct(values: pa.StructArray, column: Column, target: Any, path: str) -> pa.Array:
    parts = _by_name([field.name for field in values.type], f"column {path!r}")
    wanted = {field.name.lower() for field in column.fields}
    _refuse_unknown([values.type.field(at).name for key, at in parts.items() if key not in wanted], column.fields, path)
    _refuse_missing([field for field in column.fields if field.name.lower() not in parts], path)
    is_null = values.is_null()
    flattened = values.flatten()
    arrays = []
    for part, field in zip(column.fields, target, strict=True):
        at = parts.get(part.name.lower())
        array = pa.nulls(len(values)) if at is None else flattened[at]
        arrays.append(_fit_part(array, part, field, f"{path}.{part.name}", is_null))
    return pa.StructArray.from_arrays(arrays, fields=list(target), mask=is_null)


def _fit_map(values: pa.MapArray, column: Column, target: Any, path: str) -> pa.Array:
    entries = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
    lengths = pc.fill_null(entries.value_lengths(), 0)
    keys, items = entries.flatten().flatten()
    return _map(
        list_offsets(lengths),
        _fit_part(keys, column.fields[0], target.key_field, f"{path}.key"),
        _fit_part(items, column.fields[1], target.item_field, f"{path}.value"),
        target,
        values.is_null(),
    )


def _map(offsets: pa.Array, keys: pa.Array, items: pa.Array, target: Any, is_null: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=is_null)


def _fit_part(values: pa.Array, column: Column, field: pa.Field, path: str, above: pa.Array | None = None) -> pa.Array:
    """Return a part of a nested column; ``above``: where the struct around it is null, so that it may be null too."""
    array = _fit(values, column, field.type, path)
    nulls = array.null_count
    if nulls and not field.nullable:
        allowed = 0 if above is None else above.true_count
        if nulls > allowed:
            raise SchemaMismatch(f"{path!r} is required and has nulls", column=path)
    return array


def _decoded(values: pa.Array) -> pa.Array:
    """Return values without encodings: dictionaries, runs, extension types."""
    while True:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        elif isinstance(values, pa.ExtensionArray):
            values = values.storage
        elif pa.types.is_dictionary(values.type):
            # Arrow does not decode dictionaries of views, which Polars has.
            values = _decoded(values.dictionary).take(values.indices)
        elif pa.types.is_run_end_encoded(values.type):
            values = pc.run_end_decode(values)
        elif pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
            values = values.cast(pa.string() if pa.types.is_string_view(values.type) else pa.binary())
        else:
            return values


def _exact(values: pa.Array, target: Any) -> pa.Array:
    """Return equal values of another type; raises pa.ArrowInvalid for one that has no equal."""
    kind = values.type
    if pa.types.is_decimal(target) and pa.types.is_integer(kind):
        return values.cast(pa.decimal128(_PRECISION_OF_INTEGERS, 0)).cast(target, safe=True)
    if pa.types.is_float32(target) and pa.types.is_float64(kind):
        narrow = values.cast(target)
        back = narrow.cast(kind)
        is_equal = pc.or_(pc.equal(back, values), pc.and_(pc.is_nan(back), pc.is_nan(values)))
        if pc.all(is_equal, min_count=0).as_py() is False:
            value = pc.filter(values, pc.invert(is_equal))[0].as_py()
            raise pa.ArrowInvalid(f"{value!r} has more digits than 32 bits can hold")
        return narrow
    if pa.types.is_fixed_size_binary(target) and not pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary()).cast(target, safe=True)
    if pa.types.is_fixed_size_binary(target) and kind.byte_width != target.byte_width:
        raise pa.ArrowInvalid(f"values of {kind.byte_width} bytes")
    return values.cast(target, safe=True)


def _shown(column: Column) -> str:
    if not column.dtype.is_nested:
        return column.type
    return f"{column.type}<{', '.join(_shown(part) for part in column.fields)}>"


# Values of Python: nested ones are taken apart by the column's type, since a dictionary is a struct or a map.


def _fit_python(values: Sequence[Any], column: Column, target: Any, path: str) -> pa.Array:
    nested: dict[str, Callable[[Sequence[Any], Column, Any, str], pa.Array]] = {
        "struct": _python_struct,
        "list": _python_list,
        "map": _python_map,
    }
    make = nested.get(column.type)
    if make is not None:
        return make(values, column, target, path)
    return _fit(leaf_array(values, column.dtype, path), column, target, path)


def _python_struct(values: Sequence[Any], column: Column, target: Any, path: str) -> pa.Array:
    is_null = pa.array([value is None for value in values], pa.bool_())
    rows = PythonRows.of([{} if value is None else _typed(value, Mapping, column, path) for value in values], path)
    given = rows.columns()
    wanted = {field.name.lower() for field in column.fields}
    _refuse_unknown([spelled for key, spelled in rows.names.items() if key not in wanted], column.fields, path)
    arrays = []
    for part, field in zip(column.fields, target, strict=True):
        found = given.get(part.name.lower())
        items: Sequence[Any] = [None] * len(values) if found is None else found.values
        array = _fit_python(items, part, field.type, f"{path}.{part.name}")
        arrays.append(_fit_part(array, part, field, f"{path}.{part.name}", is_null))
    return pa.StructArray.from_arrays(arrays, fields=list(target), mask=is_null)


def _python_list(values: Sequence[Any], column: Column, target: Any, path: str) -> pa.Array:
    given = [() if value is None else _items(value, column, path) for value in values]
    elements = [element for value in given for element in value]
    array = _fit_python(elements, column.fields[0], target.value_type, f"{path}.element")
    inner = _fit_part(array, column.fields[0], target.value_field, f"{path}.element")
    is_null = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(list_offsets(_lengths(given)), inner, type=target, mask=is_null)


def _python_map(values: Sequence[Any], column: Column, target: Any, path: str) -> pa.Array:
    given = [() if value is None else _pairs(value, column, path) for value in values]
    pairs = [pair for value in given for pair in value]
    key, item = column.fields
    keys = _fit_python([pair[0] for pair in pairs], key, target.key_type, f"{path}.key")
    items = _fit_python([pair[1] for pair in pairs], item, target.item_type, f"{path}.value")
    return _map(
        list_offsets(_lengths(given)),
        _fit_part(keys, key, target.key_field, f"{path}.key"),
        _fit_part(items, item, target.item_field, f"{path}.value"),
        target,
        pa.array([value is None for value in values], pa.bool_()),
    )


def _lengths(given: Sequence[Sequence[Any]]) -> pa.Array:
    return pa.array([len(value) for value in given], pa.int64())


def _items(value: Any, column: Column, path: str) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    listed = getattr(value, "tolist", None)  # NumPy arrays and the like
    found = None if listed is None else listed()
    return found if isinstance(found, list) else _typed(value, list, column, path)


def _pairs(value: Any, column: Column, path: str) -> Sequence[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, Mapping) else _typed(value, list, column, path)
    if any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in pairs):  # key and value
        raise SchemaMismatch(f"column {path!r} is {_shown(column)}; {value!r} is not pairs", column=path)
    return pairs


def _typed(value: Any, kind: Any, column: Column, path: str) -> Any:
    if not isinstance(value, kind):
        raise SchemaMismatch(
            f"column {path!r} is {_shown(column)} in the table, and a row has a {type(value).__name__}", column=path
        )
    return value
