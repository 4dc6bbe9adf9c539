"""Branches of tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.add_column("tables", sa.Column("branch_of", sa.String(36)))
    op.add_column("tables", sa.Column("fork_seq", sa.BigInteger()))
    op.add_column("tables", sa.Column("max_idle_ms", sa.BigInteger()))
    op.create_index("ix_tables_branch_of", "tables", ["branch_of"])
