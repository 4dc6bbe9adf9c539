"""Namespaces, tables, the history of snapshots, and answers to replay."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "namespaces",
        sa.Column("namespace_id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("properties", sa.Text(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("dropped_at_ms", sa.BigInteger()),
    )
    _index_live_names("uq_namespaces_live_name", "namespaces", ["name"])
    op.create_table(
        "tables",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("namespace_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("pointer", sa.Text(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("dropped_at_ms", sa.BigInteger()),
        sa.ForeignKeyConstraint(["namespace_id"], ["namespaces.namespace_id"], name="fk_tables_namespace_id"),
    )
    _index_live_names("uq_tables_live_name", "tables", ["namespace_id", "name"])
    op.create_table(
        "snapshots",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("snapshot_id", sa.String(36), nullable=False),
        sa.Column("prev_snapshot_id", sa.String(36)),
        sa.Column("timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("block_count", sa.BigInteger(), nullable=False),
        sa.Column("segment_count", sa.BigInteger(), nullable=False),
        sa.Column("file_size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("pointer", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["tables.table_id"], name="fk_snapshots_table_id"),
        sa.UniqueConstraint("table_id", "snapshot_id", name="uq_snapshots_table_id_snapshot_id"),
    )
    op.create_index("ix_snapshots_table_id_timestamp_ms", "snapshots", ["table_id", "timestamp_ms"])
    op.create_table(
        "idempotency",
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("scope", sa.String(600), primary_key=True),
        sa.Column("request_sha256", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_idempotency_created_at_ms", "idempotency", ["created_at_ms"])


def _index_live_names(index: str, table: str, columns: list[str]) -> None:
    live = sa.text("dropped_at_ms IS NULL")
    op.create_index(index, table, columns, unique=True, sqlite_where=live, postgresql_where=live)
