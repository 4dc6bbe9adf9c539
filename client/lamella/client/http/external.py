"""External tables: the calls. Their methods are in :mod:`lamella.client.http.aio.external`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lamella.client.http.call import Call, Columns, TableName, columns_of, make_call, struct_of, text_tuple
from lamella.snapshot.wire import (
    ConversionAnswer,
    ConversionRequest,
    CreateTable,
    ExternalSource,
    HiveTable,
    RefreshProgress,
    RefreshTable,
    RefreshTableAnswer,
    SourceMode,
    TableInfo,
    operations,
)

#: Called periodically with the progress of a refresh.
OnProgress = Callable[[RefreshProgress], None]


def create_external_call(
    name: TableName,
    source: ExternalSource | Mapping[str, str],
    schema: Columns | None,
    schema_from: str | None,
    cluster_key: Sequence[str],
    properties: Mapping[str, str] | None,
) -> Call[TableInfo]:
    """Create a table that follows a source, without rows yet; raises InvalidRequest when the source is not valid."""
    body = CreateTable(
        name=name.table,
        schema=None if schema is None else columns_of(schema),
        schema_from=schema_from,
        cluster_key=text_tuple("cluster_key", cluster_key),
        properties=dict(properties or {}),
        source=struct_of(ExternalSource, source, "source"),
    )
    return make_call(operations.tables.CREATE_TABLE, namespace=name.namespace, body=body)


def refresh_table_call(
    name: TableName,
    mode: SourceMode,
    strict: bool | None,
    verify: bool,
    location: str | None,
    allow_empty: bool,
    hive: HiveTable | None,
) -> Call[RefreshTableAnswer]:
    """Bring a table up to date with its source."""
    body = RefreshTable(mode=mode, strict=strict, verify=verify, location=location, allow_empty=allow_empty, hive=hive)
    return make_call(operations.external.REFRESH_TABLE, name, body=body)


def refresh_progress_call(name: TableName) -> Call[RefreshProgress]:
    """The progress of a refresh."""
    return make_call(operations.external.REFRESH_PROGRESS, name)


def convert_to_iceberg_call(name: TableName, dry_run: bool) -> Call[ConversionAnswer]:
    """Let Iceberg clients commit to a table."""
    return make_call(operations.external.CONVERT_TO_ICEBERG, name, body=ConversionRequest(dry_run=dry_run))
