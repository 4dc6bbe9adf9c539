"""Every statement that the catalog runs, built once so that SQLAlchemy compiles each one once."""

from __future__ import annotations

from sqlalchemy import bindparam, func, insert, select, update

from lamella.service.catalog.tables import idempotency, namespaces, secrets, snapshots, tables

_live_namespace = namespaces.c.dropped_at_ms.is_(None)
_live_table = tables.c.dropped_at_ms.is_(None)

PING = select(1)

SELECT_SECRET = select(secrets.c.value).where(secrets.c.name == bindparam("name"))

INSERT_SECRET = insert(secrets)

INSERT_NAMESPACE = insert(namespaces)

SELECT_NAMESPACES = (
    select(namespaces.c.name, namespaces.c.properties).where(_live_namespace).order_by(namespaces.c.name)
)

SELECT_NAMESPACE = select(namespaces.c.namespace_id, namespaces.c.name, namespaces.c.properties).where(
    _live_namespace, namespaces.c.name == bindparam("namespace")
)

#: Keeps the namespace from being dropped while a table is put into it.
SHARE_NAMESPACE = SELECT_NAMESPACE.with_for_update(read=True)

#: Keeps tables out of the namespace while it is dropped.
LOCK_NAMESPACE = SELECT_NAMESPACE.with_for_update()

COUNT_TABLES = (
    select(func.count()).select_from(tables).where(_live_table, tables.c.namespace_id == bindparam("in_namespace_id"))
)

CHANGE_NAMESPACE = (
    update(namespaces)
    .where(
        _live_namespace,
        namespaces.c.name == bindparam("namespace"),
        namespaces.c.properties == bindparam("old_properties"),
    )
    .values(properties=bindparam("new_properties"))
)

DROP_NAMESPACE = (
    update(namespaces)
    .where(namespaces.c.namespace_id == bindparam("in_namespace_id"))
    .values(dropped_at_ms=bindparam("now_ms"))
)

INSERT_TABLE = insert(tables)

SELECT_TABLE_NAMES = (
    select(tables.c.name)
    .where(_live_table, tables.c.namespace_id == bindparam("in_namespace_id"))
    .order_by(tables.c.name)
)

table_row = select(
    tables.c.table_id,
    namespaces.c.name.label("namespace"),
    tables.c.name,
    tables.c.location,
    tables.c.version,
    tables.c.pointer,
    tables.c.created_at_ms,
).join_from(tables, namespaces)

SELECT_TABLE = table_row.where(
    _live_table,
    _live_namespace,
    namespaces.c.name == bindparam("namespace"),
    tables.c.name == bindparam("table"),
)

SELECT_TABLE_BY_ID = table_row.where(_live_table, tables.c.table_id == bindparam("id"))

#: ``doomed``: None, or the time as well, when nobody is to undrop it.
DROP_TABLE = (
    update(tables)
    .where(_live_table, tables.c.table_id == bindparam("id"))
    .values(dropped_at_ms=bindparam("now_ms"), doomed_at_ms=bindparam("doomed"))
)

#: Only if nothing was committed since.
DROP_TABLE_AT = DROP_TABLE.where(tables.c.version == bindparam("at_version"))

#: The swap that makes a commit visible: no row is changed when another commit came first.
SWAP_POINTER = (
    update(tables)
    .where(_live_table, tables.c.table_id == bindparam("id"), tables.c.version == bindparam("expected_version"))
    .values(version=bindparam("next_version"), pointer=bindparam("next_pointer"))
)

INSERT_SNAPSHOT = insert(snapshots)

history_row = select(
    snapshots.c.seq,
    snapshots.c.prev_snapshot_id,
    snapshots.c.operation,
    snapshots.c.row_count,
    snapshots.c.block_count,
    snapshots.c.segment_count,
    snapshots.c.file_size_bytes,
    snapshots.c.pointer,
    snapshots.c.until_ms,
).where(snapshots.c.table_id == bindparam("id"))

SELECT_HISTORY = (
    history_row.where(snapshots.c.seq < bindparam("before_seq"))
    .order_by(snapshots.c.seq.desc())
    .limit(bindparam("rows"))
)

SELECT_SNAPSHOT = history_row.where(snapshots.c.snapshot_id == bindparam("wanted"))

SELECT_SNAPSHOT_AT = (
    history_row.where(snapshots.c.timestamp_ms <= bindparam("at_ms")).order_by(snapshots.c.seq.desc()).limit(1)
)

#: Whether a snapshot is in the history still, asked by a transaction that holds the table's row.
SELECT_KEPT = select(snapshots.c.seq).where(
    snapshots.c.table_id == bindparam("id"), snapshots.c.seq == bindparam("wanted_seq")
)

#: How long a table's history has been, and how much of it is there.
SELECT_EXTENT = (
    select(
        tables.c.created_at_ms,
        tables.c.version,
        select(func.count())
        .select_from(snapshots)
        .where(snapshots.c.table_id == tables.c.table_id)
        .scalar_subquery()
        .label("kept"),
        select(func.max(snapshots.c.timestamp_ms))
        .where(snapshots.c.table_id == tables.c.table_id)
        .scalar_subquery()
        .label("newest_ms"),
    )
).where(tables.c.table_id == bindparam("id"))

INSERT_ANSWER = insert(idempotency)

SELECT_ANSWER = select(
    idempotency.c.key,
    idempotency.c.scope,
    idempotency.c.request_sha256,
    idempotency.c.status,
    idempotency.c.body,
    idempotency.c.created_at_ms,
).where(idempotency.c.key == bindparam("wanted_key"), idempotency.c.scope == bindparam("wanted_scope"))
