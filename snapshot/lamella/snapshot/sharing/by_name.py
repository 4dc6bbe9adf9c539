"""Whether recipients, who read a table's files by the names of its columns, find its rows in them.

They read each file as it is: a column that it lacks is null, one that the table does not have is left away, and no id
says that a name stood for another column once. So a table can be shared while each name has one meaning in all of its
files, and refused else: renames and names that were used again need the files to be rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.spark_types import spark_schema

_REMEDY: Final = "; rewrite these files (compact)"


def shared_schema(schema: Schema, earlier: Iterable[Schema]) -> str:
    """The columns as Spark's JSON; ``earlier``: the other schemas that files of the snapshot were written with.

    Raises:
        NotExpressible: a column of a type that recipients cannot read, or that they would not find in every file.
    """
    mapped = spark_schema(schema)
    for name, kind in mapped.unreadable.items():
        raise _refused(name, f"has the type {kind}, which the protocol has none for")
    for column in schema.columns:
        if column.default is not None:
            raise _refused(column.name, "has a default, and recipients read a file that lacks it as nulls")
    for written in earlier:
        for column in schema.columns:
            _check(column, written)
    return mapped.readable


def _check(column: Column, written: Schema) -> None:
    own = next((each for each in written.columns if each.id == column.id), None)
    if own is None:
        other = next((each for each in written.columns if each.name.lower() == column.name.lower()), None)
        if other is not None:
            raise _refused(column.name, f"has a name that stands for another column in older files{_REMEDY}")
    elif own.name != column.name:
        raise _refused(column.name, f"is called {own.name!r} in older files{_REMEDY}")
    elif not _reads_as(own, column):
        raise _refused(column.name, f"has another type in older files, which recipients read as it is{_REMEDY}")


def _reads_as(own: Column, column: Column) -> bool:
    """Whether values of the older column are those of the newer one to whoever reads both without being told."""
    if own.dtype.is_nested or column.dtype.is_nested:
        return bool(_shape(own) == _shape(column))
    before, now = own.dtype, column.dtype
    same_kind = (before.is_integer and now.is_integer) or (before.is_float and now.is_float)
    return before == now or same_kind or before.name == now.name == "decimal"


def _shape(column: Column) -> Any:
    return column.id, column.name, column.type, tuple(_shape(each) for each in column.fields)


def _refused(name: str, why: str) -> NotExpressible:
    return NotExpressible(
        f"the table cannot be shared: column {name!r} {why}; rewrite the table (compact)", column=name
    )
