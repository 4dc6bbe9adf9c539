"""Service rates."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "service_rates",
        sa.Column("bucket_ms", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("total", sa.Double(), nullable=False),
    )
