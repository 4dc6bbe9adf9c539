"""Views."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward. There is no way back: restore a backup instead."""
    op.create_table(
        "views",
        sa.Column("view_id", sa.String(36), primary_key=True),
        sa.Column("namespace_id", sa.Integer(), sa.ForeignKey("namespaces.namespace_id"), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger(), nullable=False),
    )
    op.create_index("uq_views_namespace_id_name", "views", ["namespace_id", "name"], unique=True)
