"""Text of Arrow columns of types ``varchar(n)`` and ``char(n)``: cut and padded as it is stored, and checked.

The rules are Spark's. Text that is too long is refused, but for blanks at its end that are too many, which are cut off.
Shorter text of ``char(n)`` is padded with blanks, so all readers see text of one length there.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.schema.arrow import list_offsets
from lamella.snapshot.schema.column import Column
from lamella.snapshot.schema.types import TextLength


def has_text_length(column: Column) -> bool:
    """Returns whether the length of text in a column, or of a part of it, is given."""
    return column.text_length is not None or any(map(has_text_length, column.fields))


def fitted_text(values: pa.Array, column: Column, path: str) -> pa.Array:
    """Returns the values of a column, which have its Arrow type, as they are stored; ``path``: its name in messages.

    Raises:
        SchemaMismatch: a text is too long.
    """
    if not has_text_length(column):
        return values
    length, kind = column.text_length, values.type
    if length is not None:
        return _fitted(values, length, column, path)
    if pa.types.is_struct(kind):
        parts = [
            fitted_text(part, field, f"{path}.{field.name}")
            for part, field in zip(values.flatten(), column.fields, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind):
        entries = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        offsets = list_offsets(pc.fill_null(entries.value_lengths(), 0))
        keys, items = (
            fitted_text(part, field, f"{path}.{field.name}")
            for part, field in zip(entries.flatten().flatten(), column.fields, strict=True)
        )
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=values.is_null())
    offsets = list_offsets(pc.fill_null(values.value_lengths(), 0))
    elements = fitted_text(values.flatten(), column.fields[0], f"{path}.element")
    return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=values.is_null())


def check_text(values: pa.Array, column: Column, path: str) -> None:
    """Raise SchemaMismatch if a text of a column is not as it is stored; ``path``: its name in messages."""
    length = column.text_length
    shortest, longest = _lengths(values)
    if length is None or longest is None:
        return
    if longest > length.max_chars or (length.is_padded and shortest < length.max_chars):
        found = longest if longest > length.max_chars else shortest
        raise SchemaMismatch(f"column {path!r} is {column.type} and has text of {found} characters", column=path)


def _fitted(values: pa.Array, length: TextLength, column: Column, path: str) -> pa.Array:
    count = length.max_chars
    shortest, longest = _lengths(values)
    if longest is None:
        return values
    if longest > count:
        rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(values, count), " ")
        is_too_long = pc.not_equal(rest, "")
        if pc.any(is_too_long).as_py():
            text = values.filter(is_too_long)[0].as_py()
            shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
            raise SchemaMismatch(
                f"column {path!r} is {column.type}, and {shown!r} has {len(text)} characters", column=path
            )
        values = pc.utf8_slice_codeunits(values, 0, count)
    if length.is_padded and shortest < count:
        values = pc.utf8_rpad(values, count, " ")
    return values


#: Characters of a text in a message.
_MAX_SHOWN: Final = 60


def _lengths(values: pa.Array) -> tuple[int, int | None]:
    """Returns the number of characters of the shortest and of the longest text; 0 and None: there is none."""
    found = pc.min_max(pc.utf8_length(values)).as_py()
    return found["min"] or 0, found["max"]
