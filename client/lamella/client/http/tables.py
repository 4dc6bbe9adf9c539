"""Namespaces and tables: the calls. Their methods are in :mod:`lamella.client.http.aio.tables`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from lamella.client.http.call import Call, Columns, TableName, columns_of, make_call, text_tuple
from lamella.snapshot import wire
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.manifest import Block, ClusterKind, RowChange, Segment, Snapshot
from lamella.snapshot.schema import Check
from lamella.snapshot.schema.evolution import SchemaChange
from lamella.snapshot.wire import operations
from lamella.snapshot.wire.commit import BlockDeletesSent
from lamella.snapshot.wire.operation import Nothing

#: Seconds to wait for a commit with block lists, and the additional time for each block.
_LISTED_S: Final = 60.0


_LISTED_BLOCK_S: Final = 0.02


def config_call() -> Call[wire.ServiceConfig]:
    """The service's version and limits."""
    return make_call(operations.health.CONFIG)


def namespaces_call() -> Call[wire.NamespaceList]:
    """List the namespaces."""
    return make_call(operations.tables.LIST_NAMESPACES)


def create_namespace_call(name: str, properties: Mapping[str, str]) -> Call[wire.NamespaceInfo]:
    """Create a namespace."""
    body = wire.CreateNamespace(name=name, properties=dict(properties))
    return make_call(operations.tables.CREATE_NAMESPACE, body=body)


def change_namespace_call(name: str, set: Mapping[str, str], remove: Sequence[str]) -> Call[wire.NamespaceInfo]:
    """Set and remove properties of a namespace."""
    body = wire.NamespaceChange(set=dict(set), remove=text_tuple("remove", remove))
    return make_call(operations.tables.CHANGE_NAMESPACE, namespace=name, body=body)


def namespace_quota_call(name: str) -> Call[wire.NamespaceQuota]:
    """The usage and quotas of a namespace."""
    return make_call(operations.tables.NAMESPACE_QUOTA, namespace=name)


def drop_namespace_call(name: str) -> Call[Nothing]:
    """Drop an empty namespace."""
    return make_call(operations.tables.DROP_NAMESPACE, namespace=name)


def tables_call(namespace: str) -> Call[wire.TableList]:
    """List the tables of a namespace."""
    return make_call(operations.tables.LIST_TABLES, namespace=namespace)


def create_table_call(
    name: TableName,
    schema: Columns | None,
    schema_from: str | None,
    cluster_key: Sequence[str],
    properties: Mapping[str, str],
    cluster_kind: ClusterKind = "linear",
    checks: Sequence[Check] = (),
) -> Call[wire.TableInfo]:
    """Create a table with a first, empty snapshot."""
    if (schema is None) == (schema_from is None):
        raise InvalidRequest("give exactly one of schema and schema_from")
    body = wire.CreateTable(
        name=name.table,
        schema=None if schema is None else columns_of(schema),
        schema_from=schema_from,
        cluster_key=text_tuple("cluster_key", cluster_key),
        properties=dict(properties),
        cluster_kind=msgspec.UNSET if cluster_kind == "linear" else cluster_kind,
        checks=tuple(checks) or msgspec.UNSET,
    )
    return make_call(operations.tables.CREATE_TABLE, namespace=name.namespace, body=body)


def table_call(name: TableName, role: wire.Role | None = None) -> Call[wire.TableInfo]:
    """The current state of a table, for a caller with this role."""
    return make_call(operations.tables.GET_TABLE, name, query={"role": role})


def register_call(
    name: TableName,
    paths: Sequence[str],
    *,
    strict: bool,
    verify: bool,
    path_columns: wire.PathColumns,
    time_zone: str,
    other_formats: wire.OtherFormats,
    take_replaced: bool,
) -> Call[wire.RegisterAnswer]:
    """Append existing Parquet files."""
    # Members with default values are not sent: services of earlier releases do not know them.
    body = wire.Register(
        paths=text_tuple("paths", paths),
        strict=strict,
        verify=verify,
        path_columns=msgspec.UNSET if path_columns == "read" else path_columns,
        time_zone=msgspec.UNSET if time_zone == "UTC" else time_zone,
        other_formats=msgspec.UNSET if other_formats == "refuse" else other_formats,
        take_replaced=take_replaced or msgspec.UNSET,
    )
    return make_call(operations.commits.REGISTER, name, body=body)


def register_arrivals_call(
    name: TableName, files: Sequence[str], removed: Sequence[str], prefix: str | None, suffix: str | None
) -> Call[wire.ArrivalsAnswer]:
    """Register the files that a table does not have yet."""
    body = wire.ArrivalsRequest(files=text_tuple("files", files), removed=text_tuple("removed", removed))
    query = {"prefix": prefix, "suffix": suffix}
    return make_call(operations.commits.REGISTER_ARRIVALS, name, body=body, query=query)


def commit_call(
    name: TableName,
    added: Iterable[Block | Mapping[str, Any] | msgspec.Raw],
    removed: Sequence[str],
    base_snapshot_id: str | None,
    operation: str,
    properties: Mapping[str, str],
    index_parts: Sequence[wire.IndexPartsSent] = (),
    no_new_matches: wire.NoNewMatches | None = None,
    added_from: Sequence[wire.BlockListSent] = (),
    take_replaced: bool = False,
    deletes: Sequence[wire.BlockDeletes] = (),
    row_change: RowChange | None = None,
    reads: Sequence[wire.TableRead] = (),
    schema_update: wire.SchemaUpdate | None = None,
    remove_properties: Sequence[str] = (),
    writer_features: Sequence[str] = (),
) -> Call[wire.CommitAnswer]:
    """Add, remove and change blocks in one new snapshot."""
    body = wire.CommitRequest(
        added=tuple(msgspec.Raw(msgspec.json.encode(block)) for block in added),
        removed=text_tuple("removed", removed),
        base_snapshot_id=base_snapshot_id,
        operation=operation,
        properties=dict(properties),
        added_from=tuple(added_from) or msgspec.UNSET,
        index_parts=tuple(index_parts) or msgspec.UNSET,
        no_new_matches=msgspec.UNSET if no_new_matches is None else no_new_matches,
        take_replaced=take_replaced or msgspec.UNSET,
        deletes=cast(tuple[BlockDeletesSent, ...], tuple(deletes)) or msgspec.UNSET,
        row_change=row_change or msgspec.UNSET,
        reads=tuple(reads) or msgspec.UNSET,
        schema_update=msgspec.UNSET if schema_update is None else schema_update,
        remove_properties=text_tuple("remove_properties", remove_properties) or msgspec.UNSET,
        writer_features=text_tuple("writer_features", writer_features) or msgspec.UNSET,
    )
    call = make_call(operations.commits.COMMIT, name, body=body)
    if not added_from:
        return call
    min_timeout_s = _LISTED_S + _LISTED_BLOCK_S * sum(each.block_count for each in added_from)
    return msgspec.structs.replace(call, min_timeout_s=min_timeout_s)


def schema_call(name: TableName) -> Call[wire.SchemaInfo]:
    """A table's current and earlier columns."""
    return make_call(operations.tables.SHOW_SCHEMA, name)


def evolve_call(name: TableName, changes: Sequence[SchemaChange], base_schema_id: int | None) -> Call[wire.SchemaInfo]:
    """Change a table's columns."""
    body = wire.EvolveRequest(changes=tuple(changes), base_schema_id=base_schema_id)
    return make_call(operations.tables.EVOLVE_SCHEMA, name, body=body)


def snapshot_call(name: TableName, snapshot_id: str) -> Call[Snapshot]:
    """A snapshot's manifest."""
    return make_call(operations.history.GET_SNAPSHOT, name, snapshot_id=snapshot_id)


def segment_call(
    name: TableName, segment_id: str, snapshot_id: str | None, reader_features: Sequence[str]
) -> Call[Segment]:
    """A segment's manifest; ``snapshot_id`` None: a segment of the current snapshot."""
    query = {"snapshot_id": snapshot_id, "reader_features": ",".join(reader_features) or None}
    return make_call(operations.history.GET_SEGMENT, name, segment_id=segment_id, query=query)


def dropped_tables_call(namespace: str) -> Call[wire.DroppedList]:
    """The dropped tables of a namespace."""
    return make_call(operations.tables.LIST_DROPPED, namespace=namespace)


def undrop_table_call(name: TableName, table_id: str | None, as_name: str | None) -> Call[wire.TableInfo]:
    """Restore a dropped table."""
    if table_id is None:
        body = wire.UndropRequest(name=name.table, as_name=as_name)
    elif as_name is None:
        body = wire.UndropRequest(table_id=table_id, as_name=name.table)
    else:
        raise InvalidRequest("with table_id the table is restored under the given name; do not pass as_name as well")
    return make_call(operations.tables.UNDROP_TABLE, namespace=name.namespace, body=body)


def rename_table_call(name: TableName, new_name: TableName) -> Call[wire.TableInfo]:
    """Rename a table."""
    namespace = None if new_name.namespace == name.namespace else new_name.namespace
    body = wire.RenameRequest(name=new_name.table, namespace=namespace)
    return make_call(operations.tables.RENAME_TABLE, name, body=body)


def drop_table_call(name: TableName, purge: bool, base_snapshot_id: str | None) -> Call[Nothing]:
    """Drop a table."""
    query = {"purge": purge, "base_snapshot_id": base_snapshot_id}
    return make_call(operations.tables.DROP_TABLE, name, query=query)
