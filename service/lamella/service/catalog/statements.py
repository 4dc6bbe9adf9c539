"""Every statement that the catalog runs, built once so that SQLAlchemy compiles each one once."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, func, insert, select, update

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

_table_row = select(
    tables.c.table_id,
    namespaces.c.name.label("namespace"),
    tables.c.name,
    tables.c.location,
    tables.c.version,
    tables.c.pointer,
    tables.c.created_at_ms,
).join_from(tables, namespaces)

SELECT_TABLE = _table_row.where(
    _live_table,
    _live_namespace,
    namespaces.c.name == bindparam("namespace"),
    tables.c.name == bindparam("table"),
)

SELECT_TABLE_BY_ID = _table_row.where(_live_table, tables.c.table_id == bindparam("id"))

DROP_TABLE = (
    update(tables).where(_live_table, tables.c.table_id == bindparam("id")).values(dropped_at_ms=bindparam("now_ms"))
)

#: The swap that makes a commit visible: no row is changed when another commit came first.
SWAP_POINTER = (
    update(tables)
    .where(_live_table, tables.c.table_id == bindparam("id"), tables.c.version == bindparam("expected_version"))
    .values(version=bindparam("next_version"), pointer=bindparam("next_pointer"))
)

INSERT_SNAPSHOT = insert(snapshots)

_history_row = select(
    snapshots.c.seq,
    snapshots.c.prev_snapshot_id,
    snapshots.c.operation,
    snapshots.c.row_count,
    snapshots.c.block_count,
    snapshots.c.segment_count,
    snapshots.c.file_size_bytes,
    snapshots.c.pointer,
).where(snapshots.c.table_id == bindparam("id"))

SELECT_HISTORY = (
    _history_row.where(snapshots.c.seq < bindparam("before_seq"))
    .order_by(snapshots.c.seq.desc())
    .limit(bindparam("rows"))
)

SELECT_SNAPSHOT = _history_row.where(snapshots.c.snapshot_id == bindparam("wanted"))

SELECT_SNAPSHOT_AT = (
    _history_row.where(snapshots.c.timestamp_ms <= bindparam("at_ms")).order_by(snapshots.c.seq.desc()).limit(1)
)

INSERT_ANSWER = insert(idempotency)

SELECT_ANSWER = select(
    idempotency.c.key,
    idempotency.c.scope,
    idempotency.c.request_sha256,
    idempotency.c.status,
    idempotency.c.body,
    idempotency.c.created_at_ms,
).where(idempotency.c.key == bindparam("wanted_key"), idempotency.c.scope == bindparam("wanted_scope"))

DELETE_ANSWERS = delete(idempotency).where(idempotency.c.created_at_ms < bindparam("before_ms"))
