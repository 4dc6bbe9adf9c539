"""``ALTER TABLE`` of Spark SQL as schema changes of the service."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from lamella.client.spark.gateway import Gateway
from lamella.client.spark.types import columns_of
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetDoc,
    SetNullable,
    WidenColumn,
)

# How a default of a type becomes text that says everything; other types cast to text as they are.
_AS_TEXT: Final = {"timestamp": "date_format({}, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")", "binary": "hex({})"}


def schema_changes(gateway: Gateway, changes: Iterable[Any]) -> list[SchemaChange]:
    """What Spark's ``TableChange`` objects mean.

    Raises:
        InvalidRequest: a change that is none of a column (properties, constraints), or another default for one.
        InvalidSchema: a type that a table cannot hold.
    """
    return [_change(gateway, change) for change in changes]


def _change(gateway: Gateway, change: Any) -> SchemaChange:
    kind = str(change.getClass().getSimpleName())
    if not kind.endswith(("Column", "ColumnType", "ColumnNullability", "ColumnComment", "ColumnPosition")):
        raise InvalidRequest(f"Lamella's Spark catalog cannot alter a table by {kind}")
    path = tuple(str(part) for part in change.fieldNames())
    if kind == "AddColumn":
        return _added(gateway, change, path)
    if kind == "DeleteColumn":
        return DropColumn(column=path)
    if kind == "RenameColumn":
        return RenameColumn(column=path, name=str(change.newName()))
    if kind == "UpdateColumnType":
        column = _column(path[-1], change.newDataType(), True)
        if column.fields:
            raise InvalidRequest(f"column {'.'.join(path)!r}: change the type of one of its fields instead")
        return WidenColumn(column=path, type=column.type)
    if kind == "UpdateColumnNullability":
        return SetNullable(column=path, nullable=bool(change.nullable()))
    if kind == "UpdateColumnComment":
        return SetDoc(column=path, doc=change.newComment())
    if kind == "UpdateColumnPosition":
        first, after = _place(change.position())
        return MoveColumn(column=path, first=first, after=after)
    raise InvalidRequest(f"Lamella's Spark catalog cannot alter a table by {kind}")


def _added(gateway: Gateway, change: Any, path: tuple[str, ...]) -> AddColumn:
    column = _column(path[-1], change.dataType(), bool(change.isNullable()))
    given = change.defaultValue()
    first, after = _place(change.position())
    return AddColumn(
        name=column.name,
        type=column.type,
        nullable=column.nullable,
        default=None if given is None else _default(gateway, str(given.getSql()), change.dataType()),
        fields=column.fields,
        doc=change.comment(),
        parent=path[:-1] or None,
        first=first,
        after=after,
    )


def _column(name: str, dtype: Any, nullable: bool) -> Column:
    field = {"name": name, "type": json.loads(dtype.json()), "nullable": nullable, "metadata": {}}
    (column,) = columns_of(json.dumps({"type": "struct", "fields": [field]}))
    return msgspec.structs.replace(column, name=name)


def _default(gateway: Gateway, sql: str, dtype: Any) -> str | None:
    """The value of a default's SQL, as text."""
    typed = f"CAST(({sql}) AS {dtype.sql()})"
    text = _AS_TEXT.get(str(dtype.typeName()), "CAST({} AS STRING)").format(typed)
    value = gateway.spark.sql(f"SELECT {text}").head()
    return None if value is None or value[0] is None else str(value[0])


def _place(position: Any) -> tuple[bool, str | None]:
    """``(first, after)``; neither for a column that stands last."""
    if position is None:
        return False, None
    if str(position.getClass().getSimpleName()) == "First":
        return True, None
    return False, str(position.column())
