"""``ALTER TABLE`` of Spark SQL as changes that the service makes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from lamella.client.http import Lamella
from lamella.client.spark.catalyst_terms import kind_of
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.lake import CLUSTER_KIND
from lamella.client.spark.table_properties import own_properties
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import Column, quoted_path
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
from lamella.snapshot.schema.spark_types import columns_of

# How a default of a type becomes text that says everything; other types cast to text as they are.
_AS_TEXT: Final = {"timestamp": "date_format({}, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")", "binary": "hex({})"}
# Expressions that Spark calls deterministic since they are the same all through one query.
_CHANGING: Final = ("Current", "Now", "LocalTimestamp", "UnixTimestamp", "InputFile", "SparkVersion", "CatalogName")


def alter_table(gateway: Gateway, lake: Lamella, name: str, changes: Iterable[Any]) -> None:
    """Do what Spark's ``TableChange`` objects mean, in one new snapshot.

    Raises:
        InvalidRequest: changes of several sorts at once, a property that cannot be set or taken away, a constraint,
            another default for a column that is there.
        InvalidSchema: a type that a table cannot hold.
        TableNotFound, NamespaceNotFound, UnknownColumn, SchemaConflict.
    """
    given = [(str(change.getClass().getSimpleName()), change) for change in changes]
    if not given:  # DROP COLUMN IF EXISTS
        return
    handle = lake.table(name)
    kinds = {kind for kind, _ in given}
    if kinds == {"SetProperty"}:
        own, cluster_kind = own_properties({str(c.property()): str(c.value()) for _, c in given})
        if cluster_kind is not None:
            if own:
                raise InvalidRequest(f"set {CLUSTER_KIND} by a statement of its own")
            key = handle.cluster_key()
            handle.cluster_by(key.columns, cluster_kind, base_snapshot_id=key.snapshot_id)
        else:
            handle.commit(operation="alter", properties=own)
    elif kinds == {"ClusterBy"}:
        columns = [quoted_path(map(str, reference.fieldNames())) for reference in given[-1][1].clusteringColumns()]
        handle.cluster_by(columns, handle.cluster_key().kind if columns else "linear")
    else:
        handle.evolve([_change(gateway, kind, change) for kind, change in given])


def _change(gateway: Gateway, kind: str, change: Any) -> SchemaChange:
    if kind == "RemoveProperty":
        raise InvalidRequest(f"a property stays once it is set; set {change.property()!r} to an empty value instead")
    if kind == "UpdateColumnDefaultValue":
        raise InvalidRequest(
            f"column {'.'.join(map(str, change.fieldNames()))!r}: a default is given when the column is added"
            " (ADD COLUMN ... DEFAULT) and stays"
        )
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
        column = column_of(path[-1], change.newDataType(), True)
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
    column = column_of(path[-1], change.dataType(), bool(change.isNullable()))
    given = change.defaultValue()
    first, after = _place(change.position())
    return AddColumn(
        name=column.name,
        type=column.type,
        nullable=column.nullable,
        default=None if given is None else default_text(gateway, str(given.getSql()), change.dataType()),
        fields=column.fields,
        doc=change.comment(),
        parent=path[:-1] or None,
        first=first,
        after=after,
    )


def column_of(name: str, dtype: Any, nullable: bool) -> Column:
    """A column of a Spark type; raises InvalidSchema for one that a table cannot hold."""
    field = {"name": name, "type": json.loads(dtype.json()), "nullable": nullable, "metadata": {}}
    (column,) = columns_of(json.dumps({"type": "struct", "fields": [field]}))
    return msgspec.structs.replace(column, name=name)


def default_text(gateway: Gateway, sql: str, dtype: Any) -> str | None:
    """The value of a default's SQL, as text; raises InvalidRequest for one that is not always the same."""
    typed = f"CAST(({sql}) AS {dtype.sql()})"
    text = _AS_TEXT.get(str(dtype.typeName()), "CAST({} AS STRING)").format(typed)
    frame = gateway.spark.sql(f"SELECT {text}")
    if not _is_constant(frame._jdf.queryExecution().analyzed()):
        raise InvalidRequest(f"the default {sql} is not a constant")
    value = frame.head()
    return None if value is None or value[0] is None else str(value[0])


def _is_constant(plan: Any) -> bool:
    """Whether the expressions of a plan without a table give the same whenever and wherever they are computed."""
    expressions = plan.expressions()
    pending = [expressions.apply(at) for at in range(expressions.size())]
    while pending:
        e = pending.pop()
        if not e.deterministic() or kind_of(e).startswith(_CHANGING):
            return False
        children = e.children()
        pending += [children.apply(at) for at in range(children.size())]
    return True


def _place(position: Any) -> tuple[bool, str | None]:
    """``(first, after)``; neither for a column that stands last."""
    if position is None:
        return False, None
    if str(position.getClass().getSimpleName()) == "First":
        return True, None
    return False, str(position.column())
