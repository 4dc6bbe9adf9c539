"""Tags, tables that can be undropped, and gaps that expired snapshots leave in a history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.add_column("tables", sa.Column("doomed_at_ms", sa.BigInteger()))
    op.add_column("snapshots", sa.Column("until_ms", sa.BigInteger()))
    op.create_table(
        "tags",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["table_id", "seq"], ["snapshots.table_id", "snapshots.seq"], name="fk_tags_table_id_seq"
        ),
    )
    op.create_index("ix_tags_table_id_seq", "tags", ["table_id", "seq"])
