"""Leases of snapshots, objects that are being deleted, and how far deletions have gone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "leases",
        sa.Column("lease_id", sa.String(36), primary_key=True),
        sa.Column("table_id", sa.String(36), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_id", "seq"], ["snapshots.table_id", "snapshots.seq"], name="fk_leases_table_id_seq"
        ),
    )
    op.create_index("ix_leases_table_id_seq", "leases", ["table_id", "seq"])
    op.create_table(
        "condemned",
        sa.Column("location", sa.Text(), primary_key=True),
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("condemned_at_ms", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_condemned_table_id", "condemned", ["table_id"])
    sweeps = op.create_table(
        "sweeps",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("watermark_ms", sa.BigInteger(), nullable=False),
    )
    op.bulk_insert(sweeps, [{"table_id": "*", "epoch": 0, "watermark_ms": 0}])
