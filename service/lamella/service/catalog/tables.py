"""The catalog's tables, as SQLAlchemy Core sees them. The migrations create them; a test holds the two together.

Dropping a namespace or a table sets ``dropped_at_ms``, and names are unique among the rows where it is null. With
``doomed_at_ms`` a table cannot be undropped any more, since files may be missing; once they are gone, so is its row.
Times are Unix milliseconds. Pointers, properties and answers are JSON text.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
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
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

namespaces = Table(
    "namespaces",
    metadata,
    Column("namespace_id", Integer, primary_key=True, autoincrement=True),
    Column("name", String(128), nullable=False),
    Column("properties", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
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
    Column("table_id", String(36), primary_key=True),
    Column("namespace_id", Integer, ForeignKey("namespaces.namespace_id"), nullable=False),
    Column("name", String(128), nullable=False),
    Column("location", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("pointer", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("dropped_at_ms", BigInteger),
    Column("doomed_at_ms", BigInteger),
    Index(
        "uq_tables_live_name",
        "namespace_id",
        "name",
        unique=True,
        sqlite_where=text("dropped_at_ms IS NULL"),
        postgresql_where=text("dropped_at_ms IS NULL"),
    ),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("table_id", String(36), ForeignKey("tables.table_id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("snapshot_id", String(36), nullable=False),
    Column("prev_snapshot_id", String(36)),
    Column("timestamp_ms", BigInteger, nullable=False),
    Column("operation", String(64), nullable=False),
    Column("row_count", BigInteger, nullable=False),
    Column("block_count", BigInteger, nullable=False),
    Column("segment_count", BigInteger, nullable=False),
    Column("file_size_bytes", BigInteger, nullable=False),
    Column("pointer", Text, nullable=False),
    Column("until_ms", BigInteger),
    UniqueConstraint("table_id", "snapshot_id"),
    Index("ix_snapshots_table_id_timestamp_ms", "table_id", "timestamp_ms"),
)

tags = Table(
    "tags",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
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
    Column("created_at_ms", BigInteger, nullable=False),
    Index("ix_idempotency_created_at_ms", "created_at_ms"),
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

#: A lease names a snapshot; the key keeps the snapshot's row from going while the lease's row is there.
leases = Table(
    "leases",
    metadata,
    Column("lease_id", String(36), primary_key=True),
    Column("table_id", String(36), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("owner", String(255), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    ForeignKeyConstraint(["table_id", "seq"], ["snapshots.table_id", "snapshots.seq"], name="fk_leases_table_id_seq"),
    Index("ix_leases_table_id_seq", "table_id", "seq"),
)

#: Objects that a clean-up has decided to delete and may not have deleted yet. No commit may add a file among them.
condemned = Table(
    "condemned",
    metadata,
    Column("location", Text, primary_key=True),
    Column("table_id", String(36), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("condemned_at_ms", BigInteger, nullable=False),
    Index("ix_condemned_table_id", "table_id"),
)

#: How far deletions have gone, by table, and for files outside of tables ("*"). ``epoch`` grows when blocks are
#: condemned; ``watermark_ms`` is the newest name time of what else was.
sweeps = Table(
    "sweeps",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("watermark_ms", BigInteger, nullable=False),
)

#: Filters that were asked, each once.
recorded = Table(
    "recorded",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("digest", String(32), primary_key=True),
    Column("mode", String(8), nullable=False),
    Column("tree", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("time_zone", String(64), nullable=False),
    Column("times", BigInteger, nullable=False),
    Column("considered", BigInteger, nullable=False),
    Column("kept", BigInteger, nullable=False),
    Column("kept_bytes", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("first_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
)

#: What readers reported: blocks (their keys, 16 bytes each) that held no row for a filter.
feedback = Table(
    "feedback",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("question", String(32), primary_key=True),
    Column("asked", Text, nullable=False),
    Column("schema_id", Integer, nullable=False),
    Column("blocks", LargeBinary, nullable=False),
    Column("block_count", Integer, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("used_at_ms", BigInteger, nullable=False),
)
