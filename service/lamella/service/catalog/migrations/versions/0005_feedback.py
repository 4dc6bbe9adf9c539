"""What readers reported: blocks that held no row for a filter."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "feedback",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("question", sa.String(32), primary_key=True),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("schema_id", sa.Integer(), nullable=False),
        sa.Column("blocks", sa.LargeBinary(), nullable=False),
        sa.Column("block_count", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("used_at_ms", sa.BigInteger(), nullable=False),
    )
