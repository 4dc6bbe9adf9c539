"""The ledger of automatic upkeep."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "auto_actions",
        sa.Column("action_id", sa.String(36), primary_key=True),
        sa.Column("table_id", sa.String(36), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("runner", sa.String(36), nullable=False),
        sa.Column("lease_expires_ms", sa.BigInteger()),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("filters", sa.Text(), nullable=False),
    )
    op.create_index("ix_auto_actions_table_id", "auto_actions", ["table_id", "started_ms"])
