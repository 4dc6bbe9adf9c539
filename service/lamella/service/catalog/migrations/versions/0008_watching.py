"""Prune rates, and the audit trail."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "prune_rates",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("bucket_ms", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("prunes", sa.BigInteger(), nullable=False),
        sa.Column("considered_blocks", sa.BigInteger(), nullable=False),
        sa.Column("kept_blocks", sa.BigInteger(), nullable=False),
        sa.Column("bytes_total", sa.Double(), nullable=False),
        sa.Column("kept_bytes", sa.Double(), nullable=False),
        sa.Column("ms", sa.Double(), nullable=False),
    )
    op.create_index("ix_prune_rates_bucket_ms", "prune_rates", ["bucket_ms"])
    op.create_table(
        "audit",
        sa.Column("audit_id", sa.String(36), primary_key=True),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("client", sa.String(255), nullable=False),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("target", sa.String(300)),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("code", sa.String(64)),
        sa.Column("request_id", sa.String(64), nullable=False),
    )
    op.create_index("ix_audit_at_ms", "audit", ["at_ms"])
    op.create_index("ix_audit_target_audit_id", "audit", ["target", "audit_id"])
