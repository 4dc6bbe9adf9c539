"""The catalog's tables in SQLAlchemy Core, and every statement on them, built once.

Dropping a namespace or a table sets ``dropped_at_ms``; names are unique among the rows where it is null. A table with
``doomed_at_ms`` cannot be undropped any more, since files may be missing. Once its files are deleted, so is its row.
A branch is a row of ``tables`` with ``branch_of``, the id of its table. Its name is ``table@branch``, its location that
of the table, and its history begins with the snapshot that it was created from, whose number is ``fork_seq``.
Times are Unix milliseconds. Pointers, properties and answers are JSON text.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    func,
    insert,
    select,
    text,
    tuple_,
    update,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _table_id() -> Column[str]:
    """A column with the id of a table, part of the primary key."""
    return Column("table_id", String(36), primary_key=True)


def _number(name: str) -> Column[int]:
    """A number column that is never null."""
    return Column(name, BigInteger, nullable=False)


def _text(name: str) -> Column[str]:
    """A text column of any length that is never null."""
    return Column(name, Text, nullable=False)


namespaces = Table(
    "namespaces",
    metadata,
    Column("namespace_id", Integer, primary_key=True, autoincrement=True),
    Column("name", String(128), nullable=False),
    _text("properties"),
    _number("created_at_ms"),
    Column("dropped_at_ms", BigInteger),
    Index(
        "uq_namespaces_live_name",
        "name",
        unique=True,
        sqlite_where=text("dropped_at_ms IS NULL"),
        postgresql_where=text("dropped_at_ms IS NULL"),
    ),
)

tables = Table(
    "tables",
    metadata,
    _table_id(),
    Column("namespace_id", Integer, ForeignKey("namespaces.namespace_id"), nullable=False),
    Column("name", String(128), nullable=False),
    _text("location"),
    _number("version"),
    _text("pointer"),
    _number("created_at_ms"),
    Column("dropped_at_ms", BigInteger),
    Column("doomed_at_ms", BigInteger),
    Column("branch_of", String(36)),
    Column("fork_seq", BigInteger),
    Column("max_idle_ms", BigInteger),
    Index("ix_tables_branch_of", "branch_of"),
    Index(
        "uq_tables_live_name",
        "namespace_id",
        "name",
        unique=True,
        sqlite_where=text("dropped_at_ms IS NULL"),
        postgresql_where=text("dropped_at_ms IS NULL"),
    ),
)

#: Queries under a name. ``definition`` is JSON. A table of the namespace never has the same name.
views = Table(
    "views",
    metadata,
    Column("view_id", String(36), primary_key=True),
    Column("namespace_id", Integer, ForeignKey("namespaces.namespace_id"), nullable=False),
    Column("name", String(128), nullable=False),
    _text("definition"),
    Column("owner", String(255), nullable=False),
    _number("version"),
    _number("created_at_ms"),
    _number("updated_at_ms"),
    Index("uq_views_namespace_id_name", "namespace_id", "name", unique=True),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("table_id", String(36), ForeignKey("tables.table_id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("snapshot_id", String(36), nullable=False),
    Column("prev_snapshot_id", String(36)),
    _number("timestamp_ms"),
    Column("operation", String(64), nullable=False),
    _number("row_count"),
    _number("block_count"),
    _number("segment_count"),
    _number("file_size_bytes"),
    _text("pointer"),
    Column("until_ms", BigInteger),
    UniqueConstraint("table_id", "snapshot_id"),
    Index("ix_snapshots_table_id_timestamp_ms", "table_id", "timestamp_ms"),
)

tags = Table(
    "tags",
    metadata,
    _table_id(),
    Column("name", String(128), primary_key=True),
    _number("seq"),
    _number("created_at_ms"),
    Column("expires_at_ms", BigInteger),
    ForeignKeyConstraint(["table_id", "seq"], ["snapshots.table_id", "snapshots.seq"], name="fk_tags_table_id_seq"),
    Index("ix_tags_table_id_seq", "table_id", "seq"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("key", String(255), primary_key=True),
    Column("scope", String(600), primary_key=True),
    Column("request_sha256", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    _number("created_at_ms"),
    Index("ix_idempotency_created_at_ms", "created_at_ms"),
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

#: A lease names a snapshot; the foreign key keeps the snapshot's row while the lease's row exists.
leases = Table(
    "leases",
    metadata,
    Column("lease_id", String(36), primary_key=True),
    Column("table_id", String(36), nullable=False),
    _number("seq"),
    Column("owner", String(255), nullable=False),
    _number("created_at_ms"),
    _number("expires_at_ms"),
    ForeignKeyConstraint(["table_id", "seq"], ["snapshots.table_id", "snapshots.seq"], name="fk_leases_table_id_seq"),
    Index("ix_leases_table_id_seq", "table_id", "seq"),
)

#: Objects that a clean-up decided to delete and may not have deleted yet. No commit may add one of these files.
deletion_marks = Table(
    "condemned",
    metadata,
    Column("location", Text, primary_key=True),
    _table_id(),
    Column("kind", String(16), nullable=False),
    _number("size_bytes"),
    Column("condemned_at_ms", BigInteger, nullable=False, key="marked_at_ms"),
    Index("ix_condemned_table_id", "table_id"),
)

#: Progress of deletions, by table, and for files outside of tables ("*"). ``epoch`` grows when blocks are condemned;
#: ``watermark_ms`` is the latest time in the names of the other condemned objects.
sweeps = Table(
    "sweeps",
    metadata,
    _table_id(),
    _number("epoch"),
    _number("watermark_ms"),
)

#: Filters that queries used, each stored once.
recorded = Table(
    "recorded",
    metadata,
    _table_id(),
    Column("digest", String(32), primary_key=True),
    Column("mode", String(8), nullable=False),
    _text("tree"),
    _text("text"),
    Column("time_zone", String(64), nullable=False),
    _number("times"),
    _number("considered"),
    _number("kept"),
    _number("kept_bytes"),
    _number("size_bytes"),
    _number("first_ms"),
    _number("last_ms"),
)

#: What readers reported: blocks (their keys, 16 bytes each) without a row for a filter.
feedback = Table(
    "feedback",
    metadata,
    _table_id(),
    Column("question", String(32), primary_key=True),
    Column("asked", Text, nullable=False, key="filter_json"),
    Column("schema_id", Integer, nullable=False),
    Column("blocks", LargeBinary, nullable=False),
    Column("block_count", Integer, nullable=False),
    _number("size_bytes"),
    _number("used_at_ms"),
)

#: Maintenance jobs. A job is pending while ``finished_ms`` is null. Constraints ensure that a table has at most one
#: running job, that no two jobs are claimed by one token, and that no two pending jobs have the same ``twin``.
jobs = Table(
    "jobs",
    metadata,
    Column("job_id", String(36), primary_key=True),
    Column("table_id", String(36)),
    Column("namespace", String(128)),
    Column("table_name", String(128)),
    Column("kind", String(64), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("origin", String(16), nullable=False),
    Column("origin_name", String(255)),
    Column("priority", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("timeout_s", Integer),
    Column("not_before_ms", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("heartbeat_ms", BigInteger),
    Column("worker", String(255)),
    Column("lease_token", String(36)),
    Column("lease_expires_ms", BigInteger),
    Column("cancel_requested", Boolean, nullable=False),
    Column("progress", Text),
    Column("checkpoint", Text),
    Column("result", Text),
    Column("error", Text),
    Column("twin", String(64)),
    Column("log_lines", BigInteger, nullable=False),
    Index("ix_jobs_state_lease_expires_ms", "state", "lease_expires_ms"),
    Index("ix_jobs_finished_ms", "finished_ms"),
    Index("ix_jobs_table_id", "table_id"),
    Index("uq_jobs_lease_token", "lease_token", unique=True),
    Index(
        "uq_jobs_running_table",
        "table_id",
        unique=True,
        sqlite_where=text("state = 'running'"),
        postgresql_where=text("state = 'running'"),
    ),
    Index(
        "uq_jobs_pending_twin",
        "twin",
        unique=True,
        sqlite_where=text("finished_ms IS NULL"),
        postgresql_where=text("finished_ms IS NULL"),
    ),
)

#: Log lines of jobs; only the last ones of each job are stored.
job_log = Table(
    "job_log",
    metadata,
    Column("job_id", String(36), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("level", String(16), nullable=False),
    Column("text", Text, nullable=False),
)

#: Schedules, which add jobs at set times. ``next_ms`` is null for a disabled one.
schedules = Table(
    "schedules",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("kind", String(64), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("every_s", BigInteger),
    Column("cron", String(255)),
    Column("time_zone", String(64), nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("max_attempts", Integer),
    Column("timeout_s", Integer),
    Column("created_ms", BigInteger, nullable=False),
    Column("next_ms", BigInteger),
    Column("last_ms", BigInteger),
    Column("last_job_id", String(36)),
    Index("ix_schedules_next_ms", "next_ms"),
)

#: Policies, which add jobs when a table needs them. ``checked_ms``: the last check, 0 before the first; ``fired``: by
#: rule, when it last requested a job.
policies = Table(
    "policies",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("policy", Text, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("checked_ms", BigInteger, nullable=False),
    Column("findings", Text, nullable=False),
    Column("fired", Text, nullable=False),
    Index("ix_policies_checked_ms", "checked_ms"),
)

#: What automatic upkeep did to tables. ``action``: as JSON; ``filters``: those that it was decided by. ``runner``: who
#: does it, and ``lease_expires_ms`` until when it is theirs alone; null: it has ended.
auto_actions = Table(
    "auto_actions",
    metadata,
    Column("action_id", String(36), primary_key=True),
    Column("table_id", String(36), nullable=False),
    _number("started_ms"),
    Column("runner", String(36), nullable=False),
    Column("lease_expires_ms", BigInteger),
    _text("action"),
    _text("filters"),
    Index("ix_auto_actions_table_id", "table_id", "started_ms"),
)

#: What prunes considered and kept, by table, summed over five minutes each. Bytes are floating point: the sums of many
#: prunes of a large table do not fit into 64-bit integers.
prune_rates = Table(
    "prune_rates",
    metadata,
    _table_id(),
    Column("bucket_ms", BigInteger, primary_key=True, autoincrement=False),
    _number("prunes"),
    _number("considered_blocks"),
    _number("kept_blocks"),
    Column("bytes_total", Double, nullable=False),
    Column("kept_bytes", Double, nullable=False),
    Column("ms", Double, nullable=False),
    Index("ix_prune_rates_bucket_ms", "bucket_ms"),
)

#: The last measured health of each table, as JSON, and the version of the table that it is of.
table_health = Table(
    "table_health",
    metadata,
    _table_id(),
    _number("version"),
    _number("measured_ms"),
    _text("health"),
)

#: What the service did in periods, by the names of sums.
service_rates = Table(
    "service_rates",
    metadata,
    Column("bucket_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("name", String(64), primary_key=True),
    Column("total", Double, nullable=False),
)

#: Requested changes. Ids are made from the time, so they sort by time.
audit = Table(
    "audit",
    metadata,
    Column("audit_id", String(36), primary_key=True),
    _number("at_ms"),
    Column("actor", String(255), nullable=False),
    Column("client", String(255), nullable=False),
    Column("operation", String(64), nullable=False),
    Column("target", String(300)),
    Column("status", Integer, nullable=False),
    Column("code", String(64)),
    Column("request_id", String(64), nullable=False),
    Column("snapshot_id", String(36)),
    Index("ix_audit_at_ms", "at_ms"),
    Index("ix_audit_snapshot_id", "snapshot_id"),
    Index("ix_audit_target_audit_id", "target", "audit_id"),
)

#: API keys by name. Only hashes of their texts are stored; the old one stays valid for a while after a rotation.
api_keys = Table(
    "api_keys",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("sha256", String(64), nullable=False),
    Column("old_sha256", String(64)),
    Column("old_until_ms", BigInteger),
    _number("created_ms"),
    Column("created_by", String(255), nullable=False),
    Column("expires_ms", BigInteger),
    Column("rotated_ms", BigInteger),
    Column("used_ms", BigInteger),
    Column("requests_per_s", Double),
    Index("ix_api_keys_sha256", "sha256", unique=True),
    Index("ix_api_keys_old_sha256", "old_sha256", unique=True),
)

#: Grants. An empty namespace or table name stands for all of them.
grants = Table(
    "grants",
    metadata,
    Column("principal", String(255), primary_key=True),
    Column("namespace", String(128), primary_key=True),
    Column("table_name", String(128), primary_key=True),
    Column("role", String(16), nullable=False),
    _number("created_ms"),
    Column("created_by", String(255), nullable=False),
)


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

#: Keeps the namespace from being dropped while a table is added to it.
SHARE_NAMESPACE = SELECT_NAMESPACE.with_for_update(read=True)

#: Keeps tables from being added to the namespace while it is dropped.
LOCK_NAMESPACE = SELECT_NAMESPACE.with_for_update()

is_main = tables.c.branch_of.is_(None)

COUNT_TABLES = (
    select(func.count())
    .select_from(tables)
    .where(_live_table, is_main, tables.c.namespace_id == bindparam("in_namespace_id"))
)

COUNT_VIEWS = select(func.count()).select_from(views).where(views.c.namespace_id == bindparam("in_namespace_id"))

SELECT_VIEW_ID = select(views.c.view_id).where(
    views.c.namespace_id == bindparam("in_namespace_id"), views.c.name == bindparam("view")
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
    .where(_live_table, is_main, tables.c.namespace_id == bindparam("in_namespace_id"))
    .order_by(tables.c.name)
)

SELECT_SOME_NAMESPACES = (
    select(namespaces.c.name).where(_live_namespace).order_by(namespaces.c.name).limit(bindparam("rows"))
)

SELECT_SOME_TABLES = (
    select(tables.c.name)
    .join_from(tables, namespaces)
    .where(_live_table, _live_namespace, is_main, namespaces.c.name == bindparam("namespace"))
    .order_by(tables.c.name)
    .limit(bindparam("rows"))
)

table_row = select(
    tables.c.table_id,
    namespaces.c.name.label("namespace"),
    tables.c.name,
    tables.c.location,
    tables.c.version,
    tables.c.pointer,
    tables.c.created_at_ms,
    tables.c.branch_of,
).join_from(tables, namespaces)

SELECT_TABLE = table_row.where(
    _live_table,
    _live_namespace,
    namespaces.c.name == bindparam("namespace"),
    tables.c.name == bindparam("table"),
)

#: One statement, which sees the database at one moment. The names alone are found by indexes.
SELECT_NAMED_TABLES = table_row.where(
    _live_table,
    _live_namespace,
    namespaces.c.name.in_(bindparam("namespaces", expanding=True)),
    tables.c.name.in_(bindparam("tables", expanding=True)),
    tuple_(namespaces.c.name, tables.c.name).in_(bindparam("names", expanding=True)),
)

SELECT_TABLE_BY_ID = table_row.where(_live_table, tables.c.table_id == bindparam("id"))

SELECT_TABLES_BY_ID = table_row.where(_live_table, tables.c.table_id.in_(bindparam("ids", expanding=True)))

#: ``removal_scheduled``: the time if the table must not be undropped, otherwise None.
DROP_TABLE = (
    update(tables)
    .where(_live_table, tables.c.table_id == bindparam("id"))
    .values(dropped_at_ms=bindparam("now_ms"), doomed_at_ms=bindparam("doomed"))
)

#: Only if there was no commit since.
DROP_TABLE_AT = DROP_TABLE.where(tables.c.version == bindparam("at_version"))

#: Drops the branches of a table together with it.
DROP_BRANCHES = (
    update(tables)
    .where(_live_table, tables.c.branch_of == bindparam("id"))
    .values(dropped_at_ms=bindparam("now_ms"), doomed_at_ms=bindparam("doomed"))
)

_branch_row = (
    select(tables.c.table_id, tables.c.name).where(tables.c.branch_of == bindparam("id")).order_by(tables.c.table_id)
)

LIVE_BRANCHES = _branch_row.where(_live_table)

#: Branches that were dropped by the same statement as their table.
BRANCHES_DROPPED_WITH = _branch_row.where(tables.c.dropped_at_ms == bindparam("at_ms"))

ALL_BRANCHES = select(tables.c.table_id).where(tables.c.branch_of == bindparam("id")).order_by(tables.c.table_id)

SCHEDULE_BRANCHES = (
    update(tables)
    .where(tables.c.branch_of == bindparam("id"))
    .values(doomed_at_ms=func.coalesce(tables.c.doomed_at_ms, bindparam("now_ms")))
)

#: Gives a branch the name that follows from that of its table, and makes it live.
NAME_BRANCH = (
    update(tables)
    .where(tables.c.table_id == bindparam("id"))
    .values(namespace_id=bindparam("to_namespace_id"), name=bindparam("to_name"), dropped_at_ms=None)
)

#: Only if it still has the name that was read.
RENAME_TABLE = (
    update(tables)
    .where(
        _live_table,
        tables.c.table_id == bindparam("id"),
        tables.c.namespace_id == bindparam("of_namespace_id"),
        tables.c.name == bindparam("of_name"),
    )
    .values(namespace_id=bindparam("to_namespace_id"), name=bindparam("to_name"))
)

#: The swap that makes a commit visible: it changes no row if another commit came first.
SWAP_POINTER = (
    update(tables)
    .where(_live_table, tables.c.table_id == bindparam("id"), tables.c.version == bindparam("expected_version"))
    .values(version=bindparam("next_version"), pointer=bindparam("next_pointer"))
)

INSERT_SNAPSHOT = insert(snapshots)

history_row = select(
    snapshots.c.table_id,
    snapshots.c.seq,
    snapshots.c.prev_snapshot_id,
    snapshots.c.operation,
    snapshots.c.row_count,
    snapshots.c.block_count,
    snapshots.c.segment_count,
    snapshots.c.file_size_bytes,
    snapshots.c.pointer,
    snapshots.c.until_ms,
    snapshots.c.timestamp_ms.label("since_ms"),
)
own_history = history_row.where(snapshots.c.table_id == bindparam("id"))

SELECT_HISTORY = (
    own_history.where(snapshots.c.seq < bindparam("before_seq"))
    .order_by(snapshots.c.seq.desc())
    .limit(bindparam("rows"))
)

SELECT_SNAPSHOT = own_history.where(snapshots.c.snapshot_id == bindparam("wanted"))

SELECT_NUMBERED = own_history.where(snapshots.c.seq == bindparam("number"))

SELECT_SNAPSHOT_AT = (
    own_history.where(snapshots.c.timestamp_ms <= bindparam("at_ms")).order_by(snapshots.c.seq.desc()).limit(1)
)

#: Whether a snapshot is still in the history. The transaction holds the lock on the table's row.
SELECT_IN_HISTORY = select(snapshots.c.seq).where(
    snapshots.c.table_id == bindparam("id"), snapshots.c.seq == bindparam("wanted_seq")
)

#: The length of a table's history, and how much of it is left.
SELECT_EXTENT = (
    select(
        tables.c.created_at_ms,
        tables.c.version,
        select(func.count())
        .select_from(snapshots)
        .where(snapshots.c.table_id == tables.c.table_id)
        .scalar_subquery()
        .label("history_length"),
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
