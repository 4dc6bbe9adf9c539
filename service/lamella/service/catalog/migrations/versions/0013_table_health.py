"""The measured health of tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "table_health",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("measured_ms", sa.BigInteger(), nullable=False),
        sa.Column("health", sa.Text(), nullable=False),
    )
