"""Translates ``CREATE TABLE``, ``ALTER TABLE`` and properties of Spark SQL to requests to the service."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from lamella.client.http import Lamella, Table
from lamella.client.spark.catalyst import kind_of
from lamella.client.spark.constraints import check_of
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.lake import CLUSTER_KEY, CLUSTER_KIND, SNAPSHOT_ID, LakeTable
from lamella.client.write.layout import Layout
from lamella.snapshot.cluster.extent import TARGET_BYTES, TARGET_ROWS
from lamella.snapshot.cluster.key import key_terms, key_texts
from lamella.snapshot.commit.constraints import added_check, with_checks
from lamella.snapshot.errors import InvalidRequest, InvalidSchema, LamellaError
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.schema import Check, Column, Schema, quoted, quoted_path
from lamella.snapshot.schema.column import split_key
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropCheck,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ReplaceColumns,
    SchemaChange,
    SetDefault,
    SetDoc,
    SetNullable,
    SetShredding,
    WidenColumn,
)
from lamella.snapshot.schema.shredding import SHREDDING, read_shredding, with_shredding
from lamella.snapshot.schema.spark_types import columns_of, spark_schema
from lamella.snapshot.wire import ClusterUpdate, SchemaUpdate, TableInfo

_KINDS: Final[tuple[ClusterKind, ...]] = ("linear", "zorder", "hilbert")
#: Properties that Spark uses for parts of a table definition, and why they are not supported.
_REFUSED: Final = {
    "location": "the service decides where a table is",
    "external": "the service decides where a table is",
    "collation": "a table has no collation",
    SNAPSHOT_ID: "it is shown and not set",
}
#: Table formats that SQL may name: blocks are Parquet files.
_PROVIDERS: Final = ("lamella", "parquet")
#: USING, STORED AS, STORED AS INPUTFORMAT ... OUTPUTFORMAT, ROW FORMAT SERDE.
_FORMATS: Final = ("provider", "hive.stored-as", "hive.input-format", "hive.output-format", "hive.serde")
_SILENT: Final = (*_FORMATS, "owner", "is_managed_location", "table_type")


class OwnProperties(msgspec.Struct, frozen=True):
    """The table's own properties, and the terms and the kind of its cluster key, if properties name them."""

    own: dict[str, str]
    cluster_key: tuple[str, ...] | None
    cluster_kind: ClusterKind | None


def own_properties(properties: Mapping[str, str]) -> OwnProperties:
    """Return what properties say of a table.

    Raises:
        InvalidRequest: an unsupported property.
    """
    for name, reason in _REFUSED.items():
        if name in properties:
            raise InvalidRequest(f"{name} {properties[name]!r}: {reason}")
    for format_key in _FORMATS:
        given_format = properties.get(format_key, _PROVIDERS[0])
        if given_format.lower() not in _PROVIDERS:
            raise InvalidRequest(f"a Lamella table is made of Parquet files, not of {given_format}")
    options = sorted(name for name in properties if name.startswith("option."))
    if options:
        raise InvalidRequest(f"a table has no options: {options[0].removeprefix('option.')}")
    own = {name: text for name, text in properties.items() if name not in _SILENT}
    given = own.pop(CLUSTER_KIND, None)
    kind = next((known for known in _KINDS if known == (given or "").lower()), None)
    if given is not None and kind is None:
        raise InvalidRequest(f"{CLUSTER_KIND} is one of {', '.join(_KINDS)}, not {given!r}")
    key = own.pop(CLUSTER_KEY, None)
    return OwnProperties(own, None if key is None else tuple(split_key(key)), kind)


def shredding_in(properties: dict[str, str]) -> str | None:
    """Return the property that says how variants are shredded, and take it out: it is a part of the columns."""
    return properties.pop(SHREDDING, None)


def is_layout(name: str) -> bool:
    """Whether a property says how blocks are written, not what a table is or has seen."""
    return name.startswith("write.") or name in (TARGET_ROWS, TARGET_BYTES)


def namespace_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the namespace's own properties; raises InvalidRequest for an unsupported one."""
    if "location" in properties:
        raise InvalidRequest(f"location {properties['location']!r}: {_REFUSED['location']}")
    return {name: text for name, text in properties.items() if name not in _SILENT}


def namespace_changes(changes: Iterable[Any]) -> tuple[dict[str, str], list[str]]:
    """Return the properties that ``NamespaceChange`` objects set, and those they remove; raises InvalidRequest."""
    given: dict[str, str] = {}
    removed = []
    for change in changes:
        if str(change.getClass().getSimpleName()) == "RemoveProperty":
            removed.append(str(change.property()))
        else:
            given[str(change.property())] = str(change.value())
    return namespace_properties(given), removed


# Conversions of a default value to text without loss; other types are cast to text.
_AS_TEXT: Final = {"timestamp": "date_format({}, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")", "binary": "hex({})"}
# Expressions that Spark calls deterministic because they are constant within one query.
_CHANGING: Final = ("Current", "Now", "LocalTimestamp", "UnixTimestamp", "InputFile", "SparkVersion", "CatalogName")


def alter_table(gateway: Gateway, lake: Lamella, name: str, changes: Iterable[Any], writing: Layout) -> None:
    """Apply Spark's ``TableChange`` objects in one new snapshot. ``writing``: how the table's files are accessed.

    Raises:
        InvalidRequest: changes of several kinds at once, a property that cannot be set or removed, a constraint of
            another kind than ``CHECK``, or one that is not enforced.
        CheckViolation: a row violates a new constraint.
        InvalidFilter, FilterNotEvaluable: its condition cannot be checked.
        InvalidSchema: a type that a table cannot have.
        TableNotFound, NamespaceNotFound, UnknownColumn, SchemaConflict.
    """
    given = [(str(change.getClass().getSimpleName()), change) for change in changes]
    if not given:  # DROP COLUMN IF EXISTS
        return
    handle = lake.table(name)
    kinds = {kind for kind, _ in given}
    if kinds <= {"SetProperty", "RemoveProperty"}:
        _alter_properties(handle, given)
    elif kinds == {"ClusterBy"}:
        columns = [quoted_path(map(str, reference.fieldNames())) for reference in given[-1][1].clusteringColumns()]
        handle.cluster_by(columns, handle.cluster_key().kind if columns else "linear")
    elif kinds == {"AddConstraint"}:
        for _, change in given:
            check = check_of(gateway, change.constraint())
            handle.add_check(
                check.name,
                check.condition,
                time_zone=check.time_zone,
                storage_options=writing.storage_options,
            )
    elif kinds == {"DropConstraint"}:
        _drop_constraints(handle, [(str(change.name()), bool(change.ifExists())) for _, change in given])
    else:
        wanted = [
            _default_change(gateway, handle, change)
            if kind == "UpdateColumnDefaultValue"
            else schema_change(gateway, kind, change)
            for kind, change in given
        ]
        handle.evolve(wanted)


def _drop_constraints(handle: Table, wanted: Sequence[tuple[str, bool]]) -> None:
    known = {check.name.lower() for check in handle.info().schema.checks}
    changes = [DropCheck(name=name) for name, if_exists in wanted if name.lower() in known or not if_exists]
    if changes:
        handle.evolve(changes)


def _alter_properties(handle: Table, given: Sequence[tuple[str, Any]]) -> None:
    wanted = own_properties({str(c.property()): str(c.value()) for name, c in given if name == "SetProperty"})
    own, kind, columns = wanted.own, wanted.cluster_kind, wanted.cluster_key
    unset = [str(c.property()) for name, c in given if name == "RemoveProperty"]
    shredding = "" if SHREDDING in unset else shredding_in(own)
    if shredding is not None:
        if own or kind is not None or len(unset) > (SHREDDING in unset):
            raise InvalidRequest(f"set {SHREDDING} in a separate statement")
        _set_shredding(handle, shredding)
        return
    of_key = {CLUSTER_KEY, CLUSTER_KIND}.intersection(unset)
    if kind is not None or columns is not None or of_key:
        if own or len(unset) > len(of_key):
            raise InvalidRequest(f"set {CLUSTER_KEY} and {CLUSTER_KIND} in a separate statement")
        key = handle.cluster_key()
        if columns is None:
            columns = () if CLUSTER_KEY in of_key else key.columns
        kind = kind or ("linear" if of_key or not columns else key.kind)
        handle.cluster_by(columns, kind, base_snapshot_id=key.snapshot_id)
        return
    for name in unset:
        if name in _REFUSED:
            raise InvalidRequest(f"{name}: {_REFUSED[name]}")
    if own or not handle.info().properties.keys().isdisjoint(unset):
        handle.commit(operation="alter", properties=own, remove_properties=unset)


def _set_shredding(handle: Table, shredding: str) -> None:
    columns = handle.info().schema.columns
    if with_shredding(columns, read_shredding(shredding)) != columns:
        handle.evolve([SetShredding(shredding=shredding)])


def _default_change(gateway: Gateway, handle: Table, change: Any) -> SchemaChange:
    path = tuple(str(part) for part in change.fieldNames())
    given = change.newCurrentDefault()
    if given is None or not str(given.getSql()):
        return SetDefault(column=path, default=None)
    schema = handle.info().schema
    struct = gateway.struct_type(spark_schema(schema, time_type=True).shown)
    for at, column in enumerate(schema.columns):
        if len(path) == 1 and column.name.lower() == path[0].lower():
            return SetDefault(
                column=path, default=default_text(gateway, str(given.getSql()), struct.apply(at).dataType())
            )
    raise InvalidRequest(f"only columns of the top level can have a default, not {'.'.join(path)!r}")


def schema_change(gateway: Gateway, kind: str, change: Any) -> SchemaChange:
    """Return a ``TableChange`` of a column as a schema change; ``kind``: the name of its class. Raises InvalidRequest,
    InvalidSchema."""
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
        first, after = _column_position(change.position())
        return MoveColumn(column=path, first=first, after=after)
    raise InvalidRequest(f"Lamella's Spark catalog cannot alter a table by {kind}")


def _added(gateway: Gateway, change: Any, path: tuple[str, ...]) -> AddColumn:
    column = column_of(path[-1], change.dataType(), bool(change.isNullable()))
    given = change.defaultValue()
    first, after = _column_position(change.position())
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
    """Return a column of a Spark type; raises InvalidSchema for a type that a table cannot have."""
    field = {"name": name, "type": json.loads(dtype.json()), "nullable": nullable, "metadata": {}}
    (column,) = columns_of(json.dumps({"type": "struct", "fields": [field]}))
    return msgspec.structs.replace(column, name=name)


def default_text(gateway: Gateway, sql: str, dtype: Any) -> str | None:
    """Return the value of a default's SQL as text; raises InvalidRequest when it is not constant."""
    typed = f"CAST(({sql}) AS {dtype.sql()})"
    text = _AS_TEXT.get(str(dtype.typeName()), "CAST({} AS STRING)").format(typed)
    frame = gateway.spark.sql(f"SELECT {text}")
    if not _is_constant(frame._jdf.queryExecution().analyzed()):
        raise InvalidRequest(f"the default {sql} is not a constant")
    value = frame.head()
    return None if value is None or value[0] is None else str(value[0])


def _is_constant(plan: Any) -> bool:
    """Whether the expressions of a plan without a table have the same value wherever they are evaluated."""
    expressions = plan.expressions()
    pending = [expressions.apply(at) for at in range(expressions.size())]
    while pending:
        e = pending.pop()
        if not e.deterministic() or kind_of(e).startswith(_CHANGING):
            return False
        children = e.children()
        pending += [children.apply(at) for at in range(children.size())]
    return True


def _column_position(position: Any) -> tuple[bool, str | None]:
    """Return ``(first, after)``; ``(False, None)`` for the last position."""
    if position is None:
        return False, None
    if str(position.getClass().getSimpleName()) == "First":
        return True, None
    return False, str(position.column())


class TableSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a new table."""

    columns: tuple[Column, ...]
    cluster_key: tuple[str, ...] = ()
    cluster_kind: ClusterKind = "linear"
    properties: dict[str, str] = {}
    checks: tuple[Check, ...] = ()

    @classmethod
    def of(
        cls,
        gateway: Gateway,
        columns: Any,
        partitions: Any,
        properties: Mapping[str, str],
        constraints: Iterable[Any] = (),
    ) -> TableSpec:
        """Return the spec from Spark's ``Column[]``, ``Transform[]``, properties and ``Constraint[]``.

        Raises:
            InvalidRequest: partitions, a location, a default that is not constant, and the like.
            InvalidSchema, UnknownColumn: a type that a table cannot have, or an unknown cluster key column.
            InvalidFilter, FilterNotEvaluable: the condition of a constraint cannot be checked.
        """
        made = tuple(_column(gateway, column) for column in columns)
        key = _cluster_key(partitions)
        wanted = own_properties(properties)
        own, kind = wanted.own, wanted.cluster_kind
        if wanted.cluster_key is not None:
            if key:
                raise InvalidRequest(f"give the cluster key by CLUSTER BY or by {CLUSTER_KEY}, not by both")
            key = wanted.cluster_key
        made = with_shredding(made, read_shredding(shredding_in(own) or ""))
        if kind is not None and not key:
            raise InvalidRequest(f"{CLUSTER_KIND} sets the order of a cluster key: add CLUSTER BY (...)")
        schema = Schema.assign(made)
        key_terms(schema, key)
        checks = tuple(check_of(gateway, constraint) for constraint in constraints)
        with_checks(schema, checks)
        return cls(columns=made, cluster_key=key, cluster_kind=kind or "linear", properties=own, checks=checks)

    def create(self, lake: Lamella, name: str) -> TableInfo:
        """Create the table; raises AlreadyExists, NamespaceNotFound."""
        return lake.create_table(
            name,
            schema=self.columns,
            cluster_key=self.cluster_key,
            cluster_kind=self.cluster_kind,
            properties=self.properties,
            checks=self.checks,
        )

    def like(self, source: LakeTable) -> TableSpec:
        """Return the spec of a table with the columns, the constraints, the cluster key and the layout of another
        table, and the properties of this one."""
        key, kind = source.cluster_key
        layout = {name: text for name, text in source.properties.items() if is_layout(name)}
        return TableSpec(
            columns=tuple(map(_new_column, source.schema.columns)),
            cluster_key=tuple(key),
            cluster_kind=cast(ClusterKind, kind),
            properties={**layout, **self.properties},
            checks=source.schema.checks,
        )

    def update_of(self, info: TableInfo) -> SchemaUpdate | None:
        """Return the changes by which an existing table gets this definition; None: it has it.

        Without a cluster key of its own, the table keeps the one that it has, if it still has the columns.
        """
        is_same = self.checks == info.schema.checks and [_shape(column) for column in self.columns] == [
            _shape(column) for column in info.schema.columns
        ]
        key = ClusterUpdate(columns=self.cluster_key, kind=self.cluster_kind)
        if not self.cluster_key:
            key = ClusterUpdate(columns=info.cluster_key, kind=info.cluster_kind)
            if not is_same and not _can_cluster(self.columns, info.cluster_key):
                key = ClusterUpdate()
        if is_same and (key.columns, key.kind) == (info.cluster_key, info.cluster_kind):
            return None
        return SchemaUpdate(
            changes=() if is_same else (ReplaceColumns(columns=self.columns), *map(added_check, self.checks)),
            base_schema_id=info.schema.schema_id,
            cluster_key=key,
        )


def _can_cluster(columns: Sequence[Column], key: Sequence[str]) -> bool:
    try:
        return key_texts(Schema.assign(columns), key) == tuple(key)
    except LamellaError:
        return False


def _new_column(column: Column) -> Column:
    """Return the definition of a column for another table, which assigns the ids."""
    return msgspec.structs.replace(
        column,
        id=0,
        fields=tuple(map(_new_column, column.fields)),
        default=column.default_of_new_rows,
        write_default=msgspec.UNSET,
    )


def _column(gateway: Gateway, column: Any) -> Column:
    name, dtype = str(column.name()), column.dataType()
    generated = column.generationExpression()
    if generated is not None:
        raise InvalidSchema(
            f"column {name!r} is generated, and tables have no such columns: write its values, and let every writer"
            f" check them, by CONSTRAINT {quoted(name)} CHECK ({quoted(name)} <=> ({generated}))",
            column=name,
        )
    if column.identityColumnSpec() is not None:
        raise InvalidSchema(f"column {name!r} is an identity column, which a table cannot have", column=name)
    made = column_of(name, dtype, bool(column.nullable()))
    given = column.defaultValue()
    default = None if given is None else default_text(gateway, str(given.getSql()), dtype)
    return msgspec.structs.replace(made, default=default, doc=column.comment())


def _cluster_key(partitions: Any) -> tuple[str, ...]:
    key: tuple[str, ...] = ()
    for transform in partitions:
        name = str(transform.name())
        if name != "cluster_by":
            # describe() is not called for all transforms: py4j cannot find it on the private classes of days() and
            # others.
            text = transform.describe() if name == "identity" else transform.toString()
            raise InvalidRequest(f"a Lamella table has no partitions: use CLUSTER BY (...) instead of {text}")
        key = tuple(quoted_path(map(str, reference.fieldNames())) for reference in transform.arguments())
    return key


def _shape(column: Column) -> tuple[Any, ...]:
    """Return what defines a column, without its id and comment."""
    return (column.name, column.type, column.nullable, column.default_of_new_rows, tuple(map(_shape, column.fields)))
