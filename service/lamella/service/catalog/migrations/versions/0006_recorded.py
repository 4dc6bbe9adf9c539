"""Filters that were asked, for advice."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "recorded",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("mode", sa.String(8), nullable=False),
        sa.Column("tree", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.String(64), nullable=False),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.Column("considered", sa.BigInteger(), nullable=False),
        sa.Column("kept", sa.BigInteger(), nullable=False),
        sa.Column("kept_bytes", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("first_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
    )
